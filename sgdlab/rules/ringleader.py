"""Ringleader ASGD's server: a table of gradients for each round of updates (Maranjyan and Richtarik 2025)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.bounds import Count
from sgdlab.rules import accumulators, worker_table
from sgdlab.rules.descent import Descent, KeptGradients
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate
from sgdlab.rules.server_rule import ServerRule, Tree
from sgdlab.rules.worker_table import WorkerTable


class RingleaderState(NamedTuple):
    """State of Ringleader ASGD.

    A worker has one row, of this round's table or of the next: as soon as it sends a gradient for the next, what it
    sent for this one is in the total and changes no more.
    """

    count: jax.Array  # shape=(), dtype=int32: updates.
    start: jax.Array  # shape=(), dtype=int32: the version at which the round began.
    own: jax.Array  # shape=(), dtype=int32: gradients of the open update that are of this round.
    table: WorkerTable  # the rows of both tables; the total is that of this round.
    present: jax.Array  # shape=(), dtype=int32: workers in the total.
    ahead: jax.Array  # shape=(num_workers,), dtype=int32: 1 where the row is of the next round.
    next_total: Tree  # *params_shape: the sum of those rows.
    velocity: Tree  # *params_shape, float32 at least.


@RULES.register(
    title="Ringleader ASGD",
    source="Maranjyan and Richtarik 2025",
    families=(),
    method=False,
    protocols=("ringleader",),
    counts_as=lambda schedule: 1.0,
    balances_workers=True,
)
def ringleader(
    *,
    learning_rate: Rate,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    num_workers: Count,
) -> ServerRule:
    r"""Every update averages the table of its round: the mean gradient of each worker, all of the same weight.

    .. math:: d_k = \frac{1}{n} \sum_{i=1}^{n} \frac{1}{b_i} \sum_{j=1}^{b_i} g_{ij}, \qquad
        v_{k+1} = \gamma v_k + d_k + \lambda \theta_k, \qquad \theta_{k+1} = \theta_k - \eta_k v_{k+1}

    The protocol `ringleader` makes rounds of one update for each worker. A gradient that was computed on a version of
    an earlier round enters this round's table; one on a version of this round itself is kept for the next round's.
    When an update has none of the first kind, the round is over, and the next table takes the place of this one: so
    the rule follows rounds that workers leave or join. n is the number of workers in the table. Where learning rates
    are those of one gradient, an update counts as one, however many it has: a round has n updates.

    Args:
      learning_rate: eta, or an optax schedule counted in updates. The paper's bound is at most 1 / (8 n L).
      momentum: gamma in (-1, 1); the paper has none.
      nesterov: whether to use Nesterov's momentum.
      weight_decay: lambda, added to the mean at the server's parameters.
      num_workers: number of rows of the table; a number above the schedule's only takes more memory.

    Returns:
      A `ServerRule` for the schedules of `ringleader`; its state holds N + 3 gradients.

    Source: Maranjyan and Richtarik 2025 (arXiv 2509.22860). The update was checked against the paper's equation as
    quoted in a review of it, the two tables against the authors' code; momentum and weight decay are this library's.

    Example:
      Two workers: the first update has both, at 1 and 5; then worker 0 comes again, with 3 on the first version.

      >>> rule, params = ringleader(learning_rate=1.0, num_workers=2), jnp.zeros([])
      >>> state, use = rule.init(params), {"read_params": params}
      >>> for worker, gradient in ((0, 1.0), (1, 5.0)):
      ...     state = rule.absorb(jnp.array(gradient), state, params, worker=worker, delay=1, **use)
      >>> step, state = rule.update((), state, params)
      >>> state = rule.absorb(jnp.array(3.0), state, params, worker=0, delay=2, **use)
      >>> float(step), float(rule.update((), state, params)[0])
      (-3.0, -3.5)
    """
    descent = Descent.of(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    return _Ringleader(descent, num_workers).rule()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Ringleader(KeptGradients):
    def init(self, params: Tree, **extra: Any) -> RingleaderState:
        return RingleaderState(
            count=jnp.zeros([], jnp.int32),
            start=jnp.zeros([], jnp.int32),
            own=jnp.zeros([], jnp.int32),
            table=worker_table.empty(params, self.num_workers),
            present=jnp.zeros([], jnp.int32),
            ahead=jnp.zeros(self.num_workers, jnp.int32),
            next_total=accumulators.zeros(params),
            velocity=accumulators.zeros(params),
        )

    def absorb(
        self, grads: Tree, state: RingleaderState, params: Tree, *, worker: jax.Array, delay: Any, **extra: Any
    ) -> RingleaderState:
        table = state.table
        # The version that was read is `count` + 1 - `delay`.
        ahead = jnp.asarray(state.count + 1 - delay > state.start, jnp.int32)
        count = jnp.where(state.ahead[worker] == ahead, table.counts[worker], 0)
        old = worker_table.row(table, worker, count)
        change = worker_table.divided(jax.tree.map(jnp.subtract, accumulators.wide(grads), old), count + 1)
        into = lambda total, chosen: jax.tree.map(lambda t, c: t + jnp.where(chosen, c, 0), total, change)
        return state._replace(
            own=state.own + (1 - ahead),
            table=WorkerTable(
                means=worker_table.written(table.means, worker, jax.tree.map(jnp.add, old, change)),
                counts=table.counts.at[worker].set(count + 1),
                total=into(table.total, ahead == 0),
            ),
            present=state.present + jnp.asarray((ahead == 0) & (count == 0), jnp.int32),
            ahead=state.ahead.at[worker].set(ahead),
            next_total=into(state.next_total, ahead == 1),
        )

    def update(
        self, message: tuple, state: RingleaderState, params: Tree, **extra: Any
    ) -> tuple[Tree, RingleaderState]:
        state = _turned(state)
        mean = worker_table.divided(state.table.total, state.present)
        updates, velocity = self.descent.step(mean, state.velocity, state.count, params)
        none = jnp.zeros([], jnp.int32)
        return updates, state._replace(count=optax.safe_increment(state.count), own=none, velocity=velocity)


def _turned(state: RingleaderState) -> RingleaderState:
    """The state in the next round, if no gradient of the open update is of this one."""
    over, table = state.own == 0, state.table
    chosen = lambda new, old: jax.tree.map(lambda a, b: jnp.where(over, a, b), new, old)
    return state._replace(
        start=chosen(state.count, state.start),
        table=WorkerTable(
            means=table.means,
            counts=chosen(table.counts * state.ahead, table.counts),  # a worker that has sent nothing has left
            total=chosen(state.next_total, table.total),
        ),
        present=chosen(jnp.sum(state.ahead, dtype=jnp.int32), state.present),
        ahead=chosen(jnp.zeros_like(state.ahead), state.ahead),
        next_total=chosen(jax.tree.map(jnp.zeros_like, state.next_total), state.next_total),
    )
