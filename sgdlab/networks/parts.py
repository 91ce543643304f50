"""The parts of the family `network`: functions of configuration entries that return a Flax module.

Besides these entries, a part is given what the data have: `image_shape`, height, width and channels, and `num_classes`,
or `levels`, the values of a pixel and colour, or `vocabulary`, the number of tokens; and random streams, `rngs`.

An entry that is out of its range is refused by a `ValueError` that names it. A module's file is imported when its part
is called: Flax takes a second to import, and the parts are registered in every process.
"""
# ruff: noqa: D417 (what all are given is described above)

import math
from collections.abc import Sequence
from typing import Any

from sgdlab import arguments
from sgdlab.bounds import Count, Decay
from sgdlab.networks.family import NETWORKS

Rngs = Any
"""An `nnx.Rngs`, whose stream `params` draws the parameters."""
Module = Any
"""An `nnx.Module`; of a classification network, one that maps images [B, H, W, C] to logits [B, classes]."""

DTYPES = ("float32", "bfloat16")


@NETWORKS.register(title="convolutional net", task="classification", lanes_on_cpu="map")
def conv(
    *,
    channels: tuple[int, ...] = (32, 64),
    batch_norm: bool = False,
    image_shape: tuple[int, int, int],
    num_classes: int,
    rngs: Rngs,
) -> Module:
    """Two 3x3 convolutions and a linear layer: a `sgdlab.networks.ConvNet`.

    Args:
      channels: output channels of the two convolutions.
      batch_norm: whether BatchNorm is applied before each ReLU.

    Raises:
      ValueError: if `channels` is not two whole numbers of at least 1.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> make = lambda: conv(channels=(4, 8), image_shape=(6, 4, 3), num_classes=5, rngs=nnx.Rngs(0))
      >>> nnx.eval_shape(lambda: make()(jnp.ones([2, 6, 4, 3]))).shape
      (2, 5)
    """
    if len(channels) != 2:
        raise ValueError(f"channels={tuple(channels)} must be two whole numbers, those of the two convolutions")
    first, second = _widths("channels", channels)
    from sgdlab.networks.plain import ConvNet  # noqa: PLC0415 (see the top of this file)

    return ConvNet(
        (first, second), image_shape=image_shape, num_classes=num_classes, batch_norm=bool(batch_norm), rngs=rngs
    )


@NETWORKS.register(title="multilayer perceptron", task="classification")
def mlp(
    *, widths: tuple[int, ...] = (32, 64), image_shape: tuple[int, int, int], num_classes: int, rngs: Rngs
) -> Module:
    """A multilayer perceptron on the pixels: a `sgdlab.networks.MLP`.

    Args:
      widths: widths of the hidden layers.

    Raises:
      ValueError: if a width is not a whole number of at least 1.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> make = lambda: mlp(widths=(8,), image_shape=(6, 4, 3), num_classes=5, rngs=nnx.Rngs(0))
      >>> nnx.eval_shape(lambda: make()(jnp.ones([2, 6, 4, 3]))).shape
      (2, 5)
    """
    from sgdlab.networks.plain import MLP  # noqa: PLC0415

    return MLP((math.prod(image_shape), *_widths("widths", widths), num_classes), rngs=rngs)


@NETWORKS.register(title="CNN", source="Teng and Wood 2018, section 4.2", task="classification", lanes_on_cpu="map")
def cnn(
    *,
    channels: tuple[int, ...] = (32, 64),
    kernel_size: Count = 5,
    image_shape: tuple[int, int, int],
    num_classes: int,
    rngs: Rngs,
) -> Module:
    """Convolutions with max-pooling and a linear layer: a `sgdlab.networks.CNN`.

    Args:
      channels: output channels of each convolution.
      kernel_size: height and width of the kernels.

    Raises:
      ValueError: if `channels` or `kernel_size` are not whole numbers of at least 1.

    Example:
      >>> from flax import nnx
      >>> make = lambda: cnn(image_shape=(28, 28, 1), num_classes=10, rngs=nnx.Rngs(0))
      >>> nnx.eval_shape(make).head.kernel.shape
      (3136, 10)
    """
    widths, size = _widths("channels", channels), kernel_size
    from sgdlab.networks.plain import CNN  # noqa: PLC0415

    return CNN(widths, kernel_size=size, image_shape=image_shape, num_classes=num_classes, rngs=rngs)


