"""Compares two traces, as of a job before and after a repair: what changed, by how much, and what cannot be told apart.

Each trace is cut into up to ten blocks of consecutive steps, whose means are compared by Welch's intervals, as parts of
one trace are (`sgdlab.stragglers.comparison.halves`). The course of a cause that began or ended in a trace is no noise.
The intervals hold all together in `1 - LEVEL` of pairs (Bonferroni): half of it is spent on the workers, half on the
other rows.
"""

import dataclasses
import itertools
import json
from collections.abc import Collection, Mapping

import numpy as np

from sgdlab import arrays
from sgdlab.report import pages
from sgdlab.report.finite import finite
from sgdlab.report.table import Table
from sgdlab.report.words import counted, listed, percent
from sgdlab.stragglers.comparison.halves import blocks, find_differences
from sgdlab.stragglers.diagnosis import pauses
from sgdlab.stragglers.diagnosis.causes import ALL_SLOWER, DRIFT, HEAVY_TAIL, PAUSES
from sgdlab.stragglers.diagnosis.diagnosis import find_causes
from sgdlab.stragglers.repairs import AtMedian, synchronous_seconds
from sgdlab.traces import Recording

LEVEL = 0.02
LEAST = 0.01
"""Least change, of a ratio or of a share of the time, that is called one."""
SHOWN = 20
"""Workers in the table, those that changed most first."""

_DATED = 2
"""Most causes of a trace whose course is known."""

JOB, WORKER, CAUSE = "job", "worker", "cause"
_JOB = {
    "seconds per step": ("slower", "faster"),
    "seconds of the median worker": ("slower", "faster"),
    "straggler cost": ("larger", "smaller"),
}
"""Rows of the job -> what they are called where they have become more, and less."""
_MEANINGS = {
    "what": "straggler cost: the slowest worker's seconds over the median one's; workers: their own over that; causes: "
    "the share of full synchrony's time that they cost; the median one is of those without a cause",
    "before": "in the first trace",
    "after": "in the second trace",
    "change": f"after over before, of causes their difference; all intervals together hold in {1 - LEVEL:.0%} of pairs",
    "verdict": f"unchanged where the interval does not tell, or where it is less than {LEAST:.0%}",
}


@dataclasses.dataclass(frozen=True)
class Change:
    """Holds one number of both traces, and its change with an interval: a ratio, or of a cause a difference."""

    kind: str  # "job", "worker" or "cause"
    what: str
    before: float
    after: float
    change: float
    low: float
    high: float
    verdict: str  # "slower", "came" and the like; "unchanged" where that cannot be told

    def cells(self) -> list[str]:
        """Return the row of the table."""
        write = percent if self.kind == CAUSE else "{:.3f}".format
        interval = f"{write(self.change)} ({write(self.low)} to {write(self.high)})"
        what = f"worker {self.what}" if self.kind == WORKER else self.what
        return [what, write(self.before), write(self.after), interval, self.verdict]


@dataclasses.dataclass(frozen=True)
class Changes:
    """Holds all rows, the names of both traces, and the workers that each has alone."""

    names: tuple[str, str]
    rows: tuple[Change, ...]
    only: tuple[list[str], list[str]]

    @property
    def changed(self) -> list[Change]:
        """Return the rows that are not unchanged."""
        return [row for row in self.rows if row.verdict != "unchanged"]

    def sentence(self) -> str:
        """Say what changed."""
        pairs = [(row.kind, f"{row.cells()[0]} {row.verdict}") for row in self.changed]
        said = [listed([words for _, words in group], SHOWN) for _, group in itertools.groupby(pairs, lambda p: p[0])]
        return f"Changed: {'; '.join(said)}." if said else "Nothing changed that these steps can tell."

    def table(self) -> Table:
        """Return the table, with notes on the workers that it leaves out."""
        workers = [row for row in self.rows if row.kind == WORKER]
        workers.sort(key=lambda row: (row.verdict == "unchanged", -abs(np.log(row.change))))
        job, causes = ([row for row in self.rows if row.kind == kind] for kind in (JOB, CAUSE))
        left = len(workers[SHOWN:])
        notes = [f"{counted(left, 'more worker')} stand in changes.json."] * bool(left)
        for name, only in zip(self.names, self.only, strict=True):
            notes += [f"In {name} alone: worker {listed(only, 6)}."] * bool(only)
        shown = [row.cells() for row in (*job, *workers[:SHOWN], *causes)]
        return Table(_MEANINGS, shown, notes)

    def json(self) -> str:
        """Return all of it for programs."""
        found = {"version": 1, "level": LEVEL, **dataclasses.asdict(self)}
        return json.dumps(finite(found), indent=1, ensure_ascii=False) + "\n"

    def page(self) -> str:
        """Return the page as HTML."""
        title, said = " to ".join(self.names), self.sentence()
        return pages.render(
            "sgdlab.stragglers", "changes.html", title=f"From {title}", subtitle="", said=said, table=self.table()
        )


