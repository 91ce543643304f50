"""`register`, by which a policy of one's own becomes a part: a protocol in simulation, and one for real processes."""

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

import numpy as np

from sgdlab.peer_schedule import PeerSchedule
from sgdlab.policies import own_policies
from sgdlab.policies.family import POLICIES
from sgdlab.policies.simulate import simulate
from sgdlab.policies.simulate_peers import simulate_peers
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.schedule import Schedule


def register(
    name: str | None = None, *, title: str, source: str = "", rule: str | None = None, **facts: Any
) -> Callable:
    """Decorates a maker of policies, or a policy's class: it becomes a protocol, without an array program.

    A maker takes by keyword what a run gives it (`num_workers`, `predictor`, `seed`, those that it names), and its own
    entries, which have defaults, become `config.protocol.<name>.<entry>`.

    Args:
      name: what configurations call it; by default its own name.
      title: the field's name for it.
      source: where it is described.
      rule: what the server does with its gradients where a method names the protocol alone, such as "asgd" or, for
        several gradients an update, "nag_asgd"; None makes no such method.
      **facts: what tables ask of protocols, such as `families`; `peers=True` if it is a `PeerPolicy`.

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
      ...     '''An update waits for gradients of so many different workers, of any age.
      ...
      ...     Attributes:
      ...       size: so many.
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
        called = name or make.__name__
        own_policies.check(make)
        protocol = _protocol(make, peers=facts.get("peers", False))
        PROTOCOLS.register(called, title=title, source=source, rule=rule, **facts)(protocol)
        POLICIES.register(called, title=title, source=source, rule=rule, **facts)(make)
        return make

    return decorate


def forget(name: str) -> None:
    """Removes what `register` made, such as a policy of a notebook that has another name now.

    Raises:
      UsageError: where there is no such policy.
    """
    POLICIES.forget(name)
    PROTOCOLS.forget(name)


def _protocol(make: Callable, *, peers: bool = False) -> Callable[..., Schedule | PeerSchedule]:
    """The policy on a virtual clock, with the maker's name, documentation and entries."""
    parameters = inspect.signature(make).parameters
    by_simulation = ("num_workers", "num_gradients") if peers else ("num_workers",)
    own = {key: parameter for key, parameter in parameters.items() if key not in by_simulation}
    hints = typing.get_type_hints(make.__init__ if isinstance(make, type) else make)

    def protocol(runtimes: np.ndarray, *, num_gradients: int | None = None, **given: Any) -> Schedule | PeerSchedule:
        if peers:
            return simulate_peers(functools.partial(make, **given), runtimes, num_gradients=num_gradients)
        predictor = given.get("predictor")
        if predictor is not None and not hasattr(predictor, "start"):
            given["predictor"] = predictor(runtimes)

        def make_policy(*, num_workers: int) -> Any:
            return make(**given, **({"num_workers": num_workers} if "num_workers" in parameters else {}))

        return simulate(make_policy, runtimes, num_gradients=num_gradients)

    of_simulation = list(inspect.signature(protocol).parameters.values())[:2]
    by_keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own.values()]
    result = PeerSchedule if peers else Schedule
    # pyrefly: ignore[missing-attribute]  # `inspect.signature` looks for it
    protocol.__signature__ = inspect.Signature([*of_simulation, *by_keyword], return_annotation=result)
    protocol.__annotations__ = {key: hints[key] for key in own if key in hints}
    # pyrefly: ignore[missing-attribute]  # the same
    protocol.__wrapped__ = make  # whose code is that of the part
    protocol.__name__, protocol.__qualname__ = make.__name__, make.__qualname__
    protocol.__module__, protocol.__doc__ = make.__module__, inspect.getdoc(make)
    return protocol
