"""`WideResNet`: wide residual networks, such as WRN-16-4."""

import jax
import jax.numpy as jnp
from flax import nnx

from sgdlab import arguments
from sgdlab.networks.convolution import Convolution
from sgdlab.networks.normalization import BATCH_NORM_MOMENTUM, batch_norm


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
      >>> import jax
      >>> from flax import nnx
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
        self.stem = Convolution(channels, 16, padding=1, use_bias=False, **options)
        blocks, before = [], 16
        for stage, width in enumerate((16 * widen, 32 * widen, 64 * widen)):
            for number in range((depth - 4) // 6):
                stride = 2 if stage and not number else 1
                blocks.append(_Block(before, width, stride, dropout, momentum=batch_norm_momentum, **options))
                before = width
        self.blocks = nnx.List(blocks)
        self.norm = batch_norm(before, momentum=batch_norm_momentum, **options)
        init = nnx.initializers.he_normal()
        self.head = nnx.Linear(before, num_classes, kernel_init=init, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, images: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Maps [B, H, W, C] to logits [B, classes]; with a key, dropout is applied."""
        hidden = self.stem(images)
        for number, block in enumerate(self.blocks):
            hidden = block(hidden, None if key is None else jax.random.fold_in(key, number))
        return self.head(nnx.relu(self.norm(hidden)).mean((1, 2), dtype=self.head.param_dtype))


class _Block(nnx.Module):
    """BatchNorm, ReLU and convolution, twice, and a shortcut."""

    def __init__(self, before: int, width: int, stride: int, dropout: float, *, momentum: float, **options):
        self.norms = nnx.List([batch_norm(features, momentum=momentum, **options) for features in (before, width)])
        self.convolutions = nnx.List(
            [
                Convolution(before, width, stride=stride, padding=1, use_bias=False, **options),
                Convolution(width, width, padding=1, use_bias=False, **options),
            ]
        )
        self.dropout = nnx.Dropout(dropout)
        changes = stride != 1 or before != width
        self.shortcut = (
            Convolution(before, width, kernel_size=1, stride=stride, padding=0, use_bias=False, **options)
            if changes
            else None
        )

    def __call__(self, images: jax.Array, key: jax.Array | None) -> jax.Array:
        active = nnx.relu(self.norms[0](images))
        hidden = nnx.relu(self.norms[1](self.convolutions[0](active)))
        hidden = self.dropout(hidden, rngs=key, deterministic=key is None)
        return self.convolutions[1](hidden) + (images if self.shortcut is None else self.shortcut(active))
