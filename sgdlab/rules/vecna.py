"""Vecna SGD's weights: every worker counts the same, however many of its gradients come (Maranjyan et al. 2025)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.bounds import Count
from sgdlab.rules import accumulators, worker_table
from sgdlab.rules.descent import Descent, KeptGradients
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, like, taking_part
from sgdlab.rules.server_rule import ServerRule, Tree
from sgdlab.rules.worker_table import WorkerTable


class VecnaState(NamedTuple):
    """State of `vecna`."""

    velocity: Tree  # *params_shape, in float32 at least.
    updates: jax.Array  # int32, scalar: number of updates made.
    received: jax.Array  # int32[N]: gradients of each worker so far, those of the open update included.
    table: WorkerTable  # of the open update: the sum of each worker's gradients, over `received`.


@RULES.register(
    title="Vecna weights",
    source="Maranjyan et al. 2025 (Vecna)",
    families=(),
    method=False,
    balances_workers=True,
    counts_as=lambda schedule: float(schedule.num_workers),
)
def vecna(
    *,
    learning_rate: Rate,
    momentum: float = 0.9,
    nesterov: bool = True,
    weight_decay: float = 0.0,
    num_workers: Count,
    workers: int | None = None,
) -> ServerRule:
    r"""Momentum SGD on the mean over all workers of the sum of a worker's gradients over their expected number.

    .. math:: g_k = \frac{1}{N} \sum_{i=1}^N \frac{1}{b_i} \sum_{j=1}^{d_{k,i}} g_{k,i,j} + \lambda \theta_k, \qquad
        v_{k+1} = \gamma v_k + g_k, \qquad \theta_{k+1} = \theta_k - \eta_k v_{k+1}

    With `nesterov`, :math:`v_{k+1}` in the step is :math:`\gamma v_{k+1} + g_k`. b is p_i B_i in the paper. It is
    counted: the gradients of worker i so far, over the number of updates so far, both with those of update k. So every
    worker has the same weight in the long run, however many of its gradients come; where all have as many in every
    update, it is `malenia`. Where learning rates are those of one gradient, an update counts as one for each worker.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1); the paper has none.
      nesterov: whether to use Nesterov's momentum.
      weight_decay: lambda, added to the estimate of the gradient at the server's parameters.
      num_workers: how many workers the state has room for.
      workers: N; None: `num_workers`.

    Returns:
      A `ServerRule` for any schedule of servers; its state holds N + 2 gradients.

    Source: Maranjyan, Omar and Richtarik 2025 (UAI), Vecna SGD; its text was not at hand, and that b is counted is a
    reconstruction.

    Example:
      Worker 0 sends 1 and 3, with the weight of one of four workers: the step is their mean, over four.

      >>> rule, params = vecna(learning_rate=1.0, momentum=0.0, num_workers=4), jnp.zeros([])
      >>> state, facts = rule.init(params), {"worker": 0, "delay": 1, "read_params": params}
      >>> for gradient in (1.0, 3.0):
      ...     state = rule.absorb(jnp.array(gradient), state, params, **facts)
      >>> float(rule.update((), state, params, num_gradients=2, delay=1, worker=None)[0])
      -0.5
    """
    descent = Descent.of(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    return _Vecna(descent, num_workers, taking_part(workers, num_workers)).rule()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Vecna(KeptGradients):
    workers: Any

    def init(self, params: Tree, **extra: Any) -> VecnaState:
        return VecnaState(
            velocity=accumulators.zeros(params),
            updates=jnp.zeros([], jnp.int32),
            received=jnp.zeros(self.num_workers, jnp.int32),
            table=worker_table.empty(params, self.num_workers),
        )

    def absorb(self, grads: Tree, state: VecnaState, params: Tree, *, worker: jax.Array, **extra: Any) -> VecnaState:
        # With r gradients of the worker before, those of earlier updates included: s_r = sum / r becomes
        # (r s_r + g) / (r + 1). So the whole sum of the open update is over the count at its end.
        old = worker_table.row(state.table, worker, state.table.counts[worker])
        before = state.received[worker]
        new = jax.tree.map(
            lambda mean, leaf: (mean * like(before, mean) + leaf) / like(before + 1, mean),
            old,
            accumulators.wide(grads),
        )
        table = worker_table.replaced(state.table, worker, new)
        return state._replace(table=table, received=state.received.at[worker].add(1))

    def update(self, message: tuple, state: VecnaState, params: Tree, **extra: Any) -> tuple[Tree, VecnaState]:
        count = optax.safe_increment(state.updates)
        estimate = jax.tree.map(lambda leaf: leaf * (like(count, leaf) / like(self.workers, leaf)), state.table.total)
        updates, velocity = self.descent.step(estimate, state.velocity, state.updates, params)
        return updates, VecnaState(velocity, count, state.received, worker_table.cleared(state.table))
