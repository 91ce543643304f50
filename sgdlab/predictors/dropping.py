"""The chance that a deadline drops a worker that is only late, and the price of it where a dropped worker must heal."""

import functools

import numpy as np

from sgdlab import arguments


def healing_seconds(num_workers: int, rejoin_seconds: float) -> np.ndarray:
    r"""Return what the workers that an iteration drops cost, spread over all workers, for each cutoff.

    .. math:: \frac{n - c}{n} R, \qquad \text{so that} \qquad \frac{c}{E[x_{(c)}] + \frac{n - c}{n} R}

    is n times the number of gradients for each second of a worker: those that are dropped give none for R seconds.

    Args:
      num_workers: n.
      rejoin_seconds: R, seconds from when a worker is dropped until it takes part again.

    Returns:
      float64[n], seconds, of c from 1 to n; 0 for n.

    Raises:
      ValueError: if a number is out of its range.

    Example:
      >>> healing_seconds(4, 60.0)
      array([45., 30., 15.,  0.])
    """
    workers = arguments.whole("num_workers", num_workers)
    price = arguments.real("rejoin_seconds", rejoin_seconds, least=0)
    return price * (workers - np.arange(1, workers + 1)) / workers


def most_likely(drops: int, rounds: int, *, confidence: float = 0.95) -> float:
    """Return the upper bound of the probability of a drop, after some drops in independent rounds.

    Args:
      drops: number of rounds that had one.
      rounds: number of rounds, at least 1.
      confidence: of the bound, which is exact: the true probability is above it in at most 1 - confidence of all cases.

    Raises:
      ValueError: if a number is out of its range.

    Source: Clopper and Pearson 1934.

    Example:
      >>> round(most_likely(0, 299), 4), most_likely(3, 3)
      (0.01, 1.0)
    """
    rounds = arguments.whole("rounds", rounds)
    drops = arguments.whole("drops", drops, least=0, most=rounds)
    confidence = arguments.real("confidence", confidence, above=0, below=1)
    if drops == rounds:
        return 1.0
    from scipy import special  # noqa: PLC0415 (SciPy takes a while to import, and not every predictor needs it)

    return float(special.bdtri(drops, rounds, 1 - confidence))


def least_deadline(times: np.ndarray, max_false_drop: float, *, confidence: float = 0.95) -> np.ndarray:
    r"""Return the shortest deadline of each worker that, with confidence, drops it in no more than a share of rounds.

    It is an order statistic of the worker's own times, an upper tolerance limit without any assumption on their
    distribution: of n times, the one that r of them exceed, with the largest r such that

    .. math:: \sum_{k=0}^{r} \binom{n}{k} p^k (1 - p)^{n - k} \le 1 - \gamma

    Rounds count as independent: where slowness lasts for many rounds, they tell less than their number.

    Args:
      times: float64[T, N], seconds; infinite where a worker came later than anyone waited, NaN where it took no part.
      max_false_drop: p, the largest probability that a worker which takes part is dropped in a round.
      confidence: gamma, the probability that the deadline is long enough.

    Returns:
      float64[N], seconds; infinite for a worker whose rounds are too few to tell, or that was late in too many.

    Raises:
      ValueError: if times have another shape, or a number is out of its range.

    Source: Wilks 1941.

    Example:
      >>> times = np.arange(1.0, 300.0)[:, None]  # 299 rounds are the fewest for 1 % and 95 %
      >>> least_deadline(times, 0.01), least_deadline(times[:298], 0.01), least_deadline(times, 0.02)
      (array([299.]), array([inf]), array([298.]))
    """
    times = np.asarray(times, np.float64)
    if times.ndim != 2:
        raise ValueError(f"times of shape {times.shape} must have shape [T, N]")
    share = arguments.real("max_false_drop", max_false_drop, above=0, below=1)
    confidence = arguments.real("confidence", confidence, above=0, below=1)
    rounds = np.count_nonzero(~np.isnan(times), axis=0)
    exceeding = np.array([_most_exceeding(int(count), share, confidence) for count in rounds], int)
    ordered = np.concatenate([np.sort(times, axis=0), np.full((1, rounds.size), np.inf)])  # NaN last, but for one row
    return ordered[np.where(exceeding < 0, -1, rounds - 1 - exceeding), np.arange(rounds.size)]


@functools.lru_cache(maxsize=1024)
def _most_exceeding(rounds: int, share: float, confidence: float) -> int:
    """Return r, or -1 where even the longest time is too short."""
    from scipy import special  # noqa: PLC0415 (as above)

    chances = special.bdtr(np.arange(rounds, dtype=float), rounds, share)
    return int(np.searchsorted(chances, 1 - confidence, side="right")) - 1
