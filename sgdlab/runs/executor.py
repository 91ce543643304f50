"""Does the missing runs of sweeps, in processes of one pool or over a mesh; in a dry run it only notes them."""

import collections
import contextlib
import dataclasses
import datetime
import functools
import inspect
import json
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from sgdlab import files, hosts
from sgdlab.errors import Stopped, failures_of
from sgdlab.report.words import counted
from sgdlab.results.records import Records
from sgdlab.runs import digests, pool
from sgdlab.runs import work as works
from sgdlab.runs.store import Store, plain
from sgdlab.runs.train import Place
from sgdlab.runs.work import Alike, Point, Work, train

if TYPE_CHECKING:
    from sgdlab.runs.sweep import Session, Sweep

_MODEL = "made.json"
"""In a run's folder: the code that wrote what is there."""

_OF_STORE = ("files", "finished")
"""Entries of the last record that a store writes itself."""

_Asked = tuple["Sweep", Point]


class Unfinished(Exception):
    """Runs are missing: a shard has done its own and others have theirs left; or this is a dry run, which does none."""


def finish(sweeps: Iterable["Sweep"], session: "Session") -> dict[str, Records]:
    """Return the records of all runs of sweeps, by key; those that are missing are done first, in one pool.

    Over a mesh of many processes, each calls this; the first one finds out what is missing, and has the records.

    Raises:
      UsageError: where settings are impossible.
      RunFailed: where a run raises an error.
      Stopped: over a mesh, where a signal asked to stop.
      Unfinished: where this command does a share of the runs, or none, and others are missing.
    """
    asked, code = _asked(sweeps)
    there: dict[str, Records] = {}
    changed: dict[str, list[str]] = {}
    if session.store.writes:
        there, changed = _found(asked, code, session)
    missing = [key for key in asked if key not in there]
    missing = json.loads(hosts.gather("the runs that are missing", json.dumps(missing))[0])
    ours, groups = missing, collections.defaultdict(list)  # of runs that are better done together
    for key, (sweep, point) in asked.items():
        groups[works.group_of(sweep.work, point.settings, sweep.together)].append(key)
    if session.shard is not None:
        share = set(session.shard.share(groups.values()))
        ours = [key for key in missing if key in share]
    if session.noted is not None:
        runs = {key: (sweep.work, point) for key, (sweep, point) in asked.items()}
        session.noted.found.update({key: runs[key] for key in there})
        session.noted.missing.update({key: runs[key] for key in ours})
    elif session.store.writes:
        _say(len(asked), missing, ours, changed, session.store)
    if ours and session.noted is None:
        _do({key: asked[key] for key in ours}, groups, code, session)
        if session.store.writes:  # others may have done theirs meanwhile
            there |= _found({key: asked[key] for key in missing}, code, session)[0]
    left = len(asked) - len(there) if session.store.writes else 0
    if left:
        whose = "to do" if session.noted is not None else "left to other shards"
        raise Unfinished(f"{left} of {len(asked)} runs are {whose}")
    return there


def find_finished(sweeps: Iterable["Sweep"], session: "Session") -> dict[str, Records]:
    """Return the records of those runs of sweeps, by key, that need not be done any more; nothing is done."""
    return _found(*_asked(sweeps), session)[0] if session.store.writes else {}


def _asked(sweeps: Iterable["Sweep"]) -> tuple[dict[str, _Asked], dict[str, dict[str, str]]]:
    """Return the runs of sweeps, and the code of each, by key."""
    asked = {point.key: (sweep, point) for sweep in sweeps for point in sweep.runs}
    return asked, {key: works.code_of(sweep.work, point.settings) for key, (sweep, point) in asked.items()}


def _found(
    asked: Mapping[str, _Asked], code: Mapping[str, Mapping[str, str]], session: "Session"
) -> tuple[dict[str, Records], dict[str, list[str]]]:
    """Return the records of the runs that are there, and of those that have to be done anew what has changed since."""
    there: dict[str, Records] = {}
    changed: dict[str, list[str]] = {}
    for key, (_, point) in asked.items():
        records = session.store.read(point.name)
        if records is None:
            continue
        now = code[key]
        before = now if session.trusting else records[0].get("code", now)
        if names := sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name)):
            changed[key] = names
        elif all((session.store.folder(point.name) / name).exists() for name in records[-1].get("files", ())):
            there[key] = records
        else:  # such as a model that has been removed
            changed[key] = ["files"]
    return there, changed


