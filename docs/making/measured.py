"""Measurements of each method: the stored result of one command, with the commit and machine that made it."""

import csv
import dataclasses
import functools
import math
from collections.abc import Mapping

import scipy.stats

from experiments.harness import board

NAME = "beyond.methods"
"""The command whose result is stored, beside those of the papers."""
COMMAND = f"python -m experiments {NAME}"
STORES = "python -m experiments scoreboard --store"
"""The command that keeps the newest results in the repository."""

LEVEL = 0.95
"""Confidence with which a difference is called one."""
TEST_DIGITS = 360


@dataclasses.dataclass(frozen=True)
class Row:
    """One method at one number of workers: means over the seeds.

    Attributes:
      method: its name.
      num_workers: N; 1 is a single worker.
      serial: whether it is the single worker that others are compared with.
      seeds: how many.
      diverged: how many of them were lost.
      accuracy: on the test set, %; and its standard deviation, or the median and no deviation where runs diverged.
      seconds_to_target: of virtual time, until 95 % test accuracy; NaN where not all seeds reach it.
      speedup: used gradients per second, over those of synchronous SGD.
      staleness: mean number of updates between reading and use.
      wasted: share of the workers' time that went into gradients which were dropped.
    """

    method: str
    num_workers: int
    serial: bool
    seeds: int
    diverged: int
    accuracy: tuple[float, float]
    seconds_to_target: float
    speedup: float
    staleness: float
    wasted: float

    def error(self) -> float:
        """Standard error of the mean accuracy, percentage points."""
        return self.accuracy[1] / math.sqrt(self.seeds)


@functools.cache
def rows() -> tuple[Row, ...]:
    """Return all rows that are stored; none where nothing is."""
    found = board.stored_result(NAME)
    if found is None or found.table is None:
        return ()
    with found.table.open(encoding="utf-8", newline="") as file:
        return tuple(_row(record) for record in csv.DictReader(file))


@functools.cache
def made() -> dict[str, str]:
    """Return the command, when, on what and by which version the stored table was made; empty where there is none."""
    found = board.stored_result(NAME)
    if found is None:
        return {}
    made = {name: str(value) for name, value in found.facts["made"].items()}
    day = found.facts["when"].partition("T")[0]
    return {**made, "command": COMMAND, "hardware": found.facts["hardware"], "when": day}


def of(method: str) -> dict[int, Row]:
    """Return the rows of a method by number of workers, more than one."""
    return {row.num_workers: row for row in rows() if row.method == method and row.num_workers > 1}


def single(baseline: str) -> Row | None:
    """Return the single worker with the rule of that name."""
    return next((row for row in rows() if row.serial and row.method == baseline), None)


def differs(row: Row, other: Row) -> float:
    """Return how much more accurate one is than another, in points; 0 where the seeds do not tell them apart."""
    difference = row.accuracy[0] - other.accuracy[0]
    if min(row.seeds, other.seeds) < 2:
        return 0.0
    # Student's quantile: of three seeds each, 2.8 standard errors and not 2. One test digit is never a difference.
    distinct = scipy.stats.t.ppf((1 + LEVEL) / 2, row.seeds + other.seeds - 2)
    least = max(distinct * math.hypot(row.error(), other.error()), 100 / TEST_DIGITS)
    return difference if abs(difference) > least else 0.0


def _row(record: Mapping[str, str]) -> Row:
    def number(name: str) -> float:
        return float(record[name]) if record.get(name) else math.nan

    return Row(
        method=record["method"],
        num_workers=int(record["num_workers"]),
        serial=record["serial"] == "1",
        seeds=int(record["seeds"]),
        diverged=int(record["diverged"]),
        accuracy=(number("ours"), number("±")),
        seconds_to_target=number("seconds_to_target"),
        speedup=number("speedup"),
        staleness=number("staleness"),
        wasted=number("wasted_share"),
    )
