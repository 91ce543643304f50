"""DANA-DC: DANA whose stale gradients are corrected to first order (Hakimi et al. 2019, after Zheng et al. 2017)."""

import dataclasses
from typing import Any

import jax

from sgdlab.rules import accumulators
from sgdlab.rules.dana import dana_rule
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, like, number, static
from sgdlab.rules.penalty import NoPenalty
from sgdlab.rules.server_rule import ServerRule, Tree


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Compensation(NoPenalty):
    """No penalty: the first-order change of a gradient since it was computed is added to it.

    Attributes:
      variance_control: lambda, strength of the correction.
    """

    kind: str = static("compensation")
    variance_control: Any = 0.0

    def divide(self, grads: Tree, state: tuple[()], params: Tree, *, delay: Any, read_params: Tree) -> Tree:
        """g + lambda g g (params - read_params), entry by entry."""
        del state, delay
        wide = jax.tree.map(
            lambda g, now, then: g + like(self.variance_control, g) * g * g * (like(now, g) - like(then, g)),
            accumulators.wide(grads),
            params,
            read_params,
        )
        return accumulators.narrow(wide, grads)


@RULES.register(title="DANA-DC", source="Hakimi et al. 2019", families=("Look-ahead: DANA",))
def dana_delay_compensated(
    *,
    learning_rate: Rate,
    variance_control: float = 2.0,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    num_workers: int,
) -> ServerRule:
    r"""DANA-DC: `dana` whose gradients are corrected for how far the parameters are from the estimate that was sent.

    .. math:: v_i \leftarrow \gamma v_i + \tilde g_k, \qquad
        \tilde g_k = g_k + \lambda\, g_k \odot g_k \odot (\theta_k - \hat\theta_i)

    with the weight decay in :math:`g_k`, as in `delay_compensated`. The look-ahead keeps the distance small, so that
    the correction holds where DC-ASGD's does not any more. With lambda 0 it is `dana`, without momentum
    `delay_compensated`.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      variance_control: lambda, strength of the correction.
      momentum: gamma in (-1, 1).
      weight_decay: added to the gradient, at the server's parameters, before it is compensated.
      num_workers: N, number of velocities; a number above the schedule's only takes more memory.

    Returns:
      A `ServerRule` for schedules with one gradient per update; its state holds N velocities.

    Raises:
      ValueError: as in `dana`.

    Source: Hakimi, Barkai, Gabel and Schuster 2019, Taming Momentum in a Distributed Asynchronous Environment (arXiv
    1907.11612). The correction and lambda = 2 were verified in a public implementation of it, not in the paper's text;
    that implementation adds the weight decay after the correction.

    Example:
      >>> import jax.numpy as jnp
      >>> rule = dana_delay_compensated(learning_rate=1.0, variance_control=0.5, num_workers=2)
      >>> params = jnp.ones(1)
      >>> rule.receive(2 * params, rule.init(params), params, worker=0, delay=2, read_params=0 * params)
      Array([4.], dtype=float32)
    """
    strength = number("variance_control", variance_control, least=0)
    return dana_rule(learning_rate, momentum, weight_decay, num_workers, Compensation(variance_control=strength))
