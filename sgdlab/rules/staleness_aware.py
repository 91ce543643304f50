"""Staleness-Aware: stale steps, or stale gradients, divided by their delay (Zhang et al. 2015b; Barkai et al. 2020)."""

from typing import Any

import optax

from sgdlab.rules.accumulators import momentum_chains
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, checked
from sgdlab.rules.penalty import divide_by_delay
from sgdlab.rules.server_rule import ServerRule, lifted


def scale_by_delay() -> optax.GradientTransformationExtraArgs:
    r"""Divides updates by the delay :math:`\tau` = staleness + 1, the extra argument `delay`.

    Its position in a chain matters: after the momentum it penalises the step (Barkai et al., Algorithm 3), before it
    the gradient (Algorithm 5).

    Returns:
      A stateless optax transform; without a `delay` it changes nothing.

    Example:
      >>> import jax.numpy as jnp
      >>> transform = scale_by_delay()
      >>> transform.update(jnp.ones(1), transform.init(jnp.ones(1)), delay=4)[0]
      Array([0.25], dtype=float32)
    """

    def update(updates, state, params=None, *, delay=1, **extra_args):
        return divide_by_delay(updates, delay), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


@RULES.register(
    title="Staleness-Aware", source="Barkai et al. 2020, Alg. 3", families=("Staleness penalties (momentum SGD)",)
)
def staleness_aware(
    *, learning_rate: Rate, momentum: float = 0.9, nesterov: bool = True, weight_decay: float = 0.0
) -> ServerRule:
    r"""Staleness-Aware (SA): the step of a stale gradient is divided by its delay.

    .. math:: v_{k+1} = \gamma v_k + g_k + \lambda \theta_k, \qquad
        \theta_{k+1} = \theta_k - \frac{\eta_k}{\tau_k} v_{k+1}

    With `nesterov`, :math:`v_{k+1}` in the step is :math:`\gamma v_{k+1} + g_k`. With a delay of 1 it is NAG.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1).
      nesterov: whether to use Nesterov's momentum; Barkai et al. run SA on NAG.
      weight_decay: lambda, added to the gradient at the server's parameters.

    Returns:
      A `ServerRule`: `optax.chain(optax.trace, scale_by_delay, optax.scale_by_learning_rate)`.

    Source: Zhang et al. 2015b; Barkai et al. 2020, Algorithm 3.

    Example:
      >>> import jax.numpy as jnp
      >>> rule, params = staleness_aware(learning_rate=1.0, momentum=0.5), jnp.ones(1)
      >>> rule.update(jnp.ones(1), rule.init(params), params, delay=3)[0]
      Array([-0.5], dtype=float32)
    """
    return lifted(
        _penalised_step,
        **checked(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay),
    )


@RULES.register(
    title="SA-Gradient", source="Barkai et al. 2020, Alg. 5", families=("Staleness penalties (momentum SGD)",)
)
def staleness_aware_gradient(
    *, learning_rate: Rate, momentum: float = 0.9, nesterov: bool = True, weight_decay: float = 0.0
) -> ServerRule:
    r"""Staleness-Aware-Gradient: the stale gradient itself is divided by its delay, before the momentum.

    .. math:: v_{k+1} = \gamma v_k + \frac{g_k + \lambda \theta_k}{\tau_k}, \qquad
        \theta_{k+1} = \theta_k - \eta_k v_{k+1}

    A stale gradient is therefore small in the velocity too, and does not return at full size with the next fresh one.
    Arguments and errors are those of `staleness_aware`.

    Source: Barkai et al. 2020, Algorithm 5.

    Example:
      >>> import jax.numpy as jnp
      >>> rule, params = staleness_aware_gradient(learning_rate=1.0, nesterov=False), jnp.ones(1)
      >>> rule.receive(jnp.ones(1), rule.init(params), params, worker=0, delay=4, read_params=params)
      Array([0.25], dtype=float32)
    """
    return lifted(
        _penalised_gradient,
        **checked(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay),
    )


def _penalised_step(**sgd: Any):
    return momentum_chains(**sgd, of_steps=(scale_by_delay(),))


def _penalised_gradient(**sgd: Any):
    return momentum_chains(**sgd, of_gradients=(scale_by_delay(),))
