"""Local steps of a configuration: how many each worker makes, with which optimizer, and what that takes."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import optax

from sgdlab import arguments, replay
from sgdlab.peer_schedule import AnySchedule
from sgdlab.replay.streaming import Stream
from sgdlab.rules.accumulators import in_float32

OPTIMIZERS = ("sgd", "adamw")
SAMPLE = 64
"""Compute times by which the speed of a worker is judged: the first so many of each."""


@dataclasses.dataclass(frozen=True)
class Local:
    """The steps of a worker between two messages; the defaults are a plain gradient."""

    steps: int = 1  # H, of the fastest worker
    optimizer: str = "sgd"  # one of `OPTIMIZERS`
    learning_rate: float = 1.0  # of the worker's optimizer
    momentum: float = 0.0  # of SGD, Nesterov's
    weight_decay: float = 0.0  # of the worker's optimizer: added to the gradient (SGD), or decoupled (AdamW)
    proximal: float = 0.0  # rho, the strength of the pull towards the parameters that were read
    by_speed: bool = False  # slower workers make fewer steps
    least_steps: int = 1  # that the slowest makes then
    keep_state: bool = False  # a worker keeps its optimizer's state from one message to its next
    # of an update of the server, however many messages it averages, and constant; None: as without local steps, by
    # `rate` and the learning rate of the rule
    server_learning_rate: float | None = None
    follow_rate: bool = False  # the worker's learning rate has the warm-up and decay of `rate`; else it is constant
    # how fragments of the parameters are sent, where workers keep their own parameters between two messages, as in
    # Streaming DiLoCo. None: a message has all parameters
    stream: Stream | None = None

    @property
    def active(self) -> bool:
        """Return if a message is more than a gradient: one step of SGD with learning rate 1 is the gradient itself."""
        plain = self.steps == 1 and self.optimizer == "sgd" and self.learning_rate == 1.0
        kept = self.keep_state and self.momentum
        return self.stream is not None or self.follow_rate or not (plain and self.weight_decay == 0.0 and not kept)

    @property
    def unit(self) -> str:
        """Return what a worker sends: a "gradient", or a "message" where it makes several local steps for one."""
        return "message" if self.steps > 1 else "gradient"

    @property
    def fragments(self) -> int:
        """Return P, the number of fragments of the parameters, one of which each message has."""
        return 1 if self.stream is None else self.stream.fragments

    @property
    def rate_is_constant(self) -> bool:
        """Return if all updates have the `server_learning_rate`, without the warm-up and decay of `config.rate`.

        As in the authors' code of asynchronous DiLoCo, where a schedule is of the workers' rate: `follow_rate`.
        """
        return self.active and self.server_learning_rate is not None

    def entries(self) -> dict[str, Any]:
        """Return its entries of `config.local`, those of what is off left out: none of them for a plain gradient."""
        if self == Local():
            return {}
        off = {"least_steps": 1, "follow_rate": False, "stream": None}
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        found = {name: value for name, value in found.items() if name not in off or value != off[name]}
        stream = found.pop("stream", None)
        return found if stream is None else found | dataclasses.asdict(stream)


ENTRIES = (*(name for name in Local.__dataclass_fields__ if name != "stream"), *Stream.__dataclass_fields__)
"""The entries of `config.local`."""


def optimizer_of(local: Local) -> jax.tree_util.Partial:
    """Return a worker's optimizer, as a function that makes an optax transform; its numbers are data of a program."""
    own = {"learning_rate": local.learning_rate, "weight_decay": local.weight_decay}
    if local.momentum:
        own["momentum"] = local.momentum
    return jax.tree_util.Partial(_adamw if local.optimizer == "adamw" else _sgd, **own)


def pseudo_gradient(local: Local, grad_fn: Any, batch_fn: Any, factors: np.ndarray | None = None) -> Any:
    """Return the gradient function of a worker with local steps, of parameters and a `sgdlab.replay.Span` of batches.

    The functions are as for `sgdlab.replay.in_local_steps`, and so are the factors, those of an `InnerRate`.
    """
    own = {"proximal": local.proximal or None, "factors": factors}
    if local.stream is not None:
        return replay.in_fragments(grad_fn, optimizer_of(local), batch_fn, **dataclasses.asdict(local.stream), **own)
    return replay.in_local_steps(grad_fn, optimizer_of(local), batch_fn, keep_state=local.keep_state, **own)


def state_of_worker(local: Local, params: Any, memory: Any) -> Any:
    """Return what a worker keeps between two messages, at the start, beside the memory of its network, if any."""
    if local.stream is not None:
        return replay.state_of_fragments(optimizer_of(local), params, memory)
    return replay.state_of_worker(optimizer_of(local), params, memory) if local.keep_state else memory


