"""`python -m experiments restamp`: results that changed code makes too, to the bit, count as its own."""

import contextlib
import dataclasses
import datetime
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from absl import flags

import experiments
from experiments.harness import board, figures, publishing, sampled
from experiments.harness.figures import Figure
from sgdlab import files
from sgdlab.commands import launch
from sgdlab.errors import RunFailed, UsageError
from sgdlab.report.words import counted
from sgdlab.results.records import Records
from sgdlab.runs import digests
from sgdlab.runs.executor import Unfinished
from sgdlab.runs.sweep import DEFAULT_WORKDIR, Noted, Session, Sweep, prepare, within
from sgdlab.runs.work import code_of, digest_now

USAGE = """Marks stored results as up to date if the changed code reproduces a sample of their runs bit for bit.

    python -m experiments restamp --figures=gossip.bounds --workdir=runs/papers
    python -m experiments restamp --figures=gossip.bounds --reference=../before

After a change of code that should change no number, the runs of a work directory, and the results that the repository
holds, are marked as of older code. Of each kind of run, some are rerun. If all are as before, the runs and the
results get the digests of today's code; else nothing is changed, and what differs is said. With --reference, a checkout
in which the code is still that of the results stands for stored runs: both checkouts do the sample, and the whole
figure at the scale smoke. Where data sets alone have changed, their examples are compared instead, those of all runs.
"""

_NOT_OF_THE_RESULT = ("compute_seconds", "finished", "files", "rank", "title", "families")
"""Entries of records that say how a run was done or is drawn, and not what came out."""

_MOST_SHOWN = 8
"""So many differences are said."""


def define_flags() -> None:
    """Define the command's flags."""
    flags.DEFINE_list("figures", [], "Figures, such as gossip.bounds; by default all whose stored results are older.")
    flags.DEFINE_list(
        "changed", [], "Entries of records that mean something else now, and that the figures do not use."
    )
    flags.DEFINE_integer("sample", 1, "Runs of each kind, that is, of each work and all its parts.", lower_bound=1)
    flags.DEFINE_string("reference", None, "A checkout with the code of the stored results, instead of stored runs.")
    flags.DEFINE_integer("jobs", None, "Processes at once (default: one for each core).", lower_bound=1)


def main(argv: Sequence[str]) -> None:
    """Restamp figures, and say of each what came out.

    Raises:
      UsageError: where a figure is not known.
      RunFailed: where some figure differs, or has nothing to compare with.
    """
    del argv
    given, wrong = flags.FLAGS, []
    session = Session(launch.workdir(DEFAULT_WORKDIR), given.jobs)
    for made in _figures(given.figures):
        stored = board.stored_result(made.name)
        scale = stored.facts["scale"] if stored else "laptop"
        print(f"{made.name}, scale {scale}", flush=True)
        try:
            if given.reference is None:
                found = of_runs(made, scale, session, given.sample)
            else:
                found = of_checkout(made, pathlib.Path(given.reference), given.sample, given.jobs)
        except (UsageError, RunFailed) as error:  # which keeps no other figure from it
            found = str(error).strip().splitlines()[-1:]
        for line in found[:_MOST_SHOWN]:
            print(f"  {line}")
        if len(found) > _MOST_SHOWN:
            print(f"  and {len(found) - _MOST_SHOWN} more")
        wrong += [made.name] * bool(found)
    if wrong:
        raise RunFailed(f"error: {', '.join(wrong)} cannot be restamped; see above")


