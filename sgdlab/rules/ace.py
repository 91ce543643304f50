"""ACE, alias IA²SGD, and ACED: updates average the latest gradients of all workers, or of those not too old."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.bounds import Count
from sgdlab.knobs import Knob
from sgdlab.rules import accumulators, worker_table
from sgdlab.rules.descent import Descent, KeptGradients
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, number, taking_part
from sgdlab.rules.server_rule import ServerRule, Tree
from sgdlab.rules.worker_table import WorkerTable


class AceState(NamedTuple):
    """State of ACE."""

    count: jax.Array  # shape=(), dtype=int32: updates, those that moved nothing too.
    table: WorkerTable  # the latest gradient of each worker.
    velocity: Tree  # *params_shape, float32 at least.


@RULES.register(
    title="ACE (IA²SGD)", source="Chang et al. 2025", families=("Heterogeneous data",), balances_workers=True
)
def ace(
    *,
    learning_rate: Rate,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    fill_first: bool = True,
    num_workers: Count,
    workers: int | None = None,
) -> ServerRule:
    r"""Asynchronous SGD along the mean of the latest gradients of all workers, however old they are.

    .. math:: d_k = d_{k-1} + \frac{g_i - G_i}{n}, \quad G_i \leftarrow g_i, \qquad
        v_{k+1} = \gamma v_k + d_k + \lambda \theta_k, \qquad \theta_{k+1} = \theta_k - \eta_k v_{k+1}

    :math:`G_i` is the gradient that worker i sent before. Every worker has the same weight in every step, though fast
    ones send more; the price are gradients that age until their workers send again. Nothing moves until the table has a
    gradient of every worker, computed on the initial parameters. With one worker it is `asgd`.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1); the papers have none.
      nesterov: whether to use Nesterov's momentum.
      weight_decay: lambda, added to the mean at the server's parameters.
      fill_first: whether nothing moves until every worker has sent a gradient, as in the papers. Else steps average the
        workers that are there: a live run then begins without a worker that never comes.
      num_workers: number of rows of the table; a number above the schedule's only takes more memory.
      workers: n, the workers that take part, if they are fewer than the rows. None: as many.

    Returns:
      A `ServerRule` for any schedule of servers; its state holds N + 2 gradients.

    Source: Chang et al. 2025 (arXiv 2511.19066), ACE, which is IA²SGD of "Incremental Aggregated Asynchronous SGD for
    Arbitrarily Heterogeneous Data". Verified against class IAASGD of the code of Ringmaster and Ringleader ASGD, which
    makes its first step one gradient after the table is full; here that gradient makes it, as we read ACE. Momentum and
    weight decay are this library's.

    Example:
      >>> rule, params = ace(learning_rate=1.0, num_workers=2), jnp.zeros([])
      >>> state, steps = rule.init(params), []
      >>> for worker, gradient in ((0, 1.0), (1, 5.0), (0, 3.0)):
      ...     use = {"worker": worker, "delay": 1, "read_params": params}
      ...     state = rule.absorb(jnp.array(gradient), state, params, **use)
      ...     step, state = rule.update((), state, params)
      ...     steps.append(float(step))
      >>> steps
      [0.0, -3.0, -4.0]
    """
    descent = Descent.of(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    present = taking_part(workers, num_workers)
    return _Ace(descent, num_workers, present if fill_first else 1).rule()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Ace(KeptGradients):
    wanted: Any

    def init(self, params: Tree, **extra: Any) -> AceState:
        table = worker_table.empty(params, self.num_workers)
        return AceState(jnp.zeros([], jnp.int32), table, accumulators.zeros(params))

    def absorb(self, grads: Tree, state: AceState, params: Tree, *, worker: jax.Array, **extra: Any) -> AceState:
        return state._replace(table=worker_table.replaced(state.table, worker, grads))

    def update(self, message: tuple, state: AceState, params: Tree, **extra: Any) -> tuple[Tree, AceState]:
        mean, full = worker_table.mean(state.table), worker_table.num_present(state.table) >= self.wanted
        updates, velocity = _moved_if(
            full, self.descent.step(mean, state.velocity, state.count, params), state.velocity
        )
        return updates, AceState(optax.safe_increment(state.count), state.table, velocity)


class AcedState(NamedTuple):
    """State of ACED. A gradient that is too old is in the table no more."""

    count: jax.Array  # shape=(), dtype=int32: updates, those that moved nothing too.
    seen: jax.Array  # shape=(num_workers,), dtype=int32: 1 where the worker has sent a gradient.
    began: jax.Array  # shape=(), dtype=int32: the version at which the first step was made, so far.
    read: jax.Array  # shape=(num_workers,), dtype=int32: the version of each worker's latest gradient.
    table: WorkerTable  # the latest gradient of each worker.
    velocity: Tree  # *params_shape, float32 at least.


@RULES.register(
    title="ACED",
    source="Chang et al. 2025",
    families=("Heterogeneous data",),
    tunes=Knob("max_staleness", 0.5, 8.0, whole=True, per_worker=True),
)
def aced(
    *,
    learning_rate: Rate,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    max_staleness: int | None = None,
    fill_first: bool = True,
    num_workers: Count,
    workers: int | None = None,
) -> ServerRule:
    r"""`ace` of the workers in A alone, whose latest gradients are at most tau updates old.

    .. math:: A_k = \{ i : k - r_i \le \tau \}, \qquad d_k = \frac{1}{|A_k|} \sum_{i \in A_k} G_i, \qquad
        v_{k+1} = \gamma v_k + d_k + \lambda \theta_k, \qquad \theta_{k+1} = \theta_k - \eta_k v_{k+1}

    :math:`G_i` is the latest gradient of worker i, and :math:`r_i` the version that it was computed on. Where A is
    empty, nothing moves. Updates that moved nothing because the table was not full are not counted in ages. With a
    limit that nobody reaches it is `ace`.

    A worker whose gradients always come more than tau updates old is never heard after the first steps, and its data
    are not learned from: weights are equal among the workers in A alone. Where all are to be heard, tau must be above
    the staleness of the slowest: n - 1 times its compute time over the others', or so.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1); the paper has none.
      nesterov: whether to use Nesterov's momentum.
      weight_decay: lambda, added to the mean at the server's parameters.
      max_staleness: tau, in updates. None: 2 n - 2, about twice the staleness of workers that are equally fast; of
        very unequal workers it leaves out the slow ones.
      fill_first: whether nothing moves until every worker has sent a gradient, as in `ace`.
      num_workers: number of rows of the table; a number above the schedule's only takes more memory.
      workers: n, the workers that take part, if they are fewer than the rows. None: as many.

    Returns:
      A `ServerRule` for any schedule of servers; its state holds N + 2 gradients.

    Source: Chang et al. 2025 (arXiv 2511.19066), ACED. A reconstruction, the paper's text was not at hand: that the
    active set is bounded by tau, averaged over its own size and skipped where empty is as in public code of a precursor
    (AC-AFL with bounded delay); that the age is that of the gradient's own version is as its description says. The
    default of tau is ours.

    Example:
      Gradients of 1 and 5 on the initial parameters; worker 1 is silent until its gradient is too old.

      >>> rule, params = aced(learning_rate=1.0, max_staleness=1, num_workers=2), jnp.zeros([])
      >>> state, steps = rule.init(params), []
      >>> for worker, gradient, delay in ((0, 1.0, 1), (1, 5.0, 2), (0, 3.0, 2), (0, 2.0, 1)):
      ...     use = {"worker": worker, "delay": delay, "read_params": params}
      ...     state = rule.absorb(jnp.array(gradient), state, params, **use)
      ...     step, state = rule.update((), state, params)
      ...     steps.append(float(step))
      >>> steps
      [0.0, -3.0, -4.0, -2.0]
    """
    descent = Descent.of(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    present = taking_part(workers, num_workers)
    limit = 2 * present - 2 if max_staleness is None else number("max_staleness", max_staleness, least=0)
    return _Aced(descent, num_workers, present if fill_first else 1, limit).rule()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Aced(KeptGradients):
    wanted: Any
    max_staleness: Any

    def init(self, params: Tree, **extra: Any) -> AcedState:
        return AcedState(
            count=jnp.zeros([], jnp.int32),
            seen=jnp.zeros(self.num_workers, jnp.int32),
            began=jnp.zeros([], jnp.int32),
            read=jnp.zeros(self.num_workers, jnp.int32),
            table=worker_table.empty(params, self.num_workers),
            velocity=accumulators.zeros(params),
        )

    def absorb(
        self, grads: Tree, state: AcedState, params: Tree, *, worker: jax.Array, delay: Any, **extra: Any
    ) -> AcedState:
        return state._replace(
            seen=state.seen.at[worker].set(1),
            read=state.read.at[worker].set(jnp.asarray(state.count + 1 - delay, jnp.int32)),
            table=worker_table.replaced(state.table, worker, grads),
        )

    def update(self, message: tuple, state: AcedState, params: Tree, **extra: Any) -> tuple[Tree, AcedState]:
        full = jnp.sum(state.seen, dtype=jnp.int32) >= self.wanted
        age = state.count - jnp.maximum(state.read, state.began)
        table = _without(state.table, (state.table.counts > 0) & (age > self.max_staleness))
        moves = full & (worker_table.num_present(table) > 0)
        made = self.descent.step(worker_table.mean(table), state.velocity, state.count, params)
        updates, velocity = _moved_if(moves, made, state.velocity)
        count = optax.safe_increment(state.count)
        began = jnp.where(full, state.began, count)
        return updates, state._replace(count=count, began=began, table=table, velocity=velocity)


def _without(table: WorkerTable, old: jax.Array) -> WorkerTable:
    """The table without some workers' gradients; a gradient leaves it at most once for each time that it comes."""

    def leave(carry: tuple[jax.Array, Tree]) -> tuple[jax.Array, Tree]:
        counts, total = carry
        worker = jnp.argmax(old & (counts > 0))
        gone = worker_table.row(table, worker, counts[worker])
        return counts.at[worker].set(0), jax.tree.map(jnp.subtract, total, gone)

    some = lambda carry: jnp.any(old & (carry[0] > 0))
    counts, total = jax.lax.while_loop(some, leave, (table.counts, table.total))
    # What is left of sums of nothing would otherwise stay for ever.
    nothing = jnp.sum(counts) == 0
    return table._replace(counts=counts, total=jax.tree.map(lambda leaf: jnp.where(nothing, 0, leaf), total))


def _moved_if(moves: jax.Array, made: tuple[Tree, Tree], velocity: Tree) -> tuple[Tree, Tree]:
    """A step, and the new velocity; or none, and the old velocity."""
    updates, new = made
    return (
        jax.tree.map(lambda leaf: jnp.where(moves, leaf, 0), updates),
        jax.tree.map(lambda a, b: jnp.where(moves, a, b), new, velocity),
    )
