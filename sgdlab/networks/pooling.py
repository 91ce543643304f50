"""Maximum and mean over windows of images, written with shifted slices."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from sgdlab.networks.windows import Padding, pair, pixels, shifted


def max_pool(
    images: jax.Array, size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding: Padding = "VALID"
) -> jax.Array:
    """The maximum of each window, as the maximum of shifted slices.

    On a CPU its gradient takes a third of the time of that of `flax.nnx.max_pool`. Where values of a window are equal,
    the gradient is shared among them.

    Args:
      images: [B, H, W, C].
      size: height and width of the windows.
      stride: distance of neighbouring windows; by default their size.
      padding: SAME, VALID, or pixels; padding is never the maximum.

    Returns:
      [B, H', W', C].

    Example:
      >>> import jax.numpy as jnp
      >>> max_pool(jnp.arange(16.0).reshape(1, 4, 4, 1), 2).squeeze()
      Array([[ 5.,  7.],
             [13., 15.]], dtype=float32)
    """
    return functools.reduce(jnp.maximum, _windows(images, size, stride, padding, -jnp.inf))


def mean_pool(
    images: jax.Array, size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding: Padding = "VALID"
) -> jax.Array:
    """The mean of each window, in which padding counts as zeros.

    Args:
      images: [B, H, W, C].
      size: height and width of the windows.
      stride: distance of neighbouring windows; by default their size.
      padding: SAME, VALID, or pixels.

    Returns:
      [B, H', W', C].

    Example:
      >>> import jax.numpy as jnp
      >>> mean_pool(jnp.arange(16.0).reshape(1, 4, 4, 1), 2).squeeze()
      Array([[ 2.5,  4.5],
             [10.5, 12.5]], dtype=float32)
    """
    slices = _windows(images, size, stride, padding, 0.0)
    return functools.reduce(jnp.add, slices) / len(slices)


def _windows(
    images: jax.Array,
    size: int | Sequence[int],
    stride: int | Sequence[int] | None,
    padding: Padding,
    fill: float,
) -> list[jax.Array]:
    window = pair(size)
    step = window if stride is None else pair(stride)
    return shifted(images, window, step, pixels(images.shape[1:3], window, step, padding), fill)