def of_runs(made: Figure, scale: str, session: Session, count: int) -> list[str]:
    """Restamp the runs of a figure in a work directory, make it anew of them, and restamp the stored result.

    What differs is returned, in lines; nothing where all agree.

    Raises:
      UsageError: where runs are missing.
    """
    noted = Noted()
    trusting = dataclasses.replace(session, noted=noted, trusting=True, used={}, code={})
    try:
        with within(trusting), contextlib.redirect_stdout(io.StringIO()):
            made(**made.values(scale))
    except Unfinished as left:
        raise UsageError(
            f"--workdir={session.path}: {left}, so that there is nothing to compare with; `python -m experiments "
            f"{made.name} --scale={scale}` does them, and --reference compares with a checkout instead"
        ) from left
    store, older = session.store, []
    for work, point in noted.found.values():
        records = store.read(point.name) or []
        if records[0].get("code") != code_of(work, point.settings):
            older.append((work, point))
    chosen = sampled.sample(older, count)
    sweeps = {name: Sweep(point.settings, [{}], work=work) for name, (work, point) in chosen.items()}
    with tempfile.TemporaryDirectory(prefix="restamp-") as folder, within(Session(pathlib.Path(folder), session.jobs)):
        prepare(*sweeps.values())
        after = {name: sweep.records()[0][1] for name, sweep in sweeps.items()}
    before = {name: store.read(point.name) or [] for name, (_, point) in chosen.items()}
    if found := differences(before, after, flags.FLAGS.changed):
        return found
    for work, point in older:
        store.stamp(point.name, code_of(work, point.settings))
    print(f"  {len(chosen)} of {len(older)} runs were done again, and agree to the bit; all {len(older)} are restamped")
    stored = board.stored_result(made.name)
    folder = publishing.produce(made, scale, {}, session)
    facts = json.loads((folder / publishing.CLAIMS).read_text(encoding="utf-8"))
    if stored is None or stored.facts["scale"] != scale:
        return []
    table = (folder / f"{publishing.TABLE}.csv").read_text(encoding="utf-8")
    if found := _unlike_stored(stored, facts, table):
        return found
    _stamp(stored, made, facts["code"], f"{len(chosen)} of {len(older)} runs")
    return []


def of_checkout(made: Figure, reference: pathlib.Path, count: int, jobs: int | None) -> list[str]:
    """Restamp the stored result of a figure, whose sample another checkout does as this one does.

    What differs is returned, in lines; nothing where all agree.

    Raises:
      UsageError: where nothing is stored, or the checkout is not one.
    """
    stored = board.stored_result(made.name)
    if stored is None:
        raise UsageError(f"--figures={made.name}: no result is stored")
    if not (reference / "experiments" / "harness").is_dir():
        raise UsageError(f"--reference={reference} must be a checkout of this repository")
    code = stored.facts["code"]
    now = {publishing.FIGURE: digests.of_code(made.make)} | {p: digest_now(p) for p in code if p != publishing.FIGURE}
    changed = [part for part, digest in code.items() if now[part] != digest]
    only_data = bool(changed) and all(part.startswith("data:") for part in changed)
    given = {"name": made.name, "scale": stored.facts["scale"], "count": count, "jobs": jobs}
    given |= {"code": code, "only_data": only_data}
    here = pathlib.Path(experiments.__path__[0]).parent
    before = _outcome(reference.resolve(), given | {"same_code": True})
    if before["changed"]:
        return [f"{reference} has other code too: {', '.join(before['changed'])}; name an earlier checkout"]
    if only_data and not before["runs"]:  # those on data are known once others are done
        only_data = False
        before = _outcome(reference.resolve(), given | {"same_code": True, "only_data": False})
    after = _outcome(here, given | {"same_code": False, "only_data": only_data})
    if only_data:
        sample = f"the examples of {counted(len(after['runs']), 'run')}"
        if before["runs"] != after["runs"]:
            return [f"{sample} are not all the same"]
    else:
        if found := differences(before["runs"], after["runs"], flags.FLAGS.changed):
            return found
        if before["table"] != after["table"]:
            return ["the table at the scale smoke", *_lines_unlike(before["table"], after["table"])]
        sample = f"{counted(len(after['runs']), 'run')} and the scale smoke"
    print(f"  {sample} agree to the bit")
    _stamp(stored, made, after["code"], sample)
    return []


