"""BatchNorm, as the networks of this package use it."""

import jax.numpy as jnp
from flax import nnx

BATCH_NORM_MOMENTUM = 0.9
"""m of the running statistics, stats = m stats + (1 - m) batch; short runs need a short memory."""


def batch_norm(
    features: int,
    *,
    momentum: float = BATCH_NORM_MOMENTUM,
    epsilon: float = 1e-5,
    zero_scale: bool = False,
    dtype: jnp.dtype | None = None,
    param_dtype: jnp.dtype = jnp.float32,
    rngs: nnx.Rngs,
) -> nnx.BatchNorm:
    """An `nnx.BatchNorm` whose running statistics have the dtype of its parameters.

    y = scale (x - mean) / sqrt(var + epsilon) + bias. In training, mean and variance are those of the batch over all
    positions; the variance that enters the running statistics is the biased one, where PyTorch takes the unbiased one:
    B H W / (B H W - 1) times as much.

    Args:
      features: number of channels.
      momentum: m of the running statistics.
      epsilon: added to the variance.
      zero_scale: whether the scale begins at zero instead of one (Goyal et al. 2017, section 5.1).
      dtype: dtype of the output; None for `param_dtype`. Statistics are computed in at least float32.
      param_dtype: dtype of the parameters and of the running statistics.
      rngs: random streams.

    Returns:
      The layer, which maps [..., features] to the same shape.

    Source:
      Ioffe and Szegedy 2015.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> norm = batch_norm(2, rngs=nnx.Rngs(0))
      >>> norm(jnp.array([[1.0, 5.0], [3.0, 5.0]])).round(2)
      Array([[-1.,  0.],
             [ 1.,  0.]], dtype=float32)
    """
    norm = nnx.BatchNorm(
        features,
        momentum=momentum,
        epsilon=epsilon,
        scale_init=nnx.initializers.zeros if zero_scale else nnx.initializers.ones,
        dtype=param_dtype if dtype is None else dtype,
        param_dtype=param_dtype,
        rngs=rngs,
    )
    # nnx keeps float32 statistics whatever the parameters are; in float64 that would lose half the digits.
    norm.mean, norm.var = (nnx.BatchStat(stat[...].astype(param_dtype)) for stat in (norm.mean, norm.var))
    return norm
