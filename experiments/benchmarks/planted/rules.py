"""Rules by which others tell a slow worker, as they publish them, on recorded times; and sgdlab's own diagnosis.

Each looks at windows of `WINDOW` steps, as the tools do at what came since their last report. What a rule does not say
(since when, what it costs) is None in its answers.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from sgdlab.stragglers import diagnosis
from sgdlab.stragglers.diagnosis import pauses
from sgdlab.traces import Recording

WINDOW = 100
"""Steps of a window."""


class Answer(NamedTuple):
    """One thing that a tool says of a fleet.

    Attributes:
      workers: that are slow.
      since: the first step; None: it does not say.
      cost: share of full synchrony's time that mending them saves; None: it does not say.
    """

    workers: tuple[int, ...]
    since: int | None = None
    cost: float | None = None


Rule = Callable[[np.ndarray, Sequence[str]], list[Answer]]
"""`(compute times [T, N], nodes)` -> what is slow, what to look at first at first; nothing where nothing is wrong."""


def sgdlab(runtimes: np.ndarray, nodes: Sequence[str]) -> list[Answer]:
    """Return the workers that the diagnosis of `sgdlab advise` blames."""
    names = tuple(str(worker) for worker in range(runtimes.shape[1]))
    recording = Recording(runtimes, np.arange(len(runtimes)), names, tuple(nodes))
    found = diagnosis.find_causes(recording, pauses.find_pauses(recording)).causes
    return [
        Answer(cause.workers, cause.since, (cause.share + cause.last_share) / 2) for cause in found if cause.workers
    ]


_SCORE = 0.75


def nvrx(runtimes: np.ndarray, nodes: Sequence[str]) -> list[Answer]:
    """Return workers of a relative or an individual score below 0.75.

    The relative score is the least median of all ranks over that of the rank, the individual one the least median that
    the rank has ever had over its own now.

    Source: NVIDIA Resiliency Extension, `attribution/straggler/reporting.py`, `Report.identify_stragglers`.
    """
    del nodes
    begins, medians = _medians(runtimes)
    relative = medians.min(axis=1, keepdims=True) / medians
    individual = np.minimum.accumulate(medians, axis=0) / medians
    flagged = (relative < _SCORE) | (individual < _SCORE)
    return _together(begins, flagged)


_WARNING = 0.10


def traceml(runtimes: np.ndarray, nodes: Sequence[str]) -> list[Answer]:
    """Return the rank that waits least for the others, if the median rank waits 10 % of a step longer.

    In a job of synchronous steps a rank's visible time in the collective is the wait for the slowest of the step. The
    culprit is the rank with the least, the victim the upper median rank; the score is the difference over the victim's
    step. (From 20 % on it is called critical; 80 % coverage chooses a label, of which there is one here.)

    Source: TraceML, `docs/developer_guide/rank-straggler-policy.md`.
    """
    del nodes
    longest = runtimes.max(axis=1, keepdims=True)
    begins, visible = _medians(longest - runtimes)
    _, step = _medians(longest)
    victim = np.sort(visible, axis=1)[:, runtimes.shape[1] // 2]
    score = (victim - visible.min(axis=1)) / step[:, 0]
    flagged = np.zeros(visible.shape, bool)
    flagged[np.arange(len(flagged)), visible.argmin(axis=1)] = score >= _WARNING
    return _one_by_one(begins, flagged)


_LEADS, _EXPOSED = 0.5, 0.05


def stage_frontier(runtimes: np.ndarray, nodes: Sequence[str]) -> list[Answer]:
    """Return the worker at the frontier of most steps of a window, if it exposes 5 % of its time.

    The frontier of a step is the cumulative time of whoever is furthest; in times without parts, of the slowest. A
    reconstruction: the accounting is as the abstract describes it; that a leader of more than half of the steps of a
    window, by 5 % of their time, is named, is ours, since the paper ranks suspects and leaves it to the reader whether
    one is to blame.

    Source: Yoon, Chen, Kallioniemi 2026, "StageFrontier: Synchronization-Aware Stage Accounting for Distributed ML
    Training" (arXiv:2606.06751).
    """
    del nodes
    furthest, leaders = runtimes.max(axis=1), runtimes.argmax(axis=1)
    ahead = furthest - np.median(runtimes, axis=1)
    begins = _begins(len(runtimes))
    flagged = np.zeros((len(begins), runtimes.shape[1]), bool)
    for window, begin in enumerate(begins):
        rows = slice(begin, _end(begins, window, len(runtimes)))
        leads = np.bincount(leaders[rows], minlength=runtimes.shape[1])
        worker = int(leads.argmax())
        own = leaders[rows] == worker
        exposed = ahead[rows][own].sum() / furthest[rows].sum()
        flagged[window, worker] = leads[worker] > _LEADS * own.size and exposed >= _EXPOSED
    return _one_by_one(begins, flagged)


_HAZARD, _CERTAIN, _MOST_LENGTH, _CHANGED = 1 / 250, 0.9, 300, 0.10


def greyhound(runtimes: np.ndarray, nodes: Sequence[str]) -> list[Answer]:
    """Return the workers that are slower than the median by 10 % after a change point of the step's time.

    Change points are found by Bayesian online detection (Adams and MacKay 2007) in the time of the steps; those whose
    mean changes by less than 10 % are dropped. Who is slow is then found by comparing the workers, where the tool
    compares kernels and links in a benchmark.

    Source: Wu et al. 2025, "Greyhound: Hunting Fail-Slows in Hybrid-Parallel Training at Scale" (USENIX ATC), section
    4; the prior, the hazard and the level are ours.
    """
    del nodes
    seconds = runtimes.max(axis=1)
    points = [0, *change_points(seconds), len(seconds)]
    answers = []
    for before, begin, end in zip(points, points[1:], points[2:], strict=False):
        if seconds[begin:end].mean() >= (1 + _CHANGED) * seconds[before:begin].mean():
            medians = np.median(runtimes[begin:end], axis=0)
            slow = np.flatnonzero(medians >= (1 + _CHANGED) * np.median(medians))
            if slow.size:
                answers.append(Answer(tuple(slow.tolist()), begin))
    return answers


def change_points(seconds: np.ndarray) -> list[int]:
    """Return where the level of a series changes, by Bayesian online detection with a normal-gamma prior.

    Example:
      >>> series = np.random.default_rng(0).normal(1.0, 0.02, 200)
      >>> series[120:] *= 1.2
      >>> change_points(series)
      [120]
    """
    scale = float(np.median(seconds))
    series = seconds / scale - 1
    deviation = float(np.median(np.abs(np.diff(series)))) / (0.6745 * math.sqrt(2)) or 1e-6
    prior = (0.0, 0.01, 1.0, deviation**2)  # mean, its weight, shape and scale of the variance
    mean, weight, shape, spread = (np.array([value]) for value in prior)
    chance, found, since = np.array([1.0]), [], 0
    for step, value in enumerate(series):
        variance = spread * (weight + 1) / (shape * weight)
        density = np.exp(
            special.gammaln(shape + 0.5) - special.gammaln(shape)
            - 0.5 * np.log(2 * np.pi * shape * variance)
            - (shape + 0.5) * np.log1p((value - mean) ** 2 / (2 * shape * variance))
        )  # fmt: skip
        grown = np.concatenate([[(chance * density).sum() * _HAZARD], chance * density * (1 - _HAZARD)])
        chance = grown[:_MOST_LENGTH] / max(grown.sum(), 1e-300)
        spread = np.concatenate([[prior[3]], spread + weight * (value - mean) ** 2 / (2 * (weight + 1))])[:_MOST_LENGTH]
        mean = np.concatenate([[prior[0]], (weight * mean + value) / (weight + 1)])[:_MOST_LENGTH]
        weight = np.concatenate([[prior[1]], weight + 1])[:_MOST_LENGTH]
        shape = np.concatenate([[prior[2]], shape + 0.5])[:_MOST_LENGTH]
        length = int(chance.argmax())
        begun = step + 1 - length
        if (
            begun > since
            and 4 <= length < _MOST_LENGTH - 1
            and chance[max(length - 3, 0) : length + 4].sum() >= _CERTAIN
        ):
            found.append(begun)
            since = begun + 1
    return found


_DEADLINE, _LATE = 3.0, 0.5


def median_mad(runtimes: np.ndarray, nodes: Sequence[str]) -> list[Answer]:
    """Return workers that miss a deadline of median + 3 MAD, of the step, in more than half of the steps of a window.

    Source: the threshold that Ingero and hivemind (issue 676) use; that half of a window must be missed is ours.
    """
    del nodes
    median = np.median(runtimes, axis=1, keepdims=True)
    spread = 1.4826 * np.median(np.abs(runtimes - median), axis=1, keepdims=True)
    late = runtimes > median + _DEADLINE * spread
    begins = _begins(len(runtimes))
    share = np.add.reduceat(late, begins, axis=0) / np.diff([*begins, len(late)])[:, None]
    return _together(begins, share > _LATE)


RULES: dict[str, Rule] = {
    "sgdlab advise": sgdlab,
    "NVRx, scores below 0.75": nvrx,
    "TraceML, 10 % of a step": traceml,
    "StageFrontier (reconstruction)": stage_frontier,
    "Greyhound, change points": greyhound,
    "median + 3 MAD": median_mad,
}


def _begins(steps: int) -> list[int]:
    """The first steps of windows; the last one may be half as long again."""
    return list(range(0, max(steps - WINDOW // 2, 1), WINDOW))


def _end(begins: Sequence[int], window: int, steps: int) -> int:
    return steps if window + 1 == len(begins) else begins[window + 1]


def _medians(values: np.ndarray) -> tuple[list[int], np.ndarray]:
    """The first steps of windows, and the medians in them, float64[windows, N]."""
    begins = _begins(len(values))
    return begins, np.array([np.median(part, axis=0) for part in np.split(values, begins[1:])])


def _together(begins: Sequence[int], flagged: np.ndarray) -> list[Answer]:
    """All workers that were ever flagged as one answer, since the first window that flags one."""
    if not flagged.any():
        return []
    first = begins[int(flagged.any(axis=1).argmax())]
    return [Answer(tuple(np.flatnonzero(flagged.any(axis=0)).tolist()), first)]


def _one_by_one(begins: Sequence[int], flagged: np.ndarray) -> list[Answer]:
    """Each worker that was flagged, those of most windows first."""
    count = flagged.sum(axis=0)
    workers = [int(worker) for worker in np.argsort(-count, kind="stable") if count[worker]]
    return [Answer((worker,), begins[int(flagged[:, worker].argmax())]) for worker in workers]