def _sgd(*, learning_rate: Any, weight_decay: Any, momentum: Any = None) -> optax.GradientTransformation:
    """Return SGD, with Nesterov's momentum where it is given."""
    trace = () if momentum is None else (in_float32(optax.trace(momentum, nesterov=True)),)
    return optax.chain(optax.add_decayed_weights(weight_decay), *trace, optax.scale_by_learning_rate(learning_rate))


def _adamw(*, learning_rate: Any, weight_decay: Any) -> optax.GradientTransformation:
    """Return AdamW with b1 0.9, b2 0.999 and epsilon 1e-8."""
    return optax.chain(
        in_float32(optax.scale_by_adam()),
        optax.add_decayed_weights(weight_decay),
        optax.scale_by_learning_rate(learning_rate),
    )


def local_of(
    entries: Mapping[str, Any], optimizer: Mapping[str, Any], meant: Mapping[str, Any], *, own_rate: bool = False
) -> Local:
    """Return the local steps of a configuration.

    What is open has its usual value wherever a message is more than a gradient: the worker's rate and weight decay are
    those of `optimizer`, and an update of the server goes the whole way of the message.

    Entries that are None are open: those of the method hold then. With `own_rate`, the rule has a learning rate of
    its own kind, such as Adam's, and keeps it.

    Raises:
      ValueError: where an entry is impossible; it names the entry below `config`.

    Example:
      >>> optimizer = {"learning_rate": 0.1, "adam_learning_rate": 0.001, "weight_decay": 0.0}
      >>> local_of({}, optimizer, {}).active
      False
      >>> local_of({}, optimizer, {"steps": 4, "optimizer": "adamw"}).learning_rate
      0.001
      >>> local_of({"steps": 8}, optimizer, {"steps": 4}).steps
      8
    """
    given = {name: value for name, value in entries.items() if value is not None}
    chosen: dict[str, Any] = {**meant, **given}
    steps = arguments.whole("local.steps", chosen.get("steps", 1))
    kind = arguments.one_of("local.optimizer", chosen.get("optimizer", "sgd"), OPTIMIZERS)
    if steps == 1 and not chosen.get("keep_state") and "momentum" not in given:
        chosen["momentum"] = 0.0  # which begins anew with each message, and so would only lengthen its one step
    if "least_steps" not in given and "least_steps" in chosen:
        chosen["least_steps"] = min(chosen["least_steps"], steps)
    # Where a method means a rate of the server, that of the worker is another one, also of a single step.
    rate = optimizer["adam_learning_rate" if kind == "adamw" else "learning_rate"]
    assumed = {"learning_rate": rate} if "server_learning_rate" in meant else {}
    if _made({**assumed, **chosen}).active:
        chosen = {
            "learning_rate": rate,
            "weight_decay": optimizer["weight_decay"],
            "server_learning_rate": None if own_rate else 1.0,
            **chosen,
        }
    local = _made(chosen)
    arguments.real("local.learning_rate", local.learning_rate, above=0)
    arguments.real("local.momentum", local.momentum, above=-1, below=1)
    arguments.whole("local.least_steps", local.least_steps, most=local.steps)
    for name in ("weight_decay", "proximal"):
        arguments.real(f"local.{name}", getattr(local, name), least=0)
    if local.server_learning_rate is not None:
        arguments.real("local.server_learning_rate", local.server_learning_rate, above=0)
    if local.optimizer == "adamw" and local.momentum:
        raise ValueError(f"local.momentum={local.momentum} must be 0 for local.optimizer=adamw, which has its own")
    if local.stream is not None:
        _check_stream(local, local.stream)
    if local.active:
        return local
    for name in ("momentum", "proximal", "by_speed", "keep_state"):
        if given.get(name):
            raise ValueError(f"local.{name}={given[name]} must be left out for one step of SGD; set local.steps")
    return Local(server_learning_rate=local.server_learning_rate)


def _made(entries: Mapping[str, Any]) -> Local:
    """Return the local steps of entries, with those of fragments, where there are any, as a stream."""
    own = dict(entries)
    fragments = arguments.whole("local.fragments", own.pop("fragments", 1))
    overlap = arguments.whole("local.overlap", own.pop("overlap", 0), least=0)
    mix = arguments.real("local.mix", own.pop("mix", 0.0), least=0, most=1)
    streams = fragments > 1 or overlap > 0 or mix > 0
    return Local(**own, stream=Stream(fragments, overlap, mix) if streams else None)


def _check_stream(local: Local, stream: Stream) -> None:
    if stream.overlap >= local.steps:
        raise ValueError(
            f"local.overlap={stream.overlap} must be below local.steps={local.steps}: a fragment arrives before the "
            "next one is sent"
        )
    what = f"with local.fragments={stream.fragments}, local.overlap={stream.overlap} and local.mix={stream.mix}"
    if not local.keep_state:
        raise ValueError(f"local.keep_state=False must be True {what}: workers go on with their own parameters")
    if local.by_speed:
        raise ValueError(f"local.by_speed=True must be False {what}: all workers send one fragment at one step")


