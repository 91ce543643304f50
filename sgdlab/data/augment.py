"""Augmentation inside the compiled loop: `crop_and_flip`, `rotate_and_zoom`, `flip`, `colour_noise`, `in_turn`.

Each is a hashable `(key, images floating[B, H, W, C]) -> images`, images from 0 (black) to 1 (white): what it does to
image b of a batch depends on the key and on b alone. With the key of a gradient derived from the gradient's number, an
augmented run can be replayed, and resumed, at any gradient.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import arguments

Augmentation = Callable[[jax.Array, jax.Array], jax.Array]

_EIGENVALUES = (0.2175, 0.0188, 0.0045)
_EIGENVECTORS = ((-0.5675, 0.7192, 0.4009), (-0.5808, -0.0045, -0.8140), (-0.5836, -0.6948, 0.4203))


@dataclasses.dataclass(frozen=True)
class crop_and_flip:  # noqa: N801 (used as a function is)
    """Crops of images that were padded with black, mirrored with probability 1/2.

    Every image is padded by `padding` pixels on each side; a window of its old size is cut out at a uniformly random
    position.

    Attributes:
      padding: pixels; 0 only mirrors.
      mirrored: whether images are mirrored.

    Raises:
      ValueError: if the padding is not a whole number of at least 0.

    Source: He, Zhang, Ren, Sun 2016 (Deep residual learning), section 4.2: padding 4 for CIFAR-10.

    Example:
      >>> images = np.ones((2, 4, 4, 1), np.float32)
      >>> crop_and_flip(padding=1)(jax.random.key(0), images).shape
      (2, 4, 4, 1)
    """

    padding: int = 4
    mirrored: bool = True

    def __post_init__(self) -> None:
        arguments.whole("padding", self.padding, least=0)

    def __call__(self, key: jax.Array, images: jax.Array) -> jax.Array:
        """Augments a batch; traced."""
        number, height, width, _ = images.shape
        corner, side = jax.random.split(key)
        first = jax.random.randint(corner, (number, 2), -self.padding, self.padding + 1, np.int32)
        rows, columns = first[:, :1] + np.arange(height), first[:, 1:] + np.arange(width)
        if self.mirrored:
            columns = jnp.where(_coins(side, number)[:, None], columns[:, ::-1], columns)
        # One gather; what lies outside of an image is black.
        chosen = jnp.asarray(images).at[np.arange(number)[:, None, None], rows[:, :, None], columns[:, None, :]]
        return chosen.get(mode="fill", fill_value=0, wrap_negative_indices=False)


@dataclasses.dataclass(frozen=True)
class rotate_and_zoom:  # noqa: N801 (used as a function is)
    r"""Small rotations about the centre and changes of scale, with bilinear interpolation; black comes in from outside.

    Angle and logarithm of the scale are drawn uniformly, the latter from [-log(1 + zoom), log(1 + zoom)].

    Attributes:
      degrees: largest angle in either direction, from 0 to 180.
      zoom: largest enlargement less 1; images are also reduced by as much. At least 0.

    Raises:
      ValueError: if an attribute is out of its range.

    Example:
      >>> images = np.ones((2, 4, 4, 1), np.float32)
      >>> bool((rotate_and_zoom(degrees=0.0, zoom=0.0)(jax.random.key(0), images) == images).all())
      True
    """

    degrees: float = 10.0
    zoom: float = 0.1

    def __post_init__(self) -> None:
        arguments.real("degrees", self.degrees, least=0, most=180)
        arguments.real("zoom", self.zoom, least=0)

    def __call__(self, key: jax.Array, images: jax.Array) -> jax.Array:
        """Augments a batch; traced."""
        images = jnp.asarray(images)
        number, height, width, _ = images.shape
        drawn = jax.random.uniform(key, (2, number, 1, 1), images.dtype, minval=-1, maxval=1)
        angle, scale = drawn[0] * math.radians(self.degrees), jnp.exp(-drawn[1] * math.log1p(self.zoom))
        middle_row, middle_column = (height - 1) / 2, (width - 1) / 2
        rows = (np.arange(height) - middle_row).astype(images.dtype)[:, None]
        columns = (np.arange(width) - middle_column).astype(images.dtype)
        cosine, sine = scale * jnp.cos(angle), scale * jnp.sin(angle)
        row, column = rows * cosine - columns * sine + middle_row, rows * sine + columns * cosine + middle_column
        top, left = jnp.floor(row), jnp.floor(column)
        below, right = (row - top)[..., None], (column - left)[..., None]
        first, second = top.astype(np.int32), left.astype(np.int32)

        def pixels(i: int, j: int) -> Any:
            chosen = images.at[np.arange(number)[:, None, None], first + i, second + j]
            return chosen.get(mode="fill", fill_value=0, wrap_negative_indices=False)

        upper = (1 - right) * pixels(0, 0) + right * pixels(0, 1)
        lower = (1 - right) * pixels(1, 0) + right * pixels(1, 1)
        return (1 - below) * upper + below * lower


@dataclasses.dataclass(frozen=True)
class flip:  # noqa: N801 (used as a function is)
    """Images mirrored left to right with probability 1/2.

    Example:
      >>> flip()(jax.random.key(0), np.ones((2, 4, 4, 1), np.float32)).shape
      (2, 4, 4, 1)
    """

    def __call__(self, key: jax.Array, images: jax.Array) -> jax.Array:
        """Augments a batch; traced."""
        return jnp.where(_coins(key, len(images))[:, None, None, None], images[:, :, ::-1], images)


@dataclasses.dataclass(frozen=True)
class colour_noise:  # noqa: N801 (used as a function is)
    r"""Adds one random colour to all pixels of an image, along the principal components of ImageNet's colours.

    .. math:: x \leftarrow x + \sum_{i=1}^{3} \alpha_i \lambda_i p_i, \quad \alpha_i \sim N(0, \mathrm{std}^2)

    The eigenvalues and eigenvectors are those of ImageNet's pixels from 0 to 1, as the Torch implementation of residual
    networks (fb.resnet.torch) gives them.

    Attributes:
      std: standard deviation of each alpha; 0 adds nothing.

    Raises:
      ValueError: if the standard deviation is not at least 0; when it is called, if the images are not in colour.

    Source: Krizhevsky, Sutskever, Hinton 2012, section 4.1: std 0.1. Jin et al. 2016 use it for ImageNet.

    Example:
      >>> images = np.ones((2, 4, 4, 3), np.float32)
      >>> bool((colour_noise(std=0.0)(jax.random.key(0), images) == images).all())
      True
    """

    std: float = 0.1

    def __post_init__(self) -> None:
        arguments.real("std", self.std, least=0)

    def __call__(self, key: jax.Array, images: jax.Array) -> jax.Array:
        """Augments a batch; traced."""
        if images.shape[-1] != 3:
            raise ValueError(f"images of shape {images.shape} must have three channels for noise in their colours")
        alphas = self.std * jax.random.normal(key, (len(images), 3), images.dtype)
        vectors = np.asarray(_EIGENVECTORS) * np.asarray(_EIGENVALUES)  # a column each
        # Sums written out: a matrix product may be computed in fewer bits, and differently in a larger batch.
        added: Any = sum(alphas[:, i, None] * vectors[:, i].astype(images.dtype) for i in range(3))
        return images + added[:, None, None, :]


@dataclasses.dataclass(frozen=True)
class in_turn:  # noqa: N801 (used as a function is)
    """Several augmentations, one after the other, each with a key of its own.

    Attributes:
      parts: the augmentations.

    Example:
      >>> in_turn((flip(), colour_noise()))(jax.random.key(0), np.ones((2, 4, 4, 3), np.float32)).shape
      (2, 4, 4, 3)
    """

    parts: tuple[Augmentation, ...]

    def __call__(self, key: jax.Array, images: jax.Array) -> jax.Array:
        """Augments a batch; traced."""
        for index, part in enumerate(self.parts):
            images = part(jax.random.fold_in(key, index), images)
        return images


def _coins(key: jax.Array, number: int) -> jax.Array:
    """bool[number]; with the type of the probability given, as in `randint`, double precision changes none of them."""
    return jax.random.bernoulli(key, np.float32(0.5), (number,))
