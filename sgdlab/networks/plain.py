"""Networks of layers in a row: `MLP`, `ConvNet`, `CNN`, and `WeightNormCNN`, whose kernels are weight-normalised."""

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from sgdlab.networks.convolution import Convolution, conv
from sgdlab.networks.normalization import batch_norm as batch_norm_layer
from sgdlab.networks.windows import max_pool


class MLP(nnx.Module):
    """A multilayer perceptron with ReLU between its layers.

    Args:
      widths: widths of the input, the hidden layers and the output, e.g. (64, 256, 256, 10).
      param_dtype: dtype of the parameters.
      rngs: random streams; uses `params`.

    Example:
      >>> nnx.eval_shape(lambda: MLP((64, 32, 10), rngs=nnx.Rngs(0))(jnp.ones([2, 8, 8, 1]))).shape
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
        options = {"param_dtype": param_dtype, "rngs": rngs}
        self.convolutions = nnx.List(
            Convolution(inputs, outputs, kernel_size=kernel_size, **options)
            for inputs, outputs in itertools.pairwise((image_shape[2], *channels))
        )
        self.head = nnx.Linear(_num_features(channels, image_shape), num_classes, **options)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to logits [B, classes]."""
        return self.head(_pooled(self.convolutions, images))


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
        options = {"param_dtype": param_dtype, "rngs": rngs}
        self.convolutions = nnx.List(
            WeightNormConvolution(inputs, outputs, **options)
            for inputs, outputs in itertools.pairwise((image_shape[2], *channels))
        )
        # A linear layer is the convolution of one pixel.
        features = _num_features(channels, image_shape)
        self.head = WeightNormConvolution(features, num_classes, kernel_size=1, **options)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to logits [B, classes]."""
        return self.head(_pooled(self.convolutions, images)[:, None, None])[:, 0, 0]


def _norm(direction: jax.Array) -> jax.Array:
    """The norm of each output channel of a kernel, [F]."""
    return jnp.sqrt(jnp.sum(jnp.square(direction), axis=(0, 1, 2)))


def _pooled(convolutions: Sequence[nnx.Module], images: jax.Array) -> jax.Array:
    """Return the features [B, F] after convolutions, each with ReLU and 2x2 max-pooling."""
    hidden = images
    for convolution in convolutions:
        hidden = max_pool(nnx.relu(convolution(hidden)), 2, padding="SAME")
    return hidden.reshape(len(hidden), -1)


def _num_features(channels: Sequence[int], image_shape: tuple[int, int, int]) -> int:
    """Return how many features `_pooled` gives."""
    height, width, before = image_shape
    for _ in channels:
        height, width = -(-height // 2), -(-width // 2)
    return height * width * (before, *channels)[-1]
