"""The gap as an optax transform, for a chain of its user's own."""

import optax

from sgdlab.rules.gap import Gap


def scale_by_gap(
    momentum: optax.GradientTransformation | None = None,
    *,
    max_learning_rate: float,
    granularity: str = "parameter",
) -> optax.GradientTransformationExtraArgs:
    r"""Divides gradients by their gap, before a momentum whose velocities the gap averages.

    .. math:: v_{k+1} = \mathrm{momentum}\left(\frac{g_k}{G_k}\right), \qquad
        m \leftarrow b m + (1 - b) v_{k+1}^2

    `optax.chain(scale_by_gap(optax.trace(0.9), max_learning_rate=eta), optax.scale_by_learning_rate(eta))` is the rule
    `gap_aware` without Nesterov's look-ahead.

    Args:
      momentum: a transform of the divided gradients; None: they are the velocities.
      max_learning_rate: eta_max, the learning rate of an average update.
      granularity: a gap for each "parameter", for each "layer", or one for all ("global").

    Returns:
      An optax transform, whose `update` needs the parameters, and takes those that the gradient was computed on as
      `read_params`; without them the gap is 1.

    Source: Barkai et al. 2020, Algorithm 4.

    Example:
      >>> import jax.numpy as jnp
      >>> transform, read = scale_by_gap(max_learning_rate=0.5), jnp.zeros(1)
      >>> _, state = transform.update(jnp.ones(1), transform.init(read), read)  # an update of one step of 0.5
      >>> transform.update(jnp.ones(1), state, read - 1.0, read_params=read)[0]  # two such steps away: gap 3
      Array([0.33333334], dtype=float32)
    """
    gap = Gap(max_learning_rate, granularity=granularity)
    inner = optax.with_extra_args_support(optax.identity() if momentum is None else momentum)

    def init(params):
        return gap.init(params), inner.init(params)

    def update(updates, state, params=None, *, read_params=None, **extra_args):
        if params is None:
            raise ValueError("params=None must be the parameters that the gradient is applied to")
        moments, inner_state = state
        read_params = params if read_params is None else read_params
        divided = gap.divide(updates, moments, params, delay=None, read_params=read_params)
        velocity, inner_state = inner.update(divided, inner_state, params, **extra_args)
        return velocity, (gap.fold(moments, velocity), inner_state)

    return optax.GradientTransformationExtraArgs(init, update)
