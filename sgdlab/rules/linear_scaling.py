"""Linear scaling: the step grows with the number of gradients that an update averages (Goyal et al. 2017)."""

from typing import Any

import jax
import optax

from sgdlab.rules.accumulators import momentum_chains
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, checked, like
from sgdlab.rules.server_rule import ServerRule, lifted


def scale_by_num_gradients() -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by d, the number of averaged gradients: the extra argument `num_gradients`.

    After the momentum it scales the step, theta <- theta - d eta U(mean gradient), as line 13 of PSP-SGD does.

    Returns:
      A stateless optax transform; without `num_gradients` it changes nothing.

    Example:
      >>> import jax.numpy as jnp
      >>> transform = scale_by_num_gradients()
      >>> transform.update(jnp.ones(1), transform.init(jnp.ones(1)), num_gradients=28)[0]
      Array([28.], dtype=float32)
    """

    def update(updates, state, params=None, *, num_gradients=1, **extra_args):
        return jax.tree.map(lambda leaf: leaf * like(num_gradients, leaf), updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


@RULES.register(
    title="Linear scaling", source="Goyal et al. 2017", families=(), method=False, scales_by_num_gradients=True
)
def linear_scaling(
    *, learning_rate: Rate, momentum: float = 0.9, nesterov: bool = True, weight_decay: float = 0.0
) -> ServerRule:
    r"""Momentum SGD whose learning rate is that of one gradient, times the number d that an update averages.

    .. math:: v_{k+1} = \gamma v_k + \frac{1}{d_k} \sum_{i=1}^{d_k} (g_{k,i} + \lambda \theta_k), \qquad
        \theta_{k+1} = \theta_k - d_k \eta_k v_{k+1}

    With `nesterov`, :math:`v_{k+1}` in the step is :math:`\gamma v_{k+1}` plus the mean gradient. Where every update
    has one gradient it is `asgd`.

    Args:
      learning_rate: eta, of one gradient, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1).
      nesterov: whether to use Nesterov's momentum.
      weight_decay: lambda, added to the gradient at the server's parameters.

    Returns:
      A `ServerRule`: `optax.chain(optax.trace, scale_by_num_gradients, optax.scale_by_learning_rate)`.

    Source: the weak-synchronization paper, section 2.2 and Algorithm 1, line 13; Goyal et al. 2017.

    Example:
      >>> import jax.numpy as jnp
      >>> rule, params = linear_scaling(learning_rate=1.0, nesterov=False), jnp.ones(1)
      >>> rule.update(jnp.ones(1), rule.init(params), params, num_gradients=4)[0]
      Array([-4.], dtype=float32)
    """
    return lifted(
        _scaled,
        **checked(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay),
    )


def _scaled(**sgd: Any):
    return momentum_chains(**sgd, of_steps=(scale_by_num_gradients(),))
