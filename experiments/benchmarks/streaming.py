"""Speed of training on examples that the host reads during the run, relative to examples on the device."""

import dataclasses
import io
import statistics
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np
import PIL.Image

from configs import digits
from experiments.benchmarks.timing import ROUNDS, Figure, at_most, ratio
from sgdlab import replay
from sgdlab.data import Dataset, Images
from sgdlab.data.stream import StreamedImages
from sgdlab.runs import tasks
from sgdlab.runs.plan import Plan, make_plan

GRADIENTS, BATCH_SIZE, WORKERS, GOAL = 96, 32, 4, 1.1


def figures() -> Iterator[Figure]:
    """A convolutional net on augmented 32x32x3 images: from memory as they are, and decoded from PNG by threads."""
    resident, streamed = _plan(stream=False), _plan(stream=True)
    images = resident.dataset
    encoded = Dataset(_encoded(images.train), images.test, images.num_classes, images.preprocess)
    plans = {
        "on the device": resident,
        "streamed": streamed,
        "streamed PNG": dataclasses.replace(streamed, dataset=encoded),
    }
    functions = {name: _trained(plan) for name, plan in plans.items()}
    params = {name: jax.device_get(function()) for name, function in functions.items()}
    seconds, of_cpu = _interleaved(functions)
    for name in ("streamed", "streamed PNG"):
        more = ratio(seconds[name], seconds["on the device"])
        detail = ", ".join(f"{n} {_milliseconds(seconds[n])} ms" for n in ("on the device", name))
        detail += f"; of processor time: {_milliseconds(of_cpu['on the device'])}, {_milliseconds(of_cpu[name])} ms"
        what = f"{name}, B={BATCH_SIZE}: time of a gradient over that of one on the device"
        yield at_most(what, more, "x", GOAL, f"a gradient: {detail}")
    for name in ("streamed", "streamed PNG"):
        pairs = zip(*(jax.tree.leaves(params[n]) for n in ("on the device", name)), strict=True)
        differing = sum(not np.array_equal(a, b) for a, b in pairs)
        detail = f"of {len(jax.tree.leaves(params[name]))}, after {GRADIENTS} gradients"
        yield Figure(f"{name}: arrays of parameters that differ in a bit", differing, "", "0", not differing, detail)


def _interleaved(functions: dict[str, Callable[[], object]]) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of each compiled function in each round, and the processor's, which other programs hardly change."""
    seconds, of_cpu = ({name: [] for name in functions} for _ in range(2))
    for _ in range(ROUNDS):
        for name, function in functions.items():
            begin, begin_of_cpu = time.perf_counter(), time.process_time()
            jax.block_until_ready(function())
            seconds[name].append(time.perf_counter() - begin)
            of_cpu[name].append(time.process_time() - begin_of_cpu)
    return seconds, of_cpu


def _milliseconds(seconds: list[float]) -> str:
    """Of a gradient."""
    return f"{1000 * statistics.median(seconds) / GRADIENTS:.1f}"


def _plan(*, stream: bool) -> Plan:
    config = digits.get_config()
    config.data.kind, config.network.kind = "mock", "conv"
    config.data.mock.num_examples, config.data.mock.augment = GRADIENTS * BATCH_SIZE, True
    config.network.conv.channels, config.network.conv.batch_norm = (32, 64), True
    config.cluster.num_workers, config.batch_size, config.epochs = WORKERS, BATCH_SIZE, 1.0
    config.evaluations, config.stream = 1, stream
    return make_plan(config)


def _trained(plan: Plan) -> Callable[[], object]:
    """Return a function that trains, and returns the parameters."""
    task = tasks.task_of(plan.experiment)
    batches = tasks.batches_of(plan, plan.program.num_rows)
    rule = plan.rule(plan.rates, plan.schedule.num_workers)

    def train() -> object:
        return replay.run(plan.program, rule, task, batches, lanes="map").params

    return train


def _encoded(images: Images) -> StreamedImages:
    """Return the same images as files in memory, which lose no bit."""
    files = []
    for pixels in images.pixels:
        file = io.BytesIO()
        PIL.Image.fromarray(pixels).save(file, "png")
        files.append(file.getvalue())
    return StreamedImages(files, images.labels, _decode, images.image_shape, images.white)


def _decode(file: bytes, seed: np.random.SeedSequence | None) -> np.ndarray:
    del seed  # the augmentation is the device's
    return np.asarray(PIL.Image.open(io.BytesIO(file)))
