"""Gap-Aware: every gradient divided by its gap, before the momentum (Barkai et al. 2020, Algorithms 4 and 14)."""

import dataclasses
from typing import Any, NamedTuple

import jax

from sgdlab import arguments
from sgdlab.rules import accumulators
from sgdlab.rules.family import RULES
from sgdlab.rules.gap import COEFFICIENTS, Gap, GapState, Penalised, Printed
from sgdlab.rules.hyperparameters import Rate, checked, max_learning_rate_argument, static
from sgdlab.rules.server_rule import ServerRule, Tree, rule_of


class GapAwareState(NamedTuple):
    """State of `gap_aware`."""

    velocity: Tree  # *params_shape, in float32 at least.
    penalty: GapState


@RULES.register(
    title="Gap-Aware",
    source="Barkai et al. 2020, Alg. 4",
    families=("Staleness penalties (momentum SGD)",),
    measures_gap=True,
)
def gap_aware(
    *,
    learning_rate: Rate,
    momentum: float = 0.9,
    nesterov: bool = True,
    weight_decay: float = 0.0,
    max_learning_rate: float | None = None,
    granularity: str = "parameter",
    coefficient: str = "settled",
) -> ServerRule:
    r"""Gap-Aware (GA): divides each gradient by its gap, the server's movement since it was read in average updates.

    .. math:: G_k = \frac{|\theta_k - \theta_{read}|}{C_k} + 1, \qquad
        v_{k+1} = \gamma v_k + \frac{g_k + \lambda \theta_k}{G_k}, \qquad
        \theta_{k+1} = \theta_k - \eta_k v_{k+1}

    With `nesterov`, :math:`v_{k+1}` in the last step is :math:`\gamma v_{k+1} + g_k / G_k`. C is the distance of one
    average update at the largest learning rate (`sgdlab.rules.gap`); it is averaged over the velocity, not the
    look-ahead step. Without movement (G = 1) it is NAG.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1).
      nesterov: whether to use Nesterov's momentum; Barkai et al. run GA on NAG.
      weight_decay: lambda, added to the gradient before the gap divides it (C.5).
      max_learning_rate: eta_max; the learning rate by default, required where that is a schedule.
      granularity: a gap for each "parameter" (equation 13, the paper's choice), for each "layer" (equation 12; a layer
        is a leaf of the parameter tree, kernel and bias apart), or one for all ("global", Definition 1).
      coefficient: which velocities the gap's C averages: those of earlier updates ("settled"), or, as in Algorithm 14,
        those that unpenalised gradients would form, the measured one included ("printed"). Where an update averages
        several gradients, "printed" measures each as if it were alone, and then averages the velocity of their mean.

    Returns:
      A `ServerRule`; its state holds one velocity and the second moments: per parameter, per layer, or one.

    Source: Barkai et al. 2020, Algorithm 4; Algorithm 14 for C, from which the default departs (`sgdlab.rules.gap`).

    Example:
      >>> import jax.numpy as jnp
      >>> rule, params = gap_aware(learning_rate=0.5, momentum=0.0), jnp.zeros(1)
      >>> updates, state = rule.update(jnp.ones(1), rule.init(params), params)
      >>> params_after = params + updates                              # one average step away from `params`: gap 2
      >>> rule.receive(jnp.ones(1), state, params_after, worker=0, delay=2, read_params=params)
      Array([0.5], dtype=float32)
    """
    printed = arguments.one_of("coefficient", coefficient, COEFFICIENTS) == "printed"
    settings = _PrintedGapAware if printed else _GapAware
    return rule_of(
        settings(
            **checked(learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov),
            penalty=Gap(max_learning_rate_argument(max_learning_rate, learning_rate), granularity=granularity),
        )
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _GapAware(Penalised):
    learning_rate: Rate
    momentum: Any
    weight_decay: Any
    penalty: Gap
    nesterov: bool = static()

    def init(self, params: Tree, **extra: Any) -> GapAwareState:
        return GapAwareState(velocity=accumulators.zeros(params), penalty=self.penalty.init(params))

    def update(self, message: Tree, state: GapAwareState, params: Tree, **extra: Any) -> tuple[Tree, GapAwareState]:
        velocity, step = accumulators.momentum_step(message, state.velocity, self.momentum, nesterov=self.nesterov)
        updates = accumulators.descent(step, self.learning_rate, state.penalty.count, params)
        return updates, GapAwareState(velocity=velocity, penalty=self.penalty.fold(state.penalty, velocity))

    def velocity_after(self, message: Tree, state: GapAwareState, worker: Any) -> Tree:
        return accumulators.momentum_step(message, state.velocity, self.momentum)[0]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _PrintedGapAware(Printed, _GapAware):
    """With the coefficient of Algorithm 14 as printed."""
