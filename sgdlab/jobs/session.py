"""Where sweeps keep their runs, and who does them: set by a command for all sweeps of a figure, or by a person."""

import contextlib
import contextvars
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from jax.sharding import Mesh

from sgdlab import hosts
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
        """The finished runs."""
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
