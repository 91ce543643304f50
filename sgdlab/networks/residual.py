"""Residual networks: `CifarResNet` for small images, `WideResNet`, and `ResNet` for ImageNet, and its small stem."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from sgdlab import arguments
from sgdlab.networks.convolution import Convolution
from sgdlab.networks.normalization import BATCH_NORM_MOMENTUM, batch_norm
from sgdlab.networks.windows import max_pool


class CifarResNet(nnx.Module):
    """A residual network of three stages with 16, 32 and 64 channels, of n blocks each; depth = 6 n + 2.

    A 3x3 convolution, 3 n blocks of two 3x3 convolutions, the mean over all positions, and a linear layer. The second
    and third stage begin with stride 2. Shortcuts have no parameters: where the shape changes, they are strided and
    padded with channels of zeros (the source's option A). ResNet-20 has 269,722 parameters for 10 classes.

    Args:
      depth: number of layers with weights, 6 n + 2: 20, 32, 44, 56 or 110 in the source.
      channels: channels of the images.
      num_classes: number of classes.
      batch_norm_momentum: m of BatchNorm's running statistics.
      dtype: dtype of the computation; None for `param_dtype`. Statistics and logits have at least float32.
      param_dtype: dtype of the parameters and of BatchNorm's statistics.
      rngs: random streams; uses `params`.

    Raises:
      ValueError: if `depth` is not 6 n + 2.

    Source:
      He et al. 2016, "Deep residual learning for image recognition", section 4.2.

    Example:
      >>> network = nnx.eval_shape(lambda: CifarResNet(20, rngs=nnx.Rngs(0)))
      >>> sum(leaf.size for leaf in jax.tree.leaves(nnx.state(network, nnx.Param)))
      269722
    """

    def __init__(
        self,
        depth: int = 20,
        *,
        channels: int = 3,
        num_classes: int = 10,
        batch_norm_momentum: float = BATCH_NORM_MOMENTUM,
        dtype: jnp.dtype | None = None,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        if arguments.whole("depth", depth) % 6 != 2 or depth < 8:
            raise ValueError(f"depth={depth!r} must be 6 n + 2, such as 8, 14 or 20")
        options = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.stem = _convolution(channels, 16, 3, 1, options)
        self.norm = batch_norm(16, momentum=batch_norm_momentum, **options)
        self.blocks = nnx.List(
            _CifarBlock(*shape, momentum=batch_norm_momentum, **options)
            for shape in _shapes(16, (16, 32, 64), 3 * [(depth - 2) // 6])
        )
        init = nnx.initializers.he_normal()
        self.head = nnx.Linear(64, num_classes, kernel_init=init, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to logits [B, classes]."""
        hidden = nnx.relu(self.norm(self.stem(images)))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden.mean((1, 2), dtype=self.head.param_dtype))


class _CifarBlock(nnx.Module):
    """Two convolutions, each with BatchNorm, and a shortcut without parameters."""

    def __init__(self, before: int, width: int, stride: int, *, momentum: float, **options):
        self.convolutions = nnx.List(
            [_convolution(before, width, 3, stride, options), _convolution(width, width, 3, 1, options)]
        )
        self.norms = nnx.List([batch_norm(width, momentum=momentum, **options) for _ in range(2)])
        self.stride, self.more = stride, width - before

    def __call__(self, images: jax.Array) -> jax.Array:
        hidden = nnx.relu(self.norms[0](self.convolutions[0](images)))
        hidden = self.norms[1](self.convolutions[1](hidden))
        shortcut = images[:, :: self.stride, :: self.stride]
        first = self.more // 2
        return nnx.relu(hidden + jnp.pad(shortcut, ((0, 0), (0, 0), (0, 0), (first, self.more - first))))


