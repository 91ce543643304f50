"""`Scenario`, what is done to a live run, and when: data for one driver."""

import pathlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

WORKERS = 4
NOTHING: Mapping[str, int] = MappingProxyType({})


class Step(NamedTuple):
    """One thing that is done.

    Attributes:
      act: what; a method of `acts.Acts`.
      workers: to whom.
      after: number of gradients that come before it, since the step before.
      seconds: least time before it, since the step before.
    """

    act: str
    workers: tuple[int, ...] = ()
    after: int = 0
    seconds: float = 0.0


class Scenario(NamedTuple):
    """Says what befalls the workers of a run.

    Attributes:
      name: what a reader calls it.
      policy: a name in `runs.POLICIES`.
      steps: what is done, one after the other.
      absent: workers that do not come before a step lets them.
      expects: how many gradients, at least, must have a fate because of it: "lost", "failed", "refused".
      expects_words: words that must be among what the server says of its workers.
      without: a transport on which it has no meaning, and why.
    """

    name: str
    policy: str
    steps: tuple[Step, ...]
    absent: tuple[int, ...] = ()
    expects: Mapping[str, int] = NOTHING
    expects_words: tuple[str, ...] = ()
    without: Mapping[str, str] = MappingProxyType({})

    @property
    def affected(self) -> set[int]:
        """Return the workers that something is done to."""
        return {worker for step in self.steps for worker in step.workers}


class ServerScenario(NamedTuple):
    """Says what befalls the server, which the same command then starts again.

    Attributes:
      name: what a reader calls it.
      policy: a name in `runs.POLICIES`.
      signal: what ends the server: "SIGKILL", "SIGTERM" or "SIGINT", which a terminal sends to all its processes.
      damage: what happens to its files before it is started again; functions of `damage`.
      expects_words: words that must be among what it says when it is resumed.
    """

    name: str
    policy: str
    signal: str
    damage: tuple[Callable[[pathlib.Path], None], ...] = ()
    expects_words: tuple[str, ...] = ()
