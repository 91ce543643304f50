"""Tests if the evaluation steps differ from the tuning steps, so that what was tuned and learned does not hold."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from sgdlab import arrays
from sgdlab.report.words import counted, some
from sgdlab.stragglers.diagnosis.causes import HEAVY_TAIL, PAUSES, Cause, named
from sgdlab.stragglers.recording import SplitRecording

LEVEL = 0.005
"""Share of recordings without a change in which one is reported at most."""

NOTICEABLE = 1.1
"""Least ratio of a change that is reported."""

_FEWEST, _MOST, _LENGTH = 4, 10, 5
"""Fewest and most blocks of consecutive steps in a part, and the least steps of a block where there are more than the
fewest. The medians of blocks are nearly independent and nearly normal, also where steps are neither."""

_SHARE = 0.1
"""Least difference between the shares of the two parts in which a dated cause shows."""

_PAIR = 2
"""Numbers of which a change is made: before and after."""

Change = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Halves:
    """Holds what differs between the tuning and the evaluation steps; those that paused all workers are left out.

    Attributes:
      first: number of the first evaluation step.
      steps: how many evaluation steps there are.
      level: seconds of the median worker in the median step before and after; None if they do not differ measurably.
      spread: compute time of the slowest worker over the step's median, in the median step, before and after; or None.
      workers: name -> the worker's compute time over the step's median, before and after; those that differ most first.
      causes: causes of the diagnosis, dated by one change or two, that show in different shares of the two parts: who
        is slow, and in which share of the tuning and of the evaluation steps.
    """

    first: int
    steps: int
    level: Change | None
    spread: Change | None
    workers: dict[str, Change]
    causes: tuple[tuple[str, Change], ...] = ()

    def sentence(self, refit: int | None = None, least: int = 1) -> str:
        """Say what differs, and what that means.

        Args:
          refit: number of steps after which predictors were fitted again; None if they were not.
          least: fewest steps after which they can be.
        """
        changes = "; ".join(self._changes())
        return f"The evaluation steps differ from the tuning steps: {changes}. {self._meaning(refit, least)}"

    def _changes(self) -> list[str]:
        changes = [
            f"worker {name} took {before:.2f} times the median of its step before, and {after:.2f} times since"
            for name, (before, after) in list(self.workers.items())[:_PAIR]
        ]
        others = list(self.workers)[_PAIR:]
        if others:
            changes.append(f"{counted(len(others), 'worker')} ({some(others)}) changed as well")
        changes += [
            f"{who} slow in {100 * before:.0f} % of the tuning steps and in {100 * after:.0f} % of the evaluation steps"
            for who, (before, after) in self.causes
        ]
        if self.level is not None:
            before, after = self.level
            ratio = f"{after / before:.2f} times slower" if after > before else f"{before / after:.2f} times faster"
            changes.append(f"the whole cluster is {ratio} ({before:.3g} s, then {after:.3g} s in the median)")
        if self.spread is not None and not self.workers and not self.causes:
            before, after = self.spread
            changes.append(
                f"the slowest worker of a step took {before:.2f} times its median, and then {after:.2f} times"
            )
        return changes

    def _meaning(self, refit: int | None, least: int) -> str:
        doubt = f"What was tuned and learned before step {self.first} need not hold after it"
        if refit is not None:
            return f"{doubt}; the rows that are fitted again every {refit} steps follow the change."
        every = max(5, min(50, self.steps // 4), least)
        again = f"; --refit={every} fits again every {every} steps" if every < self.steps else ""
        return f"{doubt}{again}."


def find_difference(parts: SplitRecording, causes: Sequence[Cause] = ()) -> Halves | None:
    """Compares the two parts; None if they do not differ measurably.

    Three things are compared: the level (the logarithm of each step's median), the spread (of the slowest compute time
    over this median), and each worker's compute time over this median. Each part is cut into blocks of consecutive
    steps, and the medians of the blocks are compared by Welch's t-test. The error probability `LEVEL` is shared by all
    tests (Bonferroni), half of it by those of the workers.

    These tests are for changes between the parts. A change inside a part makes its blocks differ, and little of the
    medians; the diagnosis has found and dated it, so that only the shares of its steps are compared.
    """
    calm = parts.test[~parts.test_pauses]
    if len(calm) < _FEWEST or len(parts.train) < _FEWEST:
        return None
    both = [_medians(runtimes) for runtimes in (parts.train, calm)]

    def change(name: str, level: float) -> dict[int, Change]:
        before, after = (part[name] for part in both)
        typical = [np.exp(np.median(part, axis=0)).tolist() for part in (before, after)]
        return {n: (typical[0][n], typical[1][n]) for n in np.flatnonzero(_differ(before, after, level)).tolist()}

    ratios = change("workers", LEVEL / 2 / parts.test.shape[1])
    order = sorted(ratios, key=lambda n: -abs(math.log(ratios[n][1] / ratios[n][0])))
    level, spread = (change(name, LEVEL / 4).get(0) for name in ("level", "spread"))
    dated = _dated(parts, causes, set(ratios), level is not None)
    if not order and level is None and spread is None and not dated:
        return None
    first = int(parts.complete.steps[parts.train_steps])
    return Halves(first, len(parts.test), level, spread, {parts.workers[n]: ratios[n] for n in order}, dated)


def _dated(
    parts: SplitRecording, causes: Sequence[Cause], named_already: set[int], level: bool
) -> tuple[tuple[str, Change], ...]:
    """The causes of one stretch of steps that show in different shares of the two parts, and are not named yet."""
    found = []
    for cause in causes:
        rows = np.zeros(len(parts.runtimes), bool)
        rows[cause.since or 0 : None if cause.until is None else cause.until + 1] = True
        before, after = float(rows[: parts.train_steps].mean()), float(rows[parts.train_steps :].mean())
        comes_and_goes = len(cause.episodes) > 1 or cause.factor < NOTICEABLE
        if cause.kind in (PAUSES, HEAVY_TAIL) or comes_and_goes or abs(after - before) < _SHARE:
            continue
        if cause.workers and not named_already.issuperset(cause.workers):
            names = named(parts.workers, cause.workers)
            found.append((f"{names} {'were' if len(cause.workers) > 1 else 'was'}", (before, after)))
        elif not cause.workers and not level:
            found.append(("all workers were", (before, after)))
    return tuple(found)


def _medians(runtimes: np.ndarray) -> dict[str, np.ndarray]:
    """Medians of the blocks of a part, of logarithms: float64[K, 1], and float64[K, N] of the workers."""
    middle = arrays.median(runtimes, axis=1, keepdims=True)
    relative = np.log(runtimes / middle)
    values = {"level": np.log(middle), "spread": relative.max(axis=1, keepdims=True), "workers": relative}
    return {name: np.stack([np.median(b, axis=0) for b in blocks(v)]) for name, v in values.items()}


def blocks(rows: np.ndarray) -> list[np.ndarray]:
    """Cut consecutive steps, [T, ...], into the blocks whose means or medians are compared."""
    return np.array_split(rows, int(np.clip(len(rows) // _LENGTH, _FEWEST, _MOST)))


def _differ(before: np.ndarray, after: np.ndarray, level: float) -> np.ndarray:
    """bool[M]: whether the columns of two samples have different means, by a noticeable amount and Welch's t-test."""
    difference, margin = find_differences(before, after, level)
    return np.abs(difference) > np.maximum(margin, math.log(NOTICEABLE))