@NETWORKS.register(
    title="weight-normalised CNN", source="Chen et al. 2016, appendix A.1", task="classification", lanes_on_cpu="map"
)
def weight_norm_cnn(
    *,
    channels: tuple[int, ...] = (32, 32, 64, 64),
    image_shape: tuple[int, int, int],
    num_classes: int,
    rngs: Rngs,
) -> Module:
    """Weight-normalised 3x3 convolutions, each with max-pooling: a `sgdlab.networks.WeightNormCNN`.

    Args:
      channels: output channels of each convolution.

    Raises:
      ValueError: if a width is not a whole number of at least 1.

    Example:
      >>> from flax import nnx
      >>> make = lambda: weight_norm_cnn(image_shape=(28, 28, 1), num_classes=10, rngs=nnx.Rngs(0))
      >>> len(nnx.eval_shape(make).convolutions)
      4
    """
    widths = _widths("channels", channels)
    from sgdlab.networks.plain import WeightNormCNN  # noqa: PLC0415

    return WeightNormCNN(widths, image_shape=image_shape, num_classes=num_classes, rngs=rngs)


@NETWORKS.register(
    title="CIFAR ResNet", source="He et al. 2016, section 4.2", task="classification", lanes_on_cpu="map"
)
def cifar_resnet(
    *,
    depth: int = 20,
    batch_norm_momentum: float = 0.9,
    dtype: str = "float32",
    image_shape: tuple[int, int, int],
    num_classes: int,
    rngs: Rngs,
) -> Module:
    """The residual networks for small images, ResNet-20 by default: a `sgdlab.networks.CifarResNet`.

    Args:
      depth: number of layers with weights, 6 n + 2.
      batch_norm_momentum: share of the running statistics that each batch leaves.
      dtype: dtype of the computation, float32 or bfloat16; parameters, statistics and logits are float32.

    Raises:
      ValueError: if `depth` is not 6 n + 2, or another argument is out of its range.

    Example:
      >>> from flax import nnx
      >>> make = lambda: cifar_resnet(image_shape=(32, 32, 3), num_classes=10, rngs=nnx.Rngs(0))
      >>> len(nnx.eval_shape(make).blocks)
      9
    """
    options = _options(batch_norm_momentum, dtype)
    from sgdlab.networks.residual import CifarResNet  # noqa: PLC0415

    return CifarResNet(depth, channels=image_shape[2], num_classes=num_classes, **options, rngs=rngs)


@NETWORKS.register(
    title="wide ResNet", source="Zagoruyko and Komodakis 2016", task="classification", lanes_on_cpu="map"
)
def wide_resnet(
    *,
    depth: int = 16,
    widen: int = 4,
    dropout: Decay = 0.0,
    batch_norm_momentum: float = 0.9,
    dtype: str = "float32",
    image_shape: tuple[int, int, int],
    num_classes: int,
    rngs: Rngs,
) -> Module:
    """A wide residual network, WRN-16-4 by default: a `sgdlab.networks.WideResNet`.

    Args:
      depth: number of layers with weights, 6 n + 4.
      widen: factor on the widths 16, 32 and 64.
      dropout: probability with which a channel value between the convolutions of a block is set to zero in training.
      batch_norm_momentum: share of the running statistics that each batch leaves.
      dtype: dtype of the computation, float32 or bfloat16; parameters, statistics and logits are float32.

    Raises:
      ValueError: if `depth` is not 6 n + 4, or another argument is out of its range.

    Example:
      >>> from flax import nnx
      >>> make = lambda: wide_resnet(image_shape=(32, 32, 3), num_classes=10, rngs=nnx.Rngs(0))
      >>> len(nnx.eval_shape(make).blocks)
      6
    """
    options = _options(batch_norm_momentum, dtype)
    from sgdlab.networks.residual import WideResNet  # noqa: PLC0415

    return WideResNet(
        depth, widen, dropout=dropout, channels=image_shape[2], num_classes=num_classes, **options, rngs=rngs
    )


