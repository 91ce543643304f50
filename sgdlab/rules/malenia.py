"""Malenia SGD's server: every worker's mean gradient counts the same (Tyurin and Richtarik 2023)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sgdlab.bounds import Count
from sgdlab.rules import accumulators, worker_table
from sgdlab.rules.descent import Descent, KeptGradients
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate
from sgdlab.rules.server_rule import ServerRule, Tree
from sgdlab.rules.worker_table import WorkerTable


class MaleniaState(NamedTuple):
    """State of Malenia SGD."""

    count: jax.Array  # shape=(), dtype=int32: updates.
    table: WorkerTable  # of the open update's gradients.
    velocity: Tree  # *params_shape, float32 at least.


def _workers_per_update(schedule: Any) -> float:
    """Return how many workers an update averages, on average over a schedule with a server."""
    used = schedule.update[:, 0] >= 0
    pairs = np.unique(np.stack([schedule.update[used, 0], schedule.worker[used]]), axis=1)
    return pairs.shape[1] / max(schedule.num_updates, 1)


@RULES.register(
    title="Malenia SGD",
    source="Tyurin and Richtarik 2023",
    families=(),
    method=False,
    balances_workers=True,
    counts_as=_workers_per_update,
)
def malenia(
    *,
    learning_rate: Rate,
    momentum: float = 0.9,
    nesterov: bool = True,
    weight_decay: float = 0.0,
    num_workers: Count,
) -> ServerRule:
    r"""An update averages the workers, and not their gradients: those of one worker are averaged among themselves.

    .. math:: d_k = \frac{1}{n} \sum_{i=1}^{n} \frac{1}{B_i} \sum_{j=1}^{B_i} g_{ij}, \qquad
        v_{k+1} = \gamma v_k + d_k + \lambda \theta_k, \qquad \theta_{k+1} = \theta_k - \eta_k v_{k+1}

    :math:`B_i` is how many gradients of worker i the update has, and n how many workers have any. Where workers have
    data of their own, the step has the direction of the mean of their losses, however fast each worker is. With equal
    numbers of gradients it is `asgd` of the same momentum. The protocol `malenia` makes updates with gradients of all
    workers; others may be used too. Where learning rates are those of one gradient, an update counts as one for each
    worker, however many it has sent.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1); the paper has none. As for other methods in rounds, 0.9 by default.
      nesterov: whether to use Nesterov's momentum.
      weight_decay: lambda, added to the mean at the server's parameters.
      num_workers: number of rows of the table; a number above the schedule's only takes more memory.

    Returns:
      A `ServerRule` for any schedule of servers; its state holds N gradients.

    Source: Tyurin and Richtarik 2023 (arXiv 2305.12387), Malenia SGD; verified in the form of Algorithm 1 of Tyurin,
    Bridging the Gap between Homogeneous and Heterogeneous Asynchronous Optimization.

    Example:
      Worker 0 has sent 1 and 3, worker 1 has sent 5: the step is the mean of 2 and 5.

      >>> rule, params = malenia(learning_rate=1.0, momentum=0.0, num_workers=2), jnp.zeros([])
      >>> state, use = rule.init(params), {"delay": 1, "read_params": params}
      >>> for worker, gradient in ((0, 1.0), (1, 5.0), (0, 3.0)):
      ...     state = rule.absorb(jnp.array(gradient), state, params, worker=worker, **use)
      >>> float(rule.update((), state, params, num_gradients=3, delay=1, worker=None)[0])
      -3.5
    """
    descent = Descent.of(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    return _Malenia(descent, num_workers).rule()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Malenia(KeptGradients):
    def init(self, params: Tree, **extra: Any) -> MaleniaState:
        table = worker_table.empty(params, self.num_workers)
        return MaleniaState(jnp.zeros([], jnp.int32), table, accumulators.zeros(params))

    def absorb(
        self, grads: Tree, state: MaleniaState, params: Tree, *, worker: jax.Array, **extra: Any
    ) -> MaleniaState:
        return state._replace(table=worker_table.added(state.table, worker, grads))

    def update(self, message: tuple, state: MaleniaState, params: Tree, **extra: Any) -> tuple[Tree, MaleniaState]:
        mean = worker_table.mean(state.table)
        updates, velocity = self.descent.step(mean, state.velocity, state.count, params)
        return updates, MaleniaState(optax.safe_increment(state.count), worker_table.cleared(state.table), velocity)
