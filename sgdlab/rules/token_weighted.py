"""Token weights: learners that have done more steps for a message weigh more (Decoupled DiLoCo, 2026)."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sgdlab import arguments
from sgdlab.bounds import Count
from sgdlab.rules import accumulators
from sgdlab.rules.descent import Descent
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, scale, static
from sgdlab.rules.server_rule import ServerRule, Settings, Tree, rule_of


class TokenWeightedState(NamedTuple):
    """State of `token_weighted`."""

    count: jax.Array  # shape=(), dtype=int32: updates.
    velocity: Tree  # *params_shape: v, in float32 at least.


class _Message(NamedTuple):
    """Holds what a learner sends, times its weight."""

    direction: Tree  # *params_shape: the message; radial: divided by its norm.
    weight: jax.Array  # shape=()
    length: jax.Array  # shape=(): the norm, where it is radial.


@RULES.register(title="Token-weighted Nesterov", source="Decoupled DiLoCo 2026", method=False)
def token_weighted(
    *,
    learning_rate: Rate,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    num_workers: Count,
    steps: Sequence[int] | None = None,
    merge: Literal["mean", "radial"] = "mean",
) -> ServerRule:
    r"""Nesterov's momentum on the mean of an update's messages, weighted by the tokens that they stand for.

    .. math:: w_i = c_i \frac{c_i}{H_i}, \qquad \Delta_k = \frac{\sum_{i \in S_k} w_i g_i}{\sum_{i \in S_k} w_i},
        \qquad v \leftarrow \gamma v + \Delta_k, \qquad \theta \leftarrow \theta - \eta_k (\gamma v + \Delta_k)

    :math:`g_i` is a learner's difference after :math:`H_i` local steps on :math:`c_i` tokens. Steps have equally many
    tokens here, so that :math:`w_i` is proportional to :math:`H_i`. With equal steps it is `nag_asgd`.

    The radial merge keeps a length that differing directions would cancel:

    .. math:: \Delta_k = \frac{\sum w_i \lVert g_i \rVert}{\sum w_i} \cdot \frac{u}{\lVert u \rVert}, \qquad
        u = \sum_{i \in S_k} w_i \frac{g_i}{\lVert g_i \rVert}

    with norms over all parameters; of messages of one direction it is their mean.

    Args:
      learning_rate: eta of the server, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1).
      weight_decay: lambda; lambda theta is added to the merged message.
      num_workers: number of workers that the weights have room for.
      steps: H, int[N], local steps of each worker's messages; in a run those of `config.local`. None: equal ones.
      merge: "mean", or "radial".

    Returns:
      A `ServerRule`.

    Raises:
      ValueError: where steps are not at least 1, or are those of another number of workers.

    Source: Decoupled DiLoCo (arXiv 2604.21428), whose weights and merges are those that summaries restate: a
    reconstruction. Its weights are of each fragment.

    Example:
      >>> rule, params = token_weighted(learning_rate=1.0, momentum=0.0, num_workers=2, steps=[1, 3]), jnp.zeros(1)
      >>> state, use = rule.init(params), {"delay": 1, "read_params": params}
      >>> sent = [rule.receive(jnp.full(1, g), state, params, worker=i, **use) for i, g in enumerate((1.0, 2.0))]
      >>> rule.update(jax.tree.map(lambda a, b: (a + b) / 2, *sent), state, params)[0]
      Array([-1.75], dtype=float32)
    """
    every = np.ones(num_workers) if steps is None else np.asarray(steps, float)
    if every.shape != (num_workers,) or not (every >= 1).all():
        raise ValueError(f"steps={steps} must be {num_workers} numbers of at least 1, one for each worker")
    arguments.one_of("merge", merge, ("mean", "radial"))
    descent = Descent.of(learning_rate=learning_rate, momentum=momentum, nesterov=True, weight_decay=weight_decay)
    # Only their ratios count: equal weights are 1 to the bit.
    return rule_of(_TokenWeighted(descent, every / every.max(), merge == "radial"), num_workers=num_workers)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _TokenWeighted(Settings):
    descent: Descent
    weights: Any
    radial: bool = static()

    def init(self, params: Tree, **extra: Any) -> TokenWeightedState:
        return TokenWeightedState(jnp.zeros([], jnp.int32), accumulators.zeros(params))

    def receive(self, grads: Tree, state: TokenWeightedState, params: Tree, *, worker: Any, **extra: Any) -> _Message:
        weight = jnp.asarray(self.weights)[worker]
        if not self.radial:
            return _Message(scale(grads, weight), weight, weight)
        length = optax.tree.norm(accumulators.wide(grads))
        return _Message(scale(grads, weight / _nonzero(length)), weight, weight * length)

    def update(
        self, message: _Message, state: TokenWeightedState, params: Tree, **extra: Any
    ) -> tuple[Tree, TokenWeightedState]:
        direction = accumulators.wide(message.direction)
        if self.radial:
            direction = scale(direction, message.length / _nonzero(optax.tree.norm(direction)))
        updates, velocity = self.descent.step(scale(direction, 1 / message.weight), state.velocity, state.count, params)
        return updates, TokenWeightedState(optax.safe_increment(state.count), velocity)


def _nonzero(length: jax.Array) -> jax.Array:
    """Return a length to divide by: 1 for that of zeros."""
    return jnp.where(length == 0, jnp.ones_like(length), length)
