"""Sums of gradients over the number that was expected, rather than the number that came (MindFlayer, DropCompute)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.rules.accumulators import in_float32
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, checked, like, number
from sgdlab.rules.server_rule import ServerRule, lifted


class ShareState(NamedTuple):
    """State of `scale_by_share`."""

    updates: jax.Array  # int32, scalar: number of updates made.
    total: jax.Array  # int32, scalar: number of gradients of all of them.


def scale_by_share(expected_gradients: float | None = None) -> optax.GradientTransformationExtraArgs:
    r"""Multiplies updates by :math:`d_k / B`, with d the extra argument `num_gradients` and B the number expected.

    Applied to a mean of d gradients, it gives their sum over B.

    Args:
      expected_gradients: B. None: the mean of d in all updates so far, the one at hand included.

    Returns:
      An optax transform; without `num_gradients` it counts one gradient in every update.

    Example:
      >>> transform = scale_by_share(4.0)
      >>> transform.update(jnp.ones(1), transform.init(jnp.ones(1)), num_gradients=3)[0]
      Array([0.75], dtype=float32)
    """

    def init(params):
        return ShareState(updates=jnp.zeros([], jnp.int32), total=jnp.zeros([], jnp.int32))

    def update(updates, state, params=None, *, num_gradients=1, **extra_args):
        count = jnp.asarray(num_gradients, jnp.int32)
        state = ShareState(updates=state.updates + 1, total=state.total + count)
        # Counts in the widest floats there are: a quotient of int32 is a float32.
        expected = state.total.astype(float) / state.updates if expected_gradients is None else expected_gradients
        factor = count.astype(float) / expected
        return jax.tree.map(lambda leaf: leaf * like(factor, leaf), updates), state

    return optax.GradientTransformationExtraArgs(init, update)


@RULES.register(title="Expected count", source="Maranjyan et al. 2025 (MindFlayer)", families=(), method=False)
def expected_count(
    *,
    learning_rate: Rate,
    momentum: float = 0.9,
    nesterov: bool = True,
    weight_decay: float = 0.0,
    expected_gradients: float | None = None,
) -> ServerRule:
    r"""Momentum SGD on the sum of an update's gradients over the number B that was expected of it.

    .. math:: g_k = \frac{1}{B} \sum_{i=1}^{d_k} g_{k,i} + \lambda \theta_k, \qquad
        v_{k+1} = \gamma v_k + g_k, \qquad \theta_{k+1} = \theta_k - \eta_k v_{k+1}

    With `nesterov`, :math:`v_{k+1}` in the step is :math:`\gamma v_{k+1} + g_k`. Dividing by the number d that came
    would make the estimate of the gradient depend on how many came; divided by its expectation, it is unbiased. Where
    every update has B gradients it is momentum SGD on their mean.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1); the papers have none.
      nesterov: whether to use Nesterov's momentum.
      weight_decay: lambda, added to the estimate of the gradient at the server's parameters.
      expected_gradients: B, gradients of an update: of MindFlayer SGD the sum of p_i B_i, of DropCompute N M. None: the
        mean over the updates so far, the one at hand included.

    Returns:
      A `ServerRule`: `optax.chain(scale_by_share, optax.add_decayed_weights, optax.trace,
      optax.scale_by_learning_rate)`.

    Source: Maranjyan, Omar and Richtarik 2025 (MindFlayer SGD), read in the authors' code (`FixedClipping`): the sum
    over the sum of p_i B_i, with p_i known. That B may be counted as the run goes is ours.

    Example:
      >>> rule, params = expected_count(learning_rate=1.0, momentum=0.0, expected_gradients=4.0), jnp.ones(1)
      >>> rule.update(jnp.ones(1), rule.init(params), params, num_gradients=3)[0]
      Array([-0.75], dtype=float32)
    """
    if expected_gradients is not None:
        expected_gradients = number("expected_gradients", expected_gradients, above=0)
    return lifted(
        _over_expected if expected_gradients is not None else _over_mean,
        **checked(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay),
        **({} if expected_gradients is None else {"expected_gradients": expected_gradients}),
    )


def _over_expected(
    *, learning_rate: Rate, momentum: Any, weight_decay: Any, nesterov: bool, expected_gradients: Any = None
):
    steps = (
        scale_by_share(expected_gradients),
        optax.add_decayed_weights(weight_decay),
        in_float32(optax.trace(momentum, nesterov)),
        optax.scale_by_learning_rate(learning_rate),
    )
    return optax.identity(), optax.chain(*steps)


def _over_mean(**hyperparameters: Any):
    return _over_expected(**hyperparameters)
