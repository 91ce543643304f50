"""Gradients per second of the papers' networks: replay over serial training, seeds together, and a loop in PyTorch.

On an accelerator: ResNet-20 and WRN-16-4 on images of 32 x 32 pixels, and the small convolutional net of the main job.
On a CPU: ResNet-8 on 8 x 8 pixels, in minutes. The goals are an accelerator's. The loop in PyTorch needs `pip install
torch`; without it that is left out.
"""

import dataclasses
import functools
import importlib.util
import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import sgdlab
from experiments.benchmarks import setup
from experiments.benchmarks.timing import Figure, interleaved, ratio
from sgdlab import data, networks, tasks

Tree = Any

EXAMPLES = 1024
MOST_SHARE = 20  # per cent of the time that a rule may take
LEAST_GAIN = 2.0  # of several seeds over one
DIGITS = "conv net"  # of the main job, in float32 and on images of digits, which have 8 x 8 grey pixels
LEAST_SPEED = {"ResNet-20": 1.0, "WRN-16-4": 1.0, DIGITS: 3.0}  # of wave mode over serial training


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What is measured.

    Attributes:
      networks: their names; rules, seeds, memory and PyTorch are measured with the first one.
      pixels: height and width of the images.
      batch: B, examples of a gradient.
      workers: numbers of workers N, ascending.
      gradients: of one run.
      seeds: numbers of runs S that are one program.
      rounds: of interleaved runs.
    """

    networks: tuple[str, ...]
    pixels: int
    batch: int
    workers: tuple[int, ...]
    gradients: int
    seeds: tuple[int, ...]
    rounds: int


ACCELERATOR = Sizes(tuple(LEAST_SPEED), 32, 32, (8, 32, 128), 1024, (1, 4, 16), 5)
CPU = Sizes(("ResNet-8",), 8, 8, (8, 32), 64, (1, 4, 16), 3)


def figures() -> Iterator[Figure]:
    """Memory against N, speeds of both modes, the share of the rules, seeds as one program, and PyTorch."""
    accelerator = jax.default_backend() != "cpu"
    sizes = ACCELERATOR if accelerator else CPU
    yield from _memory(sizes)  # first: the peak of a process never falls
    for name in sizes.networks:
        for dtype in ("float32",) if name == DIGITS else ("float32", "bfloat16"):
            yield from _speeds(sizes, Problem.of(name, dtype, sizes), accelerator)
    problem = Problem.of(sizes.networks[0], "float32", sizes)
    yield from _rules(sizes, problem)
    yield from _seeds(sizes, problem, accelerator)
    yield from _torch(sizes, problem)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A network and random images of ten classes.

    Attributes:
      name: of the network and its dtype.
      task: its pure functions.
      images: float32[EXAMPLES, H, W, C].
      labels: int32[EXAMPLES].
      order: int32[batches, B], the examples of each batch.
    """

    name: str
    task: tasks.NetworkTask
    images: np.ndarray
    labels: np.ndarray
    order: np.ndarray

    @classmethod
    def of(cls, name: str, dtype: str, sizes: Sizes) -> "Problem":
        """The problem of a network in a dtype; its parameters are float32."""
        generator = np.random.default_rng(0)
        pixels, channels = (8, 1) if name == DIGITS else (sizes.pixels, 3)
        return cls(
            f"{name} {dtype}",
            tasks.classification(functools.partial(_network, name, dtype)),
            generator.random((EXAMPLES, pixels, pixels, channels), np.float32),
            generator.integers(0, 10, EXAMPLES, dtype=np.int32),
            generator.permutation(EXAMPLES).astype(np.int32).reshape(-1, sizes.batch),
        )

    @functools.cached_property
    def _examples(self) -> tuple[jax.Array, jax.Array]:
        return jnp.asarray(self.images), jnp.asarray(self.labels)

    def batch_fn(self, seed: int = 0) -> Callable[[jax.Array], data.Batch]:
        """The batch of each gradient, in an order of its own for each seed; the images are on the device, once."""
        order = np.random.default_rng(seed).permutation(self.order)
        return jax.tree_util.Partial(_batch, *self._examples, jnp.asarray(order))

    def replayed(
        self, program: sgdlab.replay.Program, rule: sgdlab.rules.ServerRule, mode: str | None
    ) -> Callable[[], Tree]:
        """A function that replays a program."""
        given = (program, rule, self.task, self.batch_fn())
        return lambda: sgdlab.replay.run(*given, mode=mode).params

    def together(
        self, programs: list[sgdlab.replay.Program], rule: sgdlab.rules.ServerRule, lanes: str
    ) -> Callable[[], list[Tree]]:
        """A function that replays several programs as one."""
        given = (programs, rule, self.task, [self.batch_fn(seed) for seed in range(len(programs))])
        return lambda: [found.params for found in sgdlab.replay.run_many(*given, lanes=lanes)]

    def serial(self, gradients: int) -> Callable[[], Tree]:
        """Hand-written SGD with momentum of one worker."""
        task = self.task

        @jax.jit
        def train(params: Tree, stats: Tree, batch_fn: Callable[[jax.Array], data.Batch]) -> Tree:
            def step(carry: tuple[Tree, Tree, Tree], g: jax.Array) -> tuple[tuple[Tree, Tree, Tree], jax.Array]:
                params, velocity, stats = carry
                grads, aux = task.grad_fn(params, batch_fn(g))
                velocity = jax.tree.map(lambda v, d: setup.MOMENTUM * v + d, velocity, grads)
                params = jax.tree.map(lambda p, v: p - setup.LEARNING_RATE * v, params, velocity)
                stats = stats if task.fold is None else task.fold(stats, aux)
                return (params, velocity, stats), aux["loss"]

            start = params, jax.tree.map(jnp.zeros_like, params), stats
            return jax.lax.scan(step, start, jnp.arange(gradients))

        batch_fn = self.batch_fn()
        return lambda: train(task.params, task.stats, batch_fn)


