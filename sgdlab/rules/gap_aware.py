"""Gap-Aware: every gradient divided by its gap, before the momentum (Barkai et al. 2020, Algorithms 4 and 14)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import optax

from sgdlab.rules.gap import Gap, GapState
from sgdlab.rules.hyperparameters import (
    Rate,
    learning_rate_argument,
    max_learning_rate_argument,
    momentum_argument,
    number,
    rate_at,
    scale,
    static,
)
from sgdlab.rules.server_rule import ServerRule, Settings, Tree, decayed, rule_of


class GapAwareState(NamedTuple):
    """State of `gap_aware`."""

    velocity: Tree  # like the parameters.
    gap: GapState


def gap_aware(
    *,
    learning_rate: Rate,
    momentum: float = 0.9,
    nesterov: bool = True,
    weight_decay: float = 0.0,
    max_learning_rate: float | None = None,
    granularity: str = "parameter",
) -> ServerRule:
    r"""Gap-Aware (GA): a gradient counts the less, the further the server has moved since it was computed.

    .. math:: G_k = \frac{|\theta_k - \theta_{read}|}{C_k} + 1, \qquad
        v_{k+1} = \gamma v_k + \frac{g_k + \lambda \theta_k}{G_k}, \qquad
        \theta_{k+1} = \theta_k - \eta_k v_{k+1}

    With `nesterov`, :math:`v_{k+1}` in the last step is :math:`\gamma v_{k+1} + g_k / G_k`. C is the distance of one
    average update at the largest learning rate (`sgdlab.rules.gap`); it is averaged over the velocity, not the
    look-ahead step. A gap of 0 (G = 1) makes it NAG.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1).
      nesterov: whether the step looks ahead; Barkai et al. run GA on NAG.
      weight_decay: lambda, added to the gradient before the gap divides it (C.5).
      max_learning_rate: eta_max; the learning rate by default, required where that is a schedule.
      granularity: "parameter" (equation 13, the paper's choice), "layer" (equation 12; a layer is a leaf of the
        parameter tree, kernel and bias apart) or "global" (Definition 1).

    Returns:
      A `ServerRule`; its state holds one velocity and, per parameter, layer or once, the second moment.

    Raises:
      ValueError: where a hyperparameter is not finite or out of its range.

    Source: Barkai et al. 2020, Algorithms 4 and 14.

    Example:
      >>> import jax.numpy as jnp
      >>> rule, params = gap_aware(learning_rate=0.5, momentum=0.0), jnp.zeros(1)
      >>> updates, state = rule.update(jnp.ones(1), rule.init(params), params)
      >>> params_after = params + updates                              # one average step away from `params`: gap 2
      >>> rule.receive(jnp.ones(1), state, params_after, worker=0, delay=2, read_params=params)
      Array([0.5], dtype=float32)
    """
    return rule_of(
        _GapAware(
            learning_rate=learning_rate_argument(learning_rate),
            momentum=momentum_argument(momentum),
            weight_decay=number("weight_decay", weight_decay, lower=0.0),
            gap=Gap(max_learning_rate_argument(max_learning_rate, learning_rate), granularity=granularity),
            nesterov=bool(nesterov),
        )
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _GapAware(Settings):
    learning_rate: Rate
    momentum: Any
    weight_decay: Any
    gap: Gap
    nesterov: bool = static()

    def init(self, params: Tree, **extra: Any) -> GapAwareState:
        del extra
        return GapAwareState(velocity=optax.tree.zeros_like(params), gap=self.gap.init(params))

    def receive(
        self, grads: Tree, state: GapAwareState, params: Tree, *, delay: Any, read_params: Tree, **extra: Any
    ) -> Tree:
        del extra
        raw = decayed(grads, params, self.weight_decay)
        return self.gap.divide(raw, state.gap, params, delay=delay, read_params=read_params)

    def update(self, message: Tree, state: GapAwareState, params: Tree, **extra: Any) -> tuple[Tree, GapAwareState]:
        del params, extra
        velocity = optax.tree.add(message, scale(state.velocity, self.momentum))
        step = optax.tree.add(message, scale(velocity, self.momentum)) if self.nesterov else velocity
        rate = rate_at(self.learning_rate, state.gap.count)
        return scale(step, -rate), GapAwareState(velocity=velocity, gap=self.gap.fold(state.gap, velocity))
