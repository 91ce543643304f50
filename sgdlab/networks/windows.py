"""Windows of images: padding in pixels, and the shifted slices of which pooling and one form of convolution consist."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

Padding = str | int | Sequence[tuple[int, int]]
"""SAME, VALID, a number of pixels on each side, or the pixels ((above, below), (left, right))."""
Pair = tuple[int, int]


def pair(value: int | Sequence[int]) -> Pair:
    """(v, v) of a number v; of two numbers, for height and width, a tuple."""
    first, second = (value, value) if isinstance(value, int) else value
    return first, second


def pixels(shape: Sequence[int], size: Pair, stride: Pair, padding: Padding) -> tuple[Pair, Pair]:
    """Padding in pixels.

    At stride 2, SAME pads an even length by (0, 1) for a window of 3: the networks that were published for PyTorch pad
    by (1, 1), which gives other numbers.

    Args:
      shape: height and width of the images.
      size: height and width of the windows.
      stride: distance of neighbouring windows.
      padding: see `Padding`.

    Returns:
      ((above, below), (left, right)).

    Raises:
      ValueError: if `padding` is none of these.

    Example:
      >>> pixels((8, 8), (3, 3), (2, 2), "SAME"), pixels((8, 8), (3, 3), (2, 2), 1)
      (((0, 1), (0, 1)), ((1, 1), (1, 1)))
    """
    if isinstance(padding, str):
        if padding == "VALID":
            return (0, 0), (0, 0)
        if padding != "SAME":
            raise ValueError(
                f"padding={padding!r} must be SAME, VALID, a number of pixels or two pairs of such numbers"
            )
        totals = (
            max((-(-length // step) - 1) * step + window - length, 0)
            for length, window, step in zip(shape, size, stride, strict=True)
        )
        above, left = ((total // 2, total - total // 2) for total in totals)
        return above, left
    if isinstance(padding, int):
        return (padding, padding), (padding, padding)
    above, left = map(pair, padding)
    return above, left


def shifted(
    images: jax.Array, size: Pair, stride: Pair, padding: tuple[Pair, Pair], fill: float = 0.0
) -> list[jax.Array]:
    """The images, shifted to each position of a window.

    Args:
      images: [B, H, W, C].
      size: height and width of the windows, kh and kw.
      stride: distance of neighbouring windows.
      padding: in pixels.
      fill: value of the padding.

    Returns:
      kh kw arrays [B, H', W', C]: at index r kw + c, the pixels in row r and column c of every window.

    Example:
      >>> import jax.numpy as jnp
      >>> [s.ravel().tolist() for s in shifted(jnp.arange(4.0).reshape(1, 1, 4, 1), (1, 2), (1, 2), ((0, 0), (0, 0)))]
      [[0.0, 2.0], [1.0, 3.0]]
    """
    if padding != ((0, 0), (0, 0)):
        images = jnp.pad(images, ((0, 0), *padding, (0, 0)), constant_values=fill)
    spans = [
        (length - window) // step * step + 1
        for length, window, step in zip(images.shape[1:3], size, stride, strict=True)
    ]
    return [
        images[:, row : row + spans[0] : stride[0], column : column + spans[1] : stride[1]]
        for row in range(size[0])
        for column in range(size[1])
    ]
