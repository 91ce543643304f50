"""Steps of length one by a linear minimization oracle on averaged gradients: the base of `normalised_momentum`, `muon`.

The oracle of a norm answers, for a gradient m, with the point of the unit ball at which <m, u> is least: a step says
where to go, and the learning rate alone says how far.
"""

import dataclasses
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax

from sgdlab.rules import accumulators
from sgdlab.rules.hyperparameters import Rate, like, scale, static
from sgdlab.rules.server_rule import Settings, Tree


class LinearMinimizationOracle(Protocol):
    """Of a norm; hashable, since it is a static part of a rule."""

    def __call__(self, average: Tree) -> Tree:
        """The step to subtract, like the average: -lmo, the point of the unit ball at which <average, u> is largest."""
        ...


class UnitStepState(NamedTuple):
    """State of the rules whose steps have length one; the average in float32 at least."""

    count: jax.Array  # shape=(), dtype=int32: updates.
    average: Tree  # *params_shape: m, of the gradients.


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class UnitSteps(Settings):
    r"""The rule :math:`m \leftarrow \beta m + (1 - \beta) g, \ \theta \leftarrow \theta + \eta\, \mathrm{lmo}(m)`.

    Attributes:
      learning_rate: eta, or an optax schedule.
      momentum: beta; not used where `agnostic`.
      weight_decay: lambda, added to the gradient at the server's parameters.
      oracle: of the norm.
      agnostic: whether beta = 1 - 1 / sqrt(k) and the step is eta / (k + 1)^(3/4), after k updates.
    """

    learning_rate: Rate
    momentum: Any
    weight_decay: Any
    oracle: LinearMinimizationOracle = static()  # noqa: RUF009 (a field, as the two others are)
    agnostic: bool = static(False)

    def init(self, params: Tree, **extra: Any) -> UnitStepState:
        """Nothing was averaged."""
        del extra
        return UnitStepState(jnp.zeros([], jnp.int32), accumulators.zeros(params))

    def update(self, message: Tree, state: UnitStepState, params: Tree, **extra: Any) -> tuple[Tree, UnitStepState]:
        """Averages the gradient, and makes the oracle's step."""
        del extra
        made = state.count.astype(float)
        decay = 1 - jnp.maximum(made, 1) ** -0.5 if self.agnostic else self.momentum
        average = accumulators.moving_average(state.average, message, decay)
        step = self.oracle(average)
        if self.agnostic:
            step = scale(step, (made + 1) ** -0.75)
        new_state = UnitStepState(optax.safe_increment(state.count), average)
        return accumulators.descent(step, self.learning_rate, state.count, params), new_state


def over_length(tree: Tree) -> Tree:
    """A tree over its Euclidean length, that of all its leaves together; zeros stay zeros.

    Example:
      >>> over_length((jnp.array([3.0, 0.0]), jnp.array(4.0)))
      (Array([0.6, 0. ], dtype=float32), Array(0.8, dtype=float32))
    """
    # Not `jnp.vdot`, which gathers sharded arrays.
    length = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))
    return scale(tree, jnp.where(length > 0, 1 / jnp.where(length > 0, length, 1), 0))


def orthogonalised(matrix: jax.Array, steps: int) -> jax.Array:
    r"""Nearly the orthogonal polar factor of a matrix, by Newton-Schulz iterations with Muon's coefficients.

    .. math:: X \leftarrow M / \|M\|_F, \qquad
        X \leftarrow 3.4445\, X - 4.7750\, X X^T X + 2.0315\, (X X^T)^2 X \quad\text{(each step)}

    With :math:`M = U S V^T` it ends at :math:`U S' V^T`, with the entries of S' from about 0.7 to 1.2 where those of S
    are not tiny: the iteration does not converge, but is quick. Zeros stay zeros.

    Args:
      matrix: [rows, columns].
      steps: number of iterations, 5 in the field.

    Source: Jordan et al. 2024 (Muon). `optax.contrib.scale_by_muon` iterates in the same way.

    Example:
      >>> orthogonalised(jnp.array([[0.0, 2.0], [2.0, 0.0]]), 5).round(2)
      Array([[0.  , 1.11],
             [1.11, 0.  ]], dtype=float32)
    """
    a, b, c = (like(value, matrix) for value in (3.4445, -4.7750, 2.0315))
    wide = matrix.shape[0] <= matrix.shape[1]
    found = over_length(matrix if wide else matrix.T)  # the smaller of the two products

    def step(_: jax.Array, found: jax.Array) -> jax.Array:
        product = found @ found.T
        return a * found + (b * product + c * product @ product) @ found

    found = jax.lax.fori_loop(0, steps, step, found)  # a fifth of the program
    return found if wide else found.T
