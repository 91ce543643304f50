"""A sweep: runs of one base configuration over what varies, each kept by its own settings and never done twice."""

import collections
import dataclasses
import datetime
import functools
import inspect
import itertools
import json
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import pandas as pd
from ml_collections import ConfigDict

from experiments.harness import session as sessions
from experiments.harness.session import Session
from experiments.harness.store import Store, key_of, plain
from experiments.harness.training import amount, identity, train
from sgdlab import files
from sgdlab.commands import flag_names
from sgdlab.errors import failures_of
from sgdlab.jobs import digests, pool, provenance
from sgdlab.jobs.configuration import flat
from sgdlab.results.directory import Records, as_stored, line_of

Settings = ConfigDict | dict[str, Any]
Work = Callable[..., Any]

_GIVEN = ("alike", "folder", "report")
"""What a work function is given where it names it; see `Sweep`."""

_MODEL = "made.json"
"""In a run's folder: the code that wrote what is there."""


def goes_by(*functions: Callable[..., Any]) -> Callable[[Work], Work]:
    """Says that a work's results depend on code outside of its folder: its runs are done anew where that changes.

    Args:
      *functions: functions and classes, such as a protocol.

    Example:
      >>> from sgdlab import protocols
      >>> @goes_by(protocols.partial)
      ... def simulated(*, seed: int) -> dict[str, float]: ...
      >>> simulated.code[0].__name__
      'partial'
    """

    def mark(work: Work) -> Work:
        work.code = functions
        return work

    return mark


class Unfinished(Exception):
    """A shard has done its runs, and others have theirs left."""


