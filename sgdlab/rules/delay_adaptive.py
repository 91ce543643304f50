"""Delay-adaptive step sizes: only gradients with a delay above N are scaled down (Mishchenko et al. 2022)."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from sgdlab import arguments
from sgdlab.rules.accumulators import momentum_chains
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, checked, like
from sgdlab.rules.server_rule import ServerRule, lifted


def scale_by_excess_delay(num_workers: int) -> optax.GradientTransformationExtraArgs:
    r"""Multiplies updates by :math:`N / \max(N, \tau)`, with tau = staleness + 1 the extra argument `delay`.

    Args:
      num_workers: N.

    Returns:
      A stateless optax transform; without a `delay` it changes nothing.

    Example:
      >>> transform = scale_by_excess_delay(4)
      >>> [transform.update(jnp.ones(()), transform.init(jnp.ones(())), delay=d)[0].item() for d in (1, 4, 8)]
      [1.0, 1.0, 0.5]
    """

    def update(updates, state, params=None, *, delay=1, **extra_args):
        factor = num_workers / jnp.maximum(num_workers, delay)
        return jax.tree.map(lambda leaf: leaf * like(factor, leaf), updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


@RULES.register(
    title="Delay-adaptive", source="Mishchenko et al. 2022", families=("Staleness corrections (plain SGD)",)
)
def delay_adaptive(
    *,
    learning_rate: Rate,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    num_workers: int,
    workers: int | None = None,
) -> ServerRule:
    r"""Asynchronous SGD whose step is scaled down where the delay is above the number of workers.

    .. math:: v_{k+1} = \gamma v_k + g_k + \lambda \theta_k, \qquad
        \theta_{k+1} = \theta_k - \eta_k \frac{N}{\max(N, \tau_k)} v_{k+1}

    The mean delay of N workers that never wait is N, so only gradients of stragglers are scaled down; where no delay is
    above N it is `asgd`. The paper's delay of a fresh gradient is 1, as here; the code of Ringmaster's authors has the
    staleness in its place, one less.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1); the paper has none.
      nesterov: whether to use Nesterov's momentum.
      weight_decay: lambda, added to the gradient at the server's parameters.
      num_workers: N, the largest delay that is not scaled down, where `workers` is left out.
      workers: N, where it differs: runs make room for more workers than there are.

    Returns:
      A `ServerRule`: `optax.chain(optax.trace, scale_by_excess_delay, optax.scale_by_learning_rate)`.

    Source: Mishchenko, Bach, Even and Woodworth 2022, Asynchronous SGD Beats Minibatch SGD Under Arbitrary Delays.

    Example:
      >>> rule, params = delay_adaptive(learning_rate=1.0, num_workers=4), jnp.ones(1)
      >>> rule.update(jnp.ones(1), rule.init(params), params, delay=8)[0]
      Array([-0.5], dtype=float32)
    """
    return lifted(
        _scaled,
        **checked(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay),
        num_workers=arguments.whole(
            "num_workers" if workers is None else "workers", num_workers if workers is None else workers
        ),
    )


def _scaled(*, num_workers: Any, **sgd: Any):
    return momentum_chains(**sgd, of_steps=(scale_by_excess_delay(num_workers),))
