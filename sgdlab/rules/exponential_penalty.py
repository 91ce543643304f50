"""A penalty that decays exponentially with staleness (Chan and Lane 2014)."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from sgdlab.knobs import Knob
from sgdlab.rules.accumulators import momentum_chains
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, checked, like, number
from sgdlab.rules.server_rule import ServerRule, lifted


def scale_by_exponential_delay(penalty: float) -> optax.GradientTransformationExtraArgs:
    r"""Multiplies updates by :math:`e^{-\beta (\tau - 1)}`, with tau = staleness + 1 the extra argument `delay`.

    Args:
      penalty: beta, rate of the decay per update of staleness.

    Returns:
      A stateless optax transform; without a `delay` it changes nothing.

    Example:
      >>> transform = scale_by_exponential_delay(jnp.log(2.0))
      >>> transform.update(jnp.ones(1), transform.init(jnp.ones(1)), delay=3)[0]
      Array([0.25], dtype=float32)
    """

    def update(updates, state, params=None, *, delay=1, **extra_args):
        factor = jnp.exp(-penalty * (jnp.asarray(delay) - 1))
        return jax.tree.map(lambda leaf: leaf * like(factor, leaf), updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


@RULES.register(
    title="Exponential penalty",
    source="Chan and Lane 2014",
    families=("Staleness penalties (momentum SGD)",),
    tunes=Knob("penalty", 0.01, 1.0),
)
def exponential_penalty(
    *,
    learning_rate: Rate,
    penalty: float = 0.1,
    momentum: float = 0.9,
    nesterov: bool = True,
    weight_decay: float = 0.0,
) -> ServerRule:
    r"""Multiplies each gradient by a factor that decays exponentially with its staleness.

    .. math:: v_{k+1} = \gamma v_k + e^{-\beta (\tau_k - 1)} (g_k + \lambda \theta_k), \qquad
        \theta_{k+1} = \theta_k - \eta_k v_{k+1}

    With `nesterov`, :math:`v_{k+1}` in the step is :math:`\gamma v_{k+1}` plus the penalised gradient. A penalty of 0,
    or no staleness, makes it NAG. With more than about ten workers the factor nearly stops training; Zhang et al. 2015b
    divide by the delay for this reason.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      penalty: beta, rate of the decay per update of staleness.
      momentum: gamma in (-1, 1).
      nesterov: whether to use Nesterov's momentum.
      weight_decay: lambda, added to the gradient before the penalty.

    Returns:
      A `ServerRule`: `scale_by_exponential_delay` for each gradient, then NAG.

    Source: Chan and Lane 2014, Distributed Asynchronous Optimization of Convolutional Neural Networks; cited by Barkai
    et al. 2020 and by Zhang et al. 2015b.

    Example:
      >>> rule, params = exponential_penalty(learning_rate=1.0, penalty=jnp.log(2.0)), jnp.ones(1)
      >>> rule.receive(jnp.ones(1), rule.init(params), params, worker=0, delay=3, read_params=params)
      Array([0.25], dtype=float32)
    """
    return lifted(
        _penalised,
        **checked(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay),
        penalty=number("penalty", penalty, least=0),
    )


def _penalised(*, penalty: Any, **sgd: Any):
    return momentum_chains(**sgd, of_gradients=(scale_by_exponential_delay(penalty),))
