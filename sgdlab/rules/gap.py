r"""The gap: how many average updates lie between the server's parameters and those a gradient was computed on.

Barkai et al. 2020, Definition 1, equations 12 and 13:

.. math:: G_k = \frac{|\theta_k - \theta_{read}|}{C_k} + 1, \qquad
    C_k = \eta_{max} \left( \sqrt{\frac{m_k}{1 - b^n}} + \epsilon \right), \qquad m \leftarrow b m + (1 - b) v^2

where n velocities v have been averaged. Before the first update every worker has the initial parameters, and G = 1.
The granularity says what is squared and measured: each parameter by itself, the norm of each leaf of the parameter
tree ("layer"), or the norm of all parameters ("global").

The `coefficient` of a rule says which velocities C averages when gradient k is measured:

* "settled", the default: those that earlier updates formed, from penalised gradients. This departs from Algorithm
  14 as printed.
* "printed": those of Algorithm 14, the velocities :math:`\gamma v_k + g_k` that unpenalised gradients would form, that
  of gradient k included. v is the server's velocity (Algorithm 4), whose gradients are penalised. Where gradients are
  stale, these velocities tend to be longer, so that C is larger and the penalty weaker.

For "layer" and "global", C is the root mean square of velocity norms, as the parameter-wise Algorithm 14 suggests;
Definition 1 and equation 12 have the mean norm of the gradients, for which no algorithm is printed. The text leaves
open whether epsilon is added to the root or below it; here it is added to the root, as in Adam.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab import arguments
from sgdlab.rules import accumulators
from sgdlab.rules.hyperparameters import like, static
from sgdlab.rules.penalty import PenalisedGradient, Penalty
from sgdlab.rules.server_rule import Settings, decayed
from sgdlab.types import Tree

GRANULARITIES = ("parameter", "layer", "global")
COEFFICIENTS = ("settled", "printed")


class GapState(NamedTuple):
    """State of a `Gap`; the second moment in float32 at least, so that it does not underflow."""

    count: jax.Array  # shape=(), dtype=int32: velocities folded in.
    second_moment: Tree  # per parameter: *params_shape; per layer: a scalar for each leaf; global: one scalar.


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Gap:
    """Measures the gap (see the module's docstring).

    Attributes:
      max_learning_rate: eta_max, the learning rate of an average update.
      decay: b, of the moving average.
      epsilon: added to the root of the second moment.
      granularity: a gap for each "parameter", for each "layer", or one for all ("global").

    Raises:
      ValueError: where the granularity is none of these.

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
        arguments.one_of("granularity", self.granularity, GRANULARITIES)

    def init(self, params: Tree) -> GapState:
        """State before the first update."""
        moment = jax.tree.map(jnp.zeros_like, jax.eval_shape(self._squared, params))
        return GapState(jnp.zeros([], jnp.int32), moment)

    def penalty(self, state: GapState, params: Tree, read_params: Tree) -> Tree:
        """G for a gradient computed on `read_params` and applied to `params`: a tree whose leaves divide gradients."""
        difference = optax.tree.sub(accumulators.wide(params), accumulators.wide(read_params))
        moment = optax.tree.bias_correction(state.second_moment, self.decay, jnp.maximum(state.count, 1))

        def gap(distance, moment):
            reach = like(self.max_learning_rate, moment) * (jnp.sqrt(moment) + like(self.epsilon, moment))
            return distance / reach + 1

        if self.granularity == "parameter":
            return jax.tree.map(lambda d, m: gap(jnp.abs(d), m), difference, moment)
        measured = jax.tree.map(lambda s, m: gap(jnp.sqrt(s), m), self._squared(difference), moment)
        if self.granularity == "layer":
            return measured
        return jax.tree.map(lambda leaf: like(measured, leaf), difference)

    def divide(self, grads: Tree, state: GapState, params: Tree, *, delay: Any, read_params: Tree) -> Tree:
        """Gradients divided by their gap."""
        return jax.tree.map(lambda g, gap: like(g / gap, g), grads, self.penalty(state, params, read_params))

    def mean(self, state: GapState, params: Tree, *, delay: Any, read_params: Tree) -> Any:
        """The mean of G over all parameters.

        Example:
          >>> gap, start = Gap(max_learning_rate=1.0), jnp.zeros(2)
          >>> state = gap.fold(gap.init(start), jnp.ones(2))
          >>> gap.mean(state, jnp.array([1.0, 3.0]), delay=2, read_params=start)
          Array(3., dtype=float32)
        """
        gaps = self.penalty(state, params, read_params)
        # A layer's gap is that of each of its parameters.
        pairs = zip(jax.tree.leaves(gaps), jax.tree.leaves(params), strict=True)
        total = sum(jnp.broadcast_to(gap, jnp.shape(leaf)).sum() for gap, leaf in pairs)
        return total / sum(jnp.size(p) for p in jax.tree.leaves(params))

    def fold(self, state: GapState, velocity: Tree) -> GapState:
        """State after one more velocity has entered the average."""
        moment = accumulators.moving_average(state.second_moment, self._squared(velocity), self.decay)
        return GapState(optax.safe_increment(state.count), moment)

    def _squared(self, tree: Tree) -> Tree:
        """Squares, or squared norms, by granularity, in float32 at least."""
        tree = accumulators.wide(tree)
        if self.granularity == "parameter":
            return jax.tree.map(jnp.square, tree)
        if self.granularity == "layer":
            # Not `vdot`, for which XLA gathers a whole matrix that is split over devices.
            return jax.tree.map(lambda leaf: jnp.sum(jnp.square(leaf)), tree)
        return optax.tree.norm(tree, squared=True)


class Penalised(Settings):
    """Base of rules that penalise each gradient, with a state whose field `penalty` is that of the penalty."""

    penalty: Penalty

    def receive(self, grads: Tree, state: Any, params: Tree, *, delay: Any, read_params: Tree, **extra: Any) -> Tree:
        """Divide the gradient, with its weight decay, by the penalty."""
        raw = decayed(grads, params, self.weight_decay)
        return self.penalty.divide(raw, state.penalty, params, delay=delay, read_params=read_params)

    def mean_penalty(
        self, grads: Tree, state: Any, params: Tree, *, delay: Any, read_params: Tree, **extra: Any
    ) -> jax.Array:
        """Return what `receive` divides the gradient by, the mean over all parameters."""
        return self.penalty.mean(state.penalty, params, delay=delay, read_params=read_params)


class Printed(Penalised):
    """With the gap's coefficient of Algorithm 14 as printed: what stands before the rule whose gap is "settled".

    The rule has `velocity_after(message, state, worker)`, the velocity that a message would form.
    """

    velocity_after: Callable[..., Tree]

    def receive(
        self, grads: Tree, state: Any, params: Tree, *, worker: Any, delay: Any, read_params: Tree, **extra: Any
    ) -> PenalisedGradient:
        """Divide the gradient by the gap that counts it in; the message has it undivided too."""
        raw = decayed(grads, params, self.weight_decay)
        gap = self._folded(state, raw, worker)
        return PenalisedGradient(self.penalty.divide(raw, gap, params, delay=delay, read_params=read_params), raw)

    def mean_penalty(
        self, grads: Tree, state: Any, params: Tree, *, worker: Any, delay: Any, read_params: Tree, **extra: Any
    ) -> jax.Array:
        """Return what `receive` divides the gradient by, the mean over all parameters."""
        gap = self._folded(state, decayed(grads, params, self.weight_decay), worker)
        return self.penalty.mean(gap, params, delay=delay, read_params=read_params)

    def update(
        self, message: PenalisedGradient, state: Any, params: Tree, *, worker: Any = None, **extra: Any
    ) -> tuple[Tree, Any]:
        """Make the rule's update, and fold the undivided velocity into the gap instead."""
        # pyrefly: ignore[missing-attribute]  # of the rule before which it stands
        updates, new_state = super().update(message.penalised, state, params, worker=worker, **extra)
        return updates, new_state._replace(penalty=self._folded(state, message.raw, worker))

    def _folded(self, state: Any, raw: Tree, worker: Any) -> Tree:
        return self.penalty.fold(state.penalty, self.velocity_after(raw, state, worker))
