"""Two-dimensional convolution with one layout of the kernel and three forms of computing it, and its Flax module."""

import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax.custom_batching import custom_vmap

from sgdlab import arguments
from sgdlab.networks.windows import Padding, Pair, pair, pixels, shifted

FORMS = ("plain", "lax", "patches")
_Pads = tuple[Pair, Pair]


def conv(
    inputs: jax.Array,
    kernel: jax.Array,
    stride: int | Sequence[int] = 1,
    padding: Padding = "SAME",
    form: str | None = None,
) -> jax.Array:
    """A convolution, as networks mean it: y[b, i, j, f] = sum x[b, s i + r - p, s j + c - p, d] k[r, c, d, f].

    All forms compute the same up to rounding, and take the same kernel:

    * `lax` is XLA's own. On a CPU its two backward convolutions are up to 40 times slower inside a compiled loop than
      outside of it: there they have flipped windows and exchanged dimensions, which its fast code does not take.
    * `patches` concatenates shifted slices as channels and multiplies them with the kernel. Where each lane of a
      `vmap` has a kernel of its own, it is one batched matrix product; the others become grouped convolutions.
    * `plain` writes the backward convolutions as forward ones on operands that are flipped and transposed in memory,
      and runs as fast in a loop as outside of it. Where the kernel is larger than the images, and for the gradient of
      the inputs of a layer with a stride, it multiplies patches, which is faster there.

    Kernels of 1 x 1 are a strided slice and a matrix product in every form.

    Args:
      inputs: [B, H, W, C].
      kernel: [kh, kw, C, F].
      stride: s, distance of neighbouring outputs in pixels of the input.
      padding: SAME, VALID, a number of pixels p on each side, or ((above, below), (left, right)).
      form: one of `FORMS`. None: on a CPU `plain`, and `patches` under a `vmap` over kernels; elsewhere `lax`. It has
        a gradient, but no forward-mode derivative.

    Returns:
      [B, H', W', F].

    Raises:
      ValueError: if `form` or `padding` is none of these.

    Example:
      >>> import jax.numpy as jnp
      >>> conv(jnp.ones([1, 4, 4, 1]), jnp.ones([3, 3, 1, 1]), stride=2, padding=1).squeeze()
      Array([[4., 6.],
             [6., 9.]], dtype=float32)
    """
    if form is not None:
        arguments.one_of("form", form, FORMS)
    step, size = pair(stride), pair(kernel.shape[:2])
    pads = pixels(inputs.shape[1:3], size, step, padding)
    if size == (1, 1):
        return shifted(inputs, size, step, pads)[0] @ kernel[0, 0]
    return _convolution(inputs, kernel, step, pads, form)