class WideResNet(nnx.Module):
    """A residual network of three stages with 16 k, 32 k and 64 k channels, of n blocks each; depth = 6 n + 4.

    A 3x3 convolution of 16 channels, 3 n blocks, BatchNorm, ReLU, the mean over all positions, and a linear layer. In a
    block, BatchNorm and ReLU precede each of its two 3x3 convolutions, and dropout the second one. A shortcut whose
    shape changes is a 1x1 convolution of what the first ReLU gives. The second and third stage begin with stride 2.
    WRN-16-4 has 2,748,890 parameters for 10 classes, and 2,772,020 for 100.

    Args:
      depth: number of layers with weights, 6 n + 4.
      widen: k.
      dropout: probability with which a value before the second convolution of a block is set to zero in training.
      channels: channels of the images.
      num_classes: number of classes.
      batch_norm_momentum: m of BatchNorm's running statistics.
      dtype: dtype of the computation; None for `param_dtype`. Statistics and logits have at least float32.
      param_dtype: dtype of the parameters and of BatchNorm's statistics.
      rngs: random streams; uses `params`.

    Raises:
      ValueError: if `depth` is not 6 n + 4, or `widen` not a whole number of at least 1.

    Source:
      Zagoruyko and Komodakis 2016, "Wide residual networks", table 1.

    Example:
      >>> network = nnx.eval_shape(lambda: WideResNet(16, 4, rngs=nnx.Rngs(0)))
      >>> sum(leaf.size for leaf in jax.tree.leaves(nnx.state(network, nnx.Param)))
      2748890
    """

    def __init__(
        self,
        depth: int = 16,
        widen: int = 4,
        *,
        dropout: float = 0.0,
        channels: int = 3,
        num_classes: int = 10,
        batch_norm_momentum: float = BATCH_NORM_MOMENTUM,
        dtype: jnp.dtype | None = None,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        if arguments.whole("depth", depth) % 6 != 4 or depth < 10:
            raise ValueError(f"depth={depth!r} must be 6 n + 4, such as 10, 16 or 22")
        arguments.whole("widen", widen)
        options = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.stem = _convolution(channels, 16, 3, 1, options)
        widths = (16 * widen, 32 * widen, 64 * widen)
        self.blocks = nnx.List(
            _WideBlock(*shape, dropout, momentum=batch_norm_momentum, **options)
            for shape in _shapes(16, widths, 3 * [(depth - 4) // 6])
        )
        self.norm = batch_norm(widths[-1], momentum=batch_norm_momentum, **options)
        init = nnx.initializers.he_normal()
        self.head = nnx.Linear(widths[-1], num_classes, kernel_init=init, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, images: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Maps [B, H, W, C] to logits [B, classes]; with a key, dropout is applied."""
        hidden = self.stem(images)
        for number, block in enumerate(self.blocks):
            hidden = block(hidden, None if key is None else jax.random.fold_in(key, number))
        return self.head(nnx.relu(self.norm(hidden)).mean((1, 2), dtype=self.head.param_dtype))


class _WideBlock(nnx.Module):
    """BatchNorm, ReLU and convolution, twice, and a shortcut."""

    def __init__(self, before: int, width: int, stride: int, dropout: float, *, momentum: float, **options):
        self.norms = nnx.List([batch_norm(features, momentum=momentum, **options) for features in (before, width)])
        self.convolutions = nnx.List(
            [_convolution(before, width, 3, stride, options), _convolution(width, width, 3, 1, options)]
        )
        self.dropout = nnx.Dropout(dropout)
        changes = stride != 1 or before != width
        self.shortcut = _convolution(before, width, 1, stride, options) if changes else None

    def __call__(self, images: jax.Array, key: jax.Array | None) -> jax.Array:
        active = nnx.relu(self.norms[0](images))
        hidden = nnx.relu(self.norms[1](self.convolutions[0](active)))
        hidden = self.dropout(hidden, rngs=key, deterministic=key is None)
        return self.convolutions[1](hidden) + (images if self.shortcut is None else self.shortcut(active))


class ResNet(nnx.Module):
    """A residual network of four stages with widths 64, 128, 256 and 512.

    A stem, the blocks, the mean over all positions, and a linear layer. A block has two 3x3 convolutions, or, with a
    bottleneck, a 1x1, a 3x3 and a 1x1 convolution, of which the last has four times the width; BatchNorm follows each.
    Stages two to four begin with stride 2, in the 3x3 convolution of a bottleneck, as in PyTorch (torchvision), whose
    symmetric padding is used too. Where a shortcut changes its shape, it is a 1x1 convolution with BatchNorm.

    | | `blocks` | `bottleneck` | parameters, 1000 classes | with the stem `cifar`, 10 classes |
    |---|---|---|---|---|
    | ResNet-18 | (2, 2, 2, 2) | False | 11,689,512 | 11,173,962 |
    | ResNet-50 | (3, 4, 6, 3) | True | 25,557,032 | 23,520,842 |

    Args:
      blocks: number of blocks in each stage.
      bottleneck: whether blocks have a bottleneck.
      stem: `imagenet`, a 7x7 convolution and 3x3 max-pooling, each of stride 2; `cifar`, a 3x3 convolution of stride 1.
      zero_last_scale: whether the last BatchNorm of each block begins with scale zero (Goyal et al. 2017, section 5.1).
      channels: channels of the images.
      num_classes: number of classes.
      batch_norm_momentum: m of BatchNorm's running statistics.
      dtype: dtype of the computation; None for `param_dtype`. Statistics and logits have at least float32.
      param_dtype: dtype of the parameters and of BatchNorm's statistics.
      rngs: random streams; uses `params`.

    Raises:
      ValueError: if `stem` is neither.

    Source:
      He et al. 2016, "Deep residual learning for image recognition", table 1.

    Example:
      >>> network = nnx.eval_shape(lambda: ResNet((2, 2, 2, 2), bottleneck=False, rngs=nnx.Rngs(0)))
      >>> sum(leaf.size for leaf in jax.tree.leaves(nnx.state(network, nnx.Param)))
      11689512
    """

    def __init__(
        self,
        blocks: Sequence[int] = (3, 4, 6, 3),
        *,
        bottleneck: bool = True,
        stem: str = "imagenet",
        zero_last_scale: bool = False,
        channels: int = 3,
        num_classes: int = 1000,
        batch_norm_momentum: float = BATCH_NORM_MOMENTUM,
        dtype: jnp.dtype | None = None,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        arguments.one_of("stem", stem, ("imagenet", "cifar"))
        options = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        size, stride = (7, 2) if stem == "imagenet" else (3, 1)
        self.pooled = stem == "imagenet"
        self.stem = _convolution(channels, 64, size, stride, options)
        self.norm = batch_norm(64, momentum=batch_norm_momentum, **options)
        own = {"bottleneck": bottleneck, "zero_last_scale": zero_last_scale, "momentum": batch_norm_momentum}
        widths, wider = [64 << stage for stage in range(len(blocks))], 4 if bottleneck else 1
        self.blocks = nnx.List(_Block(*shape, **own, **options) for shape in _shapes(64, widths, blocks, wider))
        init = nnx.initializers.normal(0.01)  # as Goyal et al. 2017, section 5.1
        features = wider * widths[-1]
        self.head = nnx.Linear(features, num_classes, kernel_init=init, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to logits [B, classes]."""
        hidden = nnx.relu(self.norm(self.stem(images)))
        if self.pooled:
            hidden = max_pool(hidden, 3, 2, padding=1)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden.mean((1, 2), dtype=self.head.param_dtype))


class _Block(nnx.Module):
    """Convolutions, each with BatchNorm, and a shortcut."""

    def __init__(
        self,
        before: int,
        width: int,
        stride: int,
        *,
        bottleneck: bool,
        zero_last_scale: bool,
        momentum: float,
        **options,
    ):
        self.features = 4 * width if bottleneck else width
        # Output channels, size and stride of each convolution.
        layers = [(width, 3, stride), (width, 3, 1)]
        if bottleneck:
            layers = [(width, 1, 1), (width, 3, stride), (self.features, 1, 1)]
        convolutions, norms, inputs = [], [], before
        for number, (outputs, size, step) in enumerate(layers):
            convolutions.append(_convolution(inputs, outputs, size, step, options))
            zero = zero_last_scale and number == len(layers) - 1
            norms.append(batch_norm(outputs, momentum=momentum, zero_scale=zero, **options))
            inputs = outputs
        self.convolutions, self.norms = nnx.List(convolutions), nnx.List(norms)
        changes = stride != 1 or before != self.features
        self.shortcut: Any = _convolution(before, self.features, 1, stride, options) if changes else None
        self.shortcut_norm: Any = batch_norm(self.features, momentum=momentum, **options) if changes else None

    def __call__(self, images: jax.Array) -> jax.Array:
        hidden = images
        for number, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            hidden = norm(convolution(nnx.relu(hidden) if number else hidden))
        return nnx.relu(hidden + (images if self.shortcut is None else self.shortcut_norm(self.shortcut(images))))


def _convolution(before: int, width: int, size: int, stride: int, options: dict) -> Convolution:
    return Convolution(before, width, kernel_size=size, stride=stride, padding=size // 2, use_bias=False, **options)


def _shapes(
    before: int, widths: Sequence[int], numbers: Sequence[int], wider: int = 1
) -> Iterator[tuple[int, int, int]]:
    """Yield the channels before, the width and the stride of each block, whose outputs are so many times wider."""
    for stage, (width, number) in enumerate(zip(widths, numbers, strict=True)):
        for place in range(number):
            yield before, width, 2 if stage and not place else 1
            before = wider * width
