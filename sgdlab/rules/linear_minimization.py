"""Steps of length one by a linear minimization oracle on averaged gradients: normalised momentum and Muon.

The oracle of a norm answers, for a gradient m, with the point of the unit ball at which <m, u> is least: a step says
where to go, and the learning rate alone says how far.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab import arguments
from sgdlab.bounds import Count
from sgdlab.rules import accumulators
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, checked, decay_argument, scale, static
from sgdlab.rules.server_rule import ServerRule, Settings, Tree, rule_of

FORMS = ("paper", "authors")

QUINTIC = ((3.4445, -4.7750, 2.0315),)
"""The coefficients of Muon's Newton-Schulz iterations, the same in each (Jordan et al. 2024)."""

POLAR_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)
"""Those of Polar Express, which ends nearer to 1 (Amsel et al. 2025, arXiv 2505.16932, with its safety factor 1.02)."""


class UnitStepState(NamedTuple):
    """State of the rules whose steps have length one; the average in float32 at least."""

    count: jax.Array  # shape=(), dtype=int32: updates.
    average: Tree  # *params_shape: m, of the gradients.


@RULES.register(
    title="Normalised momentum",
    source="Sadiev et al. 2026, Alg. 1",
    families=("Normalised updates",),
    rate="normalised_learning_rate",
)
def normalised_momentum(*, learning_rate: Rate, momentum: float = 0.9, weight_decay: float = 0.0) -> ServerRule:
    r"""SGD with averaged gradients whose steps have the length eta, however large the gradients are.

    .. math:: m_{k+1} = \beta m_k + (1 - \beta) (g_k + \lambda \theta_k), \qquad
        \theta_{k+1} = \theta_k - \eta_k \frac{m_{k+1}}{\|m_{k+1}\|_2}

    The norm is that of all parameters together. A stale gradient that is large moves the parameters no further than
    another; with `momentum` 0 each gradient only gives a direction.

    Args:
      learning_rate: eta, the length of a step, or an optax schedule counted in updates.
      momentum: beta in [0, 1); the paper's alpha is 1 - beta.
      weight_decay: lambda, added to the gradient at the server's parameters.

    Returns:
      A `ServerRule`; its state holds m.

    Source: Sadiev, Maranjyan, Ilin and Richtarik 2026, Ringmaster LMO (arXiv 2605.18174), Algorithm 1, with the lmo of
    the Euclidean norm, as `Momentum_Normalized_Ringmaster` of the authors' code; verified in the LaTeX source of a
    draft of the paper that lies beside the code.

    Example:
      >>> rule, params = normalised_momentum(learning_rate=0.5), jnp.zeros(2)
      >>> rule.update(jnp.array([3.0, 4.0]), rule.init(params), params)[0]
      Array([-0.3, -0.4], dtype=float32)
    """
    return rule_of(
        _UnitSteps(
            **checked(learning_rate=learning_rate, weight_decay=weight_decay),
            momentum=decay_argument("momentum", momentum),
            oracle=over_length,
        )
    )


