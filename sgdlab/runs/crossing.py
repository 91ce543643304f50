"""Time to target: the first crossing of a smoothed curve, interpolated between evaluations."""

import math
from collections.abc import Sequence

import numpy as np

WIDTH = 0.4
"""Half of the window that smooths a curve, in the logarithm of the number of gradients."""


def smoothed(gradients: Sequence[float], values: Sequence[float]) -> np.ndarray:
    r"""Return a curve smoothed over the logarithm of the number of gradients: in each window, a straight line.

    .. math:: \bar m_k = a_k, \qquad (a_k, b_k) = \arg\min_{a, b} \sum_j w_{kj} (m_j - a - b x_{kj})^2, \qquad
        w_{kj} = \max\Bigl(0, 1 - \Bigl|\frac{x_{kj}}{h}\Bigr|^3\Bigr)^3, \qquad x_{kj} = \log n_j - \log n_k

    with h = 0.4. A window is an equal share of the time that has gone by, wherever the curve crosses a target, and does
    not depend on how often a run was evaluated. The first evaluation, before the first gradient, stays as it is.

    Args:
      gradients: n, float64[K], rising.
      values: m, float64[K], of the metric; one that is not finite makes its window so.

    Returns:
      float64[K].

    Source: Cleveland 1979 (local regression, the tricube weight).

    Example:
      >>> smoothed([0, 100, 105, 400], [0.1, 0.8, 0.9, 1.0]).round(3).tolist()
      [0.1, 0.8, 0.9, 1.0]
      >>> smoothed([100, 120, 144], [0.5, 0.9, 0.7]).round(3).tolist()
      [0.508, 0.721, 0.708]
    """
    numbers, curve = np.asarray(gradients, float), np.asarray(values, float)
    return np.array([_smoothed_at(place, numbers, curve) for place in range(numbers.size)])


def _smoothed_at(place: int, numbers: np.ndarray, curve: np.ndarray) -> float:
    """Return the smoothed value at one evaluation."""
    if numbers[place] == 0:
        return float(curve[place])
    ends = numbers[place] * math.exp(-WIDTH), numbers[place] * math.exp(WIDTH)
    window = slice(*np.searchsorted(numbers, ends).tolist())
    apart = np.log(np.maximum(numbers[window], 1e-300) / numbers[place])
    weight = np.maximum(0.0, 1 - np.abs(apart / WIDTH) ** 3) ** 3
    total, first, second = weight.sum(), weight @ apart, weight @ apart**2
    with np.errstate(invalid="ignore"):
        mean, slope = weight @ curve[window], (weight * apart) @ curve[window]
        spread = total * second - first**2
        if spread < 1e-9 * total**2:  # a single place
            return float(mean / total)
        return float((second * mean - first * slope) / spread)


class Crossing:
    """The first crossing of a run under way, as its evaluations come.

    Example:
      >>> crossing = Crossing(0.7)
      >>> for gradients, value in [(0, 0.1), (100, 0.5), (200, 0.9), (250, 0.9)]:
      ...     crossing.add(gradients, value)
      >>> crossing.known(), crossing.place()
      (False, 1.5)
      >>> crossing.add(300, 0.9)
      >>> crossing.known()
      True
    """

    def __init__(self, target: float, *, higher_is_better: bool = True):
        self._sign = 1.0 if higher_is_better else -1.0
        self._aim = self._sign * target
        self._numbers: list[float] = []
        self._values: list[float] = []
        self._settled: list[float] = []  # smoothed values that later evaluations leave as they are
        self._reached: int | None = None  # the first of these that is at the target

    def add(self, gradients: float, value: float) -> None:
        """Take in an evaluation, later than those before."""
        self._numbers.append(gradients)
        self._values.append(self._sign * value)
        if self._reached is not None:
            return
        numbers, curve = np.asarray(self._numbers, float), np.asarray(self._values, float)
        while (place := len(self._settled)) < numbers.size and self._is_settled(numbers[place]):
            self._settled.append(_smoothed_at(place, numbers, curve))
            if self._settled[-1] >= self._aim:
                self._reached = place
                return

    def known(self) -> bool:
        """Return if the target is reached for certain: later evaluations leave the crossing where it is."""
        return self._reached is not None

    def place(self) -> float | None:
        """Return the place of the first crossing as a fractional index of the evaluations; None where there is none.

        Between two evaluations the curve is a straight line; place 2.5 is halfway between the third and the fourth.
        """
        numbers, curve = np.asarray(self._numbers, float), np.asarray(self._values, float)
        left = range(len(self._settled), numbers.size if self._reached is None else len(self._settled))
        found = np.array([*self._settled, *(_smoothed_at(place, numbers, curve) for place in left)])
        reached = np.flatnonzero(found >= self._aim)
        if not reached.size:
            return None
        place = int(reached[0])
        if place == 0:
            return 0.0
        before, after = found[place - 1], found[place]
        return float(place - 1 + ((self._aim - before) / (after - before) if np.isfinite(before) else 1.0))

    def _is_settled(self, number: float) -> bool:
        """Return if the window of an evaluation has gone by."""
        return number == 0 or self._numbers[-1] >= number * math.exp(WIDTH)


def first(
    gradients: Sequence[float], values: Sequence[float], target: float, *, higher_is_better: bool = True
) -> float | None:
    """Return the place at which a smoothed curve first reaches a target: `Crossing.place` of all its evaluations.

    Example:
      >>> first([0, 100, 200, 400], [0.1, 0.5, 0.9, 0.95], 0.8)
      1.75
    """
    crossing = Crossing(target, higher_is_better=higher_is_better)
    for number, value in zip(gradients, values, strict=True):
        crossing.add(number, value)
    return crossing.place()


def geometric(gradients: int, number: int) -> tuple[int, ...]:
    """Return the numbers of gradients after which a run is evaluated, each later by the same factor.

    A crossing is then equally precise wherever it is.

    The first one is after 1 % of the run; there are fewer than `number` where gradients are few.

    Example:
      >>> geometric(1000, 5)
      (10, 32, 100, 316, 1000)
    """
    wanted = np.geomspace(max(0.01 * gradients, 1), gradients, number) if number > 1 else np.array([gradients])
    return tuple(np.unique(np.rint(wanted).astype(int)).tolist())