class Convolution(nnx.Module):
    """A convolution of images, with a bias if `use_bias`.

    Args:
      in_features: C, input channels.
      out_features: F, output channels.
      kernel_size: height and width of the kernel.
      stride: distance of neighbouring outputs, in pixels of the input.
      padding: SAME, VALID, a number of pixels on each side, or ((above, below), (left, right)).
      use_bias: whether a bias is added.
      form: how it is computed, see `conv`; `network.set_attributes(form=...)` sets it for all layers of a network.
      dtype: dtype of the computation and of the outputs; None for `param_dtype`.
      param_dtype: dtype of the parameters.
      rngs: random streams; uses `params`.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> nnx.eval_shape(lambda: Convolution(1, 4, stride=2, rngs=nnx.Rngs(0))(jnp.ones([2, 8, 8, 1]))).shape
      (2, 4, 4, 4)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        kernel_size: int | Sequence[int] = 3,
        stride: int | Sequence[int] = 1,
        padding: Padding = "SAME",
        use_bias: bool = True,
        form: str | None = None,
        dtype: jnp.dtype | None = None,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        self.stride, self.form = pair(stride), form
        self.dtype = jnp.dtype(param_dtype if dtype is None else dtype)
        self.padding = padding if isinstance(padding, str | int) else tuple(map(pair, padding))
        init = nnx.initializers.he_normal()
        self.kernel = nnx.Param(init(rngs.params(), (*pair(kernel_size), in_features, out_features), param_dtype))
        self.bias = nnx.Param(jnp.zeros((out_features,), param_dtype)) if use_bias else None

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to [B, H', W', F]."""
        kernel = self.kernel[...].astype(self.dtype)
        outputs = conv(images.astype(self.dtype), kernel, self.stride, self.padding, self.form)
        return outputs if self.bias is None else outputs + self.bias[...].astype(self.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _convolution(inputs: jax.Array, kernel: jax.Array, stride: Pair, pads: _Pads, form: str | None) -> jax.Array:
    return _outputs(stride, pads).form(form)(inputs, kernel)


def _forward(
    inputs: jax.Array, kernel: jax.Array, stride: Pair, pads: _Pads, form: str | None
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _convolution(inputs, kernel, stride, pads, form), (inputs, kernel)


def _backward(
    stride: Pair, pads: _Pads, form: str | None, saved: tuple[jax.Array, jax.Array], cotangent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    inputs, kernel = saved
    lengths, size = inputs.shape[1:3], kernel.shape[:2]
    of_inputs = _input_gradient(lengths, size, stride, pads).form(form)(kernel, cotangent)
    return of_inputs, _kernel_gradient(size, stride, pads).form(form)(inputs, cotangent)


_convolution.defvjp(_forward, _backward)


class _Product:
    """One of the three bilinear functions of a convolution and its gradient, in three forms.

    Args:
      plain: by convolutions that are fast in loops on a CPU.
      lax: as XLA writes it.
      patches: as a matrix product.
    """

    def __init__(self, plain: Callable, lax: Callable, patches: Callable):
        self.forms = {"plain": plain, "lax": lax, "patches": patches}
        self.chosen = custom_vmap(self._by_platform(plain, lax))

        @self.chosen.def_vmap
        def of_lanes(axis_size: int, in_batched: Sequence[bool], *operands: jax.Array) -> tuple[jax.Array, bool]:
            del axis_size
            axes = [0 if batched else None for batched in in_batched]
            # Where one operand is shared, the lanes are more images or more channels of one convolution.
            on_cpu, elsewhere = (jax.vmap(f, axes) for f in (patches if all(in_batched) else plain, lax))
            return self._by_platform(on_cpu, elsewhere)(*operands), True

    @staticmethod
    def _by_platform(cpu: Callable, default: Callable) -> Callable:
        return lambda *operands: jax.lax.platform_dependent(*operands, cpu=cpu, default=default)

    def form(self, name: str | None) -> Callable:
        return self.chosen if name is None else self.forms[name]


# The products are cached, one for each geometry: JAX then traces equal layers once.


@functools.cache
def _outputs(stride: Pair, pads: _Pads) -> _Product:
    """(inputs, kernel) -> outputs."""

    def plain(inputs: jax.Array, kernel: jax.Array) -> jax.Array:
        return (patches if _exceeds(kernel.shape[:2], inputs.shape[1:3]) else lax)(inputs, kernel)

    lax, patches = (functools.partial(f, stride=stride, pads=pads) for f in (_convolve, _patches))
    return _Product(plain, lax, patches)


@functools.cache
def _input_gradient(lengths: Pair, size: Pair, stride: Pair, pads: _Pads) -> _Product:
    """(kernel, cotangent of the outputs) -> cotangent of inputs of height and width `lengths`."""

    def edges(outputs: Sequence[int]) -> list[Pair]:
        return [
            (window - 1 - before, length - (count - 1) * step - 1 + before)
            for window, step, (before, _), length, count in zip(size, stride, pads, lengths, outputs, strict=True)
        ]

    def plain(kernel: jax.Array, cotangent: jax.Array) -> jax.Array:
        # With a stride, most of what a convolution would multiply are the zeros between the outputs.
        if stride != (1, 1) or _exceeds(size, cotangent.shape[1:3]):
            return patches(kernel, cotangent)
        # The barrier keeps XLA from folding the flip and the exchange back into the convolution's dimensions.
        turned = jax.lax.optimization_barrier(kernel[::-1, ::-1].swapaxes(2, 3))
        return _convolve(cotangent, turned, (1, 1), edges(cotangent.shape[1:3]))

    def lax(kernel: jax.Array, cotangent: jax.Array) -> jax.Array:
        padding = edges(cotangent.shape[1:3])
        turned = jax.lax.rev(kernel, (0, 1))
        return _convolve(cotangent, turned, (1, 1), padding, lhs_dilation=stride, layout=("NHWC", "HWOI", "NHWC"))

    def patches(kernel: jax.Array, cotangent: jax.Array) -> jax.Array:
        *_, channels, features = kernel.shape
        inputs = jax.ShapeDtypeStruct((len(cotangent), *lengths, channels), cotangent.dtype)
        scattered = jax.linear_transpose(lambda inputs: _columns(inputs, size, stride, pads), inputs)
        return scattered(cotangent @ kernel.reshape(-1, features).T)[0]

    return _Product(plain, lax, patches)


@functools.cache
def _kernel_gradient(size: Pair, stride: Pair, pads: _Pads) -> _Product:
    """(inputs, cotangent of the outputs) -> cotangent of a kernel of that height and width."""

    def edges(lengths: Sequence[int], outputs: Sequence[int]) -> list[Pair]:
        return [
            (before, (count - 1) * step + window - length - before)
            for window, step, (before, _), length, count in zip(size, stride, pads, lengths, outputs, strict=True)
        ]

    def plain(inputs: jax.Array, cotangent: jax.Array) -> jax.Array:
        padding = edges(inputs.shape[1:3], cotangent.shape[1:3])
        # The batch is what is summed over: it takes the place of the channels, and they that of the batch.
        images, kernel = jax.lax.optimization_barrier((inputs.transpose(3, 1, 2, 0), cotangent.transpose(1, 2, 0, 3)))
        return _convolve(images, kernel, (1, 1), padding, rhs_dilation=stride).transpose(1, 2, 0, 3)

    def lax(inputs: jax.Array, cotangent: jax.Array) -> jax.Array:
        padding, layout = edges(inputs.shape[1:3], cotangent.shape[1:3]), ("CHWN", "IHWO", "HWNC")
        return _convolve(inputs, cotangent, (1, 1), padding, rhs_dilation=stride, layout=layout)

    def patches(inputs: jax.Array, cotangent: jax.Array) -> jax.Array:
        columns, axes = _columns(inputs, size, stride, pads), (0, 1, 2)
        return jnp.tensordot(columns, cotangent, (axes, axes)).reshape(*size, inputs.shape[3], cotangent.shape[3])

    return _Product(plain, lax, patches)


def _exceeds(size: Sequence[int], lengths: Sequence[int]) -> bool:
    """Return True if a kernel has more positions than the images.

    XLA then exchanges their roles, and on a CPU computes the convolution up to 40 times slower than a matrix product.
    """
    return math.prod(size) > math.prod(lengths)


def _convolve(
    inputs: jax.Array,
    kernel: jax.Array,
    stride: Pair,
    pads: Sequence[Pair],
    *,
    lhs_dilation: Pair = (1, 1),
    rhs_dilation: Pair = (1, 1),
    layout: tuple[str, str, str] = ("NHWC", "HWIO", "NHWC"),
) -> jax.Array:
    return jax.lax.conv_general_dilated(
        inputs,
        kernel,
        stride,
        pads,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        dimension_numbers=layout,
    )


def _patches(inputs: jax.Array, kernel: jax.Array, stride: Pair, pads: _Pads) -> jax.Array:
    height, width, _, features = kernel.shape
    return _columns(inputs, (height, width), stride, pads) @ kernel.reshape(-1, features)


def _columns(inputs: jax.Array, size: Pair, stride: Pair, pads: _Pads) -> jax.Array:
    """[B, H, W, C] -> [B, H', W', kh kw C], what each output sees."""
    return jnp.concatenate(shifted(inputs, size, stride, pads), axis=-1)