@dataclasses.dataclass(frozen=True)
class Alike:
    """The settings of all missing runs that share a compiled program, whose arrays are to have one size.

    Attributes:
      keys: of the runs; two objects are equal where these are.
      settings: of each.
    """

    keys: tuple[str, ...]
    settings: tuple[Settings, ...] = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a sweep.

    Attributes:
      key: the hash of all its settings.
      varied: those of its settings that the sweep varies.
      settings: all of them.
    """

    key: str
    varied: dict[str, Any]
    settings: Settings

    def __str__(self) -> str:
        words = (f"{name.rpartition('.')[2]}={value}" for name, value in self.varied.items())
        return ", ".join(words) or "the run"


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

    Raises:
      ValueError: where a setting is not one of the base, or of the function's.

    Example:
      >>> import tempfile
      >>> from experiments.harness.examples import thrown
      >>> sweep = Sweep({"sides": 6}, {"dice": [1, 2], "seed": range(3)}, work=thrown)
      >>> len(sweep.runs), str(sweep.runs[0])
      (6, 'dice=1, seed=0')
      >>> with sessions.within(Session(pathlib.Path(tempfile.mkdtemp()), jobs=1)):
      ...     table = sweep.table()  # doctest: +ELLIPSIS
      6 runs to do
      [1/6] dice=1, seed=0: done in ...
      >>> table.groupby("dice").total.mean().tolist()
      [5.0, 8.333333333333334]
    """

    base: Settings | Mapping[str, Any]
    over: Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    work: Work = train
    together: Sequence[str] = ()
    files: Sequence[str] = ()

    @functools.cached_property
    def runs(self) -> list[Run]:
        """The runs, in the order of `over`."""
        if isinstance(self.over, Mapping):
            names = list(self.over)
            points = [dict(zip(names, values, strict=True)) for values in itertools.product(*self.over.values())]
        else:
            points = [dict(point) for point in self.over]
        return [self._run(point) for point in points]

    def records(self) -> list[tuple[dict[str, Any], Records]]:
        """What is varied and the records of each run; runs that are not there yet are done.

        Raises:
          UsageError: where settings are impossible.
          RunFailed: where a run raises an error.
          Unfinished: where this command does a share of the runs, and others are missing.
        """
        session = sessions.current()
        found = self._finished(session)
        session.used.update(found)
        return [(run.varied, found[run.key]) for run in self.runs]

    def table(self) -> pd.DataFrame:
        """A row a run: what varies, then its result. Raises as `records` does."""
        return pd.DataFrame([_plain(varied) | _entries(records[-1], varied) for varied, records in self.records()])

    def evaluations(self) -> pd.DataFrame:
        """A row an evaluation: what varies, then its record. Raises as `records` does."""
        return pd.DataFrame(
            [
                _plain(varied) | _entries(record, varied)
                for varied, records in self.records()
                for record in records
                if record["kind"] == "evaluation"
            ]
        )

    def folders(self) -> list[pathlib.Path]:
        """The directory of each run, with what it wrote there. Raises as `records` does."""
        self.records()
        store = sessions.current().store
        return [store.folder(run.key) for run in self.runs]

    def _run(self, point: Mapping[str, Any]) -> Run:
        if isinstance(self.base, ConfigDict):
            settings = self.base.copy_and_resolve_references()
            known = {name for name, _ in flat(settings)}
            for name, value in point.items():
                if name not in known:
                    near = " or ".join(flag_names.nearest(name, sorted(known)))
                    raise ValueError(f"over: {name!r} must be an entry of the base{near and f'; did you mean {near}?'}")
                settings.update_from_flattened_dict({name: value})
            whole = identity(settings)
        else:
            settings = _called_with(self.work, {**self.base, **point})
            whole = dict(settings)
        for name in self.files:
            whole = _with(whole, name.split("."), digests.of_content)
        work = f"{self.work.__module__}.{self.work.__qualname__}"
        return Run(key_of({"work": work, "settings": whole}), dict(point), settings)

    def _finished(self, session: Session) -> dict[str, Records]:
        """The records of all runs, by key; those that are missing are done first."""
        unique = {run.key: run for run in self.runs}
        there = {key: session.store.read(key) for key in unique}
        code = {key: self._code(run) for key, run in unique.items()}
        changed = [key for key, records in there.items() if records and records[0].get("code", code[key]) != code[key]]
        for key, records in there.items():
            if key in changed or (records and _lacks_files(session.store.folder(key), records)):
                there[key] = None
        missing = [run for key, run in unique.items() if there[key] is None]
        ours = [run for run in missing if session.shard is None or session.shard.holds(run.key)]
        _say(len(unique), missing, ours, changed)
        if ours:
            self._do(ours, code, session)
            there |= {run.key: session.store.read(run.key) for run in ours}
        left = sum(records is None for records in there.values())
        if left:
            raise Unfinished(f"{left} of {len(there)} runs are left to other shards")
        return there

    def _do(self, runs: Sequence[Run], code: Mapping[str, dict[str, str]], session: Session) -> None:
        groups: dict[str, list[Run]] = collections.defaultdict(list)
        for run in runs:
            groups[self._group(run)].append(run)
        amounts = {run.key: amount(run.settings) if self.work is train else 0 for run in runs}
        processes = session.jobs or (len(pool.cores()) if jax.default_backend() == "cpu" else 1)
        anew = frozenset(run.key for run in runs if session.store.read(run.key))
        begin = functools.partial(_Task, work=self.work, store=session.store, anew=anew)
        tasks = [
            begin(runs=tuple(chunk), alike=_alike(group), code={run.key: code[run.key] for run in chunk})
            for group in sorted(groups.values(), key=len, reverse=True)
            for chunk in _chunks(group, len(runs) if self.together else -(-len(runs) // (3 * processes)))
        ]
        with pool.Progress(len(runs), sum(amounts.values()), min(processes, len(tasks))) as progress:
            pool.run(tasks, progress, processes)

    def _group(self, run: Run) -> str:
        """What the runs that are done together agree in."""
        if self.together or self.work is not train:
            values = [_value(run.settings, name) for name in self.together]
        else:
            whole = identity(run.settings)
            values = [run.settings.batch_size, *(whole[family] for family in ("method", "network", "data"))]
            values += [whole[family].get("kind") for family in ("protocol", "rule")]
        return json.dumps(as_stored({"": values}), sort_keys=True)

    def _code(self, run: Run) -> dict[str, str]:
        """Digests of the code that the run goes by."""
        own = {} if self.work is train else {"work": digests.of_code(self.work)}
        own |= {function.__qualname__: digests.of_code(function) for function in getattr(self.work, "code", ())}
        parts = digests.of_run(run.settings) if _is_trained(run.settings) else {}
        return own | parts


@dataclasses.dataclass(frozen=True)
class _Task:
    """Some runs of a group, done one after the other in one process."""

    runs: tuple[Run, ...]
    alike: Alike
    code: Mapping[str, dict[str, str]]
    anew: frozenset[str]
    work: Work
    store: Store

    def __call__(self, send: Callable[[pool.Message], None]) -> None:
        for run in self.runs:
            with failures_of(str(run)), self.store.held(run.key):
                there = self.store.read(run.key)
                if there and there[0].get("code") == self.code[run.key] and run.key not in self.anew:
                    send(pool.Message(str(run), result="done by another command"))
                    continue
                records = self._records(run, send)
                self.store.write(run.key, records)
            for left in self.store.path.glob(f"under_way/{run.key}.*.jsonl"):
                left.unlink(missing_ok=True)
            seconds = records[-1]["compute_seconds"]
            send(pool.Message(str(run), result=f"done in {seconds:.1f} s"))

    def _records(self, run: Run, send: Callable[[pool.Message], None]) -> Records:
        """Does a run."""
        opening = {
            "kind": "run",
            "work": f"{self.work.__module__}.{self.work.__qualname__}",
            "config": plain(run.settings.to_dict() if isinstance(run.settings, ConfigDict) else run.settings),
            "made": provenance.made_with(),
            "code": self.code[run.key],
        }
        begun, last = time.perf_counter(), 0
        under_way = self.store.under_way(run.key)

        def report(record: Mapping[str, Any]) -> None:
            nonlocal last
            under_way.parent.mkdir(parents=True, exist_ok=True)
            with under_way.open("a", encoding="utf-8") as file:
                print(line_of(record), file=file)
            done = record.get("gradients", 0) if record.get("kind") == "evaluation" else last
            send(pool.Message(str(run), gradients=max(done - last, 0)))
            last = max(done, last)

        given = {"alike": self.alike, "report": report}
        wanted = inspect.signature(self.work).parameters
        if "folder" in wanted:
            given["folder"] = self._folder(run)
        result = _call(self.work, run.settings, **{name: given[name] for name in _GIVEN if name in wanted})
        records = [plain(record) for record in ([result] if isinstance(result, Mapping) else result)]
        if records[0].get("kind") != "run":
            records.insert(0, opening)
        records[0]["code"] = self.code[run.key]
        end = {"finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
        if "folder" in given:
            end["files"] = sorted(str(file.relative_to(given["folder"])) for file in given["folder"].rglob("*"))
        records[-1] = {"compute_seconds": time.perf_counter() - begun, **records[-1], **end, "kind": "summary"}
        return records

    def _folder(self, run: Run) -> pathlib.Path:
        """The run's own directory; what other code has left there is put aside."""
        folder = self.store.folder(run.key)
        made = folder / _MODEL
        if folder.exists() and not (made.exists() and json.loads(made.read_text()) == self.code[run.key]):
            self.store.begin_anew(run.key)
        files.write_text(made, json.dumps(self.code[run.key]))
        return folder


def _say(total: int, missing: Sequence[Run], ours: Sequence[Run], changed: Sequence[str]) -> None:
    """What is there, what is done anew and why, and what is left to others."""
    if not missing:
        print(f"{total} run{'s' * (total != 1)} found finished", flush=True)
        return
    words = f"{len(ours)} run{'s' * (len(ours) != 1)} to do"
    words += f", {total - len(missing)} found" if total > len(missing) else ""
    words += f", {len(missing) - len(ours)} left to other shards" if len(missing) > len(ours) else ""
    words += f"; {len(changed)} of them anew, since their code or files have changed" if changed else ""
    print(words, flush=True)


def _alike(group: Sequence[Run]) -> Alike:
    return Alike(tuple(run.key for run in group), tuple(run.settings for run in group))


def _chunks(group: Sequence[Run], size: int) -> Iterable[Sequence[Run]]:
    return (group[first : first + size] for first in range(0, len(group), size))


def _call(function: Callable[..., Any], settings: Settings, **given: Any) -> Any:
    return function(settings, **given) if isinstance(settings, ConfigDict) else function(**settings, **given)


def _called_with(work: Work, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the defaults of a function's signature.

    Raises:
      ValueError: where the function does not take a setting, or needs another.
    """
    parameters = {name: p for name, p in inspect.signature(work).parameters.items() if name not in _GIVEN}
    unknown = [name for name in settings if name not in parameters]
    lacking = [name for name, p in parameters.items() if p.default is p.empty and name not in settings]
    if unknown or lacking:
        wrong = f"{', '.join(unknown)} not of its arguments" if unknown else f"{', '.join(lacking)} missing"
        raise ValueError(f"over: {wrong}; {work.__name__} takes {', '.join(parameters)}")
    return {name: settings.get(name, p.default) for name, p in parameters.items()}


def _with(entries: Mapping[str, Any], name: Sequence[str], change: Callable[[Any], Any]) -> dict[str, Any]:
    """The entries with one of them changed, if it is set."""
    first, *rest = name
    value = entries.get(first)
    if not value:
        return dict(entries)
    return {**entries, first: _with(value, rest, change) if rest else change(value)}


def _lacks_files(folder: pathlib.Path, records: Records) -> bool:
    """Whether something that the run wrote besides its records, such as a model, has been removed."""
    return not all((folder / name).exists() for name in records[-1].get("files", ()))


def _is_trained(settings: Settings) -> bool:
    return isinstance(settings, ConfigDict) and "method" in settings


def _value(settings: Settings, name: str) -> Any:
    return functools.reduce(lambda entry, part: entry[part], name.split("."), settings)


def _entries(record: Mapping[str, Any], varied: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in ("kind", "files", *varied)}


def _plain(varied: Mapping[str, Any]) -> dict[str, Any]:
    """What varies, as values that a table can be grouped by."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in varied.items()}
