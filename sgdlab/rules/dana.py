"""DANA: a velocity for each worker, and workers that read where the server is about to be (Barkai et al. 2020, C.1)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.row import row
from sgdlab.rules.gap import Gap
from sgdlab.rules.hyperparameters import (
    Rate,
    learning_rate_argument,
    like,
    max_learning_rate_argument,
    momentum_argument,
    number,
    rate_at,
    scale,
    static,
    workers_argument,
)
from sgdlab.rules.penalty import DelayPenalty, NoPenalty, Penalty
from sgdlab.rules.server_rule import ServerRule, Settings, Tree, decayed, rule_of


class DanaState(NamedTuple):
    """State of the DANA rules."""

    count: jax.Array  # shape=(), dtype=int32: updates.
    velocity: Tree  # [num_workers, *params_shape]: each worker's own.
    total: Tree  # like the parameters: the sum of the velocities, kept incrementally.
    penalty: Tree  # of `dana_gap_aware`: a GapState; else empty.


def dana(*, learning_rate: Rate, momentum: float = 0.9, weight_decay: float = 0.0, num_workers: int) -> ServerRule:
    r"""DANA: each worker's gradients feed a velocity of their own, and it reads an estimate of the future parameters.

    .. math:: v_i \leftarrow \gamma v_i + g_k + \lambda \theta_k, \qquad \theta_{k+1} = \theta_k - \eta_k v_i, \qquad
        \hat\theta = \theta_{k+1} - \eta_k \gamma \sum_j v_j

    One worker is momentum SGD with the gradient taken at the look-ahead.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1).
      weight_decay: lambda, added to the gradient at the server's parameters.
      num_workers: N, velocities to keep; more than the schedule has changes nothing but memory.

    Returns:
      A `ServerRule` for schedules with one gradient per update; its state holds N velocities.

    Raises:
      ValueError: where a hyperparameter is not finite or out of its range; from `update`, where an update has
        several gradients, so that no one worker's velocity is meant.

    Source: Hakimi et al. 2019; Barkai et al. 2020, Algorithm 6.

    Example:
      >>> import jax.numpy as jnp
      >>> rule, params = dana(learning_rate=1.0, momentum=0.5, num_workers=2), jnp.zeros(1)
      >>> updates, state = rule.update(jnp.ones(1), rule.init(params), params, worker=1)
      >>> rule.send(params + updates, state)
      Array([-1.5], dtype=float32)
    """
    return _rule(learning_rate, momentum, weight_decay, num_workers, NoPenalty())


def dana_staleness_aware(
    *, learning_rate: Rate, momentum: float = 0.9, weight_decay: float = 0.0, num_workers: int
) -> ServerRule:
    r"""DANA-SA: `dana` whose gradients are divided by their delay.

    .. math:: v_i \leftarrow \gamma v_i + \frac{g_k + \lambda \theta_k}{\tau_k}

    The rest, the arguments and the errors are those of `dana`. Source: Barkai et al. 2020, Algorithm 7.

    Example:
      >>> import jax.numpy as jnp
      >>> rule, params = dana_staleness_aware(learning_rate=1.0, num_workers=2), jnp.zeros(1)
      >>> rule.receive(jnp.ones(1), rule.init(params), params, worker=0, delay=4, read_params=params)
      Array([0.25], dtype=float32)
    """
    return _rule(learning_rate, momentum, weight_decay, num_workers, DelayPenalty())


def dana_gap_aware(
    *,
    learning_rate: Rate,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    max_learning_rate: float | None = None,
    granularity: str = "parameter",
    num_workers: int,
) -> ServerRule:
    r"""DANA-GA: `dana` whose gradients are divided by their gap, measured from the estimate that was sent.

    .. math:: G_k = \frac{|\theta_k - \hat\theta_i|}{C_k} + 1, \qquad
        v_i \leftarrow \gamma v_i + \frac{g_k + \lambda \theta_k}{G_k}

    C is averaged over the :math:`v_i` that were just formed (`sgdlab.rules.gap`). The rest is as in `dana`;
    `max_learning_rate` and `granularity` as in `gap_aware`. Source: Barkai et al. 2020, Algorithm 8.

    Example:
      >>> import jax.numpy as jnp
      >>> rule, params = dana_gap_aware(learning_rate=1.0, momentum=0.0, num_workers=2), jnp.zeros(1)
      >>> updates, state = rule.update(jnp.ones(1), rule.init(params), params, worker=0)
      >>> rule.receive(jnp.ones(1), state, params + updates, worker=1, delay=2, read_params=params)
      Array([0.5], dtype=float32)
    """
    gap = Gap(max_learning_rate_argument(max_learning_rate, learning_rate), granularity=granularity)
    return _rule(learning_rate, momentum, weight_decay, num_workers, gap)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Dana(Settings):
    learning_rate: Rate
    momentum: Any
    weight_decay: Any
    penalty: Penalty
    num_workers: int = static()

    def init(self, params: Tree, **extra: Any) -> DanaState:
        del extra
        velocity = jax.tree.map(lambda leaf: jnp.zeros((self.num_workers, *leaf.shape), leaf.dtype), params)
        return DanaState(jnp.zeros([], jnp.int32), velocity, optax.tree.zeros_like(params), self.penalty.init(params))

    def receive(
        self, grads: Tree, state: DanaState, params: Tree, *, delay: Any, read_params: Tree, **extra: Any
    ) -> Tree:
        del extra
        raw = decayed(grads, params, self.weight_decay)
        return self.penalty.divide(raw, state.penalty, params, delay=delay, read_params=read_params)

    def update(
        self, message: Tree, state: DanaState, params: Tree, *, worker: jax.Array | None = None, **extra: Any
    ) -> tuple[Tree, DanaState]:
        del params, extra
        if worker is None:
            raise ValueError(
                "worker=None: the DANA rules keep a velocity per worker and need schedules with one gradient per "
                "update, such as protocols.asynchronous makes; this one averages several"
            )
        old = jax.tree.map(lambda buffer: row(buffer, worker), state.velocity)
        velocity = optax.tree.add(message, scale(old, self.momentum))
        new_state = DanaState(
            count=optax.safe_increment(state.count),
            velocity=jax.tree.map(
                lambda buffer, row: jax.lax.dynamic_update_index_in_dim(buffer, row, worker, 0),
                state.velocity,
                velocity,
            ),
            total=jax.tree.map(lambda total, new, before: total + (new - before), state.total, velocity, old),
            penalty=self.penalty.fold(state.penalty, velocity),
        )
        return scale(velocity, -rate_at(self.learning_rate, state.count)), new_state

    def send(self, params: Tree, state: DanaState, **extra: Any) -> Tree:
        del extra
        # The rate of the update just made; before the first one the sum is zero and any rate will do.
        rate = rate_at(self.learning_rate, jnp.maximum(state.count - 1, 0))
        return jax.tree.map(lambda p, total: p - like(rate, p) * like(self.momentum, p) * total, params, state.total)


def _rule(learning_rate: Rate, momentum: Any, weight_decay: Any, num_workers: int, penalty: Penalty) -> ServerRule:
    settings = _Dana(
        learning_rate=learning_rate_argument(learning_rate),
        momentum=momentum_argument(momentum),
        weight_decay=number("weight_decay", weight_decay, lower=0.0),
        penalty=penalty,
        num_workers=workers_argument(num_workers),
    )
    return rule_of(settings, num_workers=settings.num_workers)
