"""Reads the findings of tuned comparisons, as `python -m experiments.tuned` stores them."""

import csv
import dataclasses
import functools
import math
import pathlib

import experiments
from docs.making import tables
from sgdlab.runs.methods import methods

STORED = pathlib.Path(experiments.__file__).parent / "results" / "tuned" / "methods.csv"

TITLES = {
    "gamma": "unequal workers",
    "stalls": "rare long stalls",
    "equal": "equal workers",
    "ladder": "a ladder of speeds",
    "ethernet": "a slow network and failures",
}
"""Says what the first part of a workload's name stands for."""

HEADINGS = ["seconds to 95 %", "untuned", "test accuracy, %", "lost seeds", "trials that reach 95 %", "tuned"]


@dataclasses.dataclass(frozen=True)
class Tuned:
    """A method at its best on one workload.

    Attributes:
      workload: its name.
      method: the method's name.
      seconds: median virtual seconds to 95 % test accuracy, infinite where half of the seeds miss it; and the 95 %
        interval of the median.
      untuned: the median with the configuration as it is.
      first: whether it is statistically indistinguishable from the fastest.
      accuracy: median at the end, %.
      diverged: lost seeds.
      seeds: how many.
      reached: trials that reach 95 %, and all trials.
      settings: what was chosen, in words.
    """

    workload: str
    method: str
    seconds: tuple[float, float, float]
    untuned: float
    first: bool
    accuracy: float
    diverged: int
    seeds: int
    reached: tuple[int, int]
    settings: str


@functools.cache
def rows() -> tuple[Tuned, ...]:
    """Return all rows that are stored, the fastest of each workload first; none where nothing is."""
    if not STORED.exists():
        return ()
    with STORED.open(encoding="utf-8", newline="") as file:
        found = [_row(record) for record in csv.DictReader(file)]
    return tuple(sorted((row for row in found if row.method in methods()), key=lambda row: (row.workload, row.seconds)))


def of(method: str) -> list[Tuned]:
    """Return the rows of a method."""
    return [row for row in rows() if row.method == method]


def on(workload: str) -> list[Tuned]:
    """Return the rows of a workload."""
    return [row for row in rows() if row.workload == workload]


def title(workload: str) -> str:
    """Return a workload in words.

    Example:
      >>> title("gamma-n32"), title("stalls-n8-own")
      ('unequal workers, 32', 'rare long stalls, 8, data of their own')
    """
    cluster, count, *own = workload.split("-")
    return f"{TITLES[cluster]}, {count.removeprefix('n')}{', data of their own' if own else ''}"


def cells(row: Tuned) -> list[str]:
    """Return the cells of a row under `HEADINGS`."""
    middle, low, high = map(_seconds, row.seconds)
    return [
        f"{'**' if row.first else ''}{middle}{'**' if row.first else ''} ({low} to {high})",
        _seconds(row.untuned),
        f"{row.accuracy:.1f}",
        f"{row.diverged} of {row.seeds}" if row.diverged else "none",
        f"{row.reached[0]} of {row.reached[1]}",
        row.settings,
    ]


def verdict(row: Tuned) -> str:
    """Return how a method stands on a workload, in a sentence."""
    best = on(row.workload)[0]
    where = f"on {title(row.workload)}"
    if row.first:
        alone = sum(other.first for other in on(row.workload)) == 1
        return f"**First** {where}." if alone else f"**Within the noise of the fastest** {where}."
    if not math.isfinite(row.seconds[0]):
        return f"Half of the seeds or more miss 95 % {where}."
    ratio = f"{row.seconds[0] / best.seconds[0]:.1f} times the median time of the fastest"
    return f"{ratio}, {methods()[best.method].title}, {where}."


def _seconds(value: float) -> str:
    return "never" if not math.isfinite(value) else tables.number(value, 0)


def _row(record: dict[str, str]) -> Tuned:
    number = lambda name: float(record[name] or "inf")
    return Tuned(
        workload=record["workload"],
        method=record["method"],
        seconds=(number("seconds"), number("low"), number("high")),
        untuned=number("untuned"),
        first=record["first"] == "1",
        accuracy=100 * number("accuracy"),
        diverged=int(record["diverged"]),
        seeds=int(record["seeds"]),
        reached=(int(record["trials_that_reach"]), int(record["trials"])),
        settings=record["settings"],
    )
