"""FedBuff: each message counts less the staler it is, and K of them make an update (Nguyen et al. 2022)."""

from typing import Any

import jax
import optax

from sgdlab.rules.accumulators import momentum_chains
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, checked, like, number
from sgdlab.rules.penalty import staleness_weight
from sgdlab.rules.server_rule import ServerRule, lifted


def scale_by_staleness_weight(exponent: Any) -> optax.GradientTransformationExtraArgs:
    r"""Multiplies updates by :math:`\tau^{-a}`, with tau = staleness + 1 the extra argument `delay`.

    Args:
      exponent: a.

    Returns:
      A stateless optax transform; without a `delay` it changes nothing.

    Example:
      >>> import jax.numpy as jnp
      >>> transform = scale_by_staleness_weight(0.5)
      >>> [transform.update(jnp.ones(()), transform.init(jnp.ones(())), delay=d)[0].item() for d in (1, 4)]
      [1.0, 0.5]
    """

    def update(updates, state, params=None, *, delay=1, **extra_args):
        of = lambda leaf: staleness_weight("polynomial", like(delay, leaf) - 1, like(exponent, leaf), None)
        return jax.tree.map(lambda leaf: leaf * of(leaf), updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


@RULES.register(title="FedBuff", source="Nguyen et al. 2022", method=False)
def fedbuff(
    *,
    learning_rate: Rate,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    exponent: float = 0.5,
) -> ServerRule:
    r"""Averages the messages of an update, each divided by the root of its delay.

    .. math:: \bar g_k = \frac1K \sum_{i=1}^K \frac{g_i}{(1 + u_i)^a}, \qquad v_{k+1} = \gamma v_k + \bar g_k, \qquad
        \theta_{k+1} = \theta_k - \eta_k v_{k+1}

    with u_i the staleness of message i, and a = 1/2. The weights are not normalised: a buffer of stale messages makes a
    shorter step. Messages are gradients, or the differences of local steps (`config.local`), which the paper has. Where
    nothing is stale, or with a = 0, it is `asgd`.

    Args:
      learning_rate: eta of the server, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1); FedBuff, as it is restated, has none.
      nesterov: whether to use Nesterov's momentum.
      weight_decay: lambda; lambda theta is added to each message before its weight.
      exponent: a.

    Returns:
      A `ServerRule`: `optax.chain(optax.trace, optax.scale_by_learning_rate)` of weighted messages.

    Source: Nguyen et al. 2022, Federated Learning with Buffered Asynchronous Aggregation. The weights and their
    exponent are those of the authors' simulator (FLSim, polynomial with exponent 1/2); the mean over K is as other
    papers restate it. The paper's own text was not at hand.

    Example:
      >>> import jax.numpy as jnp
      >>> rule, params = fedbuff(learning_rate=1.0), jnp.zeros(1)
      >>> rule.receive(jnp.ones(1), rule.init(params), params, worker=0, delay=4, read_params=params)
      Array([0.5], dtype=float32)
    """
    return lifted(
        _weighted,
        **checked(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay),
        exponent=number("exponent", exponent, least=0),
    )


def _weighted(*, exponent: Any, **sgd: Any):
    return momentum_chains(**sgd, of_gradients=(scale_by_staleness_weight(exponent),))
