"""`WeightNormCNN`: weight-normalised convolutions with max-pooling, for MNIST."""

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from sgdlab.networks.convolution import conv
from sgdlab.networks.pooling import max_pool


class WeightNormConvolution(nnx.Module):
    """A convolution whose kernel is w = g v / |v|, with one length g and one norm |v| for each output channel.

    The direction v, the length g and the bias are parameters. g begins as |v|, and v as he_normal; the initialisation
    on a batch of data (the source's section 3) is not done.

    Args:
      in_features: C, input channels.
      out_features: F, output channels.
      kernel_size: height and width of the kernel.
      param_dtype: dtype of the parameters.
      rngs: random streams; uses `params`.

    Source:
      Salimans and Kingma 2016, equation 2.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> nnx.eval_shape(lambda: WeightNormConvolution(1, 4, rngs=nnx.Rngs(0))(jnp.ones([2, 8, 8, 1]))).shape
      (2, 8, 8, 4)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        kernel_size: int = 3,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        shape = (kernel_size, kernel_size, in_features, out_features)
        direction = nnx.initializers.he_normal()(rngs.params(), shape, param_dtype)
        self.direction = nnx.Param(direction)
        self.length = nnx.Param(_norm(direction))
        self.bias = nnx.Param(jnp.zeros((out_features,), param_dtype))

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to [B, H, W, F]."""
        direction = self.direction[...]
        return conv(images, direction * (self.length[...] / _norm(direction))) + self.bias[...]


class WeightNormCNN(nnx.Module):
    """Weight-normalised 3x3 convolutions, each with ReLU and 2x2 max-pooling, and a weight-normalised linear layer.

    Chen et al. train "a 4-layer CNN that have 3x3 filters with max-pooling and weight normalization in every layer" and
    give no widths. Chosen here: four convolutions of 32, 32, 64 and 64 channels with "SAME" padding, also in pooling,
    and a linear layer after them; 67,764 parameters for images of 28 x 28 x 1 and 10 classes.

    Args:
      channels: output channels of each convolution.
      image_shape: height, width and channels of the images.
      num_classes: number of classes.
      param_dtype: dtype of the parameters.
      rngs: random streams; uses `params`.

    Source:
      Chen et al. 2016, "Revisiting distributed synchronous SGD", appendix A.1.

    Example:
      >>> import jax
      >>> from flax import nnx
      >>> network = nnx.eval_shape(lambda: WeightNormCNN(image_shape=(28, 28, 1), rngs=nnx.Rngs(0)))
      >>> sum(leaf.size for leaf in jax.tree.leaves(nnx.state(network, nnx.Param)))
      67764
    """

    def __init__(
        self,
        channels: Sequence[int] = (32, 32, 64, 64),
        *,
        image_shape: tuple[int, int, int] = (28, 28, 1),
        num_classes: int = 10,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        height, width, before = image_shape
        options = {"param_dtype": param_dtype, "rngs": rngs}
        self.convolutions = nnx.List(
            WeightNormConvolution(inputs, outputs, **options)
            for inputs, outputs in itertools.pairwise((before, *channels))
        )
        for _ in channels:
            height, width = -(-height // 2), -(-width // 2)
        features = height * width * (before, *channels)[-1]
        # A linear layer is the convolution of one pixel.
        self.head = WeightNormConvolution(features, num_classes, kernel_size=1, **options)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to logits [B, classes]."""
        hidden = images
        for convolution in self.convolutions:
            hidden = max_pool(nnx.relu(convolution(hidden)), 2, padding="SAME")
        return self.head(hidden.reshape(len(hidden), 1, 1, -1))[:, 0, 0]


def _norm(direction: jax.Array) -> jax.Array:
    """The norm of each output channel of a kernel, [F]."""
    return jnp.sqrt(jnp.sum(jnp.square(direction), axis=(0, 1, 2)))
