"""The work of the workers: a small network on the UCI digits, slowly, and with the faults that they are told to have.

A worker is told of a fault by a file in the run's folder, whose name is the fault's and the number of its process:
`raise.4711`. What is computed for a replay has no such file, and no fault.
"""

import functools
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import rules
from sgdlab.live.work import Work, WorkSource

Tree = Any

DATA = "digits.npz"
BATCH = 16
HIDDEN = 24
SLOW = 10.0
"""Factor on the time of the gradients of a worker that is told to be slow."""
RULE = rules.gap_aware(learning_rate=0.02, momentum=0.9)
"""It looks at the version that a gradient was computed on: a wrong one changes the result."""
MEGABYTES = 16
"""Bytes that a worker that grows takes at once."""


def work(argument: Mapping[str, Any]) -> Work:
    """Return the work of one worker.

    Args:
      argument: `folder`, where `store_data` has left the data and faults are asked for; `seconds`, the mean time of a
        gradient.
    """
    folder = pathlib.Path(argument["folder"])
    with np.load(folder / DATA) as stored:
        pixels, labels = stored["pixels"], stored["labels"]
    return Work(
        params(),
        gradient_of(folder),
        jax.tree_util.Partial(_batch, jnp.asarray(pixels), jnp.asarray(labels)),
        seconds=functools.partial(_seconds, folder, float(argument["seconds"])),
    )


def source(folder: pathlib.Path, seconds: float) -> WorkSource:
    """Return where workers find `work`."""
    return WorkSource("experiments.benchmarks.faults.work:work", {"folder": str(folder), "seconds": seconds})


def store_data(folder: pathlib.Path) -> None:
    """Leaves the data in a folder, so that workers need no library to read them."""
    from sgdlab import data  # noqa: PLC0415 (the server's process alone needs it)

    digits: Any = data.digits().train
    np.savez(folder / DATA, pixels=digits.images.reshape(len(digits), -1), labels=digits.labels)


def params() -> Tree:
    """Return the parameters before the first update."""
    draw = np.random.default_rng(0)
    sizes = {"first": (64, HIDDEN), "second": (HIDDEN, 10)}
    layers = {
        name: {"kernel": draw.standard_normal(size) / np.sqrt(size[0]), "bias": np.zeros(size[1])}
        for name, size in sizes.items()
    }
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), layers)


def gradient_of(folder: pathlib.Path) -> Callable[[Tree, Tree], tuple[Tree, Tree]]:
    """Return the gradient of the cross-entropy; not a number in a process that is told so."""

    def factor(ticket: np.ndarray) -> np.ndarray:
        return np.full(ticket.shape, np.nan if told(folder, "nan") else 1.0, np.float32)

    def loss(params: Tree, batch: Tree) -> jax.Array:
        pixels, labels, factor = batch
        first, second = params["first"], params["second"]
        hidden = jnp.tanh(pixels * factor @ first["kernel"] + first["bias"])
        logits = hidden @ second["kernel"] + second["bias"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1))

    def gradient(params: Tree, batch: Tree) -> tuple[Tree, Tree]:
        pixels, labels, ticket = batch
        broken = jax.pure_callback(factor, jax.ShapeDtypeStruct(ticket.shape, jnp.float32), ticket)
        value, grads = jax.value_and_grad(loss)(params, (pixels, labels, broken[:, None]))
        return grads, {"loss": value}

    return gradient


def tell(folder: pathlib.Path, what: str, process: int) -> None:
    """Asks a process for a fault."""
    (folder / f"{what}.{process}").touch()


def told(folder: pathlib.Path, what: str, *, keep: bool = False) -> bool:
    """Return whether this process is asked for a fault; it is not asked again, unless the request is kept."""
    path = folder / f"{what}.{os.getpid()}"
    if not path.exists():
        return False
    if not keep:
        path.unlink(missing_ok=True)
    return True


def _batch(pixels: jax.Array, labels: jax.Array, ticket: jax.Array) -> Tree:
    rows = (ticket * BATCH + jnp.arange(BATCH, dtype=jnp.int32)) % len(labels)
    return pixels[rows], labels[rows], jnp.full([BATCH], ticket, jnp.int32)


def _seconds(folder: pathlib.Path, mean: float, worker: int, k: int) -> float:
    """Return how long a gradient takes; here a worker is, as it has been told, broken or slow."""
    if told(folder, "raise"):
        raise ArithmeticError("this worker was told to fail")
    if told(folder, "grow"):
        _grow()
    seconds = mean * float(np.random.default_rng([worker, k]).uniform(0.7, 1.3))
    return seconds * (SLOW if told(folder, "slow", keep=True) else 1.0)


def _grow() -> None:
    """Takes memory until there is none, or until it is killed."""
    held = []
    while True:
        held.append(b"\1" * (MEGABYTES << 20))
        time.sleep(0.01)