def steps_by_worker(local: Local, runtimes: np.ndarray) -> np.ndarray:
    r"""Return int[N], how many steps each worker makes for a message.

    .. math:: H_i = \max\left(H_{least}, \left\lfloor \frac{v_i}{\max_j v_j} H \right\rfloor\right)

    with v the speeds, the inverse of the mean compute times; without `by_speed` all make H.

    Args:
      local: the configuration's.
      runtimes: float64[T, N], seconds a step; the first `SAMPLE` rows are looked at.

    Source: Liu et al. 2024, Dynamic Local Updates (DyLU); the least number is that of the authors' notebook.

    Example:
      >>> steps_by_worker(Local(steps=8, by_speed=True), np.array([[1.0, 1.9, 30.0]]))
      array([8, 4, 1])
    """
    workers = runtimes.shape[1]
    if not local.by_speed:
        return np.full(workers, local.steps)
    seconds = runtimes[:SAMPLE].mean(axis=0)
    # Equal compute times must give equal steps: a quotient just below a whole number is that number.
    return np.maximum(local.least_steps, np.floor(seconds.min() / seconds * local.steps * (1 + 1e-12)).astype(int))


def of_messages(runtimes: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return float64[T, N], seconds: what the messages take, each the sum of its steps.

    Args:
      runtimes: float64[T max(steps), N], seconds a step.
      steps: int[N], of each worker.

    Example:
      >>> of_messages(np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0], [4.0, 8.0]]), np.array([2, 1]))
      array([[3., 5.],
             [7., 6.]])
    """
    rows = len(runtimes) // int(steps.max())
    found = np.empty((rows, steps.size))
    for each in np.unique(steps):
        whose = np.flatnonzero(steps == each)
        found[:, whose] = runtimes[: rows * each, whose].reshape(rows, each, whose.size).sum(axis=1)
    return found


def of_used(schedule: Any, steps: np.ndarray) -> np.ndarray:
    """Return int[K], the steps of each used gradient in order of arrival, from those of each worker, int[N]."""
    return steps[schedule.worker[schedule.used().any(axis=1)]]


def edges(schedule: AnySchedule, steps: np.ndarray) -> int | np.ndarray:
    """Return the edges of the computation tree that each gradient is, its worker's int[N] steps; 1 where all are 1."""
    # pyrefly: ignore[missing-attribute]  # that of a server has it
    return steps[schedule.worker] if schedule.has_server and steps.max() > 1 else 1


def with_enough_steps(make: Callable[[int], Any], schedule: Any, steps: np.ndarray, batches: float) -> tuple[Any, int]:
    """Return the schedule that uses a number of batches, one for each step, and the number of its gradients.

    `make` returns a schedule of a number of gradients, of which the one that is given has about the right one.
    """
    while (made := np.cumsum(of_used(schedule, steps)))[-1] < batches:
        schedule = make(math.ceil(1.05 * made.size * batches / made[-1]))
    gradients = int(np.searchsorted(made, batches)) + 1
    return make(gradients), gradients


def spans(steps: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return int32[size] twice: the number of the first batch of each gradient, and its steps; padded.

    Args:
      steps: int[R], of each gradient that is computed.
      size: gradients to make room for.

    Example:
      >>> spans(np.array([2, 1, 3]), 4)
      (array([0, 2, 3, 0], dtype=int32), array([2, 1, 3, 1], dtype=int32))
    """
    first, padded = np.zeros(size, np.int32), np.ones(size, np.int32)
    first[1 : steps.size] = np.cumsum(steps[:-1])
    padded[: steps.size] = steps
    return first, padded


def span_fn(first: np.ndarray, steps: np.ndarray, anew: Any = None, place: Any = None) -> Any:
    """Return `(row) -> Span`, the `batch_fn` of a replay whose gradients have local steps.

    Args:
      first: int32[size], number of the first batch of each gradient.
      steps: int32[size], of each.
      anew: int32[R], of a recorded run: the version from which its worker begins anew, or -1. None: workers go on.
      place: int32[R], of the first step in the factors of the learning rate. None: without them.
    """
    if anew is not None:
        anew = jax.numpy.asarray(np.pad(anew, (0, first.size - anew.size), constant_values=-1))
    if place is not None:
        place = jax.numpy.asarray(np.pad(place, (0, first.size - place.size)))
    return jax.tree_util.Partial(_span, jax.numpy.asarray(first), jax.numpy.asarray(steps), anew, place)


def _span(
    first: jax.Array, steps: jax.Array, anew: jax.Array | None, place: jax.Array | None, row: jax.Array
) -> replay.Span:
    own = {name: each[row] for name, each in (("anew", anew), ("place", place)) if each is not None}
    return replay.Span(first[row], steps[row], **own)
