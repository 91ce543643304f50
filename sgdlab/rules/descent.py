"""`Descent`, the step of rules that make one direction of many gradients, and `KeptGradients`, their base."""

import dataclasses
from typing import Any

import jax

from sgdlab.rules import accumulators
from sgdlab.rules.hyperparameters import Rate, checked, static
from sgdlab.rules.server_rule import ServerRule, Settings, Tree, decayed, rule_of


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Descent:
    r"""Momentum SGD along a direction d that a rule has made.

    .. math:: v_{k+1} = \gamma v_k + d_k + \lambda \theta_k, \qquad \theta_{k+1} = \theta_k - \eta_k v_{k+1}

    With `nesterov`, the step is :math:`\eta_k (\gamma v_{k+1} + d_k + \lambda \theta_k)`.

    Attributes:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma.
      weight_decay: lambda, added at the parameters of the update.
      nesterov: whether to use Nesterov's momentum.
    """

    learning_rate: Rate
    momentum: Any
    weight_decay: Any
    nesterov: bool = static()

    @classmethod
    def of(cls, **hyperparameters: Any) -> "Descent":
        """Check the hyperparameters, and return the step that they make."""
        return cls(**checked(**hyperparameters))

    def step(self, direction: Tree, velocity: Tree, count: jax.Array, params: Tree) -> tuple[Tree, Tree]:
        """The update, in the dtypes of the parameters, and the new velocity.

        Args:
          direction: d, in float32 at least.
          velocity: v, like it.
          count: updates made before.
          params: theta.
        """
        direction = decayed(direction, accumulators.wide(params), self.weight_decay)
        velocity, step = accumulators.momentum_step(direction, velocity, self.momentum, nesterov=self.nesterov)
        return accumulators.descent(step, self.learning_rate, count, params), velocity


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
        return ()

    def rule(self) -> ServerRule:
        """The rule, which refuses schedules of more workers."""
        return rule_of(self, num_workers=self.num_workers)
