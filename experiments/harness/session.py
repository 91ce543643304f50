"""Where sweeps keep their runs, and who does them: set by a command for all sweeps of a figure."""

import contextlib
import contextvars
import dataclasses
import pathlib
from collections.abc import Iterator

from experiments.harness.store import Store
from sgdlab.jobs.shard import Shard
from sgdlab.results.directory import Records

DEFAULT_WORKDIR = "runs/papers"


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
