"""`ConvNet`: two convolutions and a linear layer, with BatchNorm or without."""

import jax
import jax.numpy as jnp
from flax import nnx

from sgdlab.networks.convolution import Convolution
from sgdlab.networks.normalization import batch_norm as batch_norm_layer


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
      >>> nnx.eval_shape(lambda: ConvNet((8, 16), rngs=nnx.Rngs(0))(jnp.ones([2, 8, 8, 1]))).shape
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
        shared = {"param_dtype": param_dtype, "rngs": rngs}
        self.convolutions = nnx.List(
            [
                Convolution(image_shape[2], first, use_bias=not batch_norm, **shared),
                Convolution(first, second, stride=2, use_bias=not batch_norm, **shared),
            ]
        )
        self.norms = nnx.List([batch_norm_layer(width, **shared) if batch_norm else _identity for width in channels])
        positions = -(-image_shape[0] // 2) * -(-image_shape[1] // 2)
        self.head = nnx.Linear(positions * second, num_classes, **shared)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to logits [B, classes]."""
        hidden = images
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            hidden = nnx.relu(norm(convolution(hidden)))
        return self.head(hidden.reshape(hidden.shape[0], -1))


def _identity(inputs: jax.Array) -> jax.Array:
    return inputs
