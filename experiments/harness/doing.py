"""Does the missing runs of sweeps, in processes of one pool; in a dry run it only notes them."""

import collections
import dataclasses
import datetime
import functools
import inspect
import json
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
from ml_collections import ConfigDict

from experiments.harness.runs import GIVEN, Alike, Run, Work, called, code_of, name_of, value_of
from experiments.harness.session import Session
from experiments.harness.store import Store, plain
from experiments.harness.training import amount, identity, train
from sgdlab import files
from sgdlab.errors import failures_of
from sgdlab.jobs import digests, pool
from sgdlab.results.records import Records, as_stored, line_of

if TYPE_CHECKING:
    from experiments.harness.sweep import Sweep

_MODEL = "made.json"
"""In a run's folder: the code that wrote what is there."""


class Unfinished(Exception):
    """Runs are missing: a shard has done its own and others have theirs left; or this is a dry run, which does none."""


def finish(sweeps: Iterable["Sweep"], session: Session) -> dict[str, Records]:
    """The records of all runs of sweeps, by key; those that are missing are done first, in one pool.

    Raises:
      UsageError: where settings are impossible.
      RunFailed: where a run raises an error.
      Unfinished: where this command does a share of the runs, or none, and others are missing.
    """
    asked: dict[str, tuple[Sweep, Run]] = {}
    for sweep in sweeps:
        asked = {run.key: (sweep, run) for run in sweep.runs} | asked
    there = {key: session.store.read(key) for key in asked}
    code = {key: code_of(sweep.work, run.settings) for key, (sweep, run) in asked.items()}
    changed = [key for key, records in there.items() if records and records[0].get("code", code[key]) != code[key]]
    for key, records in there.items():
        if key in changed or (records and _lacks_files(session.store.folder(key), records)):
            there[key] = None
    missing = [key for key, records in there.items() if records is None]
    ours = [key for key in missing if session.shard is None or session.shard.holds(key)]
    if session.noted is not None:
        session.noted.add(there.keys() - set(missing), {key: (asked[key][0].work, asked[key][1]) for key in ours})
    else:
        _say(len(asked), missing, ours, changed)
    if ours and session.noted is None:
        _do([asked[key] for key in ours], code, session)
        there |= {key: session.store.read(key) for key in ours}
    left = sum(records is None for records in there.values())
    if left:
        whose = "to do" if session.noted is not None else "left to other shards"
        raise Unfinished(f"{left} of {len(there)} runs are {whose}")
    return there


def _do(asked: Sequence[tuple["Sweep", Run]], code: Mapping[str, dict[str, str]], session: Session) -> None:
    """Does the runs, in as many processes as the session has."""
    amounts = {run.key: amount(run.settings) if sweep.work is train else 0 for sweep, run in asked}
    anew = frozenset(run.key for _, run in asked if session.store.read(run.key))
    processes = session.jobs or (len(pool.cores()) if jax.default_backend() == "cpu" else 1)
    groups: dict[str, list[tuple[Sweep, Run]]] = collections.defaultdict(list)
    for sweep, run in asked:
        groups[_group(sweep, run)].append((sweep, run))
    by_size = sorted(groups.values(), key=lambda group: (sum(amounts[run.key] for _, run in group), len(group)))
    tasks, size = [], -(-len(asked) // (3 * processes))
    for group in reversed(by_size):
        sweep, runs = group[0][0], [run for _, run in group]
        begin = functools.partial(_Task, work=sweep.work, store=session.store, anew=anew, alike=_alike(runs))
        chunks = _chunks(runs, len(runs) if sweep.together else size)
        tasks += [begin(runs=tuple(chunk), code={run.key: code[run.key] for run in chunk}) for chunk in chunks]
    gradients = sum(amounts.values()) if all(amounts.values()) else 0  # else runs are counted
    with pool.Progress(len(asked), gradients, min(processes, len(tasks))) as progress:
        pool.run(tasks, progress, processes)


def _group(sweep: "Sweep", run: Run) -> str:
    """What the runs that are done together agree in."""
    if sweep.together or sweep.work is not train:
        values = [value_of(run.settings, name) for name in sweep.together]
    else:
        whole = identity(run.settings)
        values = [run.settings.batch_size, *(whole[family] for family in ("method", "network", "data"))]
        values += [whole[family].get("kind") for family in ("protocol", "rule")]
    return json.dumps(as_stored({name_of(sweep.work): [list(sweep.together), values]}), sort_keys=True)


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
            "work": name_of(self.work),
            "config": plain(run.settings.to_dict() if isinstance(run.settings, ConfigDict) else run.settings),
            "made": digests.made_with(),
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
        result = called(self.work, run.settings, **{name: given[name] for name in GIVEN if name in wanted})
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


def _say(total: int, missing: Sequence[str], ours: Sequence[str], changed: Sequence[str]) -> None:
    """What is there, what is done anew and why, and what is left to others."""
    if not missing:
        print(f"{total} run{'s' * (total != 1)} found finished", flush=True)
        return
    words = f"{len(ours)} run{'s' * (len(ours) != 1)} to do"
    words += f", {total - len(missing)} found" if total > len(missing) else ""
    words += f", {len(missing) - len(ours)} left to other shards" if len(missing) > len(ours) else ""
    words += f"; {len(changed)} of them anew, since their code or files have changed" if changed else ""
    print(words, flush=True)


def _alike(runs: Sequence[Run]) -> Alike:
    return Alike(tuple(run.key for run in runs), tuple(run.settings for run in runs))


def _chunks(runs: Sequence[Run], size: int) -> Iterator[Sequence[Run]]:
    return (runs[first : first + size] for first in range(0, len(runs), size))


def _lacks_files(folder: pathlib.Path, records: Records) -> bool:
    """Whether something that the run wrote besides its records, such as a model, has been removed."""
    return not all((folder / name).exists() for name in records[-1].get("files", ()))
