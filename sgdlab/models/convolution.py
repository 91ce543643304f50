"""`MatmulConv`: a convolution as shifted slices and one matrix product, fast in a compiled CPU loop and under vmap."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx


class MatmulConv(nnx.Module):
    """A two-dimensional convolution with "SAME" padding, computed as one matrix product.

    The k x k shifted slices of the input are concatenated as channels, [B, H', W', k k C], and multiplied by a kernel
    [k k C, F]. It equals `flax.nnx.Conv` up to rounding. XLA's own convolution is several times slower inside a loop on
    CPU, and under `vmap` over kernels it becomes a grouped convolution, which is slower still.

    Args:
      in_features: C, input channels.
      out_features: F, output channels.
      kernel_size: k, height and width of the kernel.
      stride: distance of neighbouring outputs, in pixels of the input.
      use_bias: whether a bias is added.
      param_dtype: dtype of the parameters.
      rngs: random streams; uses `params`.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> MatmulConv(1, 4, stride=2, rngs=nnx.Rngs(0))(jnp.ones([2, 8, 8, 1])).shape
      (2, 4, 4, 4)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        kernel_size: int = 3,
        stride: int = 1,
        use_bias: bool = True,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        self.kernel_size, self.stride = kernel_size, stride
        init: Callable[..., jax.Array] = nnx.initializers.he_normal()
        self.kernel = nnx.Param(init(rngs.params(), (kernel_size**2 * in_features, out_features), param_dtype))
        self.bias = nnx.Param(jnp.zeros((out_features,), param_dtype)) if use_bias else None

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to [B, ceil(H / stride), ceil(W / stride), F]."""
        outputs = _patches(inputs, self.kernel_size, self.stride) @ self.kernel[...]
        return outputs if self.bias is None else outputs + self.bias[...]


def _patches(inputs: jax.Array, size: int, stride: int) -> jax.Array:
    """[B, H, W, C] -> [B, H', W', size size C]: the inputs of each output, with "SAME" padding."""
    grid = [-(-length // stride) for length in inputs.shape[1:3]]
    padding = []
    for length, outputs in zip(inputs.shape[1:3], grid, strict=True):
        total = max((outputs - 1) * stride + size - length, 0)
        padding.append((total // 2, total - total // 2))
    padded = jnp.pad(inputs, ((0, 0), *padding, (0, 0)))
    height, width = ((outputs - 1) * stride + 1 for outputs in grid)
    shifted = [
        padded[:, row : row + height : stride, column : column + width : stride]
        for row in range(size)
        for column in range(size)
    ]
    return jnp.concatenate(shifted, axis=-1)
