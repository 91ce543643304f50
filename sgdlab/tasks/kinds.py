"""The kinds of tasks, with the metric by which each is judged; nothing here needs JAX."""

import dataclasses
import math
from collections.abc import Callable

from sgdlab.registry import Part


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of task.

    Attributes:
      name: "classification", "density" or "language".
      metric: the metric by which its runs are judged, a name among those that `NetworkTask.finish` returns.
      higher_is_better: the metric's direction.
      remembers: whether its workers have a state of their own.
      of_guess: what a guess among so many equally likely outcomes scores. Its loss is the logarithm of their number.
    """

    name: str
    metric: str
    higher_is_better: bool
    remembers: bool
    of_guess: Callable[[int], float]

    def at_least_as_good(self, value: float, target: float) -> bool:
        """Return if a value of the metric reaches a target.

        Example:
          >>> KINDS["language"].at_least_as_good(80.0, 100.0), KINDS["classification"].at_least_as_good(0.8, 0.95)
          (True, False)
        """
        return value >= target if self.higher_is_better else value <= target


def kind_of(part: Part) -> Kind:
    """Return the kind of task that a registered network is for: its fact `task`, or classification."""
    return KINDS[part.facts.task]


KINDS = {
    kind.name: kind
    for kind in (
        Kind("classification", "accuracy", True, False, lambda classes: 1 / classes),
        Kind("density", "bits_per_dimension", False, False, math.log2),
        Kind("language", "perplexity", False, True, float),
    )
}
"""All kinds of tasks by name."""
