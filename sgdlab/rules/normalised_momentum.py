"""Normalised momentum SGD: steps of one length in the direction of the averaged gradient."""

import dataclasses

from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, decay_argument, learning_rate_argument, number
from sgdlab.rules.linear_minimization import UnitSteps, over_length
from sgdlab.rules.server_rule import ServerRule, Tree, rule_of


@dataclasses.dataclass(frozen=True)
class Euclidean:
    """The oracle of the Euclidean norm of all parameters together."""

    def __call__(self, average: Tree) -> Tree:
        """The average over its length."""
        return over_length(average)


@RULES.register(
    title="Normalised momentum",
    source="Sadiev et al. 2026, Alg. 1",
    families=("Steps of one length",),
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

    Raises:
      ValueError: where a hyperparameter is not finite or out of its range.

    Source: Sadiev, Maranjyan, Ilin and Richtarik 2026, Ringmaster LMO (arXiv 2605.18174), Algorithm 1, with the lmo of
    the Euclidean norm, as `Momentum_Normalized_Ringmaster` of the authors' code; verified in the LaTeX source of a
    draft of the paper that lies beside the code.

    Example:
      >>> import jax.numpy as jnp
      >>> rule, params = normalised_momentum(learning_rate=0.5), jnp.zeros(2)
      >>> rule.update(jnp.array([3.0, 4.0]), rule.init(params), params)[0]
      Array([-0.3, -0.4], dtype=float32)
    """
    return rule_of(
        UnitSteps(
            learning_rate=learning_rate_argument(learning_rate),
            momentum=decay_argument("momentum", momentum),
            weight_decay=number("weight_decay", weight_decay, least=0),
            oracle=Euclidean(),
        )
    )
