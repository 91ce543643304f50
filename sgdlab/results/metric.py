"""The metric by which runs are judged: its names, its numbers as texts, and its direction."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

_POWERS_FROM = 1e5
"""From here on, numbers are written with a power of ten."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric, as tables, sentences and pictures speak of it."""

    name: str  # as in the records, whose entries are `test_<name>`, `train_<name>` and so on
    higher_is_better: bool  # its direction
    noun: str  # in a sentence
    plural: str  # of the noun
    short: str  # in the heading of a column, behind "test" or "train"
    unit: str = ""  # behind a number; "" for none
    scale: float = 1.0  # what the numbers of the records are multiplied by
    digits: int = 3  # after the decimal point, of numbers below 100
    goal: str  # a value to reach, in a sentence; `{}` is its number
    short_goal: str  # the same in the heading of a column
    # whether values are shares of 1, which are compared by their difference; others by their ratio
    is_share: bool = False
    logarithmic: bool = False  # whether values are drawn to a logarithmic scale; of a share, 1 less the share is

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> "Metric":
        """The metric that the first record of a run names.

        Args:
          run: with `metric` and `higher_is_better`, and perhaps `metric_words`, what of a task's own metric does not
            follow from its name. A record without them is of the accuracy.

        Example:
          >>> Metric.of({"metric": "perplexity", "higher_is_better": False}).text(24.251)
          '24.25'
          >>> Metric.of({}).text(0.9641)
          '96.4 %'
        """
        name, own = run.get("metric", "accuracy"), run.get("metric_words", {})
        words = {**(_WORDS.get(name) or _words(name, own.get("unit", ""))), **own}
        return cls(name=name, higher_is_better=run.get("higher_is_better", True), **words)

    @property
    def test(self) -> str:
        """The entry of records with its value on the test set."""
        return f"test_{self.name}"

    @property
    def train(self) -> str:
        """The entry of summaries with its value on the training set."""
        return f"train_{self.name}"

    @property
    def title(self) -> str:
        """Its name on the test set."""
        return f"test {self.noun}"

    @property
    def picture(self) -> str:
        """The picture's name that has it by number of workers; "loss" is that of the training loss."""
        return "final_loss" if self.name == "loss" else self.name

    @property
    def label(self) -> str:
        """Its name with the unit."""
        return f"{self.noun},{self.unit}" if self.unit else self.noun

    @property
    def test_label(self) -> str:
        """Its name on the test set, with the unit and, where lower is better, that it is."""
        return f"test {self.label}{'' if self.higher_is_better else ' (lower is better)'}"

    @property
    def best(self) -> str:
        """Return what the best value is: "highest" or "lowest"."""
        return "highest" if self.higher_is_better else "lowest"

    @property
    def sign(self) -> int:
        """1 where higher is better, else -1."""
        return 1 if self.higher_is_better else -1

    @property
    def margin(self) -> str:
        """The unit of `difference`, in the singular."""
        return "point" if self.is_share else "%"

    def number(self, value: float, spread: float | None = None) -> str:
        """A value without its unit, and where given its deviation, with as many digits as the value.

        Example:
          >>> Metric.of({"metric": "perplexity", "higher_is_better": False}).number(1644.76, 23.4)
          '1,645 ± 23'
          >>> Metric.of({}).number(0.9641, 0.002)
          '96.4 ± 0.2'
        """
        numbers = [self.scale * each for each in (value, spread) if each is not None]
        size = abs(numbers[0])
        digits = 0 if size >= 1000 else self.digits - (size >= 100 and not self.is_share)
        pattern = f",.{digits}f" if size < _POWERS_FROM else ".1e"
        return " ± ".join(format(number, pattern) for number in numbers)

    def text(self, value: float) -> str:
        """A value with its unit."""
        return f"{self.number(value)}{self.unit}"

    def beside_loss(self, record: Mapping[str, Any]) -> str:
        """The test loss of an evaluation and, unless that is the metric, its value.

        Example:
          >>> Metric.of({}).beside_loss({"test_loss": 0.1234567, "test_accuracy": 0.964})
          'test loss 0.1235, test accuracy 96.4 %'
          >>> Metric.of({"metric": "loss"}).beside_loss({"test_loss": 0.1234567})
          'test loss 0.1235'
        """
        loss = f"test loss {record['test_loss']:.4f}"
        return loss if self.name == "loss" else f"{loss}, {self.title} {self.text(record[self.test])}"

    def reach(self, *targets: float) -> str:
        """Values to reach, in a sentence.

        Example:
          >>> Metric.of({}).reach(0.95)
          '95 % test accuracy'
        """
        return self.goal.format(self._listed(targets))

    def short_reach(self, *targets: float) -> str:
        """Values to reach, in the heading of a column.

        Example:
          >>> Metric.of({}).short_reach(0.95)
          '95 %'
        """
        return self.short_goal.format(self._listed(targets))

    def _listed(self, targets: Sequence[float]) -> str:
        return " or ".join(f"{self.scale * target:g}" for target in targets)

    def difference(self, value: float, reference: float) -> float:
        """Return how far a value lies above another, in points of a share, else in % of the other.

        Example:
          >>> Metric.of({"metric": "perplexity", "higher_is_better": False}).difference(25.0, 20.0)
          25.0
          >>> round(Metric.of({}).difference(0.95, 0.96), 6)
          -1.0
        """
        if self.is_share:
            return self.scale * (value - reference)
        if not reference:
            return math.copysign(math.inf, value) if value else 0.0
        return 100 * (value - reference) / abs(reference)


_WORDS: dict[str, dict[str, Any]] = {
    "accuracy": {
        "noun": "accuracy",
        "plural": "accuracies",
        "short": "%",
        "unit": " %",
        "scale": 100.0,
        "digits": 1,
        "goal": "{} % test accuracy",
        "short_goal": "{} %",
        "is_share": True,
        "logarithmic": True,
    },
    "perplexity": {
        "noun": "perplexity",
        "plural": "perplexities",
        "short": "perplexity",
        "digits": 2,
        "goal": "a test perplexity of {}",
        "short_goal": "perplexity {}",
        "logarithmic": True,
    },
    "bits_per_dimension": {
        "noun": "bits per dimension",
        "plural": "bits per dimension",
        "short": "bits/dim",
        "digits": 3,
        "goal": "{} bits per dimension on the test set",
        "short_goal": "{} bits/dim",
    },
}
"""The words of the metrics of this library's tasks."""


def _words(name: str, unit: str) -> dict[str, Any]:
    """The words of any other metric, from its name and unit."""
    noun = name.replace("_", " ")
    goals = {"goal": f"a test {noun} of {{}}{unit}", "short_goal": f"{noun} {{}}{unit}"}
    return {"noun": noun, "plural": noun, "short": f"{noun},{unit}" if unit else noun, **goals}


ACCURACY = Metric.of({})
"""The metric of records that name none."""