def find_changes(before: Recording, after: Recording, names: tuple[str, str]) -> Changes:
    """Compares the complete steps of two recordings, whose workers are the same where their names are.

    Example:
      >>> times = np.random.default_rng(0).gamma(100.0, 0.01, (2, 200, 9))
      >>> times[1, :, 2] *= 1.5
      >>> pair = [Recording(each, np.arange(200), tuple("abcdefghi")) for each in times]
      >>> print(find_changes(*pair, ("a.csv", "b.csv")).sentence())
      Changed: seconds per step slower and straggler cost larger; worker c slower; slow: c came.
    """
    pair = _Side(before), _Side(after)
    there = set(after.workers)
    shared = [name for name in before.workers if name in there]
    causes = pair[0].causes() | pair[1].causes()
    blamed = {worker for _, workers in causes.values() for worker in workers}
    for trace in pair:
        trace.take_out(blamed)
    level = LEVEL / 2 / (len(_JOB) + len(causes))
    courses = [trace.course() for trace in pair]
    rows = _rows(JOB, _JOB, [trace.job() for trace in pair], level, courses)
    if shared:
        speed = dict.fromkeys(shared, ("slower", "faster"))
        # The median of a block in which a cause shows in part may be anywhere between its levels.
        medians = [np.hstack([np.floor(course), course % 1 > 0]) for course in courses]
        rows += _rows(WORKER, speed, [trace.workers(shared) for trace in pair], LEVEL / 2 / len(shared), medians)
    if causes:
        known = [[cause in trace.causes() for trace in pair] for cause in causes]
        words = [("worse" if one else "came", "better" if other else "went") for one, other in known]
        costs = [np.stack([trace.cost(*cause) for cause in causes.values()], axis=1) for trace in pair]
        rows += _rows(CAUSE, dict(zip(causes, words, strict=True)), costs, level, courses)
    both = set(shared)
    only = [[name for name in trace.complete.workers if name not in both] for trace in pair]
    return Changes(names, tuple(rows), (only[0], only[1]))


def _rows(
    kind: str,
    words: Mapping[str, tuple[str, str]],
    values: list[np.ndarray],
    level: float,
    courses: list[np.ndarray],
) -> list[Change]:
    """Compares float64[K, M] and float64[L, M]: logarithms, or shares of the time that causes cost."""
    before, after = (each.mean(axis=0) for each in values)
    # Workers vary alike, other columns not.
    columns = [np.arange(before.size)] if kind == WORKER else np.arange(before.size)[:, None]
    first, second = values
    parts = [find_differences(first[:, each], second[:, each], level, max, courses) for each in columns]
    change, margin = (np.concatenate(each) for each in zip(*parts, strict=True))
    found, same = np.stack([before, after, change, change - margin, change + margin], axis=1), 0.0
    if kind != CAUSE:
        found, same = np.exp(found), 1.0
    rows = []
    for what, row, told in zip(words, found.tolist(), np.abs(change) > margin, strict=True):
        size = row[2] - same
        rows.append(Change(kind, what, *row, words[what][size < 0] if told and abs(size) >= LEAST else "unchanged"))
    return rows


class _Side:
    """Holds the complete steps of a trace, and what was found in them."""

    def __init__(self, complete: Recording):
        self.complete, self.pauses = complete, pauses.find_pauses(complete)
        self.longest, self.medians = complete.runtimes.max(axis=1), complete.medians
        self.steps = synchronous_seconds(complete.runtimes, complete.transfer())
        self.found = find_causes(complete, self.pauses).causes

    def take_out(self, names: Collection[str]) -> None:
        """Leaves workers out of the median, which a slow one moves where they are few."""
        kept = [i for i, name in enumerate(self.complete.workers) if name not in names]
        if 2 * len(kept) >= len(self.complete.workers):
            self.medians = arrays.median(self.complete.runtimes[:, kept], axis=1)

    def causes(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Return by their names the kind of each, and the names of its workers."""
        found = [(cause.kind, tuple(self.complete.workers[i] for i in cause.workers)) for cause in self.found]
        return {f"slow: {listed(workers, 6)}" if workers else kind: (kind, workers) for kind, workers in found}

    def course(self) -> np.ndarray:
        """Return float64[K, C], the share of each block's steps in which the costliest dated causes show.

        Those of all workers may be swings of the whole cluster, which are noise; more causes than blocks explain all.
        """
        dated = [cause.among(self.steps.size) for cause in self.found if cause.workers and len(cause.episodes) == 1]
        shown = np.array(dated[:_DATED], float).reshape(len(dated[:_DATED]), self.steps.size).T
        return np.stack([block.mean(axis=0) for block in blocks(shown)])

    def job(self) -> np.ndarray:
        """Return float64[K, 3], of each block the logarithms of `_JOB`."""
        columns = np.stack([self.steps, self.longest, self.medians], axis=1)
        steps, longest, medians = np.stack([block.mean(axis=0) for block in blocks(columns)], axis=1)
        return np.log(np.stack([steps, medians, longest / medians], axis=1))

    def workers(self, names: list[str]) -> np.ndarray:
        """Return float64[K, N], of each block the logarithm of each worker's time over the median."""
        place = {name: i for i, name in enumerate(self.complete.workers)}
        places = [place[name] for name in names]
        relative = np.log(self.complete.runtimes[:, places] / self.medians[:, None])
        return np.stack([np.median(block, axis=0) for block in blocks(relative)])

    def cost(self, kind: str, workers: tuple[str, ...]) -> np.ndarray:
        """Return float64[K], of each block the share of the time that a cause costs."""
        here, runtimes = [i for i, name in enumerate(self.complete.workers) if name in workers], self.complete.runtimes
        lost = np.zeros(self.steps.size)
        if workers and 0 < len(here) < runtimes.shape[1]:
            lost = self.longest - AtMedian(here)(runtimes).max(axis=1)
        elif kind == PAUSES:
            lost = self.longest - self.pauses.removed(runtimes).max(axis=1)
        elif kind == HEAVY_TAIL:
            lost = self.longest - self.medians
        for cause in self.found:
            of_all = kind in (ALL_SLOWER, DRIFT) and not (workers or cause.workers)
            if of_all and cause.kind == kind and cause.repair is not None:
                rows = cause.among(lost.size)  # in which its own course is no noise
                saved = (self.longest - cause.repair(runtimes).max(axis=1))[rows].sum()
                lost += rows * self.steps * saved / self.steps[rows].sum()
        return np.array([block.mean() for block in blocks(lost)]) / self.steps.mean()
