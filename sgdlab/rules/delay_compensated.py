"""DC-ASGD: stale gradients with a first-order correction for the change of the parameters (Zheng et al. 2017)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.knobs import Knob
from sgdlab.rules import accumulators
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, checked, decay_argument, like, number, static
from sgdlab.rules.server_rule import ServerRule, Settings, Tree, decayed, rule_of

EPSILON = 1e-7
"""Added to the mean square below the root; Zheng et al., section 6."""


class Compensated(NamedTuple):
    """The message of a gradient."""

    gradient: Tree  # compensated.
    square: Tree  # of the raw gradient, in float32 at least; empty unless `adaptive`.


class DelayCompensatedState(NamedTuple):
    """State of `delay_compensated`; velocity and mean square in float32 at least."""

    count: jax.Array  # shape=(), dtype=int32: updates.
    velocity: Tree  # *params_shape.
    mean_square: Tree  # *params_shape; empty unless `adaptive`.


@RULES.register(
    title="DC-ASGD",
    source="Zheng et al. 2017",
    families=("Staleness corrections (plain SGD)",),
    tunes=Knob("variance_control", 0.01, 4.0),
)
def delay_compensated(
    *,
    learning_rate: Rate,
    variance_control: float = 0.04,
    adaptive: bool = False,
    mean_square_decay: float = 0.95,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> ServerRule:
    r"""Delay-compensated ASGD: adds the first-order change of a gradient since it was computed.

    .. math:: \tilde g_k = g_k + \lambda_k\, g_k \odot g_k \odot (\theta_k - \theta_{read}), \qquad
        v_{k+1} = \gamma v_k + \tilde g_k, \qquad \theta_{k+1} = \theta_k - \eta_k v_{k+1}

    The diagonal of the outer product of gradients approximates the Hessian's. :math:`\lambda_k = \lambda_0` is
    DC-ASGD-c; `adaptive` is DC-ASGD-a:

    .. math:: \lambda_k = \lambda_0 / \sqrt{s_k + \epsilon}, \qquad s_k = m s_{k-1} + (1 - m) g_k^2

    A fresh gradient is not changed, so that with one worker it is plain SGD. With small gradients, the correction by
    DC-ASGD-c is void: the record of a run has its length, over that of the gradient, as `penalty`.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      variance_control: lambda_0, strength of the correction; the paper uses 0.04 for DC-ASGD-c, 2 for DC-ASGD-a.
      adaptive: whether lambda_0 is divided by the root of the gradients' mean square (DC-ASGD-a).
      mean_square_decay: m, decay of the gradients' mean square, which `adaptive` needs.
      momentum: gamma in (-1, 1); the paper's algorithm has none.
      nesterov: whether to use Nesterov's momentum.
      weight_decay: added to the gradient, at the server's parameters, before it is compensated.

    Returns:
      A `ServerRule`; its state holds one velocity and, if `adaptive`, one mean square.

    Source: Zheng et al. 2017, Asynchronous SGD with Delay Compensation, Algorithm 2 and equation 10.

    Example:
      >>> rule, params = delay_compensated(learning_rate=1.0, variance_control=0.5), jnp.ones(1)
      >>> rule.receive(2 * params, rule.init(params), params, worker=0, delay=2, read_params=0 * params).gradient
      Array([4.], dtype=float32)
    """
    return rule_of(
        _DelayCompensated(
            **checked(learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov),
            variance_control=number("variance_control", variance_control, least=0),
            mean_square_decay=decay_argument("mean_square_decay", mean_square_decay),
            adaptive=bool(adaptive),
        )
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _DelayCompensated(Settings):
    learning_rate: Rate
    variance_control: Any
    mean_square_decay: Any
    momentum: Any
    weight_decay: Any
    adaptive: bool = static()
    nesterov: bool = static()

    def init(self, params: Tree, **extra: Any) -> DelayCompensatedState:
        zeros = accumulators.zeros(params)
        return DelayCompensatedState(jnp.zeros([], jnp.int32), zeros, zeros if self.adaptive else ())

    def receive(
        self, grads: Tree, state: DelayCompensatedState, params: Tree, *, read_params: Tree, **extra: Any
    ) -> Compensated:
        raw = decayed(grads, params, self.weight_decay)
        square = jax.tree.map(jnp.square, accumulators.wide(raw))
        gradient = jax.tree.map(jnp.add, raw, self._correction(square, state, params, read_params))
        return Compensated(accumulators.narrow(gradient, raw), square if self.adaptive else ())

    def mean_penalty(
        self, grads: Tree, state: DelayCompensatedState, params: Tree, *, read_params: Tree, **extra: Any
    ) -> jax.Array:
        """Return the length of the correction over that of the gradient: where it is about 0, this is plain SGD."""
        raw = accumulators.wide(decayed(grads, params, self.weight_decay))
        correction = self._correction(jax.tree.map(jnp.square, raw), state, params, read_params)
        length = optax.tree.norm(raw)
        return jnp.where(length > 0, optax.tree.norm(correction) / jnp.where(length > 0, length, 1), 0)

    def _correction(self, square: Tree, state: DelayCompensatedState, params: Tree, read_params: Tree) -> Tree:
        """Return lambda g g (theta - theta_read), given the squares of the gradient."""
        control = jax.tree.map(lambda s: like(self.variance_control, s), square)
        if self.adaptive:
            mean = accumulators.moving_average(state.mean_square, square, self.mean_square_decay)
            control = jax.tree.map(lambda c, s: c / jnp.sqrt(s + like(EPSILON, s)), control, mean)
        return jax.tree.map(lambda c, s, now, then: c * s * (now - then), control, square, params, read_params)

    def update(
        self, message: Compensated, state: DelayCompensatedState, params: Tree, **extra: Any
    ) -> tuple[Tree, DelayCompensatedState]:
        velocity, step = accumulators.momentum_step(
            message.gradient, state.velocity, self.momentum, nesterov=self.nesterov
        )
        new_state = DelayCompensatedState(
            count=optax.safe_increment(state.count),
            velocity=velocity,
            mean_square=accumulators.moving_average(state.mean_square, message.square, self.mean_square_decay),
        )
        return accumulators.descent(step, self.learning_rate, state.count, params), new_state
