"""The networks `MLP` and `ConvNet`, as modules of Flax (nnx)."""

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from sgdlab.models.convolution import MatmulConv

BATCH_NORM_MOMENTUM = 0.9
"""m of the running statistics, stats = m stats + (1 - m) batch; short runs need a short memory."""


class MLP(nnx.Module):
    """A multilayer perceptron with ReLU between its layers.

    Args:
      widths: widths of the input, the hidden layers and the output, e.g. (64, 256, 256, 10).
      param_dtype: dtype of the parameters.
      rngs: random streams; uses `params`.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> MLP((64, 32, 10), rngs=nnx.Rngs(0))(jnp.ones([2, 8, 8, 1])).shape
      (2, 10)
    """

    def __init__(self, widths: Sequence[int], *, param_dtype: jnp.dtype = jnp.float32, rngs: nnx.Rngs):
        init = nnx.initializers.he_normal()
        self.layers = nnx.List(
            nnx.Linear(before, after, kernel_init=init, param_dtype=param_dtype, rngs=rngs)
            for before, after in itertools.pairwise(widths)
        )

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps [B, ...] to logits [B, classes]."""
        hidden = images.reshape(images.shape[0], -1)
        for layer in self.layers[:-1]:
            hidden = nnx.relu(layer(hidden))
        return self.layers[-1](hidden)


class ConvNet(nnx.Module):
    """Two 3x3 convolutions, the second with stride 2, and a linear layer; ReLU, and BatchNorm if `batch_norm`.

    Args:
      channels: output channels of the two convolutions.
      image_shape: height, width and channels of the images.
      num_classes: number of classes.
      batch_norm: whether BatchNorm is applied before each ReLU; each worker then normalises with its own batch.
      param_dtype: dtype of the parameters and of BatchNorm's statistics.
      rngs: random streams; uses `params`.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> ConvNet((8, 16), rngs=nnx.Rngs(0))(jnp.ones([2, 8, 8, 1])).shape
      (2, 10)
    """

    def __init__(
        self,
        channels: tuple[int, int] = (32, 64),
        *,
        image_shape: tuple[int, int, int] = (8, 8, 1),
        num_classes: int = 10,
        batch_norm: bool = False,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        first, second = channels
        options = {"use_bias": not batch_norm, "param_dtype": param_dtype, "rngs": rngs}
        self.convolutions = nnx.List(
            [MatmulConv(image_shape[2], first, **options), MatmulConv(first, second, stride=2, **options)]
        )
        self.norms = nnx.List([_norm(width, param_dtype, rngs) if batch_norm else _identity for width in channels])
        positions = -(-image_shape[0] // 2) * -(-image_shape[1] // 2)
        self.head = nnx.Linear(positions * second, num_classes, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to logits [B, classes]."""
        hidden = images
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            hidden = nnx.relu(norm(convolution(hidden)))
        return self.head(hidden.reshape(hidden.shape[0], -1))


def _identity(inputs: jax.Array) -> jax.Array:
    return inputs


def _norm(features: int, param_dtype: jnp.dtype, rngs: nnx.Rngs) -> nnx.BatchNorm:
    norm = nnx.BatchNorm(features, momentum=BATCH_NORM_MOMENTUM, dtype=param_dtype, param_dtype=param_dtype, rngs=rngs)
    # nnx keeps float32 statistics whatever the parameters are; in float64 that would lose half the digits.
    norm.mean, norm.var = (nnx.BatchStat(stat[...].astype(param_dtype)) for stat in (norm.mean, norm.var))
    return norm
