"""`NetworkTask`: a network as pure functions, namely its gradient, its statistics and its metrics."""

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
from flax import nnx

from sgdlab.data.batch import Batch
from sgdlab.errors import UsageError
from sgdlab.registry import Part
from sgdlab.tasks.family import TASKS
from sgdlab.tasks.task import Task
from sgdlab.types import Tree

Network = nnx.Module | Callable[[nnx.Rngs], nnx.Module]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class NetworkTask(Task):
    """The parameters of a network, and its pure functions.

    Aux of `grad_fn` holds `loss` and, with statistics, `stats`: this batch's contribution to the running statistics,
    (1 - m) times the statistics of the batch; `fold` gives m stats + aux["stats"].

    Attributes:
      kind: the task by which it is made, one of `TASKS`; its facts name the metric that runs are judged by.
      sums: `(params, stats, batch[, local]) -> sums[, local]`, sums over the examples that `batch.weight` counts, with
        the running statistics and without dropout; those of several batches add up.
      finish: `sums -> {"loss": ..., kind.facts.metric: ...}`.
      outcomes: number of values that a target can take. A guess has the loss log(outcomes). None: there is no guess.
    """

    kind: Part
    sums: Callable[..., Any]
    finish: Callable[[dict[str, jax.Array]], dict[str, jax.Array]]
    outcomes: int | None

    def evaluate(self, params: Tree, stats: Tree, batch: Batch) -> dict[str, jax.Array]:
        """Return the metrics of one batch, for a task without state of workers."""
        return _evaluated(self.sums, self.finish, params, stats, batch)


