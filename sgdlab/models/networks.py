"""The parts `conv` and `mlp` of the family `network`; Flax is imported when one is called."""

import math
from collections.abc import Sequence
from typing import Any

from sgdlab import arguments
from sgdlab.registry import NETWORKS

Rngs = Any
"""An `nnx.Rngs`."""
Module = Any
"""An `nnx.Module` that maps images [B, H, W, C] to logits [B, classes]."""


@NETWORKS.register(title="convolutional net")
def conv(
    *,
    channels: tuple[int, ...] = (32, 64),
    batch_norm: bool = False,
    image_shape: tuple[int, int, int],
    num_classes: int,
    rngs: Rngs,
) -> Module:
    """Two 3x3 convolutions and a linear layer: a `sgdlab.models.ConvNet`.

    Args:
      channels: output channels of the two convolutions.
      batch_norm: whether BatchNorm is applied before each ReLU.
      image_shape: height, width and channels of the images.
      num_classes: number of classes.
      rngs: random streams; uses `params`.

    Returns:
      The network.

    Raises:
      ValueError: if `channels` is not two whole numbers of at least 1.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> net = conv(channels=(4, 8), image_shape=(6, 4, 3), num_classes=5, rngs=nnx.Rngs(0))
      >>> net(jnp.ones([2, 6, 4, 3])).shape
      (2, 5)
    """
    if len(channels) != 2:
        raise ValueError(f"channels={tuple(channels)} must be two whole numbers, those of the two convolutions")
    first, second = _widths("channels", channels)
    # Not at the top: Flax takes a second to import, and the part is registered in every process.
    from sgdlab.models.modules import ConvNet  # noqa: PLC0415

    return ConvNet(
        (first, second), image_shape=image_shape, num_classes=num_classes, batch_norm=bool(batch_norm), rngs=rngs
    )


@NETWORKS.register(title="multilayer perceptron")
def mlp(
    *, widths: tuple[int, ...] = (32, 64), image_shape: tuple[int, int, int], num_classes: int, rngs: Rngs
) -> Module:
    """A multilayer perceptron on the pixels: a `sgdlab.models.MLP`.

    Args:
      widths: widths of the hidden layers.
      image_shape: height, width and channels of the images.
      num_classes: number of classes.
      rngs: random streams; uses `params`.

    Returns:
      The network.

    Raises:
      ValueError: if a width is not a whole number of at least 1.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> mlp(widths=(8,), image_shape=(6, 4, 3), num_classes=5, rngs=nnx.Rngs(0))(jnp.ones([2, 6, 4, 3])).shape
      (2, 5)
    """
    from sgdlab.models.modules import MLP  # noqa: PLC0415 (as above)

    return MLP((math.prod(image_shape), *_widths("widths", widths), num_classes), rngs=rngs)


def _widths(name: str, values: Sequence[int]) -> list[int]:
    try:
        return [arguments.whole(name, value) for value in values]
    except ValueError as error:
        raise ValueError(f"{name}={tuple(values)} must be whole numbers of at least 1") from error
