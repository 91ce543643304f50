"""A benchmark of diagnosis: fleets with planted faults, on which tools' rules, and answers of yours, are scored.

    python -m experiments.benchmarks.diagnosis                       sgdlab's diagnosis and published rules
    python -m experiments.benchmarks.diagnosis --write=fleets        the fleets as CSV files, and truth.json
    python -m experiments.benchmarks.diagnosis --answers=mine.json   what another tool says of these files
    python -m experiments.benchmarks.diagnosis --fleets=recorded     the rules, or --answers, on files with a truth.json

A fleet is a job of 4 to 64 workers with 100 to 2,000 synchronous steps of about a second, in which workers are slow by
1.15 to 2 times, or none is. Its noise follows one of eight laws, of which five were never used to choose a threshold of
sgdlab. Scored are how often exactly the slow workers are named first, by how many steps the first slow one is missed,
how many false alarms there are in 1,000 clean hours, and by how much the cost is missed.

`truth.json` says of each file the `fault`, `workers`, `since`, `until` (rows, from 0), `cost` (the share of the job's
time that is lost) and `law`. Answers are {file: [{"workers": [...], "since": row or null, "cost": share or null}]},
what to look at first at first. With --store, the table, its numbers and a picture are kept in
experiments/results/diagnosis.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from scipy import stats

from experiments.benchmarks.planted import fleets as laws
from experiments.benchmarks.planted import trials
from experiments.benchmarks.planted.plants import Plant
from experiments.benchmarks.planted.rules import RULES, Answer, Rule
from experiments.benchmarks.planted.trials import NOTHING, Trial
from sgdlab import files, traces
from sgdlab.report.table import Table
from sgdlab.results import plots
from sgdlab.traces import Recording

FAULTS = (
    "one slow worker, all along", "one slow worker since a step", "one slow worker for a while",
    "one slow worker at times", "2 to 4 slow workers since a step", "a slow node since a step", "drift of one worker",
)  # fmt: skip
"""Planted faults that have workers to blame."""

LAWS = (None, None, None, *laws.HELD_OUT, *laws.SKEWED)
"""Laws of the noise, in turn; None is one of the three on which sgdlab's thresholds were chosen."""

CLEAN = 20
"""Times as many fleets without a fault as with each one."""

DRAWS, WRITTEN = 100, 20
SECONDS = 1.0
"""Of a step, about."""

TRUTH = "truth.json"
RESULTS = pathlib.Path(__file__).parents[1] / "results" / "diagnosis"
_LEVEL = 0.95


class Fleet(NamedTuple):
    """A fleet.

    Attributes:
      name: of its file.
      fault: None: clean.
      plant: its compute times, and who is slow.
      cost: share of the time of synchronous steps that the fault costs; None where it is unknown.
    """

    name: str
    fault: str | None
    plant: Plant
    cost: float | None = None


@dataclasses.dataclass(frozen=True)
class Score:
    """Holds the figures of a tool.

    Attributes:
      first: fault -> how many fleets there are, and of how many exactly the slow workers are named first.
      since: steps between the planted first slow step and the one that is named, of those; empty if none is named.
      alarms: clean fleets in which something is named.
      hours: of the clean fleets' synchronous steps.
      cost: absolute errors of the cost; empty if none is named.
    """

    first: Mapping[str, tuple[int, int]]
    since: Sequence[float]
    alarms: int
    hours: float
    cost: Sequence[float]


def fleet_of(fault: str, draw: int, seed: int) -> Fleet:
    """Draw a fleet."""
    name = f"{'clean' if fault == NOTHING else fault.replace(',', '').replace(' ', '-')}-{draw}.csv"
    plant = trials.planted(Trial(fault, draw, seed, LAWS[draw % len(LAWS)]))
    cost = float(1 - plant.fleet.clean.max(axis=1).sum() / plant.fleet.runtimes.max(axis=1).sum())
    return Fleet(name, None if fault == NOTHING else fault, plant, cost)


