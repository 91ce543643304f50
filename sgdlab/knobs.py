"""`Knob`: a hyperparameter of a method that is tuned, with its range."""

import dataclasses
import math

from sgdlab import arguments


@dataclasses.dataclass(frozen=True)
class Knob:
    """A hyperparameter of a part or a method, and the values that tuning tries.

    Attributes:
      entry: of the part's configuration; of a method, or of another part, its whole name, such as "local.steps".
      low: least value.
      high: largest value.
      log: whether values are spread evenly over the logarithm.
      whole: whether values are whole numbers.
      per_worker: whether `low` and `high` are multiples of the number of workers.

    Raises:
      ValueError: where the range is empty, or reaches 0 on a logarithmic scale.

    Example:
      >>> limit = Knob("max_delay", 0.25, 8.0, whole=True, per_worker=True)
      >>> [limit.value(share, num_workers=8) for share in (0.0, 0.5, 1.0)]
      [2, 11, 64]
    """

    entry: str
    low: float
    high: float
    log: bool = True
    whole: bool = False
    per_worker: bool = False

    def __post_init__(self) -> None:
        arguments.real("low", self.low, **({"above": 0} if self.log else {}))
        arguments.real("high", self.high, above=self.low)

    def value(self, share: float, *, num_workers: int) -> float | int:
        """Return the value at a share of the range, from 0 to 1.

        Args:
          share: of the range.
          num_workers: N; a whole number of workers is at least 1.
        """
        if self.log:
            found = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            found = self.low + share * (self.high - self.low)
        found *= num_workers if self.per_worker else 1
        return max(round(found), 1 if self.per_worker else 0) if self.whole else found
