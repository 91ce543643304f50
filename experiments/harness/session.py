"""Where sweeps keep their runs, and who does them: set by a command for all sweeps of a figure."""

import contextlib
import contextvars
import dataclasses
import pathlib
from collections.abc import Iterator

from experiments.harness.store import Store
from sgdlab.results.directory import Records

DEFAULT_WORKDIR = "runs/papers"


@dataclasses.dataclass(frozen=True)
class Shard:
    """The runs of one task of a scheduler's array: those whose hash leaves `index - 1` when divided by `count`.

    Attributes:
      index: from 1 to `count`.
      count: number of tasks.

    Example:
      >>> Shard.of("2/8")
      Shard(index=2, count=8)
    """

    index: int
    count: int

    @classmethod
    def of(cls, text: str) -> "Shard":
        """Reads "2/8".

        Raises:
          ValueError: where it is not two whole numbers, the first from 1 to the second.
        """
        index, _, count = text.partition("/")
        if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
            raise ValueError(f"shard={text!r} must be like 2/8: task 2 of the tasks 1 to 8")
        return cls(int(index), int(count))

    def holds(self, key: str) -> bool:
        """Whether a run belongs to this task."""
        return int(key, 16) % self.count == self.index - 1


@dataclasses.dataclass(frozen=True)
class Session:
    """Where runs are, and how they are done.

    Attributes:
      path: directory of the results; runs are in its folder `runs`.
      jobs: processes at once; None: one for each core on a CPU, else one.
      shard: does only its own runs; None: all.
      used: the records of every run that sweeps have asked for in this session, by key.
    """

    path: pathlib.Path = pathlib.Path(DEFAULT_WORKDIR)
    jobs: int | None = None
    shard: Shard | None = None
    used: dict[str, Records] = dataclasses.field(default_factory=dict)

    @property
    def store(self) -> Store:
        """The finished runs."""
        return Store(self.path / "runs")


_current: contextvars.ContextVar[Session | None] = contextvars.ContextVar("session", default=None)


def current() -> Session:
    """The session of this command; outside of commands, a new one in `runs/papers`."""
    return _current.get() or Session()


@contextlib.contextmanager
def within(session: Session) -> Iterator[Session]:
    """Makes a session the current one for the sweeps of a block.

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