def recorded(
    name: str,
    fault: str | None,
    recording: Recording,
    *,
    workers: Sequence[int] = (),
    since: int | None = None,
    until: int | None = None,
    law: str = "recorded",
    cost: float | None = None,
) -> Fleet:
    """Return the fleet of a recording, of whose noise nothing is known."""
    fleet = laws.Fleet(recording.runtimes, recording.nodes, math.nan, math.nan, law, recording.runtimes)
    return Fleet(name, fault, Plant(fleet, None, tuple(workers), since, until), cost)


def asked(draws: int, seed: int) -> list[tuple[str, int, int]]:
    """Return the faults, draws and seeds of all fleets."""
    counts = dict.fromkeys(FAULTS, draws) | {NOTHING: CLEAN * draws}
    return [(fault, draw, seed) for fault, count in counts.items() for draw in range(count)]


def answered(one: tuple[str, int, int]) -> dict[str, list[Answer]]:
    """Return what each rule says of a fleet."""
    fleet = fleet_of(*one)
    return {name: named(rule, fleet) for name, rule in RULES.items()}


def named(rule: Rule, fleet: Fleet) -> list[Answer]:
    """Return what a rule says of a fleet."""
    return rule(fleet.plant.fleet.runtimes, fleet.plant.fleet.nodes)


def scored(fleets: Sequence[Fleet], answers: Sequence[Sequence[Answer]]) -> Score:
    """Score answers.

    Example:
      >>> fleets = [fleet_of("one slow worker since a step", 0, 0), fleet_of(NOTHING, 0, 0)]
      >>> plant = fleets[0].plant
      >>> score = scored(fleets, [[Answer(plant.workers, plant.since + 3, fleets[0].cost)], []])
      >>> score.first["one slow worker since a step"], score.since, score.alarms, score.cost
      ((1, 1), [3], 0, [0.0])
    """
    first: dict[str, tuple[int, int]] = {}
    since: list[float] = []
    cost: list[float] = []
    alarms, hours = 0, 0.0
    for fleet, said in zip(fleets, answers, strict=True):
        plant = fleet.plant
        if fleet.fault is None:
            alarms, hours = alarms + bool(said), hours + float(plant.fleet.runtimes.max(axis=1).sum()) / 3600
            continue
        right = bool(said) and set(said[0].workers) == set(plant.workers)
        count, hits = first.get(fleet.fault, (0, 0))
        first[fleet.fault] = (count + 1, hits + right)
        if right and said[0].since is not None and plant.since is not None:
            since.append(abs(said[0].since - plant.since))
        if right and said[0].cost is not None and fleet.cost is not None:
            cost.append(abs(said[0].cost - fleet.cost))
    return Score(first, since, alarms, hours, cost)


def table(scores: Mapping[str, Score]) -> Table:
    """Return the table of scores."""
    rows, faults = [], list(dict.fromkeys(fault for score in scores.values() for fault in score.first))
    columns = {
        "tool": "whose rule it is",
        "named first": "fleets with a fault of which exactly the slow workers are named first, with a 95 % interval",
        **dict.fromkeys(faults, "the same, of this fault"),
        "since, off by": "median distance of the first slow step from the one that is named, in steps",
        "false alarms": "clean fleets in which something is named, in 1,000 hours, with a 95 % interval",
        "cost, off by": "median error of the share of time that the fault costs, in points",
    }
    for name, score in scores.items():
        count, hits = (sum(pair[index] for pair in score.first.values()) for index in (0, 1))
        rows.append(
            [
                name,
                share_of(hits, count),
                *(f"{100 * score.first[fault][1] / score.first[fault][0]:.0f} %" for fault in faults),
                f"{np.median(score.since):g}" if score.since else "-",
                _rate(score.alarms, score.hours),
                f"{100 * np.median(score.cost):.2f}" if score.cost else "-",
            ]
        )
    return Table(columns, rows)


def share_of(hits: int, count: int) -> str:
    """Return a share with its 95 % interval, as tables show it; a dash of nothing.

    Example:
      >>> share_of(98, 100)
      '98.0 % (93.0-99.4)'
    """
    if not count:
        return "-"
    low, high = trials.wilson(hits, count)
    return f"{100 * hits / count:.1f} % ({100 * low:.1f}-{100 * high:.1f})"