def _network(name: str, dtype: str, rngs: nnx.Rngs) -> nnx.Module:
    options = {"dtype": jnp.dtype(dtype), "rngs": rngs}
    match name:
        case "ResNet-8" | "ResNet-20":
            return networks.CifarResNet(int(name.removeprefix("ResNet-")), **options)
        case "WRN-16-4":
            return networks.WideResNet(16, 4, **options)
        case _:
            return networks.ConvNet(rngs=rngs)


def _batch(images: jax.Array, labels: jax.Array, order: jax.Array, g: jax.Array) -> data.Batch:
    chosen = order[g % order.shape[0]]
    return data.Batch(images[chosen], labels[chosen])


def _asgd() -> sgdlab.rules.ServerRule:
    return sgdlab.rules.asgd(learning_rate=setup.LEARNING_RATE, momentum=setup.MOMENTUM)


def _lowered(workers: int, sizes: Sizes, *, heterogeneous: bool = False, seed: int = 0) -> sgdlab.replay.Program:
    schedule = setup.schedule(workers, sizes.gradients, heterogeneous=heterogeneous, seed=seed)
    return sgdlab.replay.lower(schedule)


def _memory(sizes: Sizes) -> Iterator[Figure]:
    """The most memory that the device has given out, after a run with each number of workers."""
    stats = jax.devices()[0].memory_stats()
    if not stats or "peak_bytes_in_use" not in stats:
        yield Figure("memory of the device", math.nan, "MiB", detail="not measured: the backend does not count it")
        return
    problem = Problem.of(sizes.networks[0], "float32", sizes)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(problem.task.params)) / 2**20
    for workers in sizes.workers:
        program = _lowered(workers, sizes)
        for mode in ("event", "wave"):
            before = jax.devices()[0].memory_stats()["peak_bytes_in_use"]
            jax.block_until_ready(problem.replayed(program, _asgd(), mode)())
            peak = jax.devices()[0].memory_stats()["peak_bytes_in_use"]
            lanes = f", {program.capacity.width} lanes" if mode == "wave" else ""
            rises = "" if peak > before else "; at most, since a run before took as much"
            yield Figure(
                f"peak memory, {mode} mode, {problem.name}, B={sizes.batch}, N={workers}",
                peak / 2**20,
                "MiB",
                detail=f"parameters {size:.2f} MiB, {program.capacity.slots} versions{lanes}{rises}",
            )


def _speeds(sizes: Sizes, problem: Problem, accelerator: bool) -> Iterator[Figure]:
    """Event and wave mode over serial training, and over each other, on clusters of equal and of unequal workers."""
    serial = problem.serial(sizes.gradients)
    for workers in sizes.workers:
        functions = {"serial": serial}
        lengths = {}
        for kind in ("homogeneous", "heterogeneous"):
            program = _lowered(workers, sizes, heterogeneous=kind == "heterogeneous")
            lengths[kind] = f"mean wave {program.mean_wave_length():.1f} in {program.capacity.width} lanes"
            for mode in ("event", "wave"):
                functions[f"{mode} {kind}"] = problem.replayed(program, _asgd(), mode)
        seconds = interleaved(functions, sizes.rounds)
        speed = {name: f"{name.split()[0]} {_rate(found, sizes.gradients)}" for name, found in seconds.items()}
        for kind, lanes in lengths.items():
            event, wave = (f"{mode} {kind}" for mode in ("event", "wave"))
            shared = f"{problem.name}, B={sizes.batch}, N={workers}, {kind}"
            least = LEAST_SPEED.get(problem.name.rsplit(" ", 1)[0]) if accelerator else None
            gain = ratio(seconds["serial"], seconds[event])
            yield Figure(f"event over serial, {shared}", gain, "x", detail=f"{speed['serial']}, {speed[event]}")
            gain = ratio(seconds["serial"], seconds[wave])
            detail = f"{speed['serial']}, {speed[wave]}; {lanes}"
            yield _at_least(f"wave over serial, {shared}", gain, least, detail)
            gain = ratio(seconds[event], seconds[wave])
            yield Figure(f"wave over event, {shared}", gain, "x", detail=f"{speed[event]}, {speed[wave]}")


