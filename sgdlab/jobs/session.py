"""Where sweeps keep their runs, and who does them: set by a command for all sweeps of a figure."""

import contextlib
import contextvars
import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from sgdlab.jobs.shard import Shard
from sgdlab.jobs.store import Store
from sgdlab.results.records import Records

if TYPE_CHECKING:
    from sgdlab.jobs.work import Point, Work

DEFAULT_WORKDIR = "runs/papers"


@dataclasses.dataclass(frozen=True)
class Noted:
    """The runs that sweeps have asked for in a dry run.

    Attributes:
      found: keys of those that are there.
      missing: those that are not, by key, each with its work.
    """

    found: set[str] = dataclasses.field(default_factory=set)
    missing: "dict[str, tuple[Work, Point]]" = dataclasses.field(default_factory=dict)

    def add(self, found: Iterable[str], missing: "Mapping[str, tuple[Work, Point]]") -> None:
        """Notes the runs of some sweeps."""
        self.found.update(found)
        self.missing.update(missing)


@dataclasses.dataclass(frozen=True)
class Session:
    """Where runs are, and how they are done.

    Attributes:
      path: directory of the results; runs are in its folder `runs`.
      jobs: processes at once; None: one for each core on a CPU, else one.
      shard: does only its own runs; None: all.
      used: the records of every run that sweeps have asked for in this session, by key.
      code: digests of the code of these runs, by its name.
      noted: of a dry run, in which no run is done: those that sweeps have asked for; None: this is no dry run.
    """

    path: pathlib.Path = pathlib.Path(DEFAULT_WORKDIR)
    jobs: int | None = None
    shard: Shard | None = None
    used: dict[str, Records] = dataclasses.field(default_factory=dict)
    code: dict[str, str] = dataclasses.field(default_factory=dict)
    noted: Noted | None = None

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