@RULES.register(title="Muon", source="Jordan et al. 2024", families=("Normalised updates",), rate="muon_learning_rate")
def muon(
    *,
    learning_rate: Rate,
    momentum: float = 0.95,
    weight_decay: float = 0.0,
    newton_schulz_steps: Count = 5,
    form: str = "paper",
) -> ServerRule:
    r"""Muon: the averaged gradient of every matrix is made orthogonal, and is a step of spectral norm eta.

    .. math:: m_{k+1} = \beta m_k + (1 - \beta) (g_k + \lambda \theta_k), \qquad
        \theta_{k+1} = \theta_k - \eta_k\, U V^T \quad\text{with}\quad m_{k+1} = U S V^T

    by Newton-Schulz iterations, nearly (`orthogonalised`). The kernel of a convolution
    is a matrix whose columns are the outputs; a vector or a number is divided by its length, the oracle of its norm.
    With `ringmaster`, which drops gradients that are too old, it is Ringmaster-Muon. Its authors' code (`form`) has
    Nesterov's momentum, :math:`\beta m_{k+1} + (1 - \beta) g_k` in the place of :math:`m_{k+1}`; it iterates with the
    coefficients of Polar Express, multiplies the factor by :math:`\sqrt{\max(1, outputs / inputs)}`, and gives a
    vector or a number the step of plain momentum SGD, :math:`\eta` times its average.

    Args:
      learning_rate: eta, the spectral norm of a step, or an optax schedule counted in updates.
      momentum: beta in [0, 1); the paper's alpha is 1 - beta.
      weight_decay: lambda, added to the gradient at the server's parameters.
      newton_schulz_steps: number of Newton-Schulz iterations; after the fifth, Polar Express repeats its last one.
      form: "paper", as Algorithm 1, or "authors", as their code.

    Returns:
      A `ServerRule`; its state holds m.

    Source: Jordan et al. 2024, Muon; Sadiev, Maranjyan, Ilin and Richtarik 2026, Ringmaster LMO (arXiv 2605.18174),
    Algorithm 1 with the lmo of the spectral norm, verified in the LaTeX source of a draft that lies beside the authors'
    code (vectozavr/ringmaster-lmo, `RingmasterMuon`, which is read for the form "authors"; in its language model only
    the matrices of the transformer's blocks are orthogonalised, and here all are). By Algorithm 1 vectors are
    normalised, and the iterations of "paper" are Jordan's.

    Example:
      >>> rule, params = muon(learning_rate=1.0), jnp.zeros((2, 2))
      >>> (-rule.update(jnp.array([[0.0, 2.0], [2.0, 0.0]]), rule.init(params), params)[0]).round(2)
      Array([[0.  , 1.11],
             [1.11, 0.  ]], dtype=float32)
    """
    authors = arguments.one_of("form", form, FORMS) == "authors"
    return rule_of(
        _UnitSteps(
            **checked(learning_rate=learning_rate, weight_decay=weight_decay),
            momentum=decay_argument("momentum", momentum),
            oracle=_Spectral(newton_schulz_steps, authors),
            nesterov=authors,
        )
    )


@RULES.register(
    title="Parameter-agnostic Muon",
    source="Sadiev et al. 2026",
    families=("Normalised updates",),
    rate="agnostic_learning_rate",
    method=False,
    own_schedule=True,
)
def parameter_agnostic_muon(
    *, learning_rate: Rate, weight_decay: float = 0.0, newton_schulz_steps: Count = 5
) -> ServerRule:
    r"""Muon whose averages grow longer and whose steps grow shorter by themselves; for `growing_ringmaster`.

    .. math:: \alpha_k = 1 / \sqrt{\max(k, 1)}, \qquad m_{k+1} = (1 - \alpha_k) m_k + \alpha_k g_k, \qquad
        \theta_{k+1} = \theta_k - \frac{\eta}{(k + 1)^{3/4}}\, U V^T

    after k updates, with the orthogonal factor of `muon`. Whatever eta > 0 is, it converges at the same rate in k.

    Args:
      learning_rate: eta, the spectral norm of the first step, or an optax schedule counted in updates. Runs have it
        constant, without `config.rate`'s warm-up and decay.
      weight_decay: lambda, added to the gradient at the server's parameters.
      newton_schulz_steps: number of Newton-Schulz iterations.

    Returns:
      A `ServerRule`; its state holds m.

    Source: Sadiev, Maranjyan, Ilin and Richtarik 2026, Ringmaster LMO (arXiv 2605.18174), the theorem on iteration
    complexity, verified as for `muon`.

    Example:
      >>> rule, params = parameter_agnostic_muon(learning_rate=1.0), jnp.zeros(2)
      >>> state = rule.init(params)._replace(count=jnp.asarray(15))
      >>> rule.update(jnp.array([3.0, 4.0]), state, params)[0]  # 16^(3/4) is 8
      Array([-0.075, -0.1  ], dtype=float32)
    """
    return rule_of(
        _UnitSteps(
            **checked(learning_rate=learning_rate, weight_decay=weight_decay),
            momentum=0.0,
            oracle=_Spectral(newton_schulz_steps),
            agnostic=True,
        )
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _UnitSteps(Settings):
    r"""The rule :math:`m \leftarrow \beta m + (1 - \beta) g, \ \theta \leftarrow \theta + \eta\, \mathrm{lmo}(m)`.

    Attributes:
      learning_rate: eta, or an optax schedule.
      momentum: beta; not used where `agnostic`.
      weight_decay: lambda, added to the gradient at the server's parameters.
      oracle: of the norm: -lmo, the step to subtract, like the average; hashable, since it is static.
      agnostic: whether beta = 1 - 1 / sqrt(k) and the step is eta / (k + 1)^(3/4), after k updates.
      nesterov: whether the oracle is asked for beta m + (1 - beta) g, with the new m.
    """

    learning_rate: Rate
    momentum: Any
    weight_decay: Any
    oracle: Callable[[Tree], Tree] = static()  # noqa: RUF009 (a field, as the two others are)
    agnostic: bool = static(False)
    nesterov: bool = static(False)

    def init(self, params: Tree, **extra: Any) -> UnitStepState:
        return UnitStepState(jnp.zeros([], jnp.int32), accumulators.zeros(params))

    def update(self, message: Tree, state: UnitStepState, params: Tree, **extra: Any) -> tuple[Tree, UnitStepState]:
        made = state.count.astype(float)
        decay = 1 - jnp.maximum(made, 1) ** -0.5 if self.agnostic else self.momentum
        average = accumulators.moving_average(state.average, message, decay)
        ahead = accumulators.moving_average(average, message, decay) if self.nesterov else average
        step = self.oracle(ahead)
        if self.agnostic:
            step = scale(step, (made + 1) ** -0.75)
        new_state = UnitStepState(optax.safe_increment(state.count), average)
        return accumulators.descent(step, self.learning_rate, state.count, params), new_state


@dataclasses.dataclass(frozen=True)
class _Spectral:
    """The oracle of the largest spectral norm of all matrices, and Euclidean norm of all vectors and numbers.

    Attributes:
      steps: Newton-Schulz iterations.
      authors: whether it is as in the code of Ringmaster-Muon's authors, which leaves vectors and numbers as they are.
    """

    steps: int
    authors: bool = False

    def __call__(self, average: Tree) -> Tree:
        """Every matrix is orthogonalised, every vector divided by its length."""
        return jax.tree.map(self._of_leaf, average)

    def _of_leaf(self, leaf: jax.Array) -> jax.Array:
        if leaf.ndim < 2:
            return leaf if self.authors else over_length(leaf)
        # The kernel of a convolution: a matrix from all that one output sees, to the outputs.
        matrix = leaf.reshape(-1, leaf.shape[-1])
        if not self.authors:
            return orthogonalised(matrix, self.steps).reshape(leaf.shape)
        inputs, outputs = matrix.shape
        factor = math.sqrt(max(1.0, outputs / inputs))  # an output is a row in the authors' code
        return scale(orthogonalised(matrix, self.steps, POLAR_EXPRESS), factor).reshape(leaf.shape)


def over_length(tree: Tree) -> Tree:
    """A tree over its Euclidean length, that of all its leaves together; zeros stay zeros.

    Example:
      >>> over_length((jnp.array([3.0, 0.0]), jnp.array(4.0)))
      (Array([0.6, 0. ], dtype=float32), Array(0.8, dtype=float32))
    """
    # Not `jnp.vdot`, which gathers sharded arrays.
    length = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))
    return scale(tree, jnp.where(length > 0, 1 / jnp.where(length > 0, length, 1), 0))


