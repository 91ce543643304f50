"""Standing of many methods at once, paired by seed: which are statistically indistinguishable from the best."""

import dataclasses
import functools

import numpy as np
import scipy  # its modules are imported at their first use

from sgdlab import arguments

LEVEL = 0.98
"""Confidence that all statements about the methods of one comparison hold together."""

_DRAWS = 10_000
"""Draws of the largest statistic; its quantile then has a standard error of about one per cent of itself."""

_AT_ONCE = 200
"""Draws that are held in memory at once, for all pairs of methods."""


@dataclasses.dataclass(frozen=True)
class Standing:
    r"""All methods beside the one with the best mean."""

    first: np.ndarray  # bool[M], methods that are not worse than any other: the set that is named as first
    best: int  # index of the method with the best mean
    difference: np.ndarray  # float64[M], mean over the seeds of the method's value less the best one's
    # float64[M], half the width of the difference's interval; the intervals of all pairs hold together
    half: np.ndarray


def compare(values: np.ndarray, *, higher_is_better: bool = False, resolution: float = 0.0) -> Standing:
    r"""Compare all pairs of methods by simultaneous intervals of their paired differences.

    .. math:: \bar d_{ij} \pm q\, \hat\sigma_{ij} / \sqrt S, \qquad
        P\Bigl(\max_{ij} \frac{|\bar d_{ij}|}{\hat\sigma_{ij} / \sqrt S} \le q\Bigr) = 0.98

    with d the differences of methods i and j on the S seeds, which share compute times, batches and initial parameters,
    and sigma their standard deviation. The quantile q is that of normal values of independent methods; what all methods
    of a seed have in common falls out of the differences. A method is first unless its interval against some other lies
    wholly on the worse side.

    Args:
      values: float64[M, S], of each method with each seed: log times to a target, accuracies; misses as a large value.
      higher_is_better: the direction.
      resolution: least half width of an interval, such as one test example over their number. Without it, differences
        that are equal with all seeds, whose interval has no width, decide nothing.

    Returns:
      A `Standing`; with fewer than three seeds, in which nothing can be decided, all methods are first.

    Raises:
      ValueError: where values are not finite, or not [M, S].

    Source: Tukey's comparison of all pairs, each with its own variance as in Games and Howell 1976.

    Example:
      >>> noise = np.random.default_rng(0).normal(size=(3, 20))
      >>> found = compare(noise + np.array([[0.0], [0.1], [5.0]]))
      >>> found.first, found.best
      (array([ True,  True, False]), 0)
    """
    array = np.asarray(values, np.float64)
    if array.ndim != 2 or 0 in array.shape or not np.isfinite(array).all():
        raise ValueError(f"values of shape {array.shape} must be finite, [methods, seeds], with at least one of each")
    arguments.real("resolution", resolution, least=0)
    methods, seeds = array.shape
    mean = array.mean(axis=1)
    best = int(mean.argmax() if higher_is_better else mean.argmin())
    difference = mean[:, None] - mean
    if seeds < 3:
        return Standing(np.ones(methods, bool), best, difference[:, best], np.full(methods, np.inf))
    centred = array - mean[:, None]
    deviation = np.stack([(centred - own).std(axis=1, ddof=1) for own in centred])
    half = quantile(methods, seeds) * deviation / np.sqrt(seeds)
    half[deviation < 1e-12 * np.abs(array).max()] = np.inf if resolution == 0 else 0.0  # but for rounding
    half = np.maximum(half, resolution)
    np.fill_diagonal(half, 0.0)
    worse = -difference if higher_is_better else difference
    first = ~(worse > half * (1 + 1e-9)).any(axis=1)  # but for rounding
    return Standing(first, best, difference[:, best], half[:, best])


@functools.cache
def quantile(methods: int, seeds: int) -> float:
    """Return q: the 98 % quantile of the largest t statistic of all pairs of methods that do not differ.

    Args:
      methods: M.
      seeds: S, at least 2.

    Example:
      Of two methods it is Student's.

      >>> bool(abs(quantile(2, 20) / scipy.stats.t.ppf(0.99, 19) - 1) < 0.03)
      True
    """
    generator, found = np.random.default_rng(0), []
    first, second = np.triu_indices(methods, 1)
    if not first.size:
        return 0.0
    for _ in range(_DRAWS // _AT_ONCE):
        values = generator.normal(size=(_AT_ONCE, methods, seeds))
        values -= values.mean(axis=1, keepdims=True)
        products = values @ values.transpose(0, 2, 1)
        squares = np.diagonal(products, axis1=1, axis2=2)
        apart = values.mean(axis=2)
        apart = apart[:, first] - apart[:, second]
        variance = (squares[:, first] + squares[:, second] - 2 * products[:, first, second]) / seeds - apart**2
        found.append((np.abs(apart) / np.sqrt(variance / (seeds - 1))).max(axis=1))
    return float(np.quantile(np.concatenate(found), LEVEL))


def share(count: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of Clopper and Pearson for a share, such as that of diverged runs among all.

    Raises:
      ValueError: where `count` is not from 0 to `total`.

    Source: Clopper and Pearson 1934.

    Example:
      >>> [round(end, 3) for end in share(0, 20)]
      [0.0, 0.168]
    """
    total = arguments.whole("total", total)
    count = arguments.whole("count", count, least=0, most=total)
    found = scipy.stats.binomtest(count, total).proportion_ci(0.95, method="exact")
    return float(found.low), float(found.high)
