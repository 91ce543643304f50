"""The benchmarked problems: networks, synthetic digits, schedules, and hand-written serial loops for comparison."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import sgdlab
from sgdlab import data, networks, tasks
from sgdlab.xla import read_row

EXAMPLES = 1437
LEARNING_RATE, MOMENTUM = 0.01, 0.9


@functools.cache
def network(kind: str) -> tasks.NetworkTask:
    """Return the MLP 64-256-256-10 ("mlp"), or the conv net of the main job ("conv")."""
    rngs = nnx.Rngs(0)
    return tasks.classification(
        networks.MLP((64, 256, 256, 10), rngs=rngs) if kind == "mlp" else networks.ConvNet(rngs=rngs)
    )


@functools.cache
def batches(batch_size: int) -> Callable[[jax.Array], data.Batch]:
    """Batches of synthetic digits, which are on the device and indexed inside the loop."""
    generator = np.random.default_rng(0)
    images = jnp.asarray(generator.random((EXAMPLES, 8, 8, 1), np.float32))
    labels = jnp.asarray(generator.integers(0, 10, EXAMPLES))
    order = jnp.asarray(generator.permutation(EXAMPLES)[: EXAMPLES // batch_size * batch_size].reshape(-1, batch_size))
    return jax.tree_util.Partial(batch, images, labels, order)


def batch(images: jax.Array, labels: jax.Array, order: jax.Array, g: jax.Array) -> data.Batch:
    """Return the examples of gradient g, for which there is a row of `order`; int32[batches, B]."""
    chosen = order[g % order.shape[0]]
    return data.Batch(images[chosen], labels[chosen])


def schedule(num_workers: int, num_gradients: int, *, heterogeneous: bool = False, seed: int = 0) -> sgdlab.Schedule:
    """Return an asynchronous schedule of a gamma cluster."""
    return sgdlab.protocols.with_enough_rows(
        functools.partial(sgdlab.protocols.asynchronous, num_gradients=num_gradients),
        lambda rows: sgdlab.cluster.gamma(
            num_workers=num_workers, num_gradients=rows, heterogeneous=heterogeneous, seed=seed
        ),
        rows=2 * num_gradients // num_workers + 2,
    )


def replayed(kind: str, batch_size: int, program: sgdlab.replay.Program, rule: sgdlab.rules.ServerRule, mode="event"):
    """Return a function that replays a program."""
    parts = network(kind)
    return lambda: sgdlab.replay.run(program, rule, parts, batches(batch_size), mode=mode).params


def serial(task: tasks.NetworkTask, batch_fn: Callable[[jax.Array], data.Batch], steps: int) -> Callable[[], object]:
    """Return hand-written SGD with momentum in one `lax.scan`: an upper bound of the speed of one worker."""

    @jax.jit
    def train(params, stats, batch_fn):
        def step(carry, g):
            params, velocity, stats = carry
            grads, aux = task.grad_fn(params, batch_fn(g))
            stats = stats if task.fold is None else task.fold(stats, aux)
            return (*_momentum_step(params, velocity, grads), stats), aux["loss"]

        return jax.lax.scan(step, (params, jax.tree.map(jnp.zeros_like, params), stats), jnp.arange(steps))

    return lambda: train(task.params, task.stats, batch_fn)


def serial_with_copies(kind: str, batch_size: int, program: sgdlab.replay.ServerProgram):
    """Return the loop of `serial` with a copy of the parameters for each worker, read and written once in each step.

    It has the memory traffic that an asynchronous replay cannot avoid. The difference from `serial` is therefore due to
    the machine, and the difference from `replayed` is the overhead of replay.
    """
    parts, batch_fn = network(kind), batches(batch_size)
    arrays = np.arange(program.num_rows), program.load[:, 0], program.store[:, 0]
    instructions = tuple(jnp.asarray(array) for array in arrays)

    @jax.jit
    def train(params, batch_fn, instructions):
        def step(carry, instruction):
            copies, *server = carry
            g, load, store = instruction
            grads, aux = parts.grad_fn(jax.tree.map(lambda buffer: read_row(buffer, load), copies), batch_fn(g))
            server = _momentum_step(*server, grads)
            copies = jax.tree.map(
                lambda buffer, p: jax.lax.dynamic_update_index_in_dim(buffer, p, store, 0), copies, server[0]
            )
            return (copies, *server), aux["loss"]

        copies = jax.tree.map(lambda p: jnp.broadcast_to(p, (program.capacity.slots, *p.shape)), params)
        return jax.lax.scan(step, (copies, params, jax.tree.map(jnp.zeros_like, params)), instructions)

    return lambda: train(parts.params, batch_fn, instructions)


def _momentum_step(params, velocity, grads):
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, grads)
    return jax.tree.map(lambda p, v: p - LEARNING_RATE * v, params, velocity), velocity
