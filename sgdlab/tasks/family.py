"""Tasks: their registry. A task is a loss of one example, with the metric that its runs are judged by."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

from sgdlab.registry import Facts, Registry

OUTCOMES = {"labels": "num_classes", "levels": "levels", "tokens": "vocabulary"}
"""The attribute of a data set with the number of values that each kind of target can take."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskFacts(Facts):
    """Facts that runs, tables and pictures ask of a task.

    Attributes:
      metric: what runs are judged by: "loss", or the name of an array that the loss returns besides, or of what
        `finish` makes. Records have it as `test_<metric>`.
      higher_is_better: the metric's direction.
      targets: what `labels` are: those of the data; or the pixels' own levels; or the next tokens, for a network with
        `network(tokens, targets, memory[, key=]) -> (outputs, memory)` and `network.start(batch_size) -> memory`.
      finish: `means -> metrics`, of the means over all examples: the loss and all that it returns besides, by name. A
        function of a module. None: the means are the metrics.
      of_guess: the metric of a guess among so many equally likely outcomes, whose loss is the logarithm of their
        number; a run that ends no better after it had blown up has diverged. None: what it began with is the guess.
      unit: behind a number of the metric, as in " kWh".
      digits: of the metric after the decimal point.
      percent: whether the metric is a share of 1, which is shown in %.
    """

    metric: str = "loss"
    higher_is_better: bool = False
    targets: Literal["labels", "levels", "tokens"] = "labels"
    finish: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    of_guess: Callable[[int], float] | None = None
    unit: str = ""
    digits: int | None = None
    percent: bool = False

    @property
    def remembers(self) -> bool:
        """Return if workers have a state of their own: a memory of the text that they read."""
        return self.targets == "tokens"

    @property
    def words(self) -> Mapping[str, Any]:
        """Return how the metric is written, where that does not follow from its name: `sgdlab.results.metric.Metric`.

        Example:
          >>> TaskFacts(metric="error", unit=" kWh", digits=1).words
          {'unit': ' kWh', 'digits': 1}
          >>> TaskFacts(metric="perplexity").words
          {}
        """
        share = {"short": "%", "unit": " %", "scale": 100.0, "digits": 1, "is_share": True} if self.percent else {}
        return share | {name: value for name in ("unit", "digits") if (value := getattr(self, name))}


TASKS = Registry(
    "task",
    facts=TaskFacts,
    given={"outputs": "network.kind", "labels": "data.kind"},
    modules=("sgdlab.tasks.losses",),
)
"""Losses: `(outputs, labels, **own) -> loss`, of what the network returns for a batch and its labels, one number for
each example (or for each of its targets); or `(loss, {name: array})` with further arrays of that shape, whose means are
metrics. They are traced."""
