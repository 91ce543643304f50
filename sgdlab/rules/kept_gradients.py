"""`KeptGradients`, the base of rules that make updates of what the server has kept of each worker's gradients."""

import dataclasses
from typing import Any

from sgdlab.rules.descent import Descent
from sgdlab.rules.hyperparameters import static
from sgdlab.rules.server_rule import ServerRule, Settings, Tree, rule_of


@dataclasses.dataclass(frozen=True)
class KeptGradients(Settings):
    """A gradient changes the state by `absorb`, and nothing of it is in the message: `update` uses the state alone.

    Attributes:
      descent: the step along what `update` makes of the state.
      num_workers: number of workers that the state has room for.
    """

    descent: Descent
    num_workers: int = static()

    def receive(self, grads: Tree, state: Tree, params: Tree, **extra: Any) -> tuple:
        """The message is empty."""
        del grads, state, params, extra
        return ()

    def rule(self) -> ServerRule:
        """The rule, which refuses schedules of more workers."""
        return rule_of(self, num_workers=self.num_workers)
