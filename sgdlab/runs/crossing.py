"""Time to target: the first crossing of a smoothed curve, interpolated between evaluations."""

from collections.abc import Sequence

import numpy as np

WIDTH = 0.08
"""Standard deviation of the kernel that smooths a curve, in the logarithm of the number of gradients."""

REACH = 2.0
"""Standard deviations after which the kernel ends: so far beyond a crossing must a run go, to know it."""


def smoothed(gradients: Sequence[float], values: Sequence[float]) -> np.ndarray:
    r"""Return a curve smoothed over the logarithm of the number of gradients.

    .. math:: \bar m_k = \frac{\sum_j w_{kj} m_j}{\sum_j w_{kj}}, \qquad
        w_{kj} = \exp\Bigl(-\frac{(\log n_j - \log n_k)^2}{2 h^2}\Bigr)\ \text{within}\ 2 h

    with h = 0.08. A window is an equal share of the time that has gone by, wherever the curve crosses a target, and
    does not depend on how often a run was evaluated. The first evaluation, before the first gradient, stays as it is.

    Args:
      gradients: n, float64[K], rising.
      values: m, float64[K], of the metric; one that is not finite makes its window so.

    Returns:
      float64[K].

    Example:
      >>> smoothed([0, 100, 105, 400], [0.1, 0.8, 0.9, 1.0]).round(3).tolist()
      [0.1, 0.845, 0.855, 1.0]
    """
    numbers, curve = np.asarray(gradients, float), np.asarray(values, float).copy()
    after = numbers > 0
    apart = np.subtract.outer(np.log(numbers[after]), np.log(numbers[after])) / WIDTH
    weight = np.where(np.abs(apart) <= REACH, np.exp(-(apart**2) / 2), 0.0)
    with np.errstate(invalid="ignore"):
        # A product with 0 would spread what is not finite over the whole curve.
        weighted = np.where(weight > 0, weight * curve[after], 0.0)
        curve[after] = weighted.sum(axis=1) / weight.sum(axis=1)
    return curve


def first(
    gradients: Sequence[float], values: Sequence[float], target: float, *, higher_is_better: bool = True
) -> float | None:
    """Return the place at which a smoothed curve first reaches a target, as a fractional index of its evaluations.

    Between two evaluations the curve is a straight line; place 2.5 is halfway between the third and the fourth.

    Args:
      gradients: float64[K], rising, of each evaluation.
      values: float64[K], of the metric.
      target: the value to reach.
      higher_is_better: the metric's direction.

    Returns:
      The place; None where the curve does not reach the target.

    Example:
      >>> first([0, 100, 200, 400], [0.1, 0.5, 0.9, 0.95], 0.8)
      1.75
    """
    sign = 1.0 if higher_is_better else -1.0
    curve, aim = sign * smoothed(gradients, values), sign * target
    reached = np.flatnonzero(curve >= aim)
    if not reached.size:
        return None
    place = int(reached[0])
    if place == 0:
        return 0.0
    before, after = curve[place - 1], curve[place]
    share = (aim - before) / (after - before) if np.isfinite(before) else 1.0
    return float(place - 1 + share)


def known(gradients: Sequence[float], place: float | None) -> bool:
    """Return if later evaluations leave a crossing where it is: its window has gone by.

    Args:
      gradients: of the evaluations so far.
      place: of the first crossing of these, as `first` returns it.
    """
    if place is None:
        return False
    after = gradients[int(np.ceil(place))]
    return after == 0 or gradients[-1] >= after * np.exp(REACH * WIDTH)


def geometric(gradients: int, number: int, *, first: float = 0.01) -> tuple[int, ...]:
    """Return the numbers of gradients after which a run is evaluated, each later by the same factor.

    A crossing is then equally precise wherever it is.

    Args:
      gradients: of the whole run.
      number: of evaluations, at least 1; fewer where gradients are few.
      first: share of the run after which the first one is.

    Example:
      >>> geometric(1000, 5)
      (10, 32, 100, 316, 1000)
    """
    wanted = np.geomspace(max(first * gradients, 1), gradients, number) if number > 1 else np.array([gradients])
    return tuple(np.unique(np.rint(wanted).astype(int)).tolist())
