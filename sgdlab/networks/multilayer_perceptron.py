"""`MLP`: a multilayer perceptron."""

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx


class MLP(nnx.Module):
    """A multilayer perceptron with ReLU between its layers.

    Args:
      widths: widths of the input, the hidden layers and the output, e.g. (64, 256, 256, 10).
      param_dtype: dtype of the parameters.
      rngs: random streams; uses `params`.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> nnx.eval_shape(lambda: MLP((64, 32, 10), rngs=nnx.Rngs(0))(jnp.ones([2, 8, 8, 1]))).shape
      (2, 10)
    """

    def __init__(self, widths: Sequence[int], *, param_dtype: jnp.dtype = jnp.float32, rngs: nnx.Rngs):
        init = nnx.initializers.he_normal()
        self.layers = nnx.List(
            nnx.Linear(before, after, kernel_init=init, param_dtype=param_dtype, rngs=rngs)
            for before, after in itertools.pairwise(widths)
        )

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps [B, ...] to logits [B, classes]."""
        hidden = images.reshape(images.shape[0], -1)
        for layer in self.layers[:-1]:
            hidden = nnx.relu(layer(hidden))
        return self.layers[-1](hidden)