@NETWORKS.register(title="ResNet-18", source="He et al. 2016", task="classification", lanes_on_cpu="map")
def resnet18(
    *,
    stem: str = "imagenet",
    zero_last_scale: bool = False,
    batch_norm_momentum: float = 0.9,
    dtype: str = "float32",
    image_shape: tuple[int, int, int],
    num_classes: int,
    rngs: Rngs,
) -> Module:
    """ResNet-18, with 1x1 convolutions where a shortcut changes its shape: a `sgdlab.networks.ResNet`.

    Args:
      stem: "imagenet", a 7x7 convolution and max-pooling, each of stride 2; or "cifar", a 3x3 convolution.
      zero_last_scale: whether the last BatchNorm of each block begins with scale zero (Goyal et al. 2017, section 5.1).
      batch_norm_momentum: share of the running statistics that each batch leaves.
      dtype: dtype of the computation, float32 or bfloat16; parameters, statistics and logits are float32.

    Example:
      >>> from flax import nnx
      >>> make = lambda: resnet18(stem="cifar", image_shape=(32, 32, 3), num_classes=10, rngs=nnx.Rngs(0))
      >>> len(nnx.eval_shape(make).blocks)
      8
    """
    options = _options(batch_norm_momentum, dtype) | {"stem": stem, "zero_last_scale": bool(zero_last_scale)}
    from sgdlab.networks.residual import ResNet  # noqa: PLC0415

    return ResNet(
        (2, 2, 2, 2), bottleneck=False, channels=image_shape[2], num_classes=num_classes, **options, rngs=rngs
    )


@NETWORKS.register(title="ResNet-50", source="He et al. 2016", task="classification", lanes_on_cpu="map")
def resnet50(
    *,
    stem: str = "imagenet",
    zero_last_scale: bool = False,
    batch_norm_momentum: float = 0.9,
    dtype: str = "float32",
    image_shape: tuple[int, int, int],
    num_classes: int,
    rngs: Rngs,
) -> Module:
    """ResNet-50, whose blocks have three convolutions, 1x1, 3x3 and 1x1: a `sgdlab.networks.ResNet`.

    Args:
      stem: "imagenet", a 7x7 convolution and max-pooling, each of stride 2; or "cifar", a 3x3 convolution.
      zero_last_scale: whether the last BatchNorm of each block begins with scale zero (Goyal et al. 2017, section 5.1).
      batch_norm_momentum: share of the running statistics that each batch leaves.
      dtype: dtype of the computation, float32 or bfloat16; parameters, statistics and logits are float32.

    Example:
      >>> from flax import nnx
      >>> make = lambda: resnet50(image_shape=(224, 224, 3), num_classes=1000, rngs=nnx.Rngs(0))
      >>> len(nnx.eval_shape(make).blocks)
      16
    """
    options = _options(batch_norm_momentum, dtype) | {"stem": stem, "zero_last_scale": bool(zero_last_scale)}
    from sgdlab.networks.residual import ResNet  # noqa: PLC0415

    return ResNet((3, 4, 6, 3), bottleneck=True, channels=image_shape[2], num_classes=num_classes, **options, rngs=rngs)


@NETWORKS.register(title="Inception v3", source="Szegedy et al. 2016", task="classification", lanes_on_cpu="map")
def inception(
    *,
    dropout: Decay = 0.2,
    batch_norm_momentum: float = 0.9,
    dtype: str = "float32",
    image_shape: tuple[int, int, int],
    num_classes: int,
    rngs: Rngs,
) -> Module:
    """Inception v3 without its auxiliary head, for images of at least 75 x 75 pixels: a `sgdlab.networks.Inception`.

    Args:
      dropout: probability with which a feature before the linear layer is set to zero in training.
      batch_norm_momentum: share of the running statistics that each batch leaves.
      dtype: dtype of the computation, float32 or bfloat16; parameters, statistics and logits are float32.

    Raises:
      ValueError: if an argument is out of its range, or the images are smaller.

    Example:
      >>> from flax import nnx
      >>> make = lambda: inception(image_shape=(299, 299, 3), num_classes=1000, rngs=nnx.Rngs(0))
      >>> len(nnx.eval_shape(make).blocks)
      11
    """
    options = _options(batch_norm_momentum, dtype)
    if min(image_shape[:2]) < 75:
        raise ValueError(f"image_shape={tuple(image_shape)} must be at least 75 x 75 pixels for Inception v3")
    from sgdlab.networks.inception import Inception  # noqa: PLC0415

    return Inception(dropout=dropout, channels=image_shape[2], num_classes=num_classes, **options, rngs=rngs)


