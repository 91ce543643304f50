"""ASGD and NAG-ASGD: asynchronous SGD, with or without momentum (Barkai et al. 2020, Algorithm 2)."""

from sgdlab.rules.accumulators import momentum_chains
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, checked
from sgdlab.rules.server_rule import ServerRule, lifted


@RULES.register(
    title="ASGD",
    source="Barkai et al. 2020, Alg. 2",
    families=(
        "Limits on staleness",
        "Sources of staleness",
        "Staleness corrections (plain SGD)",
        "Heterogeneous data",
    ),
)
def asgd(
    *, learning_rate: Rate, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
) -> ServerRule:
    r"""Asynchronous SGD: the server applies every gradient as if it were fresh.

    .. math:: v_{k+1} = \gamma v_k + g_k + \lambda \theta_k, \qquad \theta_{k+1} = \theta_k - \eta_k v_{k+1}

    With `nesterov`, the step is :math:`\eta_k (\gamma v_{k+1} + g_k)`. There is no dampening; momentum correction
    (Goyal et al. 2017) holds by construction, since the learning rate multiplies v outside the momentum.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1). Barkai et al., section 6, run ASGD with 0.
      nesterov: whether to use Nesterov's momentum, as in `optax.trace`.
      weight_decay: lambda, added to the gradient at the server's parameters.

    Returns:
      A `ServerRule` with one velocity as state.

    Example:
      >>> import jax.numpy as jnp
      >>> rule, params = asgd(learning_rate=0.5), jnp.ones(1)
      >>> rule.update(jnp.ones(1), rule.init(params), params)[0]
      Array([-0.5], dtype=float32)
    """
    return lifted(
        momentum_chains,
        **checked(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay),
    )


@RULES.register(
    title="NAG-ASGD",
    source="Barkai et al. 2020, Alg. 2",
    families=("Limits on staleness", "Staleness penalties (momentum SGD)", "Look-ahead (DANA)"),
)
def nag_asgd(
    *, learning_rate: Rate, momentum: float = 0.9, nesterov: bool = True, weight_decay: float = 0.0
) -> ServerRule:
    r"""`asgd` with Nesterov's accelerated gradient: Barkai et al.'s NAG-ASGD. The arguments are those of `asgd`.

    .. math:: v_{k+1} = \gamma v_k + g_k + \lambda \theta_k, \qquad
        \theta_{k+1} = \theta_k - \eta_k (\gamma v_{k+1} + g_k + \lambda \theta_k)

    Example:
      >>> import jax.numpy as jnp
      >>> rule, params = nag_asgd(learning_rate=1.0, momentum=0.5), jnp.ones(1)
      >>> rule.update(jnp.ones(1), rule.init(params), params)[0]
      Array([-1.5], dtype=float32)
    """
    return asgd(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