def rate(alarms: int, hours: float) -> tuple[float, float, float]:
    """Return alarms in 1,000 hours, and the ends of their exact Poisson interval.

    Example:
      >>> [round(value, 1) for value in rate(0, 100.0)], [round(value, 1) for value in rate(5, 100.0)]
      ([0.0, 0.0, 36.9], [50.0, 16.2, 116.7])
    """
    tail = (1 - _LEVEL) / 2
    low = stats.chi2.ppf(tail, 2 * alarms) / 2 if alarms else 0.0
    high = stats.chi2.ppf(1 - tail, 2 * alarms + 2) / 2
    return tuple(1000 * float(value) / hours for value in (alarms, low, high))


def _rate(alarms: int, hours: float) -> str:
    if not hours:
        return "-"
    value, low, high = rate(alarms, hours)
    return f"{value:,.0f} ({low:,.0f}-{high:,.0f})"


def write(folder: pathlib.Path, draws: int, seed: int) -> None:
    """Write fleets as CSV files, a column for each worker, and what is planted in them."""
    truth: list[dict[str, Any]] = []
    for one in asked(draws, seed):
        fleet = fleet_of(*one)
        runtimes = fleet.plant.fleet.runtimes
        names = [f"worker{number}" for number in range(runtimes.shape[1])]
        text = pd.DataFrame(runtimes, columns=names).to_csv(index_label="step", float_format="%.6g")
        files.write_text(folder / fleet.name, text)
        truth.append(described(fleet))
    about = {"version": 1, "seed": seed, "draws": draws, "seconds_of_a_step": SECONDS, "fleets": truth}
    files.write_text(folder / TRUTH, json.dumps(about, indent=1) + "\n")


def described(fleet: Fleet) -> dict[str, Any]:
    """Return what truth.json says of a fleet."""
    plant = fleet.plant
    known = {"file": fleet.name, "nodes": list(plant.fleet.nodes), "fault": fleet.fault, "law": plant.fleet.law}
    if fleet.fault is not None:
        known |= {"workers": plant.workers, "since": plant.since, "until": plant.until, "cost": fleet.cost}
    return known


def stored(folder: pathlib.Path) -> list[Fleet]:
    """Read fleets that are files beside a truth.json, as `write` and `experiments.recorded` leave them.

    Raises:
      ValueError: where truth.json does not say of each file what `described` does, or a file is no trace.
      OSError: where a file cannot be read.
    """
    path, found = folder / TRUTH, []
    try:
        for known in json.loads(path.read_text(encoding="utf-8"))["fleets"]:
            recording = traces.read(folder / known["file"]).complete()
            recording = dataclasses.replace(recording, nodes=tuple(known["nodes"]))
            given = {name: known[name] for name in ("workers", "since", "until", "cost") if name in known}
            if known["fault"] is not None and not set(known["workers"]) <= set(range(len(recording.workers))):
                raise ValueError(f"workers={known['workers']} of {known['file']} must be numbers from 0 on")
            found.append(recorded(known["file"], known["fault"], recording, law=known["law"], **given))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} must say of each fleet what --write does: {error!r}") from error
    return found


