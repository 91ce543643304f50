"""The task `classification`: images and their labels, judged by accuracy."""

from typing import Any

import jax
import optax

from sgdlab.data.batch import Batch
from sgdlab.tasks.kinds import KINDS
from sgdlab.tasks.network import Network, NetworkTask, make_task


def classification(network: Network, *, num_classes: int = 10, seed: int = 0) -> NetworkTask:
    """Makes the task of a network that classifies images, with cross-entropy as its loss.

    Args:
      network: any `nnx.Module` that maps images [B, H, W, C] to logits [B, num_classes], or a function that makes one
        of an `nnx.Rngs`, which is then compiled as a whole. Its variables are parameters (`nnx.Param`) and the
        statistics of `nnx.BatchNorm` layers, each folded with the layer's own momentum. If its call has an argument
        `key`, it is given the batch's in training, and None in evaluation.
      num_classes: number of classes.
      seed: of the random stream `params` that such a function is given.

    Returns:
      The `NetworkTask`; `finish` gives `loss`, in nats, and `accuracy`, from 0 to 1.

    Raises:
      ValueError: as `sgdlab.tasks.task.make_task` does.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from sgdlab import data, networks
      >>> task = classification(networks.MLP((64, 10), rngs=nnx.Rngs(0)))
      >>> batch = data.Batch(jnp.zeros([2, 8, 8, 1]), jnp.array([3, 7]))
      >>> grads, aux = task.grad_fn(task.params, batch)
      >>> round(float(aux["loss"]), 4)
      2.3026
    """
    return make_task(KINDS["classification"], network, _likelihood, _finish, outcomes=num_classes, seed=seed)


def _likelihood(
    network: Any, batch: Batch, local: None, keyword: dict[str, Any]
) -> tuple[jax.Array, dict[str, jax.Array], None]:
    logits = network(batch.inputs, **keyword)
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, batch.targets)
    return nll, {"hits": (logits.argmax(axis=-1) == batch.targets).astype(nll.dtype)}, local


def _finish(sums: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return {"loss": sums["nll"] / sums["count"], "accuracy": sums["hits"] / sums["count"]}
