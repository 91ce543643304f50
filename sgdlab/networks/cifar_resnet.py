"""`CifarResNet`: the residual networks for images of 32 x 32 pixels, such as ResNet-20."""

import jax
import jax.numpy as jnp
from flax import nnx

from sgdlab import arguments
from sgdlab.networks.convolution import Convolution
from sgdlab.networks.normalization import BATCH_NORM_MOMENTUM, batch_norm

_WIDTHS = (16, 32, 64)


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
      >>> import jax
      >>> from flax import nnx
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
        self.stem = Convolution(channels, _WIDTHS[0], padding=1, use_bias=False, **options)
        self.norm = batch_norm(_WIDTHS[0], momentum=batch_norm_momentum, **options)
        blocks, before = [], _WIDTHS[0]
        for stage, width in enumerate(_WIDTHS):
            for number in range((depth - 2) // 6):
                stride = 2 if stage and not number else 1
                blocks.append(_Block(before, width, stride, momentum=batch_norm_momentum, **options))
                before = width
        self.blocks = nnx.List(blocks)
        init = nnx.initializers.he_normal()
        self.head = nnx.Linear(before, num_classes, kernel_init=init, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to logits [B, classes]."""
        hidden = nnx.relu(self.norm(self.stem(images)))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden.mean((1, 2), dtype=self.head.param_dtype))


class _Block(nnx.Module):
    """Two convolutions, each with BatchNorm, and a shortcut without parameters."""

    def __init__(self, before: int, width: int, stride: int, *, momentum: float, **options):
        self.convolutions = nnx.List(
            [
                Convolution(before, width, stride=stride, padding=1, use_bias=False, **options),
                Convolution(width, width, padding=1, use_bias=False, **options),
            ]
        )
        self.norms = nnx.List([batch_norm(width, momentum=momentum, **options) for _ in range(2)])
        self.stride, self.more = stride, width - before

    def __call__(self, images: jax.Array) -> jax.Array:
        hidden = nnx.relu(self.norms[0](self.convolutions[0](images)))
        hidden = self.norms[1](self.convolutions[1](hidden))
        shortcut = images[:, :: self.stride, :: self.stride]
        first = self.more // 2
        return nnx.relu(hidden + jnp.pad(shortcut, ((0, 0), (0, 0), (0, 0), (first, self.more - first))))
