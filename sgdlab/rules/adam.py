"""Adam, Adam-SA and Adam-GA, whose penalty enters only the first moment (Barkai et al. 2020, Algorithms 9 to 11)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.rules import accumulators
from sgdlab.rules.family import RULES
from sgdlab.rules.gap import Gap, Penalised
from sgdlab.rules.hyperparameters import Rate, checked, like, max_learning_rate_argument
from sgdlab.rules.penalty import DelayPenalty, PenalisedGradient, Penalty
from sgdlab.rules.server_rule import ServerRule, Tree, decayed, lifted, rule_of


class PenalisedAdamState(NamedTuple):
    """State of Adam-SA and Adam-GA; the moments in float32 at least."""

    count: jax.Array  # shape=(), dtype=int32: updates.
    mu: Tree  # *params_shape: first moment, of the penalised gradients.
    nu: Tree  # *params_shape: second moment, of the raw gradients.
    penalty: Tree  # of `adam_gap_aware`: a GapState; else empty.


@RULES.register(
    title="Adam", source="Barkai et al. 2020, Alg. 9", families=("Adam",), rate="adam_learning_rate", baseline="adam"
)
def adam(
    *, learning_rate: Rate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0
) -> ServerRule:
    r"""Adam at the server, whatever the delay.

    .. math:: m \leftarrow b_1 m + (1 - b_1) g, \quad v \leftarrow b_2 v + (1 - b_2) g^2, \quad
        \theta \leftarrow \theta - \eta \frac{m / (1 - b_1^k)}{\sqrt{v / (1 - b_2^k)} + \epsilon}

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      b1: decay of the first moment, in [0, 1).
      b2: decay of the second moment, in [0, 1).
      eps: epsilon, added to the root of the second moment.
      weight_decay: lambda; lambda theta is added to the gradient (it is not decoupled as in AdamW).

    Returns:
      A `ServerRule` around `optax.scale_by_adam`.

    Source: Kingma and Ba 2015; Barkai et al. 2020, Algorithm 9.

    Example:
      >>> rule, params = adam(learning_rate=0.1, eps=0.0), jnp.zeros(1)
      >>> updates, _ = rule.update(jnp.full(1, 4.0), rule.init(params), params)
      >>> f"{updates[0]:.4f}"
      '-0.1000'
    """
    return lifted(_adam, **checked(learning_rate=learning_rate, b1=b1, b2=b2, eps=eps, weight_decay=weight_decay))


@RULES.register(
    title="Adam-SA",
    source="Barkai et al. 2020, Alg. 10",
    families=("Adam",),
    rate="adam_learning_rate",
    baseline="adam",
)
def adam_staleness_aware(
    *, learning_rate: Rate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0
) -> ServerRule:
    r"""Adam-SA: the gradient is divided by its delay in the first moment, but not in the second.

    .. math:: m \leftarrow b_1 m + (1 - b_1) \frac{g}{\tau}, \qquad v \leftarrow b_2 v + (1 - b_2) g^2

    If both were divided, the delay would cancel. With a delay of 1 it is Adam.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      b1: decay of the first moment, in [0, 1).
      b2: decay of the second moment, in [0, 1).
      eps: epsilon, added to the root of the second moment.
      weight_decay: lambda, added to the gradient before the delay divides it.

    Returns:
      A `ServerRule`; its state holds two moments.

    Source: Barkai et al. 2020, Algorithm 10.

    Example:
      >>> rule, params = adam_staleness_aware(learning_rate=0.1, eps=0.0), jnp.zeros(1)
      >>> state = rule.init(params)
      >>> message = rule.receive(jnp.ones(1), state, params, worker=0, delay=2, read_params=params)
      >>> rule.update(message, state, params)[0]
      Array([-0.05], dtype=float32)
    """
    numbers = checked(learning_rate=learning_rate, b1=b1, b2=b2, eps=eps, weight_decay=weight_decay)
    return rule_of(_PenalisedAdam(**numbers, penalty=DelayPenalty()))


@RULES.register(
    title="Adam-GA",
    source="Barkai et al. 2020, Alg. 11",
    families=("Adam",),
    rate="adam_learning_rate",
    baseline="adam",
    measures_gap=True,
)
def adam_gap_aware(
    *,
    learning_rate: Rate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    max_learning_rate: float | None = None,
    granularity: str = "parameter",
) -> ServerRule:
    r"""Adam-GA: the gradient is divided by its gap in the first moment, but not in the second.

    .. math:: m \leftarrow b_1 m + (1 - b_1) \frac{g}{G}, \qquad v \leftarrow b_2 v + (1 - b_2) g^2

    The gap's C is averaged over Adam's step :math:`\hat m / (\sqrt{\hat v} + \epsilon)` (`sgdlab.rules.gap`).

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      b1: decay of the first moment, in [0, 1).
      b2: decay of the second moment, in [0, 1).
      eps: epsilon, added to the root of the second moment.
      weight_decay: lambda, added to the gradient before the gap divides it.
      max_learning_rate: eta_max of the gap; the learning rate by default, required where that is a schedule.
      granularity: a gap for each "parameter", for each "layer", or one for all ("global"), as in `gap_aware`.

    Returns:
      A `ServerRule`; its state holds two moments and the state of the gap.

    Source: Barkai et al. 2020, Algorithm 11.

    Example:
      >>> rule, params = adam_gap_aware(learning_rate=0.1, eps=0.0), jnp.zeros(1)
      >>> state = rule.init(params)
      >>> message = rule.receive(jnp.ones(1), state, params, worker=0, delay=1, read_params=params)
      >>> rule.update(message, state, params)[0]
      Array([-0.1], dtype=float32)
    """
    gap = Gap(max_learning_rate_argument(max_learning_rate, learning_rate), granularity=granularity)
    numbers = checked(learning_rate=learning_rate, b1=b1, b2=b2, eps=eps, weight_decay=weight_decay)
    return rule_of(_PenalisedAdam(**numbers, penalty=gap))


def _adam(*, learning_rate: Rate, b1: Any, b2: Any, eps: Any, weight_decay: Any):
    update = optax.chain(
        accumulators.in_float32(optax.scale_by_adam(b1, b2, eps)), optax.scale_by_learning_rate(learning_rate)
    )
    return optax.add_decayed_weights(weight_decay), update


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _PenalisedAdam(Penalised):
    learning_rate: Rate
    b1: Any
    b2: Any
    eps: Any
    weight_decay: Any
    penalty: Penalty

    def init(self, params: Tree, **extra: Any) -> PenalisedAdamState:
        zeros = accumulators.zeros(params)
        return PenalisedAdamState(jnp.zeros([], jnp.int32), zeros, zeros, self.penalty.init(params))

    def receive(self, grads: Tree, state: PenalisedAdamState, params: Tree, **extra: Any) -> PenalisedGradient:
        penalised = super().receive(grads, state, params, **extra)
        return PenalisedGradient(penalised=penalised, raw=decayed(grads, params, self.weight_decay))

    def update(
        self, message: PenalisedGradient, state: PenalisedAdamState, params: Tree, **extra: Any
    ) -> tuple[Tree, PenalisedAdamState]:
        count = optax.safe_increment(state.count)
        squared = jax.tree.map(jnp.square, accumulators.wide(message.raw))
        mu = accumulators.moving_average(state.mu, message.penalised, self.b1)
        nu = accumulators.moving_average(state.nu, squared, self.b2)
        step = jax.tree.map(
            lambda m, v: m / (jnp.sqrt(v) + like(self.eps, v)),
            optax.tree.bias_correction(mu, self.b1, count),
            optax.tree.bias_correction(nu, self.b2, count),
        )
        new_state = PenalisedAdamState(count, mu, nu, self.penalty.fold(state.penalty, step))
        return accumulators.descent(step, self.learning_rate, state.count, params), new_state
