"""The tasks: `classification` by accuracy, `density` by bits per dimension, `language` by perplexity."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from sgdlab.data.batch import Batch
from sgdlab.tasks.kinds import KINDS
from sgdlab.tasks.network import Network, NetworkTask, make_task

Said = tuple[jax.Array, dict[str, jax.Array], Any]
"""The outputs of a network for a batch: see `sgdlab.tasks.network.Likelihood`."""


def classification(network: Network, *, num_classes: int = 10, seed: int = 0) -> NetworkTask:
    """Make the task of a network that classifies images, with cross-entropy as its loss.

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
      ValueError: as `sgdlab.tasks.network.make_task` does.

    Example:
      >>> from flax import nnx
      >>> from sgdlab import networks
      >>> task = classification(networks.MLP((64, 10), rngs=nnx.Rngs(0)))
      >>> batch = Batch(jnp.zeros([2, 8, 8, 1]), jnp.array([3, 7]))
      >>> grads, aux = task.grad_fn(task.params, batch)
      >>> round(float(aux["loss"]), 4)
      2.3026
    """
    return make_task(KINDS["classification"], network, _of_labels, _accuracy, outcomes=num_classes, seed=seed)


def density(network: Network, *, levels: int = 256, seed: int = 0) -> NetworkTask:
    r"""Make the task of a network that gives every pixel and colour a distribution over its levels.

    .. math:: \text{loss} = -\frac{1}{H W C} \sum_d \log p(x_d \mid x_{<d})

    Args:
      network: any `nnx.Module` that maps levels int[B, H, W, C] to logits [B, H, W, C, levels], those of each
        dimension a function of the dimensions before it alone; or a function that makes one of an `nnx.Rngs`. Its
        variables and the argument `key` are as for `sgdlab.tasks.classification`.
      levels: number of values of a dimension.
      seed: of the random stream `params` that such a function is given.

    Returns:
      The `NetworkTask`; `finish` gives `loss`, in nats per dimension, and `bits_per_dimension`.

    Source: Chen et al. 2016, section 4.3 and A.4 (nats per dimension); van den Oord et al. 2016.

    Example:
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
    return make_task(KINDS["density"], network, _of_levels, _bits_per_dimension, outcomes=levels, seed=seed)


def language(network: Network, *, vocabulary: int, batch_size: int, seed: int = 0) -> NetworkTask:
    r"""Make the task of a network that predicts the next token of each of B texts, and remembers what it has read.

    .. math:: \text{perplexity} = \exp\left(-\frac{1}{T} \sum_t \log p(x_t \mid x_{<t})\right)

    What it remembers belongs to a worker, which reads B texts of its own, segment by segment.

    Args:
      network: any `nnx.Module` with `network(tokens, targets, memory[, key=]) -> (nll [B, L], memory)`, for int[B, L]
        and nll in nats, and `network.start(batch_size) -> memory`, all zero; or a function that makes one of an
        `nnx.Rngs`. Its variables and the argument `key` are as for `sgdlab.tasks.classification`.
      vocabulary: number of tokens.
      batch_size: B, texts that a worker reads at once.
      seed: of the random stream `params` that such a function is given.

    Returns:
      The `NetworkTask`, whose `local` is the memory; `finish` gives `loss`, in nats per token, and `perplexity`.

    Source: Dai et al. 2019 (the memory of the segment before).

    Example:
      >>> from flax import nnx
      >>> class Bigram(nnx.Module):
      ...     def __init__(self):
      ...         self.logits = nnx.Param(jnp.zeros((5, 5)))
      ...
      ...     def __call__(self, tokens, targets, memory):
      ...         scores = jax.nn.log_softmax(self.logits[...])[tokens, targets]
      ...         return -scores, memory + 1
      ...
      ...     def start(self, batch_size):
      ...         return jnp.zeros(batch_size)
      >>> task = language(Bigram(), vocabulary=5, batch_size=2)
      >>> tokens = jnp.zeros([2, 3], int)
      >>> sums, memory = task.sums(task.params, None, Batch(tokens, tokens), task.local)
      >>> round(float(task.finish(sums)["perplexity"]), 4), memory
      (5.0, Array([1., 1.], dtype=float32))
    """
    start = lambda network: network.start(batch_size)
    return make_task(KINDS["language"], network, _of_tokens, _perplexity, outcomes=vocabulary, seed=seed, start=start)


def _of_labels(network: Any, batch: Batch, local: None, keyword: dict[str, Any]) -> Said:
    logits = network(batch.inputs, **keyword)
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, batch.targets)
    return nll, {"hits": (logits.argmax(axis=-1) == batch.targets).astype(nll.dtype)}, local


def _of_levels(network: Any, batch: Batch, local: None, keyword: dict[str, Any]) -> Said:
    logits = network(batch.inputs, **keyword)
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch.targets), {}, local


def _of_tokens(network: Any, batch: Batch, local: Any, keyword: dict[str, Any]) -> Said:
    nll, memory = network(batch.inputs, batch.targets, local, **keyword)
    return nll, {}, memory


def _accuracy(sums: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return {"loss": sums["nll"] / sums["count"], "accuracy": sums["hits"] / sums["count"]}


def _bits_per_dimension(sums: dict[str, jax.Array]) -> dict[str, jax.Array]:
    loss = sums["nll"] / sums["count"]
    return {"loss": loss, "bits_per_dimension": loss / math.log(2)}


def _perplexity(sums: dict[str, jax.Array]) -> dict[str, jax.Array]:
    loss = sums["nll"] / sums["count"]
    return {"loss": loss, "perplexity": jnp.exp(loss)}