def _do(
    asked: Mapping[str, _Asked],
    groups: Mapping[str, Sequence[str]],
    code: Mapping[str, dict[str, str]],
    session: "Session",
) -> None:
    """Do runs, in as many processes as the session has; over a mesh, one after the other."""
    amounts = {key: works.amount(point.settings) if sweep.work is train else 0 for key, (sweep, point) in asked.items()}
    anew = frozenset(key for key, (_, point) in asked.items() if session.store.read(point.name))
    processes = session.jobs or (len(pool.cores()) if jax.default_backend() == "cpu" else 1)
    tasks = []
    missing = [ours for keys in groups.values() if (ours := [key for key in keys if key in asked])]
    # Each piece of a group compiles its program anew: groups are divided only where processes would wait for the last.
    size = len(asked) if len(missing) >= 2 * processes else -(-len(asked) // (3 * processes))
    for keys in sorted(missing, key=lambda keys: (sum(amounts[key] for key in keys), len(keys)), reverse=True):
        sweep, points = asked[keys[0]][0], [asked[key][1] for key in keys]
        begin = functools.partial(
            _Task,
            work=sweep.work,
            store=session.store,
            anew=anew,
            alike=Alike(tuple(keys), tuple(point.settings for point in points)),
            writers=session.writers,
        )
        together = sweep.together or session.mesh is not None
        each = len(points) if together else size
        chunks = (points[first : first + each] for first in range(0, len(points), each))
        tasks += [begin(points=tuple(chunk), code={point.key: code[point.key] for point in chunk}) for chunk in chunks]
    gradients = sum(amounts.values()) if all(amounts.values()) else 0  # else runs are counted
    if session.mesh is not None:
        _over_mesh(tasks, session.mesh, len(asked), gradients)
        return
    if any(sweep.work is train for sweep, _ in asked.values()):  # so no result comes at first
        print("Compiling: the first result comes after that, within a minute for small networks", flush=True)
    with pool.Progress(len(asked), gradients, processes, len(tasks)) as progress:
        pool.run(tasks, progress, processes)


def _over_mesh(tasks: Sequence["_Task"], mesh: Mesh, runs: int, gradients: int) -> None:
    """Do runs one after the other, each over all devices; a signal stops the one that is under way."""
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(pool.Progress(runs, gradients, 1, len(tasks))) if hosts.is_first() else None
        stack.enter_context(hosts.stopping())
        try:
            for task in tasks:
                send = progress.take if progress else lambda message: None
                dataclasses.replace(task, mesh=mesh, stop=hosts.stop_requested)(send)
                if progress:
                    progress.finished_job()
        except Stopped as stopped:
            # Finished runs are not run again: the same command continues, also without a checkpoint of this one.
            raise Stopped(progress.done if progress else 0, gradients, saved=True) from stopped


@dataclasses.dataclass(frozen=True)
class _Task:
    """Some runs of a group, done one after the other in one process."""

    points: tuple[Point, ...]
    alike: Alike
    code: Mapping[str, dict[str, str]]
    anew: frozenset[str]
    work: Work
    store: Store
    writers: tuple[str, ...] = ()
    mesh: Mesh | None = None
    stop: Callable[[], bool] | None = None

    def __call__(self, send: Callable[[pool.Message], None]) -> None:
        first = True
        for point in self.points:
            # Over many processes, all have to do the same, whatever other commands do.
            alone = self.store.held(point.name) if self.mesh is None else contextlib.nullcontext()
            with failures_of(str(point)), alone:
                there = None if self.mesh is not None or point.key in self.anew else self.store.read(point.name)
                if there and there[0].get("code") == self.code[point.key]:
                    send(pool.Message(str(point), result="done by another command"))
                    continue
                begun = time.perf_counter()
                records, compiling = self._records(point, send)
                if self.store.writes:
                    self.store.write(point.name, records)
                    # Later runs of a job have the program of the first.
                    compiling, first = compiling if first else 0.0, False
                    result, seconds = works.outcome(self.work, records[-1]), time.perf_counter() - begun - compiling
                    send(pool.Message(str(point), result=result, compiling=compiling, seconds=seconds))

    def _records(self, point: Point, send: Callable[[pool.Message], None]) -> tuple[Records, float]:
        """Do a run; return its records, and the seconds to its first gradients, before which it is compiled."""
        opening = {
            "kind": "run",
            "work": works.name_of(self.work),
            "config": plain(point.settings.to_dict() if isinstance(point.settings, ConfigDict) else point.settings),
            "made": digests.made_with(),
        }
        begun, last, compiling = time.perf_counter(), 0, 0.0
        wanted = inspect.signature(self.work).parameters
        given: dict[str, Any] = {"alike": self.alike}
        if "folder" in wanted:
            given["folder"] = self._folder(point)
        if "place" in wanted:
            given["place"] = Place(self.store, point.name, self.writers, self.mesh, self.stop)
        with self.store.under_way(point.name) as append:

            def report(record: Mapping[str, Any]) -> None:
                nonlocal last, compiling
                if "place" not in wanted:
                    append(record)
                done = record.get("gradients", 0) if record.get("kind") == "evaluation" else last
                compiling = compiling or (time.perf_counter() - begun) * (done > last)
                send(pool.Message(str(point), gradients=max(done - last, 0)))
                last = max(done, last)

            given["report"] = report
            result = works.called(
                self.work, point.settings, **{name: given[name] for name in works.GIVEN if name in wanted}
            )
        records = [plain(record) for record in _mappings(result, works.name_of(self.work))]
        if records[0].get("kind") != "run":
            records.insert(0, opening)
        records[0]["code"] = self.code[point.key]
        end: dict[str, Any] = {"finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
        if "folder" in given:
            end["files"] = sorted(str(file.relative_to(given["folder"])) for file in given["folder"].rglob("*"))
        records[-1] = {"compute_seconds": time.perf_counter() - begun, **records[-1], **end, "kind": "summary"}
        return records, compiling

    def _folder(self, point: Point) -> pathlib.Path:
        """Return the run's own directory; what other code has left there is put aside."""
        folder = self.store.folder(point.name)
        made = folder / _MODEL
        if folder.exists() and not (made.exists() and json.loads(made.read_text()) == self.code[point.key]):
            self.store.begin_anew(point.name)
        files.write_text(made, json.dumps(self.code[point.key]))
        return folder


def _say(
    total: int, missing: Sequence[str], ours: Sequence[str], changed: Mapping[str, Sequence[str]], store: Store
) -> None:
    """Print what is there, what is done anew and why, and what is left to others."""
    if not missing:
        print(f"{counted(total, 'run')} found finished in {store.path}", flush=True)
        return
    words = f"{counted(len(ours), 'run')} to do"
    words += f", {total - len(missing)} found" if total > len(missing) else ""
    words += f", {len(missing) - len(ours)} left to other shards" if len(missing) > len(ours) else ""
    if changed:
        names = sorted({name for found in changed.values() for name in found})
        words += f"; {len(changed)} of them anew, since their code or files have changed ({', '.join(names)}): "
        words += f"their old records go to {store.path / 'superseded'}"
    print(words, flush=True)


def _mappings(result: Any, work: str) -> list[Mapping[str, Any]]:
    """Return what a work function has returned as records, or raise a `ValueError` that names it."""
    several = isinstance(result, Iterable) and not isinstance(result, Mapping | str | bytes)
    found = list(result) if several else [result]
    if not found or not all(isinstance(record, Mapping) for record in found):
        raise ValueError(f"{work} must return a mapping of results, or several of them; it has returned {result!r}")
    if taken := [name for name in _OF_STORE if name in found[-1]]:
        raise ValueError(f"{work} must return no {taken[0]!r}: that is what the store calls its own entry")
    return found