@NETWORKS.register(title="gated PixelCNN", source="Chen et al. 2016, section 4.3", task="density", lanes_on_cpu="map")
def pixelcnn(
    *,
    layers: int = 15,
    width: int = 128,
    first_kernel: int = 7,
    kernel: int = 3,
    head: int = 1024,
    dtype: str = "float32",
    image_shape: tuple[int, int, int],
    levels: int,
    rngs: Rngs,
) -> Module:
    """The distribution of an image, pixel by pixel and colour by colour: a `sgdlab.networks.PixelCNN`.

    Args:
      layers: number of gated layers.
      width: number of features of each of the two stacks; at least the number of colours.
      first_kernel: height and width of the first layer's receptive field, odd.
      kernel: height and width of the other layers', odd.
      head: number of features between the last layer and the logits; at least the number of colours.
      dtype: dtype of the computation, float32 or bfloat16; parameters and logits are float32.

    Returns:
      The network, from levels int[B, H, W, C] to logits [B, H, W, C, levels].

    Example:
      >>> from flax import nnx
      >>> make = lambda: pixelcnn(image_shape=(32, 32, 3), levels=256, rngs=nnx.Rngs(0))
      >>> len(nnx.eval_shape(make).layers)
      15
    """
    arguments.one_of("dtype", dtype, DTYPES)
    from sgdlab.networks.pixelcnn import PixelCNN  # noqa: PLC0415

    sizes = {"layers": layers, "width": width, "first_kernel": first_kernel, "kernel": kernel, "head": head}
    return PixelCNN(image_shape[2], levels, **sizes, dtype=dtype, rngs=rngs)


@NETWORKS.register(title="Transformer-XL", source="Dai et al. 2019", task="language", lanes="map")
def transformer_xl(  # noqa: PLR0913 (its entries are the sizes of the published model)
    *,
    layers: int = 16,
    width: int = 410,
    heads: int = 10,
    head_width: int = 41,
    inner: int = 2100,
    memory: int = 150,
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    cutoffs: tuple[int, ...] = (),
    room: int | None = None,
    checkpoint: bool = False,
    dtype: str = "float32",
    vocabulary: int,
    rngs: Rngs,
) -> Module:
    """A Transformer that remembers the segment before: a `sgdlab.networks.TransformerXL`.

    Args:
      layers: number of layers.
      width: of the embeddings and the layers, even.
      heads: number of attention heads.
      head_width: of queries, keys and values in a head.
      inner: width between the two fully connected layers.
      memory: tokens of the past that every layer remembers.
      dropout: probability with which an activation is set to zero in training.
      attention_dropout: probability with which a weight of the attention is set to zero in training.
      cutoffs: where clusters of the adaptive softmax begin, such as (20000, 40000, 200000) for WikiText-103; () for
        the full softmax.
      room: most targets of a cluster that are handled at once, a matter of memory; None for an eighth of all targets.
      checkpoint: whether a gradient computes the inside of each layer a second time instead of storing it.
      dtype: dtype of the computation, float32 or bfloat16; parameters and likelihoods are float32.

    Returns:
      The network, `(tokens, targets, memory, key) -> (nll, memory)`.

    Example:
      >>> from flax import nnx
      >>> make = lambda: transformer_xl(layers=2, vocabulary=256, rngs=nnx.Rngs(0))
      >>> nnx.eval_shape(make).softmax.embedding.shape
      (256, 410)
    """
    arguments.one_of("dtype", dtype, DTYPES)
    from sgdlab.networks.transformer_xl import TransformerXL  # noqa: PLC0415

    sizes = {"layers": layers, "width": width, "heads": heads, "head_width": head_width, "inner": inner}
    rates = {"dropout": dropout, "attention_dropout": attention_dropout}
    output = {"cutoffs": cutoffs, "room": room, "checkpoint": checkpoint, "dtype": dtype}
    return TransformerXL(vocabulary, **sizes, memory=memory, **rates, **output, rngs=rngs)


def _widths(name: str, values: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(arguments.whole(name, value) for value in values)
    except ValueError as error:
        raise ValueError(f"{name}={tuple(values)} must be whole numbers of at least 1") from error


def _options(batch_norm_momentum: float, dtype: str) -> dict[str, Any]:
    """Arguments that the networks with BatchNorm have in common, checked."""
    arguments.real("batch_norm_momentum", batch_norm_momentum, least=0, below=1)
    arguments.one_of("dtype", dtype, DTYPES)
    return {"batch_norm_momentum": batch_norm_momentum, "dtype": dtype}
