"""The cost of a run on this machine: the time of a gradient, measured without any data, and its memory."""

import dataclasses
import json
import math
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from ml_collections import ConfigDict

from experiments.harness import stand_ins
from experiments.harness.machine import processor
from sgdlab import data, files, tasks
from sgdlab.errors import UsageError
from sgdlab.registry import NETWORKS
from sgdlab.runs import configuration, plan, pool, resolve
from sgdlab.runs.experiment import Experiment
from sgdlab.runs.methods import UsedPart
from sgdlab.runs.store import key_of

_LARGE = 4_000_000
"""Parameters of a network of which few examples are timed, since compiling it takes most of the time."""
_FEW = 2
_OPERATIONS = 8e9
"""Floating-point operations of the gradient that is timed, about a second of a core, unless one example has more."""
_EVALUATED = 1 / 3
"""The time of an example that is evaluated, as a share of the time of its gradient: a forward pass."""


@dataclasses.dataclass(frozen=True)
class Speed:
    """Holds what was measured of a gradient.

    Attributes:
      seconds: of a gradient of a whole batch: of one core where there are only CPUs, else of the device.
      timed: examples that were timed.
      batch: examples of the batch.
      parameters: bytes of the network's parameters.
      workspace: bytes that the gradient of the whole batch takes besides.
    """

    seconds: float
    timed: int
    batch: int
    parameters: int
    workspace: float

    def __str__(self) -> str:
        part = "" if self.timed == self.batch else f", from {self.timed} of {self.batch} examples"
        return f"{1000 * self.seconds:,.3g} ms a gradient{part}"


@dataclasses.dataclass(frozen=True)
class Gradient:
    """Holds what the time of a gradient depends on.

    Attributes:
      key: a hash of it, and of this machine.
      title: the network, the data and the batch, for a person.
      config: a configuration with such gradients.
    """

    key: str
    title: str
    config: ConfigDict = dataclasses.field(compare=False)

    @classmethod
    def of(cls, config: ConfigDict) -> "Gradient":
        """Return that of a configuration; called where data sets are stand-ins."""
        experiment = resolve(config)
        network, on, dataset = experiment.network, experiment.data.used, experiment.data.dataset
        shape = experiment.data.network_arguments(network) | {"batch": config.batch_size}
        if isinstance(dataset, data.Text):
            shape["segment"] = dataset.train.segment
        else:
            shape["preprocess"] = repr(dataset.preprocess)
        here = [processor(), jax.default_backend(), jax.__version__]
        key = key_of({"network": network.name, "entries": network.entries, "shape": shape, "here": here})
        return cls(key, f"{_titled(network)} on {_titled(on)}, batches of {config.batch_size}", config)


def _titled(used: UsedPart) -> str:
    """Return a part's name, with those of its entries that are not its defaults."""
    plain = lambda value: list(value) if isinstance(value, tuple) else value
    defaults = used.part.defaults
    other = {name: value for name, value in used.entries.items() if plain(value) != plain(defaults.get(name))}
    words = (f"{name}={value}".replace(" ", "") for name, value in other.items() if name != "data_dir")
    return f"{used.name}({', '.join(words)})" if other else used.name


def speeds(gradients: Sequence[Gradient], path: pathlib.Path, processes: int) -> dict[Gradient, Speed]:
    """Times gradients, in processes such as runs have; those that were timed before are read."""
    unique = list({gradient.key: gradient for gradient in gradients}.values())
    new = [gradient for gradient in unique if not _file(path, gradient).exists()]
    if new:
        some = f"{len(new)} kind{'s' * (len(new) != 1)} of gradients to time, of the networks without their data"
        print(f"{some}; compiling a large one takes a minute", flush=True)
        with pool.Progress(len(new), 0, processes, len(new)) as progress:
            pool.run([_Timing(gradient, path) for gradient in new], progress, processes)
    return {gradient: Speed(**json.loads(_file(path, gradient).read_text())) for gradient in gradients}


@dataclasses.dataclass(frozen=True)
class _Timing:
    gradient: Gradient
    path: pathlib.Path

    def __call__(self, send: Callable[[pool.Message], None]) -> None:
        speed = timed(self.gradient.config)
        files.write_text(_file(self.path, self.gradient), json.dumps(dataclasses.asdict(speed)) + "\n")
        send(pool.Message(self.gradient.title, result=str(speed)))


def _file(path: pathlib.Path, gradient: Gradient) -> pathlib.Path:
    return path / f"{gradient.key}.json"


