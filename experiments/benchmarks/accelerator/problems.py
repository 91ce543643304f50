"""The small problems that are computed twice and compared: a schedule, a rule and a network, in float32 or float64."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.benchmarks import setup
from experiments.benchmarks.accelerator.sizes import SCALES, Scale
from sgdlab import cluster, data, networks, protocols, replay, rules, tasks
from sgdlab.live.work import Work

Tree = Any
BATCH, EXAMPLES, SIDE = 8, 128, 8

_STEP = {"learning_rate": 0.02}
_SCHEDULES: dict[str, Callable[[Scale], Any]] = {
    "equal workers": lambda scale: setup.schedule(scale.workers, scale.gradients),
    "unequal workers": lambda scale: setup.schedule(scale.workers, scale.gradients, heterogeneous=True),
    "backup workers": lambda scale: protocols.backup_workers(_runtimes(scale), backups=scale.workers // 4),
    "pull gossip": lambda scale: protocols.gossip(_runtimes(scale), kind="pull", seed=0),
}
CASES: dict[str, tuple[str, str, Callable[[int], rules.ServerRule]]] = {
    "asynchronous": ("conv", "equal workers", lambda workers: rules.asgd(**_STEP, momentum=setup.MOMENTUM)),
    "dana": ("mlp", "unequal workers", lambda workers: rules.dana(**_STEP, num_workers=workers)),
    "backup workers": ("mlp", "backup workers", lambda workers: rules.asgd(**_STEP, momentum=setup.MOMENTUM)),
    "pull gossip": ("mlp", "pull gossip", lambda workers: rules.nag_asgd(**_STEP)),
}
"""Name -> network, schedule and rule. One has convolutions and BatchNorm; the others a buffer for each worker, updates
of several gradients, and nodes without a server."""


@contextlib.contextmanager
def computing(dtype: str, device: jax.Device, precision: str | None = "highest") -> Iterator[None]:
    """Computes on a device in a dtype, in full precision: GPUs may multiply float32 with fewer digits (TF32)."""
    with in_64_bits(dtype == "float64"), jax.default_matmul_precision(precision), jax.default_device(device):
        yield


@contextlib.contextmanager
def in_64_bits(wanted: bool) -> Iterator[None]:
    """Sets whether numbers have 64 bits, in all threads: those in which Orbax reads a checkpoint know no context."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", wanted)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """Holds all that a replay needs. All arrays are NumPy's, so that they are on no device before a run is.

    Attributes:
      program: the lowered schedule.
      rule: of the server, or of each node.
      task: the network.
      batch_fn: the batch of a gradient.
    """

    program: replay.Program
    rule: rules.ServerRule
    task: tasks.NetworkTask
    batch_fn: jax.tree_util.Partial

    @classmethod
    def of(cls, name: str, dtype: str, scale: Scale) -> "Problem":
        """Return one of `CASES`, the same object for the same arguments, so that nothing is compiled twice."""
        return _made(name, dtype, scale)

    def run(self, program: replay.Program | None = None, batch_fn: Any = None, **how: Any) -> "Outcome":
        """Return what a replay makes; `how` are arguments of `sgdlab.replay.run`.

        Args:
          program: of another schedule, such as a recorded one.
          batch_fn: of its gradients.
          **how: mode, lanes, mesh, layout, checkpoints, stop.
        """
        program, batch_fn = program or self.program, batch_fn or self.batch_fn
        found = replay.run(program, self.rule, self.task, batch_fn, **how)
        return Outcome.of(found.params, found.stats, found.history.aux["loss"], found.nodes)


