"""The tasks: `classification` by accuracy, `density` by bits per dimension, `language` by perplexity."""

from sgdlab.tasks.network import Network, NetworkTask, make_task


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
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from sgdlab import networks
      >>> from sgdlab.data import Batch
      >>> task = classification(networks.MLP((64, 10), rngs=nnx.Rngs(0)))
      >>> batch = Batch(jnp.zeros([2, 8, 8, 1]), jnp.array([3, 7]))
      >>> grads, aux = task.grad_fn(task.params, batch)
      >>> round(float(aux["loss"]), 4)
      2.3026
    """
    return make_task("classification", network, outcomes=num_classes, seed=seed)


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
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from sgdlab.data import Batch
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
    return make_task("density", network, outcomes=levels, seed=seed)


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
      >>> import jax, jax.numpy as jnp
      >>> from flax import nnx
      >>> from sgdlab.data import Batch
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
    return make_task("language", network, outcomes=vocabulary, batch_size=batch_size, seed=seed)