def timed(config: ConfigDict) -> Speed:
    """Compiles a gradient of a configuration and times it, on parameters and examples that are all 0.

    Of a large network, or a large batch, few examples are timed, and the time is taken to be linear in their number.
    """
    with stand_ins.used():
        experiment = resolve(config)
        batch = experiment.data.batch_size
        size, few = bytes_of(abstract_task(experiment).params), min(batch, _FEW)
        lowered, arguments = _lowered(experiment, few)
        if size / 4 < _LARGE:
            operations = (lowered.cost_analysis() or {}).get("flops", 0) / few
            fits = int(min(batch, max(_OPERATIONS // max(operations, 1), 1)))
            if fits != few:
                few = fits
                lowered, arguments = _lowered(experiment, few)
        compiled = lowered.compile()
        zeros = jax.tree.map(_zeros, arguments)
        seconds = _fastest(lambda: jax.block_until_ready(compiled(*zeros)))
        memory = compiled.memory_analysis()
        ratio = batch / few
        workspace = 0 if memory is None else memory.temp_size_in_bytes * ratio
        return Speed(seconds * ratio, few, batch, size, workspace)


def _fastest(call: Callable[[], object], *, least: float = 1.0, most: int = 5) -> float:
    """Return the shortest time of several calls, after a first; on a CPU that of its cores, whatever else they do."""
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    call()
    found: list[float] = []
    while len(found) < most and (sum(found) < least or len(found) < 2):
        begun = clock()
        call()
        found.append(clock() - begun)
        if found[0] > 3 * least:
            break
    return max(min(found), 1e-9)


def _lowered(experiment: Experiment, number: int) -> tuple[Any, tuple]:
    """Return the gradient of a batch of so many examples, traced, and the shapes of its arguments."""
    task, dataset = abstract_task(experiment, number), experiment.data.dataset
    key = jax.eval_shape(lambda: data.batches.key_of(0))
    if isinstance(dataset, data.Text):
        examples = (jax.ShapeDtypeStruct((number, dataset.train.segment), jnp.int32),) * 2
        finish = data.Batch
    else:
        pixels = getattr(dataset.train, "pixels", np.zeros(0, np.uint8)).dtype
        examples = (
            jax.ShapeDtypeStruct((number, *dataset.image_shape), pixels),
            jax.ShapeDtypeStruct((number,), jnp.int32),
        )
        finish = data.Finish(dataset.preprocess, dataset.train.white, task.kind.facts.targets == "levels")

    def gradient(params: Any, local: Any, inputs: jax.Array, targets: jax.Array, key: jax.Array) -> Any:
        batch = finish(inputs, targets, key)
        return task.grad_fn(params, batch) if local is None else task.grad_fn(params, batch, local)

    arguments = (*jax.tree.map(_shape, (task.params, task.local)), *examples, key)
    return jax.jit(gradient).lower(*arguments), arguments


def abstract_task(experiment: Experiment, batch_size: int | None = None) -> tasks.NetworkTask:
    """Return the task of an experiment, whose parameters are shapes without values."""
    used = experiment.network
    given = experiment.data.network_arguments(used)
    entries = {n: tuple(v) if isinstance(v, list) else v for n, v in used.entries.items()}
    network = nnx.eval_shape(lambda: NETWORKS.make(used.name, entries, **given, rngs=nnx.Rngs(params=0)))
    size = batch_size or experiment.data.batch_size
    task, outcomes = experiment.task, experiment.outcomes
    return tasks.make_task(task.name, network, task.entries, outcomes=outcomes, batch_size=size)


def seconds_of(config: ConfigDict, speed: Speed) -> float:
    """Return the time of a run: of its gradients and evaluations.

    The rule's own work, compiling, and the reading of files are not counted.
    """
    experiment = resolve(config)
    dataset = experiment.data.dataset
    tested = config.test_examples or len(dataset.test)
    evaluated = (config.evaluations + 1) * tested + (config.train_examples or len(dataset.train))
    gradients = experiment.num_gradients
    return speed.seconds * (gradients + _EVALUATED * evaluated / config.batch_size)


def memory_of(config: ConfigDict, speed: Speed, *, at_once: int = 1) -> float:
    """Bytes that a run holds: copies of the parameters, the state of rule and workers, one gradient, and the data.

    The copies are those of a schedule that begins like that of the run.

    Args:
      config: what is trained.
      speed: of its gradients.
      at_once: how many such configurations one program trains, which share the data.
    """
    experiment, workers = resolve(config), config.cluster.num_workers
    dataset, task = experiment.data.dataset, abstract_task(experiment)
    copies, state = _held(config, task.params)
    examples = [getattr(dataset, name) for name in ("train", "test")]
    arrays = [getattr(split, "tokens", getattr(split, "pixels", None)) for split in examples]
    held = sum(array.nbytes for array in arrays if array is not None)
    if arrays[1] is None:  # streamed, but for what is evaluated
        held += (config.test_examples or len(examples[1])) * math.prod(dataset.image_shape)
    return at_once * (copies * speed.parameters + state + workers * bytes_of(task.local) + speed.workspace) + held


def _held(config: ConfigDict, params: Any) -> tuple[int, float]:
    """Return the copies of the parameters, and the bytes of the rule's state."""
    workers, short = config.cluster.num_workers, config.copy_and_resolve_references()
    with_rest = 4  # the new parameters, the gradient, its part of the update, the running average
    try:
        per_epoch = resolve(config).data.batches_per_epoch
        configuration.shorten(short, min(config.epochs, (4 * workers + 64) / per_epoch))
        short.evaluations = 1
        made = plan.make_plan(short)
    except UsageError:  # a protocol that learns from more than the beginning of a run
        return workers + with_rest, 0.0
    program = made.program
    rule = made.rule(made.rates, program.capacity.workers)
    nodes = 1 if made.schedule.has_server else program.num_workers
    state = nodes * bytes_of(jax.eval_shape(rule.init, jax.tree.map(_shape, params)))
    versions = program.capacity.slots + program.capacity.kept + (0 if made.schedule.has_server else nodes)
    return versions + with_rest, state


def bytes_of(tree: Any) -> int:
    """Return bytes of the arrays of a tree, or of what stands for them."""
    return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _zeros(leaf: Any) -> jax.Array:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return data.batches.key_of(0)
    return jnp.zeros(leaf.shape, leaf.dtype)
