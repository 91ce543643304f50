"""`CNN`: convolutions with max-pooling and a linear layer."""

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from sgdlab.networks.convolution import Convolution
from sgdlab.networks.pooling import max_pool


class CNN(nnx.Module):
    """Convolutions, each with ReLU and 2x2 max-pooling, and a linear layer.

    Teng and Wood train a "3-layer CNN" on MNIST and give no details. Chosen here: two 5x5 convolutions of 32 and 64
    channels with "SAME" padding, and the linear layer as the third; 83,466 parameters for images of 28 x 28 x 1 and 10
    classes.

    Args:
      channels: output channels of each convolution.
      kernel_size: height and width of the kernels.
      image_shape: height, width and channels of the images.
      num_classes: number of classes.
      param_dtype: dtype of the parameters.
      rngs: random streams; uses `params`.

    Source:
      Teng and Wood 2018, "Bayesian distributed stochastic gradient descent", section 4.2.

    Example:
      >>> import jax
      >>> from flax import nnx
      >>> network = nnx.eval_shape(lambda: CNN(image_shape=(28, 28, 1), rngs=nnx.Rngs(0)))
      >>> sum(leaf.size for leaf in jax.tree.leaves(nnx.state(network, nnx.Param)))
      83466
    """

    def __init__(
        self,
        channels: Sequence[int] = (32, 64),
        *,
        kernel_size: int = 5,
        image_shape: tuple[int, int, int] = (28, 28, 1),
        num_classes: int = 10,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        height, width, before = image_shape
        options = {"param_dtype": param_dtype, "rngs": rngs}
        self.convolutions = nnx.List(
            Convolution(inputs, outputs, kernel_size=kernel_size, **options)
            for inputs, outputs in itertools.pairwise((before, *channels))
        )
        for _ in channels:
            height, width = -(-height // 2), -(-width // 2)
        self.head = nnx.Linear(height * width * (before, *channels)[-1], num_classes, **options)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to logits [B, classes]."""
        hidden = images
        for convolution in self.convolutions:
            hidden = max_pool(nnx.relu(convolution(hidden)), 2, padding="SAME")
        return self.head(hidden.reshape(hidden.shape[0], -1))