@dataclasses.dataclass(frozen=True)
class _Loss:
    """The loss of a task, with its entries as JSON; two with the same are equal, and share the compiled program."""

    task: Part
    entries: str

    def __call__(self, outputs: jax.Array, labels: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        entries = {name: tuple(v) if isinstance(v, list) else v for name, v in json.loads(self.entries).items()}
        return loss_of(self.task, entries, outputs, labels)


def loss_of(
    task: Part, entries: Mapping[str, Any], outputs: Any, labels: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the loss of each example, or of each of its targets, and what a task returns besides, by name.

    Raises:
      UsageError: where the loss is not one for each example or label, or an array besides it is of another shape; where
        the task refuses an argument.
    """
    said = TASKS.call(task, entries, {"outputs": outputs, "labels": labels})
    loss, others = said if isinstance(said, tuple) else (said, {})
    shape = getattr(loss, "shape", None)
    if not shape or shape != labels.shape[: len(shape)]:
        raise UsageError(
            f"--config.task.kind={task.name} must return a loss for each example, {labels.shape[:1]}, or for each "
            f"label, {labels.shape}, and returned {shape or 'a number'} ({task.where})"
        )
    for name, array in others.items():
        if (found := getattr(array, "shape", "a number")) != shape:
            raise UsageError(
                f"--config.task.kind={task.name} must return {name} for each loss, {shape}, and returned {found} "
                f"({task.where})"
            )
    return loss, others


@dataclasses.dataclass(frozen=True)
class _Finish:
    """Makes metrics of sums."""

    task: Part

    def __call__(self, sums: dict[str, jax.Array]) -> dict[str, jax.Array]:
        means = {name: total / sums["count"] for name, total in sums.items() if name != "count"}
        finish = self.task.facts.finish
        return means if finish is None else {"loss": means["loss"], **finish(means)}


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Network:
    """The structure of a network, without its arrays."""

    graph: nnx.GraphDef
    loss: _Loss
    takes_key: bool

    def __call__(
        self, params: Tree, stats: Tree, batch: Batch, local: Tree, *, train: bool
    ) -> tuple[jax.Array, dict[str, jax.Array], Tree, Tree]:
        network = nnx.merge(self.graph, params, stats)
        network.set_attributes(use_running_average=not train, raise_if_not_found=False)
        keyword: Any = {"key": batch.key if train else None} if self.takes_key else {}
        if self.loss.task.facts.remembers:
            outputs, local = network(batch.inputs, batch.targets, local, **keyword)
        else:
            outputs = network(batch.inputs, **keyword)
        loss, others = self.loss(outputs, batch.targets)
        return loss, others, nnx.as_pure(nnx.state(network, nnx.BatchStat)), local


def make_task(
    kind: str,
    network: Network,
    entries: Mapping[str, Any] | None = None,
    *,
    outcomes: int | None = None,
    batch_size: int = 1,
    seed: int = 0,
) -> NetworkTask:
    """Make pure functions of a network that is trained for a task of the registry, such as one of your own.

    Workers normalise with the statistics of their own batch. The running statistics are the server's, which folds in
    those of each batch in order of arrival: the gradient is computed with running statistics of zero, so that the
    network returns (1 - m) times the statistics of the batch.

    Args:
      kind: the task's name in `TASKS`.
      network: a module, or a function that makes one of an `nnx.Rngs`; a function is compiled as a whole, which for a
        deep network is several times faster than to initialise it layer by layer. Equal functions share the program.
      entries: arguments of the loss, where they differ from its defaults.
      outcomes: number of values that a target can take; None: there is no guess.
      batch_size: B, texts that a worker reads at once, of a network that remembers what it has read.
      seed: of the stream `params` that such a function is given.

    Returns:
      A `NetworkTask`; the functions of two networks of one structure share one compiled program. (A lambda among the
      layers is another function in every network: use functions of modules, such as `nnx.relu`.)

    Raises:
      ValueError: if there is no such task; if the network has no parameters, statistics that are not those of a
        BatchNorm, or variables of another kind, such as the random streams of an `nnx.Dropout`; it names the module.

    Example:
      >>> @TASKS.register(title="Regression", metric="error")
      ... def squares(outputs, labels, *, weight: float = 1.0):
      ...     return weight * (outputs - labels) ** 2, {"error": abs(outputs - labels)}
      >>> task = make_task("squares", nnx.Linear(1, 1, rngs=nnx.Rngs(0)), {"weight": 0.5})
      >>> zeros, ones = jax.tree.map(jnp.zeros_like, task.params), jnp.ones([4, 1])
      >>> values = task.evaluate(zeros, None, Batch(ones, ones))
      >>> float(values["loss"]), float(values["error"])
      (0.5, 1.0)
      >>> TASKS.forget("squares")
    """
    part = TASKS.check(kind, f"kind={kind}")
    key = jax.random.key(seed)
    made = network if isinstance(network, nnx.Module) else _outlined(network)
    graph, params, stats, others = nnx.split(made, nnx.Param, nnx.BatchStat, ...)
    _check_variables(made, params, others)
    momenta = _momenta(made, nnx.as_pure(stats))
    local = None
    if part.facts.remembers:
        local = jax.tree.map(jnp.zeros_like, jax.eval_shape(lambda: cast(Any, made).start(batch_size)))
    if made is not network:
        params, stats = _arrays(network, key)
    params, stats = nnx.as_pure(params), nnx.as_pure(stats)
    loss = _Loss(part, json.dumps(dict(entries or {}), sort_keys=True))
    structure = _Network(graph, loss, "key" in inspect.signature(type(made).__call__).parameters)
    normalised = bool(jax.tree.leaves(stats))
    return NetworkTask(
        kind=part,
        params=params,
        stats=stats if normalised else None,
        local=local,
        grad_fn=jax.tree_util.Partial(_gradient, structure, jax.tree.map(jnp.zeros_like, stats)),
        fold=jax.tree_util.Partial(_fold, momenta) if normalised else None,
        sums=jax.tree_util.Partial(_sums, structure),
        finish=_Finish(part),
        outcomes=outcomes,
    )


@functools.lru_cache(maxsize=16)
def _outlined(network: Callable[[nnx.Rngs], nnx.Module]) -> nnx.Module:
    """Return a network without its arrays; kept, since tracing it takes most of the host's time for a short run."""
    return nnx.eval_shape(lambda: network(nnx.Rngs(params=0)))


# Initial parameters are computed once: compiling them lightly takes a fifth of the time.
_LIGHTLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@functools.partial(jax.jit, static_argnums=0, compiler_options=_LIGHTLY)
def _arrays(network: Callable[[nnx.Rngs], nnx.Module], key: jax.Array) -> Any:
    return nnx.split(network(nnx.Rngs(params=key)), nnx.Param, nnx.BatchStat)[1:]


def _gradient(network: _Network, zero_stats: Tree, params: Tree, batch: Batch, local: Tree = None) -> tuple[Tree, ...]:
    begun = _begun(batch, local)

    def loss_fn(params: Tree) -> tuple[jax.Array, tuple[dict[str, Tree], Tree]]:
        losses, _, stats, after = network(params, zero_stats, batch, begun, train=True)
        loss = losses.mean()
        return loss, ({"loss": loss, "stats": stats} if jax.tree.leaves(stats) else {"loss": loss}, after)

    grads, (aux, after) = jax.grad(loss_fn, has_aux=True)(params)
    return (grads, aux) if local is None else (grads, aux, after)


def _sums(network: _Network, params: Tree, stats: Tree, batch: Batch, local: Tree = None) -> Any:
    begun = _begun(batch, local)
    loss, others, _, after = network(params, {} if stats is None else stats, batch, begun, train=False)
    weight = jnp.ones(loss.shape[:1], loss.dtype) if batch.weight is None else batch.weight.astype(loss.dtype)
    # The pixels of an image have one weight.
    weight = jnp.broadcast_to(weight.reshape(*weight.shape, *[1] * (loss.ndim - weight.ndim)), loss.shape)
    arrays = {"loss": loss, "count": jnp.ones_like(loss), **others}
    # A padded example has any loss, not a number among them.
    sums = {name: jnp.where(weight > 0, array * weight, 0).sum() for name, array in arrays.items()}
    return sums if local is None else (sums, after)


def _begun(batch: Batch, local: Tree) -> Tree:
    """Return the state of a worker that may begin with a new text: then all of it is zero, as at the start."""
    if local is None or batch.begins is None:
        return local
    return jax.tree.map(lambda leaf: jnp.where(batch.begins, jnp.zeros_like(leaf), leaf), local)


@functools.partial(jax.jit, static_argnums=1)
def _evaluated(sums: Any, finish: Any, params: Tree, stats: Tree, batch: Batch) -> dict[str, jax.Array]:
    return finish(sums(params, stats, batch))


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
                f"batch alone; leave the {module} out, make it without `rngs` and with `deterministic=True`, or let "
                "the network take a `key` and give it to the layer at every call"
            )
        raise ValueError(
            f"network has {type(variable).__name__} {'.'.join(map(str, path))} in {module} ({where}): variables must "
            "be parameters (nnx.Param) or the running statistics of nnx.BatchNorm"
        )


def _momenta(network: nnx.Module, stats: Tree) -> Tree:
    """Return the momentum m of each running statistic: that of its BatchNorm."""
    known: dict[Any, Any] = {
        path: module.momentum for path, module in nnx.iter_graph(network) if isinstance(module, nnx.BatchNorm)
    }

    def momentum(path: tuple[Any, ...], leaf: Any) -> jax.Array:
        *module, name = (getattr(key, "key", getattr(key, "name", None)) for key in path)
        if tuple(module) not in known:
            raise ValueError(f"statistic {'.'.join(map(str, (*module, name)))} must be that of an nnx.BatchNorm")
        return jnp.asarray(known[tuple(module)], leaf.dtype)

    return jax.tree_util.tree_map_with_path(momentum, stats)


def _fold(momenta: Tree, stats: Tree, aux: dict[str, Tree]) -> Tree:
    return jax.tree.map(lambda m, old, new: m * old + new, momenta, stats, aux["stats"])
