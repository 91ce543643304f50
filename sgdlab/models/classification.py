"""`Classifier`: a Flax network as pure functions for replay, namely its gradient, its statistics and its evaluation."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from sgdlab.models.batch import Batch

Tree = Any


@dataclasses.dataclass(frozen=True)
class Classifier:
    """The parameters of a network that classifies images, and its pure functions.

    Attributes:
      params: initial parameters.
      stats: initial running statistics (BatchNorm); None if the network has none.
      grad_fn: `(params, batch) -> (grads, aux)`, where aux holds `loss` and, with statistics, `stats`: this batch's
        contribution to the running statistics, (1 - m) times the statistics of the batch.
      fold: `(stats, aux) -> stats`, m stats + aux["stats"]; None without statistics.
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
    """The structure of a network, without its arrays."""

    graph: nnx.GraphDef

    def __call__(self, params: Tree, stats: Tree, images: jax.Array, *, train: bool) -> tuple[jax.Array, Tree]:
        network = nnx.merge(self.graph, params, stats)
        network.set_attributes(use_running_average=not train, raise_if_not_found=False)
        logits = network(images)
        return logits, nnx.as_pure(nnx.state(network, nnx.BatchStat))


def classifier(network: nnx.Module) -> Classifier:
    """Makes pure functions of a network.

    Workers normalise with the statistics of their own batch. The running statistics are the server's, which folds in
    those of each batch in order of arrival: the gradient is computed with running statistics of zero, so that the
    network returns (1 - m) times the statistics of the batch.

    Args:
      network: any `nnx.Module` that maps images [B, H, W, C] to logits [B, classes]. Its variables are parameters
        (`nnx.Param`) and the statistics of `nnx.BatchNorm` layers, each folded with the layer's own momentum.

    Returns:
      A `Classifier`; the functions of two networks of one structure share one compiled program. (A lambda among the
      layers is another function in every network: use functions of modules, such as `nnx.relu`.)

    Raises:
      ValueError: if the network has no parameters, statistics that are not those of a BatchNorm, or variables of
        another kind, such as the random streams of an `nnx.Dropout`; it names the module.

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
    graph, params, stats, others = nnx.split(network, nnx.Param, nnx.BatchStat, ...)
    _check_variables(network, params, others)
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


def _check_variables(network: nnx.Module, params: nnx.State, others: nnx.State) -> None:
    if not jax.tree.leaves(params):
        raise ValueError(f"network={type(network).__name__} must have parameters, variables of the kind nnx.Param")
    modules = {path: module for path, module in nnx.iter_graph(network) if isinstance(module, nnx.Module)}
    for path, variable in nnx.to_flat_state(others):
        # The module that holds it: a random stream lies some steps deeper.
        length = max(length for length in range(len(path)) if path[:length] in modules)
        module, where = type(modules[path[:length]]).__name__, ".".join(map(str, path[:length])) or "the network itself"
        if isinstance(variable, nnx.RngState):
            raise ValueError(
                f"network has random streams in {module} ({where}): a gradient must depend on the parameters and the "
                f"batch alone; leave the {module} out, or make it without `rngs` and with `deterministic=True`"
            )
        raise ValueError(
            f"network has {type(variable).__name__} {'.'.join(map(str, path))} in {module} ({where}): variables must "
            "be parameters (nnx.Param) or the running statistics of nnx.BatchNorm"
        )


def _momenta(network: nnx.Module, stats: Tree) -> Tree:
    """The momentum m of each running statistic: that of its BatchNorm."""
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
