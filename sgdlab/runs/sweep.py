"""A sweep: runs over what varies, each kept by its own settings and never done twice; and the session they are of."""

import contextlib
import contextvars
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from jax.sharding import Mesh
from ml_collections import ConfigDict

from sgdlab import arguments, hosts
from sgdlab.errors import UsageError
from sgdlab.results.records import Records
from sgdlab.runs import digests
from sgdlab.runs.configuration import flat
from sgdlab.runs.executor import finish
from sgdlab.runs.store import Store, key_of
from sgdlab.runs.work import Point, Settings, Work, called_with, identity, name_of, parts_of_code, train

if TYPE_CHECKING:
    import pandas as pd

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
    """The runs that sweeps have asked for in a dry run."""

    # those that are there, by key, each with its work
    found: dict[str, tuple[Work, Point]] = dataclasses.field(default_factory=dict)
    missing: dict[str, tuple[Work, Point]] = dataclasses.field(default_factory=dict)  # those that are not


@dataclasses.dataclass(frozen=True)
class Session:
    """The place of runs, and how they are done.

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


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Runs of a base configuration over what varies.

    A run is kept under a hash of its own whole settings, of the parts that it uses: order, place and other runs do not
    matter. It is done anew where code has changed since: that of the parts of a configuration; that of any other work
    in its own folder, and of what it `goes_by`.

    Attributes:
      base: a configuration such as `configs.digits` makes, for `work(config)`; or a mapping, for `work(**settings)`.
      over: setting -> values, whose product is done; or a list of mappings, one for each run.
      work: a function of a module, from a run's settings to its result: a mapping of numbers, texts and lists; or all
        its records, the last of which is that mapping. By default, a configuration is trained. Where it names them, it
        is given `report`, which appends a record as soon as it is there; `folder`, a directory of its own that outlives
        an interruption, for checkpoints and models; `alike`, the `Alike` of its group.
      together: settings; runs that agree in them are done one after the other by one process, since they share
        something. Where a configuration is trained, runs that share a compiled program are done next to each other.
      files: settings that name files or directories. Their content counts, and not their place; of the parts of a
        configuration this is known.
      label: from a run's settings to what the name of its file begins with, for a person. None: nothing.

    Raises:
      ValueError: where a setting is not one of the base, or of the function's.

    Example:
      >>> import tempfile
      >>> import numpy as np
      >>> def thrown(*, dice: int, sides: int, seed: int) -> dict[str, int]:
      ...     return {"total": int(np.random.default_rng(seed).integers(1, sides + 1, size=dice).sum())}
      >>> sweep = Sweep({"sides": 6}, {"dice": [1, 2], "seed": range(3)}, work=thrown)
      >>> len(sweep.runs), str(sweep.runs[0])
      (6, 'dice=1, seed 0')
      >>> with within(Session(pathlib.Path(tempfile.mkdtemp()), jobs=1)):
      ...     table = sweep.table()  # doctest: +ELLIPSIS
      6 runs to do
      [1/6] dice=1, seed 0: done in ...
      >>> table.groupby("dice").total.mean().tolist()
      [5.0, 8.333333333333334]
    """

    base: Settings | Mapping[str, Any]
    over: Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    work: Work = train
    together: Sequence[str] = ()
    files: Sequence[str] = ()
    label: Callable[[Any], str] | None = None

    @functools.cached_property
    def runs(self) -> list[Point]:
        """Return the runs, in the order of `over`."""
        if isinstance(self.over, Mapping):
            names = list(self.over)
            points = [dict(zip(names, values, strict=True)) for values in itertools.product(*self.over.values())]
        else:
            points = [dict(point) for point in self.over]
        return [self._run(point) for point in points]

    def records(self) -> list[tuple[dict[str, Any], Records]]:
        """Return what is varied and the records of each run; runs that are not there yet are done.

        Raises:
          UsageError: where settings are impossible.
          RunFailed: where a run raises an error.
          Unfinished: where this command does a share of the runs, or none, and others are missing.
        """
        session = current()
        found = finish([self], session)
        session.used.update(found)
        for run in self.runs:
            session.code.update(parts_of_code(self.work, run.settings))
        return [(run.varied, found[run.key]) for run in self.runs]

    def table(self) -> "pd.DataFrame":
        """Return a row a run: what varies, then its result. Raises as `records` does."""
        return self._rows(lambda records: records[-1:])

    def evaluations(self) -> "pd.DataFrame":
        """Return a row an evaluation: what varies, then its record. Raises as `records` does."""
        return self._rows(lambda records: [record for record in records if record["kind"] == "evaluation"])

    def _rows(self, shown: Callable[[Records], Records]) -> "pd.DataFrame":
        pandas, rows = library("a sweep"), []
        for varied, records in self.records():
            # A table cannot be grouped by lists.
            own = {name: tuple(value) if isinstance(value, list) else value for name, value in varied.items()}
            left_out = {"kind", "files", *own}
            rows += [own | {k: v for k, v in record.items() if k not in left_out} for record in shown(records)]
        return pandas.DataFrame(rows)

    def folders(self) -> list[pathlib.Path]:
        """Return the directory of each run, with what it wrote there. Raises as `records` does."""
        self.records()
        store = current().store
        return [store.folder(run.name) for run in self.runs]

    def _run(self, point: Mapping[str, Any]) -> Point:
        if isinstance(self.base, ConfigDict):
            settings = self.base.copy_and_resolve_references()
            known = sorted(name for name, _ in flat(settings))
            for name, value in point.items():
                if name not in known:
                    raise ValueError(f"over: {name!r} must be an entry of the base{meant(name, known)}")
                settings.update_from_flattened_dict({name: value})
            whole = identity(settings)
        else:
            settings = called_with(self.work, {**self.base, **point})
            whole = dict(settings)
        for name in self.files:
            whole = _with(whole, name.split("."), digests.of_content)
        label = self.label(settings) if self.label else ""
        return Point(key_of({"work": name_of(self.work), "settings": whole}), dict(point), settings, label)


def library(asked: str) -> ModuleType:
    """Return pandas, or raise a `UsageError` that `asked` needs it; called before runs are done."""
    try:
        import pandas as pd  # noqa: PLC0415 (an optional requirement)
    except ImportError as error:
        raise UsageError(
            f"{asked} returns a table of pandas, which is not installed: pip install 'sgdlab[pandas]'"
        ) from error
    return pd


def prepare(*sweeps: Sweep) -> None:
    """Do the missing runs of several sweeps in one pool, of one kind or of several; the sweeps find them afterwards.

    So no core waits for the last run of one sweep before the next begins, and a scheduler's array (`--shard`) does all
    of them. The sweeps must not depend on each other's results. Raises as `Sweep.records` does.
    """
    finish(sweeps, current())


def _with(entries: Mapping[str, Any], name: Sequence[str], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the entries with one of them changed, if it is set."""
    first, *rest = name
    value = entries.get(first)
    if not value:
        return dict(entries)
    return {**entries, first: _with(value, rest, change) if rest else change(value)}


def meant(name: str, known: Sequence[str]) -> str:
    """Return the entries that a name may have been meant for, as the end of a message."""
    near = " or ".join(arguments.nearest(name, known))
    return near and f"; did you mean {near}?"
