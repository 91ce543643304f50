"""`ResNet`: the residual networks for ImageNet, such as ResNet-18 and ResNet-50, also with a stem for small images."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from sgdlab import arguments
from sgdlab.networks.convolution import Convolution
from sgdlab.networks.normalization import BATCH_NORM_MOMENTUM, batch_norm
from sgdlab.networks.pooling import max_pool


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
      >>> import jax
      >>> from flax import nnx
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
        self.stem = Convolution(
            channels, 64, kernel_size=size, stride=stride, padding=size // 2, use_bias=False, **options
        )
        self.norm = batch_norm(64, momentum=batch_norm_momentum, **options)
        layers, before = [], 64
        for stage, count in enumerate(blocks):
            for number in range(count):
                block = _Block(
                    before,
                    64 << stage,
                    2 if stage and not number else 1,
                    bottleneck=bottleneck,
                    zero_last_scale=zero_last_scale,
                    momentum=batch_norm_momentum,
                    **options,
                )
                layers.append(block)
                before = block.features
        self.blocks = nnx.List(layers)
        init = nnx.initializers.normal(0.01)  # as Goyal et al. 2017, section 5.1
        self.head = nnx.Linear(before, num_classes, kernel_init=init, param_dtype=param_dtype, rngs=rngs)

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
