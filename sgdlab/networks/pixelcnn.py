"""`PixelCNN`: the distribution of an image, pixel by pixel and colour by colour, by gated convolutions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from sgdlab import arguments
from sgdlab.networks.convolution import Convolution


class PixelCNN(nnx.Module):
    r"""Gated PixelCNN: logits of every colour of every pixel, given all pixels above and to the left of it.

    .. math:: p(x) = \prod_d p(x_d \mid x_{<d}), \qquad d = (\text{row}, \text{column}, \text{colour}).

    A vertical stack sees the rows above, without a blind spot; a horizontal stack sees the pixels to the left in the
    same row, the vertical stack, and the earlier colours of the pixel itself. Both have gates,
    :math:`\tanh(a) \odot \sigma(b)`. The features are divided into as many groups as there are colours, and products
    within a pixel are masked, so that group c depends on the colours before c (after the first layer) alone.

    Args:
      channels: C, number of colours.
      levels: number of values of a colour.
      layers: number of gated layers.
      width: number of features of each stack; at least C.
      first_kernel: height and width of the first layer's receptive field, odd.
      kernel: height and width of the others', odd.
      head: number of features between the last layer and the logits; at least C.
      dtype: of the activations; None for `param_dtype`. Logits have `param_dtype`.
      param_dtype: dtype of the parameters.
      rngs: random streams; uses `params`.

    Raises:
      ValueError: if an argument is out of its range.

    Source: van den Oord et al. 2016b, section 2 and figure 2. Chen et al. 2016 (A.4) give no sizes: the defaults are
    those of the PixelCNN for CIFAR-10 in van den Oord et al. 2016a (table 1), 5,856,128 parameters here.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from flax import nnx
      >>> images = jnp.array([[[[0], [2]], [[1], [1]]]])
      >>> jax.eval_shape(lambda: PixelCNN(1, 3, layers=2, width=4, head=8, rngs=nnx.Rngs(0))(images)).shape
      (1, 2, 2, 1, 3)
    """

    def __init__(
        self,
        channels: int,
        levels: int,
        *,
        layers: int = 15,
        width: int = 128,
        first_kernel: int = 7,
        kernel: int = 3,
        head: int = 1024,
        dtype: str | jnp.dtype | None = None,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        arguments.whole("channels", channels)
        arguments.whole("levels", levels, least=2)
        arguments.whole("layers", layers)
        for name, features in (("width", width), ("head", head)):
            arguments.whole(name, features, least=channels, why="a group of features for each colour")
        for name, size in (("first_kernel", first_kernel), ("kernel", kernel)):
            if arguments.whole(name, size, least=3) % 2 == 0:
                raise ValueError(f"{name}={size} must be odd, so that a pixel is in the middle of what it sees")
        self.channels, self.levels = channels, levels
        self.dtype = jnp.dtype(param_dtype if dtype is None else dtype)
        options: dict[str, Any] = {"dtype": self.dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.layers = nnx.List(
            _Layer(
                width if number else channels, width, kernel if number else first_kernel, channels, number, **options
            )
            for number in range(layers)
        )
        self.hidden = _MaskedLinear(width, head, channels, **options)
        self.logits = _MaskedLinear(head, channels * levels, channels, output_dtype=param_dtype, **options)

    def __call__(self, levels: jax.Array) -> jax.Array:
        """Maps int[B, H, W, C], each from 0 to `levels` - 1, to logits [B, H, W, C, levels]."""
        vertical = horizontal = levels.astype(self.dtype) * (2 / (self.levels - 1)) - 1
        for layer in self.layers:
            vertical, horizontal = layer(vertical, horizontal)
        logits = self.logits(nnx.relu(self.hidden(nnx.relu(horizontal))))
        return logits.reshape(*levels.shape, self.levels)


class _Layer(nnx.Module):
    """A gated layer of the vertical and the horizontal stack, (vertical, horizontal) -> (vertical, horizontal)."""

    def __init__(
        self,
        in_features: int,
        width: int,
        kernel: int,
        channels: int,
        number: int,
        *,
        dtype: jnp.dtype,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        options: dict[str, Any] = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        half = kernel // 2
        self.above = Convolution(
            in_features, 2 * width, kernel_size=(half + 1, kernel), padding=((half, 0), (half, half)), **options
        )
        self.across = Convolution(2 * width, 2 * width, kernel_size=1, **options)
        self.left = Convolution(
            in_features, 2 * width, kernel_size=(1, half), padding="VALID", use_bias=False, **options
        )
        # The first layer reads the colours themselves, the others features that have seen the colours before theirs.
        self.here = _MaskedLinear(in_features, 2 * width, channels, strict=not number, gated=True, **options)
        self.output = _MaskedLinear(width, width, channels, **options)
        self.half, self.is_residual = half, bool(number)

    def __call__(self, vertical: jax.Array, horizontal: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Maps [B, H, W, features] each to [B, H, W, width] each."""
        above = self.above(vertical)  # a row sees itself and the rows above
        before = jnp.pad(above, ((0, 0), (1, 0), (0, 0), (0, 0)))[:, :-1]  # a row sees the rows above alone
        left = self.left(jnp.pad(horizontal, ((0, 0), (0, 0), (self.half, 0), (0, 0)))[:, :, :-1])
        outputs = self.output(_gated(left + self.here(horizontal) + self.across(before)))
        return _gated(above), outputs + horizontal if self.is_residual else outputs


class _MaskedLinear(nnx.Module):
    """A linear layer within each pixel, in which a group of features sees earlier groups, and its own unless strict."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        channels: int,
        *,
        strict: bool = False,
        gated: bool = False,
        output_dtype: jnp.dtype | None = None,
        dtype: jnp.dtype,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        self.kernel = nnx.Param(nnx.initializers.he_normal()(rngs.params(), (in_features, out_features), param_dtype))
        self.bias = nnx.Param(jnp.zeros((out_features,), param_dtype))
        self.mask: Any = (channels, strict, gated)  # made at each call: an array would be one of the module's variables
        self.dtype, self.output_dtype = dtype, jnp.dtype(dtype if output_dtype is None else output_dtype)

    def __call__(self, features: jax.Array) -> jax.Array:
        # pyrefly: ignore[bad-argument-type]  # two of a shape, three of the mask
        kernel = jnp.where(_mask(*self.kernel.shape, *self.mask), self.kernel[...], 0).astype(self.dtype)
        products = jnp.matmul(features, kernel, preferred_element_type=self.output_dtype)
        return products + self.bias[...].astype(self.output_dtype)


def _mask(in_features: int, out_features: int, channels: int, strict: bool, gated: bool) -> np.ndarray:
    """bool[in, out]: whether an output may see an input of the same pixel."""
    inputs = _groups(in_features, channels)
    # The two halves that a gate multiplies have the same groups.
    outputs = np.tile(_groups(out_features // 2, channels), 2) if gated else _groups(out_features, channels)
    return inputs[:, None] < outputs if strict else inputs[:, None] <= outputs


def _groups(features: int, channels: int) -> np.ndarray:
    """The colour that each feature belongs to, in order and in nearly equal numbers."""
    return np.arange(features) * channels // features


def _gated(features: jax.Array) -> jax.Array:
    values, gates = jnp.split(features, 2, axis=-1)
    return jnp.tanh(values) * jax.nn.sigmoid(gates)
