"""Every n-th step that is longer than the steps around it, for the median worker: checkpoints, logging, evaluations."""

import math
from collections.abc import Sequence

import numpy as np

_WINDOW = 51
"""Rows around a step whose median is its usual time."""

_STRENGTH = 6.0
"""Least strength of a period, in standard deviations: chance among a million periods and remainders has less."""

_LONGER = math.log(1.1)
"""Least excess of the steps of a period that is found by its steps' mean, not by each of them."""

_LONGEST = 1000
"""Longest period that is searched so."""

_REGULAR = 0.8
"""Least share of the pauses that follow the period, and of the period's steps that are pauses."""

_FEWEST, _FEWEST_MILD = 3, 8
"""Fewest pauses with a period, and fewest that are found by their period alone."""


def search(middle: np.ndarray, steps: np.ndarray) -> np.ndarray:
    r"""Finds every n-th step, n at least 2, that is at least 10 % longer than the steps around it.

    The logarithms of the medians, less the running median of their mean with the neighbours (which every second long
    step does not move), are clipped at -3 and 5 deviations. With r_t the result less its mean, and v its variance, n
    and the remainder o are those of the largest sum over their K of the T steps, in its deviations under permutation,

    .. math:: \frac{1}{\sqrt{K (1 - K / T) v}} \sum_{t \equiv o \bmod n} r_t

    if it is above 6, and if 80 % of these steps are long: more than half as far above the median of the other steps
    around them as they are at the median.

    Args:
      middle: float64[T], seconds, medians of the steps.
      steps: int64[T], numbers of the steps.

    Returns:
      int64[K], those of these steps that are long; empty if there are none.

    Source: the standardised sum of a sample without replacement; the rest is own definition.

    Example:
      >>> times = 1 + 0.01 * np.random.default_rng(0).standard_normal(200)
      >>> times[1::2] *= 1.3
      >>> search(times, np.arange(200))[:4].tolist()
      [1, 3, 5, 7]
    """
    logs = np.log(middle)
    nobody = np.zeros(logs.size, bool)
    padded = np.pad(logs, 1, mode="edge")
    residual = logs - around((padded[:-2] + 2 * logs + padded[2:]) / 4, nobody)
    deviation = 1.4826 * float(np.median(np.abs(residual - np.median(residual))))
    score = np.clip(residual / max(deviation, 1e-3), -3, 5)
    spread = float(score.std())
    if spread == 0:
        return np.zeros(0, np.int64)
    score = (score - score.mean()) / spread
    best, found = _STRENGTH, np.zeros(0, np.int64)
    span = int(steps[-1] - steps[0]) + 1
    for period in range(2, min(span // _FEWEST_MILD, _LONGEST) + 1):
        phase = steps % period
        size = np.bincount(phase, minlength=period)
        total = np.bincount(phase, score, minlength=period)
        scale = np.sqrt(np.maximum(size * (1 - size / logs.size), 1))
        strength = np.where((size >= _FEWEST_MILD) & (size < logs.size), total / scale, 0.0)
        offset = int(strength.argmax())
        if strength[offset] > best:
            on = phase == offset
            excess = (logs - around(logs, on))[on]
            typical = float(np.median(excess))
            if typical >= _LONGER and np.mean(excess > typical / 2) >= _REGULAR:
                best, found = float(strength[offset]), np.flatnonzero(on)[excess > typical / 2]
    return found


def around(series: np.ndarray, without: np.ndarray) -> np.ndarray:
    """The running median of the rows that are not left out, interpolated in the others.

    Args:
      series: float64[T].
      without: bool[T], rows that are left out; not all.

    Returns:
      float64[T].

    Example:
      >>> around(np.array([1.0, 9.0, 1.0, 9.0]), np.array([False, True, False, True])).tolist()
      [1.0, 1.0, 1.0, 1.0]
    """
    kept = np.flatnonzero(~without)
    return np.interp(np.arange(series.size), kept, running_median(series[kept]))


def running_median(series: np.ndarray, window: int = _WINDOW) -> np.ndarray:
    """float64[T]: for each entry the median of the `window` entries around it, at the ends of the nearest window.

    Example:
      >>> running_median(np.array([1.0, 9.0, 2.0, 3.0, 4.0]), 3).tolist()
      [2.0, 2.0, 3.0, 3.0, 3.0]
    """
    if series.size <= window:
        return np.full(series.shape, np.median(series))
    inside = np.median(np.lib.stride_tricks.sliding_window_view(series, window), axis=1)
    return np.pad(inside, (window // 2, window - 1 - window // 2), mode="edge")


def common(pauses: np.ndarray, steps: np.ndarray) -> tuple[int | None, int | None]:
    """Period and remainder of the numbers of the pauses' steps, if they have one.

    Args:
      pauses: int64[K], numbers of the steps with a pause, rising.
      steps: int64[T], numbers of all steps.

    Example:
      >>> common(np.array([4, 8, 12]), np.arange(1, 13))
      (4, 0)
    """
    if pauses.size < _FEWEST:
        return None, None
    best: tuple[float, int, int] | None = None
    for period in _candidates(pauses):
        remainders = pauses % period
        offset = int(np.bincount(remainders).argmax()) if period < 10**6 else int(remainders[0])
        on = np.count_nonzero(remainders == offset)
        grid = np.count_nonzero(steps % period == offset)
        followed, filled = on / pauses.size, on / grid
        if on >= _FEWEST and min(followed, filled) >= _REGULAR and (best is None or followed * filled > best[0]):
            best = followed * filled, period, offset
    return best[1:] if best else (None, None)


def completed(pauses: np.ndarray, excess: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Adds the steps of a period that the pauses follow, if they are long too, though not enough to be found alone.

    Args:
      pauses: int64[K], rows of the pauses, rising.
      excess: float64[T], logarithm of the median worker's time over the usual.
      steps: int64[T], numbers of the steps.

    Returns:
      int64[L], the rows, rising.

    Example:
      >>> excess = np.where(np.arange(12) % 3 == 0, 0.5, 0.0)
      >>> completed(np.array([0, 3, 9]), excess, np.arange(12)).tolist()
      [0, 3, 6, 9]
    """
    typical = float(np.median(excess[pauses])) if pauses.size >= _FEWEST else 0.0
    if typical < _LONGER:
        return pauses
    long = excess > typical / 2
    for period in _candidates(steps[pauses]):
        remainders = steps[pauses] % period
        offset = int(np.median(remainders))
        on = steps % period == offset
        if np.mean(remainders == offset) >= _REGULAR and np.mean(long[on]) >= _REGULAR:
            return np.union1d(pauses, np.flatnonzero(on & long))
    return pauses


def _candidates(pauses: np.ndarray) -> Sequence[int]:
    differences = np.diff(pauses)
    pairs = np.gcd(differences[1:], differences[:-1])
    whole = np.gcd.reduce(differences)
    return [int(n) for n in np.unique(np.concatenate([differences, pairs, [whole]])) if n > 1]
