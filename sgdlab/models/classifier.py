"""A Flax network as pure functions: what replay differentiates, folds and evaluates."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

Tree = Any


class Batch(NamedTuple):
    """Labelled images."""

    images: jax.Array  # [B, H, W, C], floating.
    labels: jax.Array  # int[B].


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A network that classifies, taken apart into functions and arrays.

    Attributes:
      params: initial parameters.
      stats: initial running statistics (BatchNorm); None where there are none.
      grad_fn: `(params, batch) -> (grads, aux)`, aux being `loss` and, with statistics, `stats`: this batch's share
        (1 - m) batch of the running statistics.
      fold: `(stats, aux) -> stats`, m stats + aux; None where there are none.
      evaluate: `(params, stats, batch) -> {"loss", "accuracy"}`, with the running statistics.
    """

    params: Tree
    stats: Tree
    grad_fn: Any
    fold: Any
    evaluate: Any


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Network:
    """The structure of a network: what is left of it without its arrays."""

    graph: nnx.GraphDef

    def __call__(self, params: Tree, stats: Tree, images: jax.Array, *, train: bool) -> tuple[jax.Array, Tree]:
        network = nnx.merge(self.graph, params, stats)
        network.set_attributes(use_running_average=not train, raise_if_not_found=False)
        logits = network(images)
        return logits, nnx.as_pure(nnx.state(network, nnx.BatchStat))


def classifier(network: nnx.Module) -> Classifier:
    """Takes a network apart.

    Workers normalise with their own batch, and the running statistics live at the server, folded in order of
    arrival: differentiation runs on zeroed statistics, so that what comes back is (1 - m) batch.

    Args:
      network: maps images [B, H, W, C] to logits [B, classes]; each of its BatchNorms is folded with its own momentum.

    Returns:
      A `Classifier`; two networks of the same structure give functions of the same program.

    Raises:
      ValueError: where running statistics are not a BatchNorm's, so that how to fold them is not known.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from sgdlab import models
      >>> parts = classifier(models.MLP((64, 10), rngs=nnx.Rngs(0)))
      >>> batch = Batch(jnp.zeros([2, 8, 8, 1]), jnp.array([3, 7]))
      >>> grads, aux = parts.grad_fn(parts.params, batch)
      >>> round(float(aux["loss"]), 4)
      2.3026
    """
    graph, params, stats = nnx.split(network, nnx.Param, nnx.BatchStat)
    structure, params, stats = _Network(graph), nnx.as_pure(params), nnx.as_pure(stats)
    normalised = bool(jax.tree.leaves(stats))
    return Classifier(
        params=params,
        stats=stats if normalised else None,
        grad_fn=jax.tree_util.Partial(_gradient, structure, jax.tree.map(jnp.zeros_like, stats)),
        fold=jax.tree_util.Partial(_fold, _momenta(network, stats)) if normalised else None,
        evaluate=jax.tree_util.Partial(_evaluate, structure),
    )


def _gradient(network: _Network, zero_stats: Tree, params: Tree, batch: Batch) -> tuple[Tree, dict[str, Tree]]:
    def loss_fn(params: Tree) -> tuple[jax.Array, dict[str, Tree]]:
        logits, stats = network(params, zero_stats, batch.images, train=True)
        loss = _loss(logits, batch.labels)
        return loss, {"loss": loss, "stats": stats} if jax.tree.leaves(stats) else {"loss": loss}

    return jax.grad(loss_fn, has_aux=True)(params)


def _momenta(network: nnx.Module, stats: Tree) -> Tree:
    """m of each running statistic, read off the BatchNorm that it belongs to."""
    known = {path: module.momentum for path, module in nnx.iter_graph(network) if isinstance(module, nnx.BatchNorm)}

    def momentum(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        *module, name = (getattr(key, "key", getattr(key, "name", None)) for key in path)
        if tuple(module) not in known:
            raise ValueError(f"statistic {'.'.join(map(str, (*module, name)))} must be that of an nnx.BatchNorm")
        return jnp.asarray(known[tuple(module)], leaf.dtype)

    return jax.tree_util.tree_map_with_path(momentum, stats)


def _fold(momenta: Tree, stats: Tree, aux: dict[str, Tree]) -> Tree:
    return jax.tree.map(lambda m, old, new: m * old + new, momenta, stats, aux["stats"])


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(network: _Network, params: Tree, stats: Tree, batch: Batch) -> dict[str, jax.Array]:
    logits, _ = network(params, {} if stats is None else stats, batch.images, train=False)
    correct = logits.argmax(axis=-1) == batch.labels
    return {"loss": _loss(logits, batch.labels), "accuracy": correct.mean(dtype=logits.dtype)}


def _loss(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
