r"""The gap: how many average updates lie between the server's parameters and those a gradient was computed on.

Barkai et al. 2020, Definition 1, equations 12 and 13, Algorithm 14:

.. math:: G = \frac{|\theta_k - \theta_{read}|}{C} + 1, \qquad
    C = \eta_{max} \left( \sqrt{\frac{m_k}{1 - b^k}} + \epsilon \right), \qquad m_k = b m_{k-1} + (1 - b) v_k^2

where v_k is the velocity that update k formed. The averages hold updates 1 to k before gradient k + 1 is measured;
before the first update every worker has the initial parameters and G = 1. What is squared and measured depends on
the granularity: each parameter by itself, the norm of each leaf of the parameter tree ("layer"), or the norm of all.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.rules.hyperparameters import like, moving_average, static

GRANULARITIES = ("parameter", "layer", "global")

Tree = Any


class GapState(NamedTuple):
    """State of a `Gap`."""

    count: jax.Array  # shape=(), dtype=int32: updates folded in.
    second_moment: Tree  # per parameter: like the parameters; per layer: a scalar for each leaf; global: one scalar.


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Gap:
    """Measures the gap (see the module's docstring).

    Attributes:
      max_learning_rate: eta_max.
      decay: b of the moving average.
      epsilon: added to the root.
      granularity: "parameter", "layer" or "global".

    Raises:
      ValueError: where the granularity is not one of them.

    Example:
      >>> gap, start = Gap(max_learning_rate=0.5), jnp.zeros(1)
      >>> state = gap.fold(gap.init(start), jnp.ones(1))  # an update with velocity 1, so a step of 0.5
      >>> gap.penalty(state, start - 1.0, start)  # two such steps away
      Array([3.], dtype=float32)
    """

    max_learning_rate: Any
    decay: Any = 0.999
    epsilon: Any = 1e-8
    granularity: str = static("parameter")

    def __post_init__(self) -> None:
        if self.granularity not in GRANULARITIES:
            raise ValueError(f"granularity={self.granularity!r} must be one of {', '.join(GRANULARITIES)}")

    def init(self, params: Tree) -> GapState:
        """No update seen yet."""
        moment = jax.tree.map(jnp.zeros_like, jax.eval_shape(self._squared, params))
        return GapState(jnp.zeros([], jnp.int32), moment)

    def penalty(self, state: GapState, params: Tree, read_params: Tree) -> Tree:
        """G for a gradient computed on `read_params` and applied to `params`: a tree whose leaves divide gradients."""
        difference = optax.tree.sub(params, read_params)
        moment = optax.tree.bias_correction(state.second_moment, self.decay, jnp.maximum(state.count, 1))

        def gap(distance, moment):
            reach = like(self.max_learning_rate, moment) * (jnp.sqrt(moment) + like(self.epsilon, moment))
            return distance / reach + 1

        if self.granularity == "parameter":
            return jax.tree.map(lambda d, m: gap(jnp.abs(d), m), difference, moment)
        measured = jax.tree.map(lambda s, m: gap(jnp.sqrt(s), m), self._squared(difference), moment)
        if self.granularity == "layer":
            return measured
        return jax.tree.map(lambda leaf: like(measured, leaf), params)

    def divide(self, grads: Tree, state: GapState, params: Tree, *, delay: Any, read_params: Tree) -> Tree:
        """Gradients divided by their gap."""
        del delay
        return jax.tree.map(lambda g, gap: g / gap, grads, self.penalty(state, params, read_params))

    def fold(self, state: GapState, velocity: Tree) -> GapState:
        """Takes in the velocity that an update has just formed."""
        moment = moving_average(state.second_moment, self._squared(velocity), self.decay)
        return GapState(optax.safe_increment(state.count), moment)

    def _squared(self, tree: Tree) -> Tree:
        """Squares, or squared norms, by granularity."""
        if self.granularity == "parameter":
            return jax.tree.map(jnp.square, tree)
        if self.granularity == "layer":
            return jax.tree.map(lambda leaf: jnp.vdot(leaf, leaf), tree)
        return optax.tree.norm(tree, squared=True)