class Outcome(dict):
    """Name -> arrays: what two runs are compared by."""

    @classmethod
    def of(cls, params: Tree, stats: Tree, loss: Any = None, nodes: Tree = None) -> "Outcome":
        """Return the outcome of a run; what is None is not compared."""
        found = {"params": params, "stats": stats, "loss": loss, "nodes": nodes}
        return cls(
            (name, [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)])
            for name, tree in found.items()
            if tree is not None
        )

    def apart(self, other: "Outcome", initial: Tree) -> float:
        """Return how far two outcomes are apart, as a share of what training has changed.

        The largest difference of parameters over the largest distance from the initial ones; of statistics and losses,
        over the largest of them. Rounding is a small share, and a wrong version or a wrong rule a large one, however
        small the learning rate.

        Args:
          other: what is compared with; names that only one of the two has are passed over.
          initial: parameters before training.

        Returns:
          The largest share; infinite if something is not finite, or nothing has changed.
        """
        start = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(initial)]
        origins = {"params": start, "nodes": start}
        shares = []
        for name in self.keys() & other.keys():
            origin = origins.get(name, [0.0] * len(other[name]))
            moved = max(np.abs(leaf - begun).max() for leaf, begun in zip(other[name], origin, strict=True))
            differs = max(np.abs(a - b).max() for a, b in zip(self[name], other[name], strict=True))
            shares.append(differs / moved if moved > 0 and np.isfinite([differs, moved]).all() else np.inf)
        return float(max(shares))


def live_work(argument: Mapping[str, Any]) -> Work:
    """Return what a worker of a live run computes: gradients of the first case, in float32.

    Args:
      argument: `scale`, the name of a `Scale`, and `seconds`, the least time of a gradient.
    """
    problem = Problem.of("asynchronous", "float32", SCALES[argument["scale"]])
    seconds = float(argument["seconds"])
    return Work(
        problem.task.params, problem.task.grad_fn, problem.batch_fn, seconds=lambda worker, k: seconds * (1 + worker)
    )


def by_ticket(problem: Problem, tickets: np.ndarray) -> jax.tree_util.Partial:
    """Return the batches of gradients that have numbers of their own, as those of a live run have."""
    return jax.tree_util.Partial(_of_ticket, problem.batch_fn, tickets.astype(np.int32))


@functools.cache
def _made(name: str, dtype: str, scale: Scale) -> Problem:
    network, schedule, rule = CASES[name]
    task = _task(network, dtype, scale.channels)
    generator = np.random.default_rng(0)
    images = generator.normal(size=(EXAMPLES, SIDE, SIDE, 1)).astype(dtype)
    labels = generator.integers(0, 10, EXAMPLES, dtype=np.int32)
    return Problem(
        replay.lower(_SCHEDULES[schedule](scale)),
        rule(scale.workers),
        dataclasses.replace(
            task, **{name: jax.tree.map(np.asarray, getattr(task, name)) for name in ("params", "stats")}
        ),
        jax.tree_util.Partial(_batch, images, labels),
    )


def _task(name: str, dtype: str, channels: tuple[int, int]) -> tasks.NetworkTask:
    """Return the task of a network whose parameters NumPy has drawn: to compile that in float64 takes seconds."""

    def make() -> nnx.Module:
        options = {"param_dtype": jnp.dtype(dtype), "rngs": nnx.Rngs(0)}
        if name == "mlp":
            return networks.MLP((SIDE * SIDE, 32, 10), **options)
        return networks.ConvNet(channels, batch_norm=True, **options)

    graph, state = nnx.split(nnx.eval_shape(make))
    generator = np.random.default_rng(1)

    def drawn(path: Any, leaf: Any) -> jax.Array:
        if leaf.ndim > 1:
            return jnp.asarray(generator.normal(0, np.prod(leaf.shape[:-1]) ** -0.5, leaf.shape), leaf.dtype)
        return jnp.full(leaf.shape, float(path[-1].key in {"scale", "var"}), leaf.dtype)

    return tasks.classification(nnx.merge(graph, jax.tree.map_with_path(drawn, nnx.as_pure(state))))


def _runtimes(scale: Scale) -> np.ndarray:
    """Return compute times that suffice: every worker, as often as all together are to compute."""
    rows = -(-scale.gradients // scale.workers)
    return cluster.gamma(num_workers=scale.workers, num_gradients=rows, heterogeneous=True, seed=0)


def _batch(images: jax.Array, labels: jax.Array, number: jax.Array) -> data.Batch:
    chosen = (number * BATCH + jnp.arange(BATCH)) % EXAMPLES
    return data.Batch(jnp.asarray(images)[chosen], jnp.asarray(labels)[chosen])


def _of_ticket(batch_fn: Any, tickets: jax.Array, row: jax.Array) -> data.Batch:
    return batch_fn(jnp.asarray(tickets)[row])
