"""`lower`: a schedule of servers or of peers as a program for one compiled loop."""

from typing import Any

from sgdlab.peer_schedule import PeerSchedule
from sgdlab.replay.peer_program import PeerProgram, lower_peers
from sgdlab.replay.program import Capacity, Every, checked_limits
from sgdlab.replay.server_program import ServerProgram, lower_servers
from sgdlab.schedule import Schedule
from sgdlab.tasks.task import described


def lower(
    schedule: Schedule | PeerSchedule,
    *,
    capacity: Capacity | None = None,
    every: Every = None,
    width: int | None = None,
    by_worker: bool = False,
) -> ServerProgram | PeerProgram:
    """Lowers a schedule to a program: the slots each gradient reads and writes, and the gradients computed at once.

    Gradients that enter no update are left out. Slots are allocated like registers: a version of the parameters
    occupies one from the gradient that completes it to the last gradient computed on it. Synchronous runs need one slot
    and asynchronous ones at most N. A wave is a maximal sequence of gradients that read only versions made before it.

    Args:
      schedule: a `Schedule` of any number of blocks, or a `PeerSchedule`.
      capacity: least sizes to allocate, except the width, so that several programs share one compilation.
      every: gradients between two pauses, or a tuple of the numbers of gradients after which to pause. A pause is at
        the next complete update; at the gradient itself for peers, and if blocks use gradients in different orders.
        None: a pause at the end only.
      width: lanes of wave mode, the largest size of a wave. None: the largest power of two, up to the number of workers
        rounded up, for which at most 1.5 gradients are computed per gradient needed.
      by_worker: whether a wave has at most one gradient of each worker, which workers with a state of their own need.

    Returns:
      A `ServerProgram` or a `PeerProgram`; the sizes of its capacity are rounded up to powers of two, except a given
      width.

    Raises:
      ValueError: if `schedule` is not a schedule or has no gradient to replay, `every` or `width` is not a whole number
        of at least 1, the schedule has more blocks than can be compiled in reasonable time, or an event of peers does
        not average its node's newest parameters.

    Example:
      >>> import numpy as np
      >>> from sgdlab import protocols
      >>> program = lower(protocols.asynchronous(np.array([[2.0, 3.0], [2.0, 3.0], [2.0, 3.0]])))
      >>> program.load.T, program.store.T, program.waves
      (array([[0, 0, 1, 0]], dtype=int32), array([[1, 0, 0, 0]], dtype=int32), array([0, 2, 3, 4], dtype=int32))
    """
    if not isinstance(schedule, Schedule | PeerSchedule):
        raise ValueError(
            "schedule must be a Schedule or a PeerSchedule, such as sgdlab.protocols.asynchronous(runtimes) returns; "
            f"it is {described(schedule)}"
        )
    checked_limits(every, width)
    make: Any = lower_peers if isinstance(schedule, PeerSchedule) else lower_servers
    return make(schedule, capacity=capacity, every=every, width=width, by_worker=by_worker)
