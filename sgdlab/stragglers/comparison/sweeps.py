"""Backup workers with every number b of them, and the upper bounds, if compute times are known in advance."""

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

from sgdlab.stragglers.comparison import measured
from sgdlab.stragglers.comparison.measured import Measured
from sgdlab.stragglers.recording import SplitTimes

INTERRUPTED = "backups, interrupted"
FINISHING = "backups, finishing"

MOST_SIMULATED = 256
"""Most workers of which every number of finishing backup workers is simulated."""

MOST_STEPS = 400_000
"""Most simulated steps, those of all numbers together, of which every number is simulated: a few seconds."""

_COARSE, _FINE, _ROUNDS = 16, 3, 2
"""Numbers simulated first, and in each of the rounds between the neighbours of the best one."""


@dataclasses.dataclass(frozen=True, eq=False)
class BackupSweep:
    """One kind of backup workers with every number b of them.

    Attributes:
      title: name of the kind.
      test: b -> measurements on the evaluation steps.
      train: b -> measurements on the tuning steps.
    """

    title: str
    test: Mapping[int, Measured]
    train: Mapping[int, Measured]

    @functools.cached_property
    def tuned(self) -> int:
        """The best b on the tuning steps."""
        return best_of(self.train)

    @functools.cached_property
    def best(self) -> int:
        """The best b on the evaluation steps."""
        return best_of(self.test)


def best_of(results: Mapping[int, Measured]) -> int:
    """The number of backup workers with the most gradients per second; of equal ones, the smallest."""
    return max(sorted(results), key=lambda b: results[b].gradients_per_second)


def interrupted(parts: SplitTimes, rejoin_seconds: float = 0.0) -> BackupSweep:
    """Every number of backup workers whose late gradients are interrupted; with what it costs to drop them."""
    workers = parts.test.shape[1]
    train, test = (
        {workers - c: result for c, result in reversed(measured.every_cutoff(runtimes, rejoin_seconds).items())}
        for runtimes in (parts.train, parts.test)
    )
    return BackupSweep(INTERRUPTED, test, train)


def finishing(parts: SplitTimes, rejoin_seconds: float = 0.0) -> BackupSweep:
    """The numbers of backup workers whose late gradients are finished and dropped.

    Of clusters with more workers or steps than can be simulated, a few numbers, close together where few workers are
    not waited for, and then more of them around the best one of either part.
    """
    workers = parts.test.shape[1]
    steps = len(parts.train) + len(parts.test)
    halves = [_Simulated(runtimes, rejoin_seconds) for runtimes in (parts.train, parts.test)]
    if workers <= MOST_SIMULATED and workers * steps <= MOST_STEPS:
        numbers = set(range(workers))
    else:
        numbers = {0, *np.geomspace(1, workers - 1, _COARSE).round().astype(int).tolist()}
        for half in halves:
            numbers |= _around_the_best(numbers, half)
    train, test = (half.of(numbers) for half in halves)
    return BackupSweep(FINISHING, test, train)


class _Simulated:
    """Numbers of finishing backup workers, each simulated once."""

    def __init__(self, runtimes: np.ndarray, rejoin_seconds: float):
        self.runtimes, self.rejoin_seconds, self.found = runtimes, rejoin_seconds, dict[int, Measured]()

    def of(self, numbers: set[int]) -> dict[int, Measured]:
        new = sorted(numbers - self.found.keys())
        self.found |= measured.finishing(self.runtimes, new, self.rejoin_seconds)
        return {b: self.found[b] for b in sorted(numbers)}


def _around_the_best(numbers: set[int], half: _Simulated) -> set[int]:
    """Numbers between the neighbours of the best one, which is then the best of them, and so on."""
    found = set(numbers)
    for _ in range(_ROUNDS):
        best = best_of(half.of(found))
        low = max((b for b in found if b < best), default=best)
        high = min((b for b in found if b > best), default=best)
        found |= set(np.linspace(low, high, _FINE + 2).astype(int).tolist())
    return found


def oracle_cutoffs(runtimes: np.ndarray, objective: str, healing: np.ndarray | float = 0.0) -> np.ndarray:
    r"""The best number of workers to wait for in every iteration.

    .. math:: c_t = \arg\max_c \frac{c}{x_{t(c)}}, \qquad \text{or} \qquad
        c_t = \arg\max_c\, c - \lambda x_{t(c)}, \quad \lambda = \frac{\sum_t c_t}{\sum_t x_{t(c_t)}}

    The first is the paper's objective, which is the best for each iteration by itself. The second is the best for all
    iterations together: no other choice of cutoffs gives more gradients per second.

    Args:
      runtimes: float64[T, N], seconds.
      objective: "throughput" or "rate".
      healing: float64[N], seconds that an iteration costs besides with each cutoff.

    Returns:
      int64[T].

    Source: Teng and Wood 2018, section 3; Dinkelbach 1967.

    Example:
      >>> runtimes = np.array([[1.0, 1.0, 3.5], [1.0, 3.0, 3.0]])
      >>> oracle_cutoffs(runtimes, "throughput"), oracle_cutoffs(runtimes, "rate")
      (array([2, 1]), array([2, 1]))
    """
    ordered = np.sort(runtimes, axis=1) + healing
    count = np.arange(1, ordered.shape[1] + 1)
    rows = np.arange(len(ordered))
    chosen = 1 + np.argmax(count / ordered, axis=1)
    while objective == "rate":
        rate = chosen.sum() / ordered[rows, chosen - 1].sum()
        better = 1 + np.argmax(count - rate * ordered, axis=1)
        if better.sum() / ordered[rows, better - 1].sum() <= rate:
            break
        chosen = better
    return chosen
