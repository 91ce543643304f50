"""The task `language`: the next token of a text, judged by perplexity."""

from typing import Any

import jax
import jax.numpy as jnp

from sgdlab.data.batch import Batch
from sgdlab.tasks.kinds import KINDS
from sgdlab.tasks.network import Network, NetworkTask, make_task


def language(network: Network, *, vocabulary: int, batch_size: int, seed: int = 0) -> NetworkTask:
    r"""Makes the task of a network that predicts the next token of each of B texts, and remembers what it has read.

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

    Raises:
      ValueError: as `sgdlab.tasks.task.make_task` does.

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

    def start(network: Any) -> Any:
        return network.start(batch_size)

    return make_task(KINDS["language"], network, _likelihood, _finish, outcomes=vocabulary, seed=seed, start=start)


def _likelihood(
    network: Any, batch: Batch, local: Any, keyword: dict[str, Any]
) -> tuple[jax.Array, dict[str, jax.Array], Any]:
    nll, memory = network(batch.inputs, batch.targets, local, **keyword)
    return nll, {}, memory


def _finish(sums: dict[str, jax.Array]) -> dict[str, jax.Array]:
    loss = sums["nll"] / sums["count"]
    return {"loss": loss, "perplexity": jnp.exp(loss)}
