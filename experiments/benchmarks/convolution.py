"""Speed of a gradient of ResNet-20 inside a compiled loop, as in replay, relative to a step outside of any loop."""

import functools
import statistics
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.benchmarks.compilation import compilations
from experiments.benchmarks.timing import Figure, at_least, interleaved, ratio
from sgdlab import networks
from sgdlab.data.batch import Batch
from sgdlab.tasks import Task, classification

STEPS = 3
BATCH_SIZE = 32
LEARNING_RATE = 0.01
OUTSIDE = ("plain", "lax")  # `patches` compiles for a minute and is twice as slow


def figures() -> Iterator[Figure]:
    """ResNet-20 on images of 32 x 32 x 3: initialisation, then the loop's share of the speed outside of it."""
    with compilations() as seconds:
        begin = time.perf_counter()
        task = _task(None)
        jax.block_until_ready(task.params)
        yield Figure(
            "ResNet-20 initialised", time.perf_counter() - begin, "s", detail=f"of which compiling {sum(seconds):.1f} s"
        )
    batches = _batches()
    functions = {f"outside, {form}": _outside(_task(form), batches) for form in OUTSIDE}
    functions["loop"] = _loop(task, batches)
    seconds = interleaved(functions)
    fastest = min((name for name in functions if name != "loop"), key=lambda name: statistics.median(seconds[name]))
    share = ratio(seconds[fastest], seconds["loop"])
    took = ", ".join(f"{name} {1000 * statistics.median(s) / STEPS:,.0f} ms" for name, s in seconds.items())
    what = f"ResNet-20, B={BATCH_SIZE}: a gradient in the loop over one outside"
    yield at_least(what, share, "x", 0.95, f"a gradient: {took}")


@functools.cache
def _task(form: str | None) -> Task:
    def make(rngs: nnx.Rngs) -> nnx.Module:
        network = networks.CifarResNet(20, rngs=rngs)
        network.set_attributes(form=form, raise_if_not_found=False)
        return network

    return classification(make)


def _batches() -> Batch:
    """Synthetic images, [STEPS, B, ...]."""
    generator = np.random.default_rng(0)
    images = generator.normal(size=(STEPS, BATCH_SIZE, 32, 32, 3)).astype(np.float32)
    return Batch(jnp.asarray(images), jnp.asarray(generator.integers(0, 10, (STEPS, BATCH_SIZE))))


def _step(task: Task, params, batches: Batch, step: jax.Array):
    batch = jax.tree.map(lambda array: array[step], batches)
    grads, _ = task.grad_fn(params, batch)
    return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, params, grads)


def _outside(task: Task, batches: Batch) -> Callable[[], object]:
    """One compiled program a gradient."""
    step = jax.jit(functools.partial(_step, task))
    numbers = [jnp.asarray(number) for number in range(STEPS)]

    def run():
        params = task.params
        for number in numbers:
            params = step(params, batches, number)
        return params

    return run


def _loop(task: Task, batches: Batch) -> Callable[[], object]:
    """One compiled program for all gradients; their number is data, so that XLA cannot unroll the loop."""

    @jax.jit
    def train(params, batches, count):
        return jax.lax.fori_loop(0, count, lambda step, params: _step(task, params, batches, step), params)

    count = jnp.asarray(STEPS)
    return lambda: train(task.params, batches, count)
