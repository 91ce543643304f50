"""The tasks of the package: losses of the outputs of a network, which the registry has by name.

JAX is imported when a loss is traced: tasks are registered in every process.
"""

import math
from typing import Any

from sgdlab.tasks.family import TASKS

Array = Any
"""A `jax.Array`."""
Means = dict[str, Array]


def _bits_per_dimension(means: Means) -> Means:
    return {"bits_per_dimension": means["loss"] / math.log(2)}


def _perplexity(means: Means) -> Means:
    import jax.numpy as jnp  # noqa: PLC0415 (see the top of this file)

    return {"perplexity": jnp.exp(means["loss"])}


@TASKS.register(title="Classification", metric="accuracy", higher_is_better=True, of_guess=lambda classes: 1 / classes)
def classification(outputs: Array, labels: Array) -> tuple[Array, Means]:
    """Return the cross-entropy of logits, and which of them are highest at the label."""
    import optax  # noqa: PLC0415 (see the top of this file)

    nll = optax.softmax_cross_entropy_with_integer_labels(outputs, labels)
    return nll, {"accuracy": (outputs.argmax(axis=-1) == labels).astype(nll.dtype)}


@TASKS.register(
    title="Density estimation",
    metric="bits_per_dimension",
    targets="levels",
    finish=_bits_per_dimension,
    of_guess=math.log2,
)
def density(outputs: Array, labels: Array) -> Array:
    """Return the negative log-likelihood of every pixel and colour."""
    import optax  # noqa: PLC0415 (see the top of this file)

    return optax.softmax_cross_entropy_with_integer_labels(outputs, labels)


@TASKS.register(title="Language modelling", metric="perplexity", targets="tokens", finish=_perplexity, of_guess=float)
def language(outputs: Array) -> Array:
    """Return what the network says itself: the negative log-likelihood of every token."""
    return outputs
