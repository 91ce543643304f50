"""Seeds put together: the mean and spread of each method at each number of workers."""

import dataclasses
import statistics
from collections.abc import Iterable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds (0 for a single seed)."""

    mean: float
    std: float


@dataclasses.dataclass(frozen=True)
class Group:
    """The runs of one method at one number of workers, one for each seed.

    Attributes:
      method: its name.
      title: the field's name for it.
      num_workers: N.
      baseline: a single worker, which the others are compared with.
      runs: the records of each run's metrics file.
    """

    method: str
    title: str
    num_workers: int
    baseline: bool
    runs: tuple[list[dict[str, Any]], ...]

    @property
    def summaries(self) -> list[dict[str, Any]]:
        """The last record of each run."""
        return [records[-1] for records in self.runs]

    @property
    def num_diverged(self) -> int:
        """Seeds whose runs were lost (`sgdlab.results.metrics.diverged`)."""
        return sum(summary["diverged"] for summary in self.summaries)

    def spread(self, name: str) -> Spread | None:
        """Mean and deviation of an entry of the summaries; None where some seed has none."""
        return spread(summary[name] for summary in self.summaries)

    def num_with(self, name: str) -> int:
        """Seeds that have the entry."""
        return sum(summary[name] is not None for summary in self.summaries)

    def curve(self, x: str, y: str) -> tuple[list[float], list[float]]:
        """Means over seeds of two entries of the evaluations, look by look, less the looks without them."""
        points: tuple[list[float], list[float]] = ([], [])
        for looks in zip(*(records[1:-1] for records in self.runs), strict=False):
            here = [spread(look[name] for look in looks) for name in (x, y)]
            if None not in here:
                for values, value in zip(points, here, strict=True):
                    values.append(value.mean)
        return points


def spread(values: Iterable[float | None]) -> Spread | None:
    """Mean and sample standard deviation; None where a value is missing.

    Example:
      >>> spread([1.0, 3.0])
      Spread(mean=2.0, std=1.4142135623730951)
    """
    numbers = list(values)
    if not numbers or None in numbers:
        return None
    return Spread(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else 0.0)
