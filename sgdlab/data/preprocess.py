"""Prepares pixels for a network: scaling, augmentation and normalisation."""

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import jax


@dataclasses.dataclass(frozen=True)
class Preprocess:
    r"""Turns pixels into the inputs of a network, inside the compiled loop.

    .. math:: x = (\mathrm{augment}(p / \mathrm{white}) - \mathrm{mean}) / \mathrm{std}

    Integers p are divided by `white` in float32, exactly as NumPy divides them; floating pixels are not divided, and
    keep their dtype. Augmentation sees images from 0 (black) to 1 (white). Instances are hashable: one is a static
    setting of a compiled program, and equal ones share it.

    Attributes:
      mean: of each channel, in units of white; None subtracts nothing.
      std: of each channel, in units of white; None divides by nothing.
      augment: `(key, images floating[B, H, W, C]) -> images` of the same shape and dtype, such as those of
        `sgdlab.data.augment`; None for none. It must be hashable, and compare equal to one that does the same.

    Raises:
      ValueError: if a mean or a standard deviation is not finite, a standard deviation is not above 0, or their
        numbers of channels differ.

    Example:
      >>> pixels = np.array([[[[0], [255]]]], np.uint8)
      >>> Preprocess(mean=(0.5,), std=(0.5,)).test(pixels, white=255).ravel()
      Array([-1.,  1.], dtype=float32)
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    augment: "Callable[[jax.Array, jax.Array], jax.Array] | None" = None

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            values = getattr(self, name)
            if values is None:
                continue
            sound = isinstance(values, tuple) and values and all(_is_finite(value) for value in values)
            if not sound or (name == "std" and min(values) <= 0):
                bounds = " above 0" if name == "std" else ""
                raise ValueError(f"{name}={values!r} must be None, or a tuple of finite numbers{bounds}, one a channel")
        if self.mean and self.std and len(self.mean) != len(self.std):
            raise ValueError(f"std={self.std!r} must have as many channels as mean, {len(self.mean)}")

    def train(self, pixels: "jax.Array", white: int, key: "jax.Array | None") -> "jax.Array":
        """The inputs to train on; traced.

        Args:
          pixels: uint8[B, H, W, C] from 0 to `white`, or floating.
          white: the value of a white pixel, by which integers are divided; static.
          key: of the augmentation; not used where there is none.

        Returns:
          float32[B, H, W, C], or of the dtype of floating pixels.

        Raises:
          ValueError: if there is an augmentation and no key.
        """
        images = scaled(pixels, white)
        if self.augment is not None:
            if key is None:
                raise ValueError("key=None must be a key: training images are augmented")
            images = self.augment(key, images)
        return self._normalised(images)

    def test(self, pixels: "jax.Array", white: int) -> "jax.Array":
        """The inputs to evaluate on, without augmentation; traced.

        Args:
          pixels: uint8[B, H, W, C] from 0 to `white`, or floating.
          white: the value of a white pixel, by which integers are divided; static.

        Returns:
          float32[B, H, W, C], or of the dtype of floating pixels.
        """
        return self._normalised(scaled(pixels, white))

    def _normalised(self, images: "jax.Array") -> "jax.Array":
        if self.mean is not None:
            images = images - np.asarray(self.mean, images.dtype)
        return images if self.std is None else images / np.asarray(self.std, images.dtype)


def scaled(pixels: "jax.Array", white: int) -> "jax.Array":
    """Pixels in units of white; traced.

    Args:
      pixels: uint8[...] from 0 to `white`, or floating.
      white: the value of a white pixel; static.

    Returns:
      float32[...] from 0 to 1, bit for bit `pixels.astype(np.float32) / white`; floating pixels as they are.

    Example:
      >>> scaled(np.array([0, 4, 16], np.uint8), white=16)
      Array([0.  , 0.25, 1.  ], dtype=float32)
    """
    # Not at the top: data sets are registered by processes that need no JAX.
    import jax.numpy as jnp  # noqa: PLC0415

    if jnp.issubdtype(pixels.dtype, jnp.floating):
        return jnp.asarray(pixels)
    # A table, since XLA replaces the division by a product with the reciprocal, which rounds differently.
    return jnp.asarray(np.arange(white + 1, dtype=np.float32) / np.float32(white))[jnp.asarray(pixels)]


def _is_finite(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
