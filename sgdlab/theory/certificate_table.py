"""Certificates as a table: for the terminal, as Markdown, as CSV and as JSON."""

import dataclasses
import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from sgdlab.report import words
from sgdlab.report.finite import finite
from sgdlab.report.table import Table, in_csv
from sgdlab.report.words import some
from sgdlab.theory import floors
from sgdlab.theory.certificate import Certificate
from sgdlab.theory.problem import Problem

COLUMNS = {
    "method": "whom the server waits for, and what it does with a gradient",
    "R": "largest distance in the computation tree between the server's parameters and those that a gradient was "
    "computed on",
    "gradients": "number after which the theorem promises the accuracy: 4 (R + 1) L D / eps + 8 sigma^2 L D / eps^2, "
    "of plain SGD with workers that share one distribution",
    "seconds": "time of these gradients at the pace of the schedule",
    "staleness": "updates between the reading of the parameters and the use of the gradient: the mean",
    "largest": "staleness of the stalest gradient",
    "in flight": "gradients under way at a time: the mean",
    "most": "largest number of gradients under way at a time (the concurrency)",
    "effective": "number of equally used workers with the same inverse Simpson index: 1 / sum of the squared shares of "
    "the used gradients",
    "least used": "the worker with the smallest share, and that share times N (1: all are used alike)",
}
"""Headings, with their meaning."""


@dataclasses.dataclass(frozen=True, eq=False)
class Certified:
    """Holds what is known of several methods.

    Attributes:
      certificates: title -> certificate.
      problem: for which the gradients and seconds are.
      seconds: float64[N], mean seconds of a gradient of each worker, for the least time; None: they are not known.
      balanced: titles of methods whose rules weigh all workers alike, however many of their gradients are used.
      local: titles of methods whose messages are more than gradients: the way of a worker's own steps.
    """

    certificates: Mapping[str, Certificate]
    problem: Problem
    seconds: np.ndarray | None = None
    balanced: Collection[str] = ()
    local: Collection[str] = ()


def table(known: Certified) -> Table:
    """A row for each certificate, with the meaning of the columns and what is not defined below."""
    rows = [_row(title, found, known.problem) for title, found in known.certificates.items()]
    return Table(COLUMNS, rows, notes(known), obvious=("method",))


def comma_separated(known: Certified) -> str:
    """All numbers as CSV in full precision; empty where one is not defined."""
    return in_csv(_plain(title, found, known.problem) for title, found in known.certificates.items())


def as_json(known: Certified) -> str:
    """All of it as JSON: `problem`, `floors` (null without `seconds`) and `certificates`, by title."""
    problem, seconds = known.problem, known.seconds
    found = {
        "problem": {name: getattr(problem, name) for name in ("smoothness", "descent", "variance", "accuracy")},
        "floors": None
        if seconds is None
        else {
            "homogeneous": floors.homogeneous(seconds, problem).seconds,
            "heterogeneous": floors.heterogeneous(seconds, problem).seconds,
            "workers": floors.homogeneous(seconds, problem).workers,
        },
        "certificates": {
            title: one.as_dict() | {"iterations": one.iterations(problem), "seconds_to": one.seconds_to(problem)}
            for title, one in known.certificates.items()
        },
    }
    return json.dumps(finite(found), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def notes(known: Certified) -> list[str]:
    """Sentences on the whole table: the problem, the least time, who is under-used, what is not defined."""
    certificates, problem, seconds = known.certificates, known.problem, known.seconds
    found = [
        f"The problem: L = {problem.smoothness:g}, D = {problem.descent:g}, sigma^2 = {problem.variance:g}, "
        f"eps = {problem.accuracy:g}. Of a network they are unknown: compare rows, and do not read them as forecasts."
    ]
    if seconds is not None:
        least, own = floors.homogeneous(seconds, problem), floors.heterogeneous(seconds, problem)
        found.append(
            f"No method can be faster, up to a constant, than {number(least.seconds)} s where all workers have data of "
            f"one distribution ({least.workers} of the {seconds.size} workers are enough for it), and than "
            f"{number(own.seconds)} s where each has its own (Tyurin and Richtarik 2023)."
        )
    hardly: dict[tuple[int, ...], list[str]] = {}
    for title, one in certificates.items():
        if one.under_used.size and title not in known.balanced:
            hardly.setdefault(tuple(one.under_used.tolist()), []).append(title)
    if hardly:
        whose = "; ".join(f"of {_workers(workers)} under {some(titles)}" for workers, titles in hardly.items())
        found.append(
            "Where workers have data of their own, some of these data are under-used (less than half of an equal share "
            f"of the gradients): {whose}."
        )
    alike = [title for title in certificates if title in known.balanced]
    if alike:
        found.append(f"Shares count gradients. Yet all workers weigh alike under {some(alike)}, by the rule.")
    unequal = [title for title, one in certificates.items() if not one.equal_updates]
    if unequal:
        found.append(
            "The theorem asks for one step size of every gradient; where updates average unequal numbers of them, that "
            f"is a sum instead of a mean, or a rate in proportion: {some(unequal)}."
        )
    steps = [title for title in certificates if title in known.local]
    if steps:
        found.append(
            "The theorem asks for one step size; where workers make steps of their own, these have another than the "
            f"server's: {', '.join(steps)}."
        )
    said: dict[str, list[str]] = {}
    for title, one in certificates.items():
        if one.note:
            said.setdefault(one.note, []).append(title)
    return found + [f"{some(titles)}: {note}" for note, titles in said.items()]


def number(value: float) -> str:
    """A number as tables show it, that may be infinite or not defined."""
    if not math.isfinite(value):
        return "never" if value > 0 else "-"
    return words.number(value)


def _workers(numbers: Sequence[int]) -> str:
    return f"worker{'s' * (len(numbers) > 1)} {some([str(number) for number in numbers])}"


def _row(title: str, found: Certificate, problem: Problem) -> list[str]:
    needed = found.iterations(problem)
    of_server = ["-"] * 5
    if needed is not None:
        seconds: Any = found.seconds_to(problem)
        of_server = [
            f"{found.tree_distance:,}",
            f"{needed:,}",
            number(seconds),
            number(found.mean_staleness),  # pyrefly: ignore[bad-argument-type]  # of a server
            f"{found.largest_staleness:,}",
        ]
    return [
        title,
        *of_server,
        number(found.mean_in_flight),
        f"{found.most_in_flight:,}",
        f"{number(found.effective_workers)} of {found.num_workers}",
        f"{found.least_used} ({found.least_share:.2f})",
    ]


def _plain(title: str, found: Certificate, problem: Problem) -> dict[str, Any]:
    entries = found.as_dict()
    left = {name: entries[name] for name in entries if name not in ("shares", "under_used", "block_distances", "note")}
    needed = {"iterations": found.iterations(problem), "seconds_to": found.seconds_to(problem)}
    return {"method": title} | finite(needed | left)
