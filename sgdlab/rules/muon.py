"""Muon at a server, with a rate of one's own or parameter-agnostic (Jordan et al. 2024; Sadiev et al. 2026)."""

import dataclasses

import jax

from sgdlab.bounds import Count
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, decay_argument, learning_rate_argument, number
from sgdlab.rules.linear_minimization import UnitSteps, orthogonalised, over_length
from sgdlab.rules.server_rule import ServerRule, Tree, rule_of


@dataclasses.dataclass(frozen=True)
class Spectral:
    """The oracle of the largest spectral norm of all matrices, and Euclidean norm of all vectors and numbers.

    Attributes:
      steps: Newton-Schulz iterations.
    """

    steps: int

    def __call__(self, average: Tree) -> Tree:
        """Every matrix is orthogonalised, every vector divided by its length."""
        return jax.tree.map(self._of_leaf, average)

    def _of_leaf(self, leaf: jax.Array) -> jax.Array:
        if leaf.ndim < 2:
            return over_length(leaf)
        # The kernel of a convolution: a matrix from all that one output sees, to the outputs.
        return orthogonalised(leaf.reshape(-1, leaf.shape[-1]), self.steps).reshape(leaf.shape)


@RULES.register(title="Muon", source="Jordan et al. 2024", families=("Steps of one length",), rate="muon_learning_rate")
def muon(
    *, learning_rate: Rate, momentum: float = 0.95, weight_decay: float = 0.0, newton_schulz_steps: Count = 5
) -> ServerRule:
    r"""Muon: the averaged gradient of every matrix is made orthogonal, and is a step of spectral norm eta.

    .. math:: m_{k+1} = \beta m_k + (1 - \beta) (g_k + \lambda \theta_k), \qquad
        \theta_{k+1} = \theta_k - \eta_k\, U V^T \quad\text{with}\quad m_{k+1} = U S V^T

    by Newton-Schulz iterations, nearly (`sgdlab.rules.linear_minimization.orthogonalised`). The kernel of a convolution
    is a matrix whose columns are the outputs; a vector or a number is divided by its length, the oracle of its norm.
    With `ringmaster`, which drops gradients that are too old, it is Ringmaster-Muon.

    Args:
      learning_rate: eta, the spectral norm of a step, or an optax schedule counted in updates.
      momentum: beta in [0, 1); the paper's alpha is 1 - beta.
      weight_decay: lambda, added to the gradient at the server's parameters.
      newton_schulz_steps: number of Newton-Schulz iterations.

    Returns:
      A `ServerRule`; its state holds m.

    Raises:
      ValueError: where a hyperparameter is not finite or out of its range.

    Source: Jordan et al. 2024, Muon; Sadiev, Maranjyan, Ilin and Richtarik 2026, Ringmaster LMO (arXiv 2605.18174),
    Algorithm 1 with the lmo of the spectral norm, verified in the LaTeX source of a draft that lies beside the authors'
    code. Their code orthogonalises with the coefficients of Polar Express, adds Nesterov's momentum and the factor
    sqrt(max(1, rows / columns)), and gives vectors steps of plain momentum SGD; here all of them are as in Algorithm 1.

    Example:
      >>> import jax.numpy as jnp
      >>> rule, params = muon(learning_rate=1.0), jnp.zeros((2, 2))
      >>> (-rule.update(jnp.array([[0.0, 2.0], [2.0, 0.0]]), rule.init(params), params)[0]).round(2)
      Array([[0.  , 1.11],
             [1.11, 0.  ]], dtype=float32)
    """
    return rule_of(
        UnitSteps(
            learning_rate=learning_rate_argument(learning_rate),
            momentum=decay_argument("momentum", momentum),
            weight_decay=number("weight_decay", weight_decay, least=0),
            oracle=Spectral(newton_schulz_steps),
        )
    )


@RULES.register(
    title="Parameter-agnostic Muon",
    source="Sadiev et al. 2026",
    families=("Steps of one length",),
    rate="agnostic_learning_rate",
    method=False,
)
def parameter_agnostic_muon(
    *, learning_rate: Rate, weight_decay: float = 0.0, newton_schulz_steps: Count = 5
) -> ServerRule:
    r"""Muon whose averages grow longer and whose steps grow shorter by themselves; for `growing_ringmaster`.

    .. math:: \alpha_k = 1 / \sqrt{\max(k, 1)}, \qquad m_{k+1} = (1 - \alpha_k) m_k + \alpha_k g_k, \qquad
        \theta_{k+1} = \theta_k - \frac{\eta}{(k + 1)^{3/4}}\, U V^T

    after k updates, with the orthogonal factor of `muon`. Whatever eta > 0 is, it converges at the same rate in k.

    Args:
      learning_rate: eta, the spectral norm of the first step, or an optax schedule counted in updates.
      weight_decay: lambda, added to the gradient at the server's parameters.
      newton_schulz_steps: number of Newton-Schulz iterations.

    Returns:
      A `ServerRule`; its state holds m.

    Raises:
      ValueError: where a hyperparameter is not finite or out of its range.

    Source: Sadiev, Maranjyan, Ilin and Richtarik 2026, Ringmaster LMO (arXiv 2605.18174), the theorem on iteration
    complexity, verified as for `muon`.

    Example:
      >>> import jax.numpy as jnp
      >>> rule, params = parameter_agnostic_muon(learning_rate=1.0), jnp.zeros(2)
      >>> state = rule.init(params)._replace(count=jnp.asarray(15))
      >>> rule.update(jnp.array([3.0, 4.0]), state, params)[0]  # 16^(3/4) is 8
      Array([-0.075, -0.1  ], dtype=float32)
    """
    return rule_of(
        UnitSteps(
            learning_rate=learning_rate_argument(learning_rate),
            momentum=0.0,
            weight_decay=number("weight_decay", weight_decay, least=0),
            oracle=Spectral(newton_schulz_steps),
            agnostic=True,
        )
    )
