"""The task `density`: the distribution of images, judged by bits per dimension."""

import math
from typing import Any

import jax
import optax

from sgdlab.data.batch import Batch
from sgdlab.tasks.kinds import KINDS
from sgdlab.tasks.network import Network, NetworkTask, make_task


def density(network: Network, *, levels: int = 256, seed: int = 0) -> NetworkTask:
    r"""Makes the task of a network that gives every pixel and colour a distribution over its levels.

    .. math:: \text{loss} = -\frac{1}{H W C} \sum_d \log p(x_d \mid x_{<d})

    Args:
      network: any `nnx.Module` that maps levels int[B, H, W, C] to logits [B, H, W, C, levels], those of each
        dimension a function of the dimensions before it alone; or a function that makes one of an `nnx.Rngs`. Its
        variables and the argument `key` are as for `sgdlab.tasks.classification`.
      levels: number of values of a dimension.
      seed: of the random stream `params` that such a function is given.

    Returns:
      The `NetworkTask`; `finish` gives `loss`, in nats per dimension, and `bits_per_dimension`.

    Raises:
      ValueError: as `sgdlab.tasks.task.make_task` does.

    Source: Chen et al. 2016, section 4.3 and A.4 (nats per dimension); van den Oord et al. 2016.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> class Independent(nnx.Module):
      ...     def __init__(self):
      ...         self.logits = nnx.Param(jnp.zeros(4))
      ...
      ...     def __call__(self, levels):
      ...         return jnp.broadcast_to(self.logits[...], (*levels.shape, 4))
      >>> task = density(Independent(), levels=4)
      >>> images = jnp.zeros([2, 3, 3, 1], int)
      >>> values = task.evaluate(task.params, None, Batch(images, images))
      >>> round(float(values["loss"]), 4), round(float(values["bits_per_dimension"]), 4)
      (1.3863, 2.0)
    """
    return make_task(KINDS["density"], network, _likelihood, _finish, outcomes=levels, seed=seed)


def _likelihood(
    network: Any, batch: Batch, local: None, keyword: dict[str, Any]
) -> tuple[jax.Array, dict[str, jax.Array], None]:
    logits = network(batch.inputs, **keyword)
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch.targets), {}, local


def _finish(sums: dict[str, jax.Array]) -> dict[str, jax.Array]:
    loss = sums["nll"] / sums["count"]
    return {"loss": loss, "bits_per_dimension": loss / math.log(2)}
