"""AdaDelay: step sizes that fall with the number of updates and the delay of each gradient (Sra et al. 2016)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.knobs import Knob
from sgdlab.rules.accumulators import momentum_chains
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, checked, like, number
from sgdlab.rules.server_rule import ServerRule, lifted


class AdaDelayState(NamedTuple):
    """State of `scale_by_ada_delay`."""

    count: jax.Array  # shape=(), dtype=int32: updates.


def scale_by_ada_delay(noise: float) -> optax.GradientTransformationExtraArgs:
    r"""Multiplies updates by :math:`1 / (1 + c \sqrt{t + \delta})`, with t = 1 at the first and delta the staleness.

    Args:
      noise: c, at least 0.

    Returns:
      An optax transform that counts updates; its extra argument `delay` is delta + 1.

    Example:
      >>> transform = scale_by_ada_delay(1.0)
      >>> state = transform.init(jnp.ones(()))
      >>> [transform.update(jnp.ones(()), state, delay=delay)[0].item() for delay in (1, 4, 9)]
      [0.5, 0.3333333432674408, 0.25]
    """

    def update(updates, state, params=None, *, delay=1, **extra_args):
        factor = 1 / (1 + noise * jnp.sqrt(state.count.astype(float) + delay))  # t = count + 1, delta = delay - 1
        scaled = jax.tree.map(lambda leaf: leaf * like(factor, leaf), updates)
        return scaled, AdaDelayState(optax.safe_increment(state.count))

    return optax.GradientTransformationExtraArgs(lambda params: AdaDelayState(jnp.zeros([], jnp.int32)), update)


@RULES.register(
    title="AdaDelay",
    source="Sra et al. 2016",
    families=("Staleness corrections (plain SGD)",),
    own_schedule=True,
    tunes=Knob("noise", 0.002, 0.2),
)
def ada_delay(
    *, learning_rate: Rate, noise: float = 0.02, momentum: float = 0.0, weight_decay: float = 0.0
) -> ServerRule:
    r"""Asynchronous SGD whose step falls with the root of the number of updates plus the gradient's own staleness.

    .. math:: v_{t+1} = \gamma v_t + g_t + \lambda \theta_t, \qquad
        \theta_{t+1} = \theta_t - \frac{\eta_t}{1 + c \sqrt{t + \delta_t}} v_{t+1}, \qquad t = 1, 2, \dots

    In the paper's terms, :math:`1 / (L + c' \sqrt{t + \delta_t})` with L = 1 / eta and c' = c / eta. A late gradient
    counts less in the beginning, and hardly less once t is far above the delays. With c = 0 it is `asgd`.

    Args:
      learning_rate: eta, or an optax schedule counted in updates; the fall comes on top of it. Runs have it constant,
        without `config.rate`'s warm-up and decay.
      noise: c, at least 0; the larger the noise of the gradients, the larger it should be.
      momentum: gamma in (-1, 1); the paper has none.
      weight_decay: lambda, added to the gradient at the server's parameters.

    Returns:
      A `ServerRule`: `optax.chain(optax.trace, scale_by_ada_delay, optax.scale_by_learning_rate)`.

    Source: Sra, Yu, Li and Smola 2016, AdaDelay: Delay Adaptive Distributed Stochastic Convex Optimization (arXiv
    1508.05003). The formula was checked in a second-hand account of the paper, not in its text. The paper projects on a
    compact set, and its experiments estimate a c of each coordinate from the squares of its gradients; this does
    neither.

    Example:
      >>> rule, params = ada_delay(learning_rate=1.0, noise=1.0), jnp.ones(1)
      >>> rule.update(jnp.ones(1), rule.init(params), params, delay=9)[0]
      Array([-0.25], dtype=float32)
    """
    return lifted(
        _scaled,
        noise=number("noise", noise, least=0),
        **checked(learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay),
    )


def _scaled(*, noise: Any, **sgd: Any):
    return momentum_chains(**sgd, of_steps=(scale_by_ada_delay(noise),))
