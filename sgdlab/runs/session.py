"""Where sweeps keep their runs, and who does them: set by a command for all sweeps of a figure, or by a person."""

import contextlib
import contextvars
import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from jax.sharding import Mesh

from sgdlab import hosts
from sgdlab.results.records import Records
from sgdlab.runs.store import Store

if TYPE_CHECKING:
    from sgdlab.runs.work import Point, Work

Run = TypeVar("Run")
DEFAULT_WORKDIR = "runs/papers"


@dataclasses.dataclass(frozen=True)
class Shard:
    """One of `count` tasks, each of which does its own share of a sweep.

    A share depends on the sweep and on the two numbers alone, and not on what has finished: tasks may be started in any
    order, at any time, and again. Schedulers number from 0 or from 1: task 0 of n is task n.

    Attributes:
      index: from 1 to `count`, or from 0 to `count` - 1.
      count: number of tasks, at least 1.

    Example:
      >>> Shard.of("2/8")
      Shard(index=2, count=8)
    """

    index: int
    count: int

    @classmethod
    def of(cls, text: str) -> "Shard":
        """Read "2/8", as `$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT` is, or raise a `ValueError`."""
        index, _, count = text.partition("/")
        whole = all(number.isdecimal() and number.isascii() for number in (index, count))
        if not (whole and int(count) >= 1 and int(index) <= int(count)):
            raise ValueError(
                f"shard={text!r} must be like 2/8: task 2 of the tasks 1 to 8 (or of 0 to 7; a scheduler's array must "
                "have consecutive numbers that begin at 0 or 1)"
            )
        return cls(int(index), int(count))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def share(self, groups: Iterable[Sequence[Run]]) -> list[Run]:
        """Return this task's runs, group by group; those of a group share a compiled program.

        The shares of all tasks are disjoint, hold every run, and have at most ceil(runs / count) runs each. A group is
        divided only where it does not fit into any share as a whole.

        Args:
          groups: all runs of the sweep, in the same order for every task.

        Example:
          >>> [Shard(index, 2).share(["aaaa", "bb", "cc"]) for index in (1, 2)]
          [['a', 'a', 'a', 'a'], ['b', 'b', 'c', 'c']]
          >>> [Shard(index, 3).share(["aaaa", "bb"]) for index in (1, 2, 3)]
          [['b', 'b'], ['a', 'a'], ['a', 'a']]
        """
        groups = sorted((list(group) for group in groups), key=len, reverse=True)
        size = -(-sum(map(len, groups)) // self.count)
        shares: list[list[Run]] = [[] for _ in range(self.count)]
        divided = []
        for group in groups:
            # The fullest share that still takes all of it, so that large gaps stay for large groups.
            fits = [share for share in shares if len(share) + len(group) <= size]
            if fits:
                max(fits, key=len).extend(group)
            else:
                divided.append(group)
        for group in divided:
            begin = 0
            for share in sorted(shares, key=len):
                end = begin + size - len(share)
                share.extend(group[begin:end])
                begin = end
        return shares[(self.index - 1) % self.count]


@dataclasses.dataclass(frozen=True)
class Noted:
    """The runs that sweeps have asked for in a dry run.

    Attributes:
      found: those that are there, by key, each with its work.
      missing: those that are not.
    """

    found: "dict[str, tuple[Work, Point]]" = dataclasses.field(default_factory=dict)
    missing: "dict[str, tuple[Work, Point]]" = dataclasses.field(default_factory=dict)

    def add(self, found: "Mapping[str, tuple[Work, Point]]", missing: "Mapping[str, tuple[Work, Point]]") -> None:
        """Note the runs of some sweeps."""
        self.found.update(found)
        self.missing.update(missing)


@dataclasses.dataclass(frozen=True)
class Session:
    """Where runs are, and how they are done.

    Attributes:
      path: directory of the results.
      jobs: processes at once; None: one for each core on a CPU, else one.
      shard: does only its own runs; None: all.
      used: the records of every run that sweeps have asked for in this session, by key.
      code: digests of the code of these runs, by its name.
      noted: of a dry run, in which no run is done: those that sweeps have asked for; None: this is no dry run.
      folder: of `path`, in which the runs are.
      writers: names in `sgdlab.results.writers.WRITERS`: where records of runs that are trained go besides.
      trusting: takes finished runs as they are, whatever code has made them.
      mesh: several devices, of this process or of many, over which runs that are trained go one after the other. None:
        each run has a device, or a core, of its own.
    """

    path: pathlib.Path = pathlib.Path(DEFAULT_WORKDIR)
    jobs: int | None = None
    shard: Shard | None = None
    used: dict[str, Records] = dataclasses.field(default_factory=dict)
    code: dict[str, str] = dataclasses.field(default_factory=dict)
    noted: Noted | None = None
    folder: str = "runs"
    writers: tuple[str, ...] = ()
    trusting: bool = False
    mesh: Mesh | None = None

    @property
    def store(self) -> Store:
        """Return the finished runs."""
        return Store(self.path / self.folder, writes=hosts.is_first())


_current: contextvars.ContextVar[Session | None] = contextvars.ContextVar("session", default=None)


def current() -> Session:
    """Return the session of this command; outside of commands, a new one in `runs/papers`."""
    return _current.get() or Session()


@contextlib.contextmanager
def within(session: Session) -> Iterator[Session]:
    """Make a session the current one for the sweeps of a block.

    Example:
      >>> with within(Session(pathlib.Path("runs/mine"), jobs=2)) as session:
      ...     current().path.name
      'mine'
    """
    before = _current.set(session)
    try:
        yield session
    finally:
        _current.reset(before)
