"""`register`, by which a maker of policies becomes a protocol: in simulation, and for real processes."""

import inspect
import typing
from collections.abc import Callable
from typing import Any

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import bounded
from sgdlab.failures.outages import Outages
from sgdlab.failures.rollback import rolled_back
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.protocols import fast_star, own_policies
from sgdlab.protocols.costly_run import is_free
from sgdlab.protocols.family import PROTOCOLS, ProtocolFacts
from sgdlab.protocols.in_seconds import in_seconds
from sgdlab.protocols.simulate import simulate
from sgdlab.protocols.simulate_peers import simulate_peers
from sgdlab.runtimes import checked
from sgdlab.schedule import Schedule
from sgdlab.transports.star import Star


def register(
    name: str | None = None,
    *,
    title: str,
    source: str = "",
    rule: str | None = None,
    fast: Callable | None = None,
    **facts: Any,
) -> Callable:
    """Decorates a maker of policies, or a policy's class: it becomes a protocol.

    A maker takes by keyword what a run gives it (`num_workers`, `predictor`, `seed`, those that it names), and its own
    entries, which have defaults, become `config.protocol.<name>.<entry>`.

    Args:
      name: what configurations call it; by default its own name.
      title: the field's name for it.
      source: where it is described.
      rule: what the server does with its gradients where a method names the protocol alone, such as "asgd" or, for
        several gradients an update, "nag_asgd"; None makes no such method.
      fast: an array program that makes the same schedules many times faster, `(policy, runtimes, num_gradients)`; it
        returns None where it does not apply.
      **facts: what else `ProtocolFacts` knows, such as `families`; `peers=True` if it is a `PeerPolicy`.

    Returns:
      The decorator; what it decorates stays what it is.

    Raises:
      ValueError: where the name is taken, an argument is neither given by runs nor has a default, or a class has no
        `arrival`, a method that does not take what it is given, or a list that all runs would share.

    Example:
      >>> import dataclasses
      >>> from sgdlab import policies
      >>> @policies.register(title="Pairs of workers", rule="nag_asgd")
      ... @dataclasses.dataclass
      ... class pairs(policies.Base):
      ...     '''Every update averages gradients of several different workers, of any age.
      ...
      ...     Attributes:
      ...       size: number of workers whose gradients an update has.
      ...     '''
      ...     size: int = 2
      ...     came: set[int] = dataclasses.field(default_factory=set, init=False)
      ...
      ...     def arrival(self, now, worker, version, seconds):
      ...         if worker in self.came:
      ...             return [policies.Drop(worker), *self.begin([worker])]
      ...         self.came.add(worker)
      ...         actions = [policies.Take(worker, self.version)]
      ...         if len(self.came) == self.size:
      ...             self.came = set()
      ...             actions.append(self.close())
      ...         return actions + self.begin([worker])
      >>> runtimes = np.array([[1.0, 1.5, 4.0]] * 4)
      >>> print(PROTOCOLS.make("pairs", {"size": 2}, runtimes=runtimes, num_gradients=4))
      Schedule: 3 workers, 2 updates from 4 gradients (1 dropped, 1 pending) in 3 s, mean staleness 0.25
      >>> policies.forget("pairs")
    """

    def decorate(make: Callable) -> Callable:
        make = bounded(make)
        called = name or make.__name__
        own_policies.check(make)
        protocol = as_protocol(
            make,
            fast=fast,
            peers=facts.get("peers", False),
            ends=facts.get("ends", ProtocolFacts.ends),
        )
        registered = PROTOCOLS.register(called, title=title, source=source, rule=rule, policy=make, fast=fast, **facts)
        registered(protocol)
        return make

    return decorate


def forget(name: str) -> None:
    """Removes what `register` made, such as a policy of a notebook that has another name now.

    Raises:
      UsageError: where there is no such policy.
    """
    PROTOCOLS.forget(name)


def as_protocol(
    make: Callable,
    *,
    fast: Callable | None = None,
    peers: bool = False,
    ends: str = "first",
) -> Callable[..., Schedule | PeerSchedule]:
    """Returns the protocol of a maker of policies, with the maker's name, documentation and entries.

    Arguments are the facts of `ProtocolFacts`; without `fast` the policy is simulated event by event.
    """
    parameters = inspect.signature(make).parameters
    by_simulation = ("num_workers", "num_gradients") if peers else ("num_workers",)
    own = {key: parameter for key, parameter in parameters.items() if key not in by_simulation}
    hints = typing.get_type_hints(make.__init__ if isinstance(make, type) else make)

    def protocol(
        runtimes: np.ndarray,
        *,
        num_gradients: int | None = None,
        transport: Star | None = None,
        outages: Outages | None = None,
        **given: Any,
    ) -> Schedule | PeerSchedule:
        runtimes = checked(runtimes)
        if peers and outages is not None:
            raise ValueError(f"outages must be left out with {make.__name__}: its nodes have no server")
        if outages is not None and outages.checkpoints is not None:
            whole: Any = protocol(runtimes, num_gradients=num_gradients, transport=transport, **given)
            return rolled_back(whole, outages.of_job(), outages.checkpoints)
        if num_gradients is not None:
            arguments.whole("num_gradients", num_gradients)
        predictor = given.get("predictor")
        if predictor is not None and not hasattr(predictor, "start"):
            given["predictor"] = predictor(runtimes)

        def make_policy(**by_driver: Any) -> Any:
            return make(**given, **{key: value for key, value in by_driver.items() if key in parameters})

        make_policy.__name__ = make.__name__
        free = is_free(runtimes.shape[1], transport, outages)
        if fast is not None and free:
            policy = make_policy(num_workers=runtimes.shape[1], num_gradients=num_gradients)
            schedule = fast(policy, runtimes, num_gradients)
            if schedule is not None:
                return schedule
        if peers:
            return simulate_peers(make_policy, runtimes, num_gradients=num_gradients, transport=transport)
        on_star = None if free else fast_star.program(make, transport, outages)
        if on_star is not None:
            return on_star(runtimes, transport, num_gradients)
        unlimited = num_gradients is None
        return simulate(
            make_policy,
            runtimes,
            num_gradients=num_gradients,
            num_updates=len(runtimes) if unlimited and ends == "rows" else None,
            idle_at_end=unlimited and ends == "all",
            transport=transport,
            outages=outages,
        )

    of_simulation = list(inspect.signature(protocol).parameters.values())[: 3 if peers else 4]
    by_keyword = [  # without bounds, which `make` checks
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints.get(key, parameter.annotation))
        for key, parameter in own.items()
    ]
    result = PeerSchedule if peers else Schedule
    # pyrefly: ignore[missing-attribute]  # `inspect.signature` looks for it
    protocol.__signature__ = inspect.Signature([*of_simulation, *by_keyword], return_annotation=result)
    protocol.__annotations__ = {key: hints[key] for key in own if key in hints}
    # pyrefly: ignore[missing-attribute]  # the same
    protocol.__wrapped__ = make  # whose code is that of the part
    protocol.__name__, protocol.__qualname__ = make.__name__, make.__qualname__
    protocol.__module__, protocol.__doc__ = make.__module__, inspect.getdoc(make)
    return in_seconds(protocol)