def _rules(sizes: Sizes, problem: Problem) -> Iterator[Figure]:
    """What a rule adds to the time of a run whose rule leaves the parameters as they are."""
    rules = {
        # The product with the gradient stays in the program, which otherwise would not compute the gradient.
        "none": sgdlab.rules.server_rule(optax.scale(0.0)),
        "asgd": _asgd(),
        "gap_aware": sgdlab.rules.gap_aware(learning_rate=setup.LEARNING_RATE),
    }
    for workers in (sizes.workers[0], sizes.workers[-1]):
        program = _lowered(workers, sizes)
        for mode in ("event", "wave"):
            functions = {name: problem.replayed(program, rule, mode) for name, rule in rules.items()}
            seconds = interleaved(functions, sizes.rounds)
            for name in ("asgd", "gap_aware"):
                share = 100 * (1 - ratio(seconds["none"], seconds[name]))
                rates = ", ".join(f"{of} {_rate(seconds[of], sizes.gradients)}" for of in ("none", name))
                where = f"{problem.name}, B={sizes.batch}, N={workers}"
                goal = f"<= {MOST_SHARE}"
                title = f"time of {name}, {mode} mode, {where}"
                yield Figure(title, share, "%", goal, share <= MOST_SHARE, rates)


def _seeds(sizes: Sizes, problem: Problem, accelerator: bool) -> Iterator[Figure]:
    """Gradients per second of S seeds as one program, over those of one seed."""
    workers, most = sizes.workers[0], max(sizes.seeds)
    programs = [_lowered(workers, sizes, seed=seed) for seed in range(most)]
    functions = {mode: problem.replayed(programs[0], _asgd(), mode) for mode in ("event", "wave")}
    together = [(runs, "vmap") for runs in sizes.seeds] + [(most, "map")]
    for runs, lanes in together:
        functions[f"{runs} {lanes}"] = problem.together(programs[:runs], _asgd(), lanes)
    seconds = interleaved(functions, sizes.rounds)
    for runs, lanes in together:
        found = seconds[f"{runs} {lanes}"]
        gains = {mode: runs * ratio(seconds[mode], found) for mode in ("event", "wave")}
        rates = ", ".join(f"{mode} {_rate(seconds[mode], sizes.gradients)}" for mode in gains)
        least = LEAST_GAIN if accelerator and (runs, lanes) == (most, "vmap") else None
        title = f"{runs} seeds ({lanes}) over one, {problem.name}, B={sizes.batch}, N={workers}"
        detail = f"{_rate(found, runs * sizes.gradients)}; one seed: {rates}; over wave mode {gains['wave']:.2f}"
        yield _at_least(title, gains["event"], least, detail)


def _torch(sizes: Sizes, problem: Problem) -> Iterator[Figure]:
    """Replay over a loop in PyTorch that swaps the weights of one model."""
    workers = sizes.workers[0]
    title = f"over swapping weights in PyTorch, {problem.name}, B={sizes.batch}, N={workers}"
    if importlib.util.find_spec("torch") is None:
        yield Figure(f"replay {title}", math.nan, "x", detail="not measured: pip install torch")
        return
    from experiments.benchmarks.torch_loop import Swapping  # noqa: PLC0415

    program = _lowered(workers, sizes)
    rates = {"learning_rate": setup.LEARNING_RATE, "momentum": setup.MOMENTUM}
    arrays = {"images": problem.images, "labels": problem.labels, "order": problem.order}
    depth = int(problem.name.split()[0].removeprefix("ResNet-"))
    functions = {mode: problem.replayed(program, _asgd(), mode) for mode in ("event", "wave")}
    functions["PyTorch"] = Swapping(depth, program.worker, workers, **arrays, **rates)
    seconds = interleaved(functions, sizes.rounds)
    for mode in ("event", "wave"):
        detail = ", ".join(f"{name} {_rate(seconds[name], sizes.gradients)}" for name in (mode, "PyTorch"))
        yield Figure(f"{mode} mode {title}", ratio(seconds["PyTorch"], seconds[mode]), "x", detail=detail)


def _rate(seconds: list[float], gradients: int) -> str:
    return f"{gradients / statistics.median(seconds):,.0f}/s"


def _at_least(name: str, value: float, least: float | None, detail: str) -> Figure:
    met = None if least is None else value >= least
    return Figure(name, value, "x", "" if least is None else f">= {least:g}", met, detail)
