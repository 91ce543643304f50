"""ACE, alias IA²SGD: every update averages the latest gradient of every worker (Chang et al. 2025)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.bounds import Count
from sgdlab.rules import accumulators, worker_table
from sgdlab.rules.descent import Descent
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, number
from sgdlab.rules.kept_gradients import KeptGradients
from sgdlab.rules.server_rule import ServerRule, Tree
from sgdlab.rules.worker_table import WorkerTable


class AceState(NamedTuple):
    """State of ACE."""

    count: jax.Array  # shape=(), dtype=int32: updates, those that moved nothing too.
    table: WorkerTable  # the latest gradient of each worker.
    velocity: Tree  # *params_shape, float32 at least.


@RULES.register(
    title="ACE (IA²SGD)", source="Chang et al. 2025", families=("For workers' own data",), balances_workers=True
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

    Raises:
      ValueError: where a hyperparameter is not finite or out of its range.

    Source: Chang et al. 2025 (arXiv 2511.19066), ACE, which is IA²SGD of "Incremental Aggregated Asynchronous SGD for
    Arbitrarily Heterogeneous Data". Verified against class IAASGD of the code of Ringmaster and Ringleader ASGD, which
    makes its first step one gradient after the table is full; here that gradient makes it, as we read ACE. Momentum and
    weight decay are this library's.

    Example:
      >>> import jax.numpy as jnp
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
    rows = num_workers
    return _Ace(descent, rows, fill_first_of(fill_first, workers, rows)).rule()


def fill_first_of(fill_first: bool, workers: Any, rows: int) -> Any:
    """How many workers the table must have before anything moves."""
    if workers is not None:
        number("workers", workers, least=1, most=rows)
    return (rows if workers is None else workers) if fill_first else 1


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Ace(KeptGradients):
    wanted: Any

    def init(self, params: Tree, **extra: Any) -> AceState:
        del extra
        table = worker_table.empty(params, self.num_workers)
        return AceState(jnp.zeros([], jnp.int32), table, accumulators.zeros(params))

    def absorb(self, grads: Tree, state: AceState, params: Tree, *, worker: jax.Array, **extra: Any) -> AceState:
        del params, extra
        return state._replace(table=worker_table.replaced(state.table, worker, grads))

    def update(self, message: tuple, state: AceState, params: Tree, **extra: Any) -> tuple[Tree, AceState]:
        del message, extra
        mean, full = worker_table.mean(state.table), worker_table.num_present(state.table) >= self.wanted
        updates, velocity = moved_if(full, self.descent.step(mean, state.velocity, state.count, params), state.velocity)
        return updates, AceState(optax.safe_increment(state.count), state.table, velocity)


def moved_if(moves: jax.Array, made: tuple[Tree, Tree], velocity: Tree) -> tuple[Tree, Tree]:
    """A step, and the new velocity; or none, and the old velocity."""
    updates, new = made
    return (
        jax.tree.map(lambda leaf: jnp.where(moves, leaf, 0), updates),
        jax.tree.map(lambda a, b: jnp.where(moves, a, b), new, velocity),
    )
