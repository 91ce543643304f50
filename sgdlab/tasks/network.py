"""`NetworkTask`: a network as pure functions, namely its gradient, its statistics and its metrics."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from sgdlab.data.batch import Batch
from sgdlab.tasks.kinds import Kind
from sgdlab.tasks.task import Task
from sgdlab.types import Tree

Network = nnx.Module | Callable[[nnx.Rngs], nnx.Module]
Likelihood = Callable[[nnx.Module, Batch, Tree, dict[str, jax.Array]], tuple[jax.Array, dict[str, jax.Array], Tree]]
"""`(network, batch, local, keyword) -> (nll, counts, local)`, with the negative log-likelihood of every target in nats,
[B, ...], further arrays of its shape whose sums make metrics, and the worker's state; keyword is `{"key": key}` for a
network that takes one."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class NetworkTask(Task):
    """The parameters of a network, and its pure functions.

    Aux of `grad_fn` holds `loss` and, with statistics, `stats`: this batch's contribution to the running statistics,
    (1 - m) times the statistics of the batch; `fold` gives m stats + aux["stats"].

    Attributes:
      kind: classification, density or language; it names the metric that runs are judged by.
      sums: `(params, stats, batch[, local]) -> sums[, local]`, sums over the examples that `batch.weight` counts, with
        the running statistics and without dropout; those of several batches add up.
      finish: `sums -> {"loss": ..., kind.metric: ...}`.
      outcomes: number of values that a target can take. A guess has the loss log(outcomes).
    """

    kind: Kind
    sums: Callable[..., Any]
    finish: Callable[[dict[str, jax.Array]], dict[str, jax.Array]]
    outcomes: int

    def evaluate(self, params: Tree, stats: Tree, batch: Batch) -> dict[str, jax.Array]:
        """Return the metrics of one batch, for a task without state of workers."""
        return _evaluated(self.sums, self.finish, params, stats, batch)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Network:
    """The structure of a network, without its arrays."""

    graph: nnx.GraphDef
    likelihood: Likelihood
    takes_key: bool

    def __call__(
        self, params: Tree, stats: Tree, batch: Batch, local: Tree, *, train: bool
    ) -> tuple[jax.Array, dict[str, jax.Array], Tree, Tree]:
        network = nnx.merge(self.graph, params, stats)
        network.set_attributes(use_running_average=not train, raise_if_not_found=False)
        keyword: Any = {"key": batch.key if train else None} if self.takes_key else {}
        nll, counts, local = self.likelihood(network, batch, local, keyword)
        return nll, counts, nnx.as_pure(nnx.state(network, nnx.BatchStat)), local


def make_task(
    kind: Kind,
    network: Network,
    likelihood: Likelihood,
    finish: Callable[[dict[str, jax.Array]], dict[str, jax.Array]],
    *,
    outcomes: int,
    seed: int = 0,
    start: Callable[[nnx.Module], Tree] | None = None,
) -> NetworkTask:
    """Make pure functions of a network.

    Workers normalise with the statistics of their own batch. The running statistics are the server's, which folds in
    those of each batch in order of arrival: the gradient is computed with running statistics of zero, so that the
    network returns (1 - m) times the statistics of the batch.

    Args:
      kind: of the task.
      network: a module, or a function that makes one of an `nnx.Rngs`; a function is compiled as a whole, which for a
        deep network is several times faster than to initialise it layer by layer. Equal functions share the program.
      likelihood: what the network says of a batch; a function of a module, since its identity is part of the program.
      finish: what the sums mean.
      outcomes: number of values that a target can take.
      seed: of the stream `params` that such a function is given.
      start: the initial state of one worker; None if there is none.

    Returns:
      A `NetworkTask`; the functions of two networks of one structure share one compiled program. (A lambda among the
      layers is another function in every network: use functions of modules, such as `nnx.relu`.)

    Raises:
      ValueError: if the network has no parameters, statistics that are not those of a BatchNorm, or variables of
        another kind, such as the random streams of an `nnx.Dropout`; it names the module.
    """
    key = jax.random.key(seed)
    made = network if isinstance(network, nnx.Module) else _outlined(network)
    graph, params, stats, others = nnx.split(made, nnx.Param, nnx.BatchStat, ...)
    _check_variables(made, params, others)
    momenta = _momenta(made, nnx.as_pure(stats))
    local = None if start is None else jax.tree.map(jnp.zeros_like, jax.eval_shape(lambda: start(made)))
    if made is not network:
        params, stats = _arrays(network, key)
    params, stats = nnx.as_pure(params), nnx.as_pure(stats)
    structure = _Network(graph, likelihood, "key" in inspect.signature(type(made).__call__).parameters)
    normalised = bool(jax.tree.leaves(stats))
    return NetworkTask(
        kind=kind,
        params=params,
        stats=stats if normalised else None,
        local=local,
        grad_fn=jax.tree_util.Partial(_gradient, structure, jax.tree.map(jnp.zeros_like, stats)),
        fold=jax.tree_util.Partial(_fold, momenta) if normalised else None,
        sums=jax.tree_util.Partial(_sums, structure),
        finish=finish,
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
        nll, _, stats, after = network(params, zero_stats, batch, begun, train=True)
        loss = nll.mean()
        return loss, ({"loss": loss, "stats": stats} if jax.tree.leaves(stats) else {"loss": loss}, after)

    grads, (aux, after) = jax.grad(loss_fn, has_aux=True)(params)
    return (grads, aux) if local is None else (grads, aux, after)


def _sums(network: _Network, params: Tree, stats: Tree, batch: Batch, local: Tree = None) -> Any:
    begun = _begun(batch, local)
    nll, counts, _, after = network(params, {} if stats is None else stats, batch, begun, train=False)
    weight = jnp.ones(nll.shape[:1], nll.dtype) if batch.weight is None else batch.weight.astype(nll.dtype)
    # The pixels of an image have one weight.
    weight = jnp.broadcast_to(weight.reshape(*weight.shape, *[1] * (nll.ndim - weight.ndim)), nll.shape)
    arrays = {"nll": nll, "count": jnp.ones_like(nll), **counts}
    # A padded example has any likelihood, not a number among them.
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
