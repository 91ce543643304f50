"""Rescaled ASGD: the steps of slow workers are longer, so that all move the parameters equally (Mahran et al. 2026)."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sgdlab import arguments
from sgdlab.bounds import Count
from sgdlab.rules import accumulators
from sgdlab.rules.descent import Descent
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, scale, static, taking_part
from sgdlab.rules.server_rule import ServerRule, Settings, Tree, rule_of


class RescaledState(NamedTuple):
    """State of Rescaled ASGD."""

    count: jax.Array  # shape=(), dtype=int32: updates.
    counts: jax.Array  # shape=(num_workers,), dtype=int32: gradients of each worker.
    velocity: Tree  # *params_shape, float32 at least.


@RULES.register(
    title="Rescaled ASGD", source="Mahran et al. 2026", families=("Heterogeneous data",), balances_workers=True
)
def rescaled(
    *,
    learning_rate: Rate,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    seconds: tuple[float, ...] = (),
    num_workers: Count,
    workers: int | None = None,
) -> ServerRule:
    r"""Asynchronous SGD whose step for a gradient is proportional to the time that its worker takes for one.

    .. math:: \theta_{k+1} = \theta_k - \eta_k s_i g_k, \qquad
        s_i = \frac{\tau_i}{n} \sum_{j=1}^{n} \frac{1}{\tau_j} \approx \frac{c + (n - 1) / 2}{n c_i}

    :math:`\tau_i` is the compute time of worker i. A worker that sends half as often moves the parameters twice as far
    each time, so that all n losses have the same weight in the long run. No table is needed. With given compute times
    the mean of s over the gradients is 1, and with equal ones it is `asgd`.

    Where no compute times are given, the server estimates them by how often workers send: :math:`c_i` of the c
    gradients so far are of worker i, and each other worker counts half a gradient more, as it is on its way. So if
    equally fast workers send in turn, the mean of s is 1 in every turn, from the first; within it, s is from 1 - q to 1
    + q, with q below 1 / (2 m) in the m-th turn. With one worker it is `asgd`.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1); the paper has none.
      nesterov: whether to use Nesterov's momentum.
      weight_decay: lambda, added to the scaled gradient at the server's parameters.
      seconds: tau, of each worker; only their ratios matter. (): estimated.
      num_workers: number of workers to count gradients of; a number above the schedule's only takes more memory.
      workers: n, the workers that take part, if they are fewer. None: as many.

    Returns:
      A `ServerRule` for any schedule of servers.

    Raises:
      ValueError: where a hyperparameter is not finite or out of its range, or `seconds` has not one entry per worker.

    Source: Mahran, Maranjyan and Richtarik 2026 (arXiv 2605.13434), of which only the abstract was at hand: steps in
    proportion to computation times, so that each worker contributes the same over a cycle. That the mean of s is 1, and
    the estimate by counts, are reconstructions; momentum and weight decay are this library's.

    Example:
      >>> rule, params = rescaled(learning_rate=1.0, seconds=(1.0, 3.0), num_workers=2), jnp.zeros([])
      >>> use = {"delay": 1, "read_params": params}
      >>> state = rule.init(params)
      >>> [round(float(rule.receive(jnp.ones([]), state, params, worker=i, **use)), 4) for i in (0, 1)]
      [0.6667, 2.0]
      >>> estimated = rescaled(learning_rate=1.0, num_workers=2)
      >>> state = estimated.init(params)
      >>> for worker in (0, 0, 0, 1):
      ...     state = estimated.absorb(jnp.ones([]), state, params, worker=worker, **use)
      >>> [round(float(estimated.receive(jnp.ones([]), state, params, worker=i, **use)), 4) for i in (0, 1)]
      [0.75, 2.25]
    """
    descent = Descent.of(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    present = taking_part(workers, num_workers)
    if not seconds:
        return rule_of(_Estimated(descent, present, num_workers), num_workers=num_workers)
    taken = np.array([arguments.real(f"seconds[{i}]", value, above=0) for i, value in enumerate(seconds)])
    if len(taken) != present:
        raise ValueError(f"seconds={tuple(seconds)} must have {present} entries, one for each worker")
    factors = np.ones(num_workers)
    factors[: len(taken)] = taken * np.mean(1 / taken)
    return rule_of(_Given(descent, factors, num_workers), num_workers=num_workers)


class _Rescaled(Settings):
    """The steps of both; `_factor` is what a gradient is multiplied by."""

    descent: Descent
    num_workers: int
    _factor: Callable[..., jax.Array]

    def init(self, params: Tree, **extra: Any) -> RescaledState:
        counts = jnp.zeros(self.num_workers, jnp.int32)
        return RescaledState(jnp.zeros([], jnp.int32), counts, accumulators.zeros(params))

    def absorb(
        self, grads: Tree, state: RescaledState, params: Tree, *, worker: jax.Array, **extra: Any
    ) -> RescaledState:
        return state._replace(counts=state.counts.at[worker].add(1))

    def receive(self, grads: Tree, state: RescaledState, params: Tree, *, worker: jax.Array, **extra: Any) -> Tree:
        return scale(grads, self._factor(state, worker))

    def update(self, message: Tree, state: RescaledState, params: Tree, **extra: Any) -> tuple[Tree, RescaledState]:
        updates, velocity = self.descent.step(accumulators.wide(message), state.velocity, state.count, params)
        return updates, state._replace(count=optax.safe_increment(state.count), velocity=velocity)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Given(_Rescaled):
    descent: Descent
    factors: Any  # [num_workers]
    num_workers: int = static()

    def _factor(self, state: RescaledState, worker: jax.Array) -> jax.Array:
        return jnp.asarray(self.factors)[worker]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Estimated(_Rescaled):
    descent: Descent
    workers: Any
    num_workers: int = static()

    def _factor(self, state: RescaledState, worker: jax.Array) -> jax.Array:
        workers = jnp.asarray(self.workers).astype(float)  # a quotient of int32 is a float32
        others = (workers - 1) / 2  # gradients that are on their way
        return (jnp.sum(state.counts) + others) / (workers * state.counts[worker])