def differences(
    before: Mapping[str, Records], after: Mapping[str, Records], changed: Collection[str] = ()
) -> list[str]:
    """Return in which runs, and where in them, two sets of records differ.

    Args:
      before: records by name of the run.
      after: the same of newer code, which may have further entries.
      changed: entries that mean something else now, and are not compared.

    Example:
      >>> old = [{"kind": "run"}, {"kind": "summary", "loss": 0.5, "compute_seconds": 2.0}]
      >>> new = [{"kind": "run"}, {"kind": "summary", "loss": 0.25, "compute_seconds": 1.0, "gap": 1.0}]
      >>> differences({"a": old}, {"a": old}), differences({"a": old}, {"a": new})
      ([], ['a: loss of its record 1 (summary) was 0.5, and is 0.25'])
    """
    found = [f"{name}: only one of both has this run" for name in sorted(before.keys() ^ after.keys())]
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        if len(old) != len(new):
            found.append(f"{name}: it had {len(old)} records, and has {len(new)}")
        for number, (one, other) in enumerate(zip(old, new, strict=False)):
            if one["kind"] == "run":  # what was done; what came of it follows
                continue
            for entry in one.keys() - {*_NOT_OF_THE_RESULT, *changed}:
                if one[entry] != other.get(entry):
                    where = f"{entry} of its record {number} ({one['kind']})"
                    found.append(f"{name}: {where} was {one[entry]}, and is {other.get(entry)}")
    return found


def _figures(names: Sequence[str]) -> list[Figure]:
    """Return figures by their names, or all whose stored results are of older code."""
    if not names:
        everything = figures.figures(apart=True)
        results = [(made, board.stored_result(made.name)) for made in everything]
        return [made for made, result in results if result and result.changed(made)]
    for name in names:
        if name not in figures.names() or figures.find_figure(name) is None:
            raise UsageError(f"--figures={name} must be a table or figure; `python -m experiments` lists them")
    return [made for name in names if (made := figures.find_figure(name))]


def _outcome(checkout: pathlib.Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a checkout makes of a sample, in a process of its own."""
    text = pathlib.Path(sampled.__file__).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="restamp-") as folder:
        asked, answer, program = (pathlib.Path(folder) / name for name in ("asked", "answer", "sampled_here.py"))
        asked.write_text(json.dumps(dict(given)), encoding="utf-8")
        program.write_text(text, encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": str(checkout)}
        line = [sys.executable, str(program), str(asked), str(answer)]
        ended = subprocess.run(line, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        if ended.returncode:
            last = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise RunFailed(f"error: {given['name']} in {checkout} failed: {last}")
        return json.loads(answer.read_text(encoding="utf-8"))


def _unlike_stored(stored: board.Result, facts: Mapping[str, Any], table: str) -> list[str]:
    """Return what differs between a stored result and the same figure made now."""
    before = "" if stored.table is None else stored.table.read_text(encoding="utf-8")
    if stored.table is not None and before != table:
        return ["the table that is stored", *_lines_unlike(before, table)]
    claims = [[(claim["says"], claim["ours"]) for claim in each["claims"]] for each in (stored.facts, facts)]
    return [f"{says}: was {ours}" for says, ours in claims[0] if (says, ours) not in claims[1]]


def _lines_unlike(before: str, after: str) -> list[str]:
    old, new = before.splitlines(), after.splitlines()
    unlike = [f"was {one}, and is {other}" for one, other in zip(old, new, strict=False) if one != other]
    return unlike + [f"it had {len(old)} lines, and has {len(new)}"] * (len(old) != len(new))


def _stamp(stored: board.Result, made: Figure, code: Mapping[str, str], sample: str) -> None:
    """Write today's digests of code into a stored result, and what that rests on."""
    table = "" if stored.table is None else stored.table.read_text(encoding="utf-8")
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    stamp = {"when": when, "commit": digests.made_with()["commit"], "sample": sample}
    facts = stored.facts | {"code": {**code, publishing.FIGURE: digests.of_code(made.make)}, "restamped": stamp}
    if stored.table is not None:
        facts["digest"] = publishing.digest(facts, table)
    files.write_text(board.STORED / f"{made.name}.json", json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    print(f"  {board.STORED / made.name}.json has the digests of today's code", flush=True)
