"""`simulate`, a policy on a virtual clock: every policy is a protocol."""

from collections.abc import Callable

import numpy as np

from sgdlab import arguments
from sgdlab.failures.outages import Outages
from sgdlab.protocols.costly_run import CostlyRun, is_free
from sgdlab.protocols.policy import Policy
from sgdlab.protocols.policy_run import PolicyRun
from sgdlab.runtimes import NotEnoughRuntimes, checked
from sgdlab.schedule import Schedule
from sgdlab.transports.star import Star


def simulate(
    make_policy: Callable[..., Policy],
    runtimes: np.ndarray,
    *,
    num_gradients: int | None = None,
    num_updates: int | None = None,
    idle_at_end: bool = False,
    transport: Star | None = None,
    outages: Outages | None = None,
) -> Schedule:
    """Return the schedule of a policy on given compute times: that of `protocols`, for the policies of sgdlab.

    Gradients that come at one instant come by worker number, a timer of that instant before them. A gradient that is
    interrupted at the instant at which it began was not begun, and its compute time is the worker's next.

    Each protocol has its own meaning of `num_gradients=None`: those in rounds stop after T updates (`num_updates=T`
    here), `bounded_staleness` after all T N gradients (`idle_at_end=True`), the others as here.

    Args:
      make_policy: called with `num_workers`, N; it makes a new policy.
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      num_gradients: how many gradients to use; the run ends with the update that reaches this number. None: whole
        updates, until a worker that has to begin again runs out of compute times.
      num_updates: most updates that the run may have. None: any number.
      idle_at_end: whether a worker that runs out of compute times has done its work, rather than ends the run.
      transport: what messages, and the server's work, cost. None: nothing.
      outages: when workers, or the server, are down. None: never.

    Returns:
      A `Schedule`; interrupted gradients are dropped, and those in flight at the end are pending.

    Raises:
      ValueError: where compute times are not positive and finite, a number is below 1, the transport or the outages are
        of another number of workers, an all-reduce is to make updates of single gradients, the policy does what cannot
        be done, such as to begin a gradient of a busy worker, it gives up 1000 gradients for each worker in a row, or
        it asks for very many timers at one instant, or while no worker computes.
      NotEnoughRuntimes: (a ValueError) where compute times end first; it says how many rows would be enough.

    Example:
      >>> import functools
      >>> from sgdlab import policies, protocols
      >>> runtimes = np.array([[1.0, 1.5, 9.0], [1.0, 1.5, 1.0]])
      >>> policy = functools.partial(policies.timeout, at_least=1, seconds=1.0)
      >>> simulate(policy, runtimes, num_updates=2).applied[:, 0]
      array([2., 4.])
    """
    runtimes = checked(runtimes)
    for name, value in {"num_gradients": num_gradients, "num_updates": num_updates}.items():
        if value is not None:
            arguments.whole(name, value)
    rows, workers = runtimes.shape
    free = is_free(workers, transport, outages)

    def run_to(updates: int | None) -> PolicyRun:
        policy = make_policy(num_workers=workers)
        if transport is not None and transport.collective and policy.single:
            name = getattr(make_policy, "__name__", type(policy).__name__)
            raise ValueError(
                f"transport must be a star, and no all-reduce, with {name}: its updates have a single gradient"
            )
        given = policy, runtimes, num_gradients, updates, idle_at_end
        made = PolicyRun(*given) if free else CostlyRun(*given, transport or Star(latency=(0.0,) * workers), outages)
        made.until_it_ends()
        return made

    run = run_to(num_updates)
    if num_gradients is None and run.applied and run.ran_out:
        run = run_to(len(run.applied))  # whole updates, and what is in flight at the last one
    if run.used < (num_gradients or 1):
        if not (run.ran_out or run.exhausted or len(run.applied) == num_updates):
            raise ValueError(
                f"{run.name} lets all workers wait after {run.used} gradients in {len(run.applied)} updates; one must "
                "begin"
            )
        raise NotEnoughRuntimes.after(num_gradients or workers, rows=rows, done=run.used, spare=True)
    return run.schedule()
