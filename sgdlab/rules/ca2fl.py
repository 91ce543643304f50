"""CA2FL: buffered updates, calibrated with the latest gradient of every worker (Wang et al. 2024)."""

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


class Ca2flState(NamedTuple):
    """State of CA2FL."""

    count: jax.Array  # shape=(), dtype=int32: updates.
    table: worker_table.WorkerTable  # the latest gradient of each worker.
    before: Tree  # *params_shape: the sum of the table at the last update.
    velocity: Tree  # *params_shape, float32 at least.


@RULES.register(title="CA2FL", source="Wang et al. 2024", families=(), method=False, balances_workers=True)
def ca2fl(
    *,
    learning_rate: Rate,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    num_workers: Count,
    workers: int | None = None,
) -> ServerRule:
    r"""The mean of the gradients that are new, less their workers' last ones, plus the mean of all workers' last ones.

    .. math:: d_k = \frac{1}{n} \sum_{i=1}^{n} h_i + \frac{1}{|S_k|} \sum_{i \in S_k} (g_i - h_i), \qquad
        h_i \leftarrow g_i \quad (i \in S_k), \qquad
        v_{k+1} = \gamma v_k + d_k + \lambda \theta_k, \qquad \theta_{k+1} = \theta_k - \eta_k v_{k+1}

    S holds the gradients of the update, and :math:`h_i` is the gradient that worker i sent before; zeros at first. So
    workers that are not in an update have a part in it, and where gradients change little, all have the same part. A
    worker that is in an update twice is compared with its own first gradient the second time. Where every update has
    one gradient of each worker, it is `asgd`; so it is with one worker.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1); the paper has none.
      nesterov: whether to use Nesterov's momentum.
      weight_decay: lambda, added to the direction at the server's parameters.
      num_workers: number of rows of the table; a number above the schedule's only takes more memory.
      workers: n, the workers that take part, if they are fewer than the rows. None: as many.

    Returns:
      A `ServerRule` for any schedule of servers; its state holds N + 3 gradients.

    Source: Wang et al. 2024, Tackling the Data Heterogeneity in Asynchronous Federated Learning with Cached Update
    Calibration, Algorithm 2; verified against two implementations by others, which agree on when h changes. Momentum
    and weight decay are this library's. In the paper g is what several local steps have changed (`config.local`).

    Example:
      >>> rule, params = ca2fl(learning_rate=1.0, num_workers=2), jnp.zeros([])
      >>> state, steps = rule.init(params), []
      >>> for worker, gradient in ((0, 1.0), (1, 5.0), (0, 3.0)):
      ...     use = {"worker": worker, "delay": 1, "read_params": params}
      ...     state = rule.absorb(jnp.array(gradient), state, params, **use)
      ...     step, state = rule.update((), state, params, num_gradients=1)
      ...     steps.append(float(step))
      >>> steps
      [-1.0, -5.5, -5.0]
    """
    descent = Descent.of(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    return _Ca2fl(descent, num_workers, taking_part(workers, num_workers)).rule()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Ca2fl(KeptGradients):
    workers: Any

    def init(self, params: Tree, **extra: Any) -> Ca2flState:
        table = worker_table.empty(params, self.num_workers)
        return Ca2flState(
            jnp.zeros([], jnp.int32), table, before=accumulators.zeros(params), velocity=accumulators.zeros(params)
        )

    def absorb(self, grads: Tree, state: Ca2flState, params: Tree, *, worker: jax.Array, **extra: Any) -> Ca2flState:
        return state._replace(table=worker_table.replaced(state.table, worker, grads))

    def update(
        self, message: tuple, state: Ca2flState, params: Tree, *, num_gradients: Any = 1, **extra: Any
    ) -> tuple[Tree, Ca2flState]:
        now = state.table.total
        # The sum of the table has grown by what the update's gradients differ from those before them.
        direction = jax.tree.map(
            lambda old, new: old / like(self.workers, old) + (new - old) / like(num_gradients, old), state.before, now
        )
        updates, velocity = self.descent.step(direction, state.velocity, state.count, params)
        return updates, Ca2flState(optax.safe_increment(state.count), state.table, now, velocity)
