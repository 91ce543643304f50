"""Delayed Nesterov: the momentum of asynchronous DiLoCo moves once in N messages (Liu et al. 2024)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sgdlab import arguments
from sgdlab.bounds import Count
from sgdlab.rules import accumulators
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, checked, like, number
from sgdlab.rules.server_rule import ServerRule, Settings, Tree, rule_of
from sgdlab.xla import apart


class DelayedNesterovState(NamedTuple):
    """State of `delayed_nesterov`."""

    count: jax.Array  # shape=(), dtype=int32: updates.
    velocity: Tree  # *params_shape: m, in float32 at least.
    buffer: Tree  # *params_shape: Delta, the sum of the messages since the momentum moved.


@RULES.register(title="Delayed Nesterov", source="Liu et al. 2024, Delayed Nesterov", method=False, momentum_sgd=False)
def delayed_nesterov(
    *,
    learning_rate: Rate,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    num_workers: int,
    workers: int | None = None,
    period: Count | None = None,
    activation: float = 0.0,
) -> ServerRule:
    r"""Applies each message as it comes, N-fold divided, and the momentum of their mean once in N messages.

    .. math:: \Delta \leftarrow \Delta + g_k; \quad \text{every N-th update}\quad m \leftarrow \beta m + \Delta / N,
        \quad \theta \leftarrow \theta - \eta_k \left((1 - c N + c) \beta m + g_k / N\right), \quad \Delta \leftarrow 0

    and otherwise :math:`\theta \leftarrow \theta - \eta_k (c \beta m + g_k / N)`. If momentum moved with every stale
    message, as in `nag_asgd`, it would be built up from workers that have not seen each other. With c = 0 it is applied
    when it has moved; with c = 1 / N, evenly over the N updates. N updates with one rate move as far as one of Nesterov
    with the mean of their messages, where the momentum did not change. With N = 1 it is Nesterov (`nag_asgd`).

    Args:
      learning_rate: eta of the server, or an optax schedule counted in updates.
      momentum: beta in (-1, 1).
      weight_decay: lambda; lambda theta is added to each message.
      num_workers: how many workers there is room for.
      workers: that take part, if they are fewer. None: as many.
      period: N, how many updates the momentum waits for; None: the number of workers that take part.
      activation: c, from 0 to 1 / N, the share of the momentum that is applied with each update.

    Returns:
      A `ServerRule`; its state holds the momentum and the buffer.

    Source: Liu et al. 2024, Asynchronous Local-SGD Training for Language Modeling, the pseudocode of Delayed Nesterov,
    as the public code of HALoS restates it (it uses the momentum that has moved, in both branches). The method
    async_diloco is this with DyLU; it has no grace period, in which a server waits for further messages.

    Example:
      >>> rule, params = delayed_nesterov(learning_rate=1.0, momentum=0.5, num_workers=2), jnp.zeros(1)
      >>> first, state = rule.update(jnp.full(1, 2.0), rule.init(params), params)
      >>> second, _ = rule.update(jnp.full(1, 4.0), state, params)
      >>> first, second
      (Array([-1.], dtype=float32), Array([-3.5], dtype=float32))
    """
    workers = arguments.whole("workers", num_workers if workers is None else workers)
    count = workers if period is None else period
    return rule_of(
        _DelayedNesterov(
            **checked(learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay),
            period=count,
            activation=number("activation", activation, least=0, most=1 / count),
        )
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _DelayedNesterov(Settings):
    learning_rate: Rate
    momentum: Any
    weight_decay: Any
    period: Any
    activation: Any

    def init(self, params: Tree, **extra: Any) -> DelayedNesterovState:
        zeros = accumulators.zeros(params)
        return DelayedNesterovState(jnp.zeros([], jnp.int32), zeros, zeros)

    def update(
        self, message: Tree, state: DelayedNesterovState, params: Tree, **extra: Any
    ) -> tuple[Tree, DelayedNesterovState]:
        # Apart: XLA would round the sum of two products otherwise in a replay than on a server of its own.
        return apart(self._updated, state.count, message, state, params)

    def _updated(
        self, count: jax.Array, message: Tree, state: DelayedNesterovState, params: Tree
    ) -> tuple[Tree, DelayedNesterovState]:
        moves = (count + 1) % self.period == 0
        buffer = jax.tree.map(lambda whole, g: whole + like(g, whole), state.buffer, message)
        velocity = jax.tree.map(
            lambda m, whole: jnp.where(moves, like(self.momentum, m) * m + whole / like(self.period, m), m),
            state.velocity,
            buffer,
        )

        def step(m: jax.Array, g: jax.Array) -> jax.Array:
            c, n, beta = (like(value, m) for value in (self.activation, self.period, self.momentum))
            return jnp.where(moves, 1 - c * n + c, c) * beta * m + like(g, m) / n

        steps = jax.tree.map(step, velocity, message)
        emptied = jax.tree.map(lambda whole: jnp.where(moves, jnp.zeros_like(whole), whole), buffer)
        updates = accumulators.descent(steps, self.learning_rate, state.count, params)
        return updates, DelayedNesterovState(count + 1, velocity, emptied)