def read(path: pathlib.Path, fleets: Sequence[Fleet]) -> list[list[Answer]]:
    """Read answers of another tool.

    Raises:
      ValueError: where the file does not hold answers, or none of these fleets.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        made = {
            name: [Answer(tuple(map(int, one["workers"])), one.get("since"), one.get("cost")) for one in said]
            for name, said in found.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f'{path} must hold {{file: [{{"workers": [0], "since": 5, "cost": 0.1}}]}}: {error!r}'
        ) from error
    names = {fleet.name for fleet in fleets}
    if unknown := sorted(set(made) - names):
        raise ValueError(
            f"{path} names {unknown[0]!r}, which is no fleet of these draws, or of --fleets: --draws must be as with "
            "--write"
        )
    return [made.get(fleet.name, []) for fleet in fleets]


def store(scores: Mapping[str, Score], command: str) -> None:
    """Write table, numbers and picture of scores."""
    shown = table(scores)
    rows = [
        {
            "tool": name, "fault": fault, "fleets": count, "named_first": hits, "alarms": score.alarms,
            "clean_hours": score.hours, "since_error": float(np.median(score.since)) if score.since else None,
            "cost_error": float(np.median(score.cost)) if score.cost else None,
        }
        for name, score in scores.items()
        for fault, (count, hits) in score.first.items()
    ]  # fmt: skip
    files.write_text(RESULTS / "diagnosis.csv", pd.DataFrame(rows).to_csv(index=False, float_format="%.6g"))
    plots.save(picture(scores), RESULTS / "diagnosis", ["png"])
    meanings = "\n".join(f"* {column}: {said}" for column, said in shown.columns.items() if column not in FAULTS)
    text = (
        f"# Who names the slow workers first\n\nMade by `{command}`. Other tools' rules are re-implemented from what "
        "they publish (`experiments/benchmarks/planted/rules.py`) and see compute times alone; the tools themselves "
        "see more. The fleets are this project's own: faults are as small as 1.15 times, or three deviations of the "
        "noise, which no rule with a threshold of 1.33 times (NVRx) is meant to see.\n\n"
        f"{shown.markdown_grid()}\n\n{meanings}\n\n![shares and false alarms](diagnosis.png)\n"
    )
    files.write_text(RESULTS / "README.md", text)


@mpl.rc_context(plots.STYLE)
def picture(scores: Mapping[str, Score]) -> mpl.figure.Figure:
    """Draw how often slow workers are named first against false alarms, a dot with intervals for each tool."""
    figure = mpl.figure.Figure(figsize=(7.2, 4.4))
    axes = figure.add_subplot()
    for number, (name, score) in enumerate(scores.items()):
        count, hits = (sum(pair[index] for pair in score.first.values()) for index in (0, 1))
        low, high = trials.wilson(hits, count)
        alarms, least, most = rate(score.alarms, score.hours)
        share = hits / count
        axes.errorbar(
            alarms, 100 * share, [[100 * (share - low)], [100 * (high - share)]], [[alarms - least], [most - alarms]],
            fmt="osD^vP"[number % 6], label=name, color=f"C{number}", clip_on=False,
        )  # fmt: skip
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 102)
    axes.set_xlabel("false alarms in 1,000 clean hours")
    axes.set_ylabel("slow workers named first, %")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes fleets, scores answers, or compares the rules; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.benchmarks.diagnosis",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--write", type=pathlib.Path, metavar="FOLDER", help="write the fleets, and truth.json")
    parser.add_argument("--answers", type=pathlib.Path, metavar="FILE", help="score answers of another tool")
    parser.add_argument("--fleets", type=pathlib.Path, metavar="FOLDER", help="of files with a truth.json, to score on")
    parser.add_argument("--draws", type=int, help=f"of each fault (default: {DRAWS}; of files {WRITTEN})")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (default: %(default)s)")
    parser.add_argument("--store", action="store_true", help="keep table, numbers and picture with the results")
    given = parser.parse_args(arguments)
    draws = (WRITTEN if given.write or given.answers else DRAWS) if given.draws is None else given.draws
    if draws < 1:
        parser.error(f"--draws={draws} must be at least 1")
    if given.store and (given.answers or given.fleets):
        parser.error("--store keeps the scores of drawn fleets: it must be left out beside --answers and --fleets")
    if given.write:
        write(given.write, draws, given.seed)
        print(f"Written: {len(asked(draws, given.seed))} fleets and truth.json in {given.write}")
        return 0
    wanted = asked(draws, given.seed)
    try:
        fleets = stored(given.fleets) if given.fleets else [fleet_of(*one) for one in wanted]
    except (OSError, ValueError) as error:
        print(f"error: --fleets={given.fleets}: {error}", file=sys.stderr)
        return 2
    if given.answers:
        try:
            scores = {given.answers.stem: scored(fleets, read(given.answers, fleets))}
        except (OSError, ValueError) as error:
            print(f"error: --answers={error}", file=sys.stderr)
            return 2
    elif given.fleets:
        scores = {name: scored(fleets, [named(rule, fleet) for fleet in fleets]) for name, rule in RULES.items()}
    else:
        said = trials.pooled(answered, wanted)
        scores = {name: scored(fleets, [one[name] for one in said]) for name in RULES}
    print(table(scores).grid())
    if given.store:
        store(scores, f"python -m experiments.benchmarks.diagnosis --draws={draws} --seed={given.seed} --store")
    return 0


if __name__ == "__main__":
    sys.exit(main())