def orthogonalised(
    matrix: jax.Array, steps: int, coefficients: Sequence[tuple[float, float, float]] = QUINTIC
) -> jax.Array:
    r"""Nearly the orthogonal polar factor of a matrix, by Newton-Schulz iterations, Muon's by default.

    .. math:: X \leftarrow M / \|M\|_F, \qquad
        X \leftarrow a X + b\, X X^T X + c\, (X X^T)^2 X \quad\text{(each step)}

    With Muon's (a, b, c) = (3.4445, -4.7750, 2.0315) and :math:`M = U S V^T` it ends at :math:`U S' V^T`, with the
    entries of S' from about 0.7 to 1.2 where those of S are not tiny: the iteration does not converge, but is quick.
    Zeros stay zeros.

    Args:
      matrix: [rows, columns].
      steps: number of iterations, 5 in the field.
      coefficients: a, b and c of each iteration; the last ones are those of all that follow.

    Source: Jordan et al. 2024 (Muon). `optax.contrib.scale_by_muon` iterates in the same way.

    Example:
      >>> orthogonalised(jnp.array([[0.0, 2.0], [2.0, 0.0]]), 5).round(2)
      Array([[0.  , 1.11],
             [1.11, 0.  ]], dtype=float32)
    """
    table = jnp.asarray(coefficients, matrix.dtype)
    wide = matrix.shape[0] <= matrix.shape[1]
    found = over_length(matrix if wide else matrix.T)  # the smaller of the two products

    def step(index: jax.Array, found: jax.Array) -> jax.Array:
        a, b, c = table[jnp.minimum(index, len(table) - 1)]
        product = found @ found.T
        return a * found + (b * product + c * product @ product) @ found

    found = jax.lax.fori_loop(0, steps, step, found)  # a fifth of the program
    return found if wide else found.T