def find_differences(
    before: np.ndarray,
    after: np.ndarray,
    level: float,
    which: Callable[[list[float]], float] = min,
    courses: Sequence[np.ndarray | None] = (None, None),
) -> tuple[np.ndarray, np.ndarray]:
    """Find by how much the means of two samples differ, [M], and half of the interval around that, by Welch's t.

    Args:
      before: float64[K, M], of K consecutive blocks of steps.
      after: float64[L, M], of the others.
      level: probability that the interval of a column does not hold the difference.
      which: correlation between consecutive blocks counts, of those of both samples. The lower one where both are of
        one trace, since a change in the middle of the other part is no lasting fluctuation.
      courses: float64[K, C] and float64[L, C'], what is known of the blocks, such as the share of their steps in which
        a cause shows: what is linear in it is no noise.
    """
    from scipy import special  # noqa: PLC0415 (SciPy takes a while to import)

    noise, free = zip(*map(_residuals, (before, after), courses), strict=True)
    parts = [
        np.maximum(np.square(each).sum(axis=0) / count / len(each), 1e-20)
        for each, count in zip(noise, free, strict=True)
    ]
    variance = parts[0] + parts[1]  # above 0: compute times that are rounded can be constant
    degrees = variance**2 / (parts[0] ** 2 / free[0] + parts[1] ** 2 / free[1])
    # The blocks are not independent where slowness lasts: then there are as many fewer of them.
    fewer = _inflation(noise, which)
    quantile = -special.stdtrit(np.maximum(degrees / fewer, 1.0), level / 2)
    return after.mean(axis=0) - before.mean(axis=0), quantile * np.sqrt(fewer * variance)


def _residuals(values: np.ndarray, course: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances of blocks, [K, M], from their mean, and the degrees of freedom of each column.

    Where a course explains nearly all of them, they are from what is linear in it: it is no swing that one has picked.
    """
    rest, free = values - values.mean(axis=0), np.full(values.shape[1], len(values) - 1)
    if course is None:
        return rest, free
    known = np.column_stack([np.ones(len(values)), course])
    fit, _, rank, _ = np.linalg.lstsq(known, values)
    unexplained = values - known @ fit
    clear = np.square(unexplained).sum(axis=0) <= _UNEXPLAINED * np.square(rest).sum(axis=0)
    clear &= len(values) - rank >= _FREE
    return np.where(clear, unexplained, rest), np.where(clear, len(values) - rank, free)


def _inflation(noise: Sequence[np.ndarray], which: Callable[[list[float]], float]) -> float:
    """Return the variance of a mean over that of independent blocks: (1 + r) / (1 - r).

    r is the correlation between consecutive blocks, the mean over the columns, without its bias in short series; given
    are the blocks of both samples without their means.
    """
    found = []
    for centred in noise:
        products, squares = (centred[1:] * centred[:-1]).sum(axis=0), np.square(centred).sum(axis=0)
        found.append(float((products / np.maximum(squares, 1e-20)).mean()) + 1 / len(centred))
    correlation = float(np.clip(which(found), 0.0, _MOST_CORRELATED))
    return (1 + correlation) / (1 - correlation)


_MOST_CORRELATED = 0.9

_UNEXPLAINED, _FREE = 0.05, 3
"""Largest share of the variance of blocks that a course may leave, and fewest degrees of freedom."""
