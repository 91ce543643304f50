"""DropCompute's effective speed-up: what a compute threshold gains in time, less what it loses in gradients."""

import math
import statistics
from collections.abc import Sequence

import numpy as np

from sgdlab import arguments

CANDIDATES = 200
"""Number of thresholds that `best_threshold` compares."""


def effective_speedup(
    times: np.ndarray | Sequence[np.ndarray],
    thresholds: np.ndarray,
    *,
    communication: float = 0.0,
    interrupt: bool = False,
) -> np.ndarray:
    r"""Return the micro-batches per second with a compute threshold over those without one, in recorded rounds.

    .. math:: S(\tau) = \frac1I \sum_{i=1}^I \frac{M_i(\tau)}{M_i} \cdot \frac{T_i + T_c}{T_i(\tau) + T_c}

    T is how long the slowest worker computes, T(tau) the same with the threshold, M the micro-batches of all workers,
    M(tau) those that are kept.

    Args:
      times: float64[I, N, M], seconds of each micro-batch of each worker in each of I rounds; or a list of I arrays
        [N, M], if the number of workers changes.
      thresholds: tau, float64[K], seconds.
      communication: T_c, seconds of each round that are no computing.
      interrupt: whether a micro-batch is given up at tau, T(tau) = min(tau, T), and one that ends exactly then is late;
        else one that was begun by then is finished and kept.

    Returns:
      float64[K].

    Raises:
      ValueError: where there is no round, or `communication` is negative.

    Source: Giladi et al. 2023 (DropCompute). Read in the authors' code (`get_best_threshold`), which takes for T(tau)
    when the last kept micro-batch ended; min(tau, T) is a reconstruction of the paper's text.

    Example:
      One of two workers takes 3 s for its second micro-batch: without it, three of four come in 2 s instead of 4 s.

      >>> effective_speedup(np.array([[[1.0, 1.0], [1.0, 3.0]]]), np.array([2.5, 9.0]), interrupt=True)
      array([1.2, 1. ])
    """
    communication = arguments.real("communication", communication, least=0)
    thresholds = np.asarray(thresholds, np.float64)
    if not len(times):
        raise ValueError("times=[] must have at least one round")
    return np.mean([_of_round(np.asarray(t, np.float64), thresholds, communication, interrupt) for t in times], axis=0)


def _of_round(times: np.ndarray, thresholds: np.ndarray, communication: float, interrupt: bool) -> np.ndarray:
    ends = np.cumsum(times, axis=1)
    whole = ends[:, -1].max()
    if interrupt:
        kept = np.searchsorted(np.sort(ends, axis=None), thresholds, side="left")
        lasts = np.minimum(thresholds, whole)
    else:
        starts = np.concatenate([np.zeros((len(ends), 1)), ends[:, :-1]], axis=1).ravel()
        order = np.argsort(starts, kind="stable")
        kept = np.searchsorted(starts[order], thresholds, side="right")
        lasts = np.maximum.accumulate(ends.ravel()[order])[kept - 1]
    return kept / times.size * (whole + communication) / (lasts + communication)


def best_threshold(
    times: np.ndarray | Sequence[np.ndarray], *, communication: float = 0.0, interrupt: bool = False
) -> float:
    """Find the compute threshold with the largest effective speed-up in rounds that were recorded.

    As the authors' code does, it compares 200 thresholds at equal distances, from the first end of a micro-batch to the
    last.

    Arguments and errors are those of `effective_speedup`.

    Returns:
      tau, seconds; infinity where no threshold gains anything.

    Source: Giladi et al. 2023, authors' code (`get_best_threshold`).

    Example:
      >>> best_threshold(np.array([[[1.0, 1.0], [1.0, 1.0]]]))
      inf
    """
    ends = [np.cumsum(np.asarray(round_, np.float64), axis=1) for round_ in times]
    if not ends:
        raise ValueError("times=[] must have at least one round")
    first, last = min(map(np.min, ends)), max(map(np.max, ends))
    thresholds = np.linspace(first, last, CANDIDATES)
    gains = effective_speedup(times, thresholds, communication=communication, interrupt=interrupt)
    best = int(np.argmax(gains))
    return float(thresholds[best]) if gains[best] > 1.0 else math.inf


def expected_speedup(
    threshold: float, *, num_workers: int, micro_batches: int, mean: float, deviation: float, communication: float = 0.0
) -> float:
    r"""Return the effective speed-up of a threshold in closed form: sums of micro-batches' times are about normal.

    .. math:: S(\tau) \approx \frac1M \sum_{m=1}^M \Phi\Big(\frac{\tau - m \mu}{\sigma \sqrt m}\Big) \cdot
        \frac{E[T] + T_c}{\min(\tau, E[T]) + T_c}

    .. math:: E[T] \approx M \mu + \sigma \sqrt M \big((1 - \gamma) \Phi^{-1}(1 - 1/N) +
        \gamma \Phi^{-1}(1 - 1/(e N))\big)

    gamma is the Euler-Mascheroni constant, and E[T] the usual approximation of the largest of N normal variables.

    Args:
      threshold: tau, seconds; micro-batches that are not finished by then are given up.
      num_workers: N, at least 2.
      micro_batches: M, of a worker in a round.
      mean: mu, mean time of a micro-batch, seconds.
      deviation: sigma, its standard deviation, seconds.
      communication: T_c, seconds of each round that are no computing.

    Source: derived here from the definition; that the paper's formula is this one was not checked in its text.

    Example:
      >>> round(expected_speedup(13.0, num_workers=200, micro_batches=12, mean=1.0, deviation=0.6), 3)
      1.303
    """
    workers = arguments.whole("num_workers", num_workers, least=2)
    count = arguments.whole("micro_batches", micro_batches)
    threshold = arguments.real("threshold", threshold, above=0)
    mean, deviation = arguments.real("mean", mean, above=0), arguments.real("deviation", deviation, above=0)
    communication = arguments.real("communication", communication, least=0)
    numbers, normal, gamma = range(1, count + 1), statistics.NormalDist(), float(np.euler_gamma)
    slowest = (1 - gamma) * normal.inv_cdf(1 - 1 / workers) + gamma * normal.inv_cdf(1 - 1 / (math.e * workers))
    whole = count * mean + deviation * math.sqrt(count) * slowest
    kept = sum(normal.cdf((threshold - m * mean) / (deviation * math.sqrt(m))) for m in numbers) / count
    return kept * (whole + communication) / (min(threshold, whole) + communication)
