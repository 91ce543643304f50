"""Local steps of a configuration: how many each worker makes, with which optimizer, and what that takes."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import optax
from ml_collections import ConfigDict

from sgdlab import arguments, replay
from sgdlab.rules.accumulators import in_float32

OPTIMIZERS = ("sgd", "adamw")
_OF_FRAGMENTS = ("fragments", "overlap", "mix")
SAMPLE = 64
"""Run-times by which the speed of a worker is judged: the first so many of each."""


@dataclasses.dataclass(frozen=True)
class Local:
    """What a worker does between two messages; the defaults are a plain gradient.

    Attributes:
      steps: H, of the fastest worker.
      optimizer: one of `OPTIMIZERS`.
      learning_rate: of the worker's optimizer.
      momentum: of SGD, Nesterov's.
      weight_decay: of the worker's optimizer: added to the gradient (SGD), or decoupled (AdamW).
      proximal: rho, the strength of the pull towards the parameters that were read.
      by_speed: whether slower workers make fewer steps.
      least_steps: that the slowest makes then.
      keep_state: whether a worker keeps its optimizer's state from one message to its next.
      server_learning_rate: of an update of the server, however many messages it averages, and constant; None: as
        without local steps, by `rate` and the learning rate of the rule.
      follow_rate: whether the worker's learning rate has the warm-up and decay of `rate`; else it is constant.
      fragments: P, of the parameters, of which each message has one; a worker then keeps its own parameters.
      overlap: tau, steps of the next message before what the server has made of a fragment arrives.
      mix: alpha, the share of its own parameters that a worker keeps then.
    """

    steps: int = 1
    optimizer: str = "sgd"
    learning_rate: float = 1.0
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0
    by_speed: bool = False
    least_steps: int = 1
    keep_state: bool = False
    server_learning_rate: float | None = None
    follow_rate: bool = False
    fragments: int = 1
    overlap: int = 0
    mix: float = 0.0

    @property
    def streams(self) -> bool:
        """Whether workers keep their parameters between two messages, as in Streaming DiLoCo."""
        return self.fragments > 1 or self.overlap > 0 or self.mix > 0

    @property
    def active(self) -> bool:
        """Whether a message is more than a gradient: one step of SGD with learning rate 1 is the gradient itself."""
        plain = self.steps == 1 and self.optimizer == "sgd" and self.learning_rate == 1.0
        kept = self.keep_state and self.momentum
        return self.streams or self.follow_rate or not (plain and self.weight_decay == 0.0 and not kept)

    @property
    def unit(self) -> str:
        """What a worker sends: a "gradient", or a "message" where it makes several local steps for one."""
        return "message" if self.steps > 1 else "gradient"

    @property
    def rate_is_constant(self) -> bool:
        """Whether all updates have the `server_learning_rate`, without the warm-up and decay of `config.rate`.

        As in the authors' code of asynchronous DiLoCo, where a schedule is of the workers' rate: `follow_rate`.
        """
        return self.active and self.server_learning_rate is not None

    def transform(self) -> jax.tree_util.Partial:
        """The worker's optimizer, as a function that makes an optax transform; its numbers are data of a program."""
        own = {"learning_rate": self.learning_rate, "weight_decay": self.weight_decay}
        if self.optimizer == "adamw":
            return jax.tree_util.Partial(_adamw, **own)
        if self.momentum == 0.0:
            return jax.tree_util.Partial(_sgd, **own)
        return jax.tree_util.Partial(_nesterov, momentum=self.momentum, **own)

    def gradient(self, grad_fn: Any, batch_fn: Any, factors: np.ndarray | None = None) -> Any:
        """The pseudo-gradient of a worker, a function of parameters and a `sgdlab.replay.Span` of batches.

        Args:
          grad_fn: as for `sgdlab.replay.in_local_steps`.
          batch_fn: as there.
          factors: as there; of an `InnerRate`.
        """
        own = {"proximal": self.proximal or None, "factors": factors}
        if self.streams:
            stream = {"fragments": self.fragments, "overlap": self.overlap, "mix": self.mix}
            return replay.in_fragments(grad_fn, self.transform(), batch_fn, **stream, **own)
        return replay.in_local_steps(grad_fn, self.transform(), batch_fn, keep_state=self.keep_state, **own)

    def state_of_worker(self, params: Any, memory: Any) -> Any:
        """What a worker keeps between two messages, at the start; None: nothing."""
        if self.streams:
            return replay.state_of_fragments(self.transform(), params, memory)
        return replay.state_of_worker(self.transform(), params, memory) if self.keep_state else memory

    def record(self) -> dict[str, Any]:
        """Its entries, without those of fragments where there are none, and the like, as in runs from before these."""
        entries = dataclasses.asdict(self)
        absent = (() if self.streams else _OF_FRAGMENTS) + (() if self.least_steps > 1 else ("least_steps",))
        absent += () if self.follow_rate else ("follow_rate",)
        return {name: entries[name] for name in entries if name not in absent}


def _sgd(*, learning_rate: Any, weight_decay: Any) -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(weight_decay), optax.scale_by_learning_rate(learning_rate))


def _nesterov(*, learning_rate: Any, momentum: Any, weight_decay: Any) -> optax.GradientTransformation:
    trace = in_float32(optax.trace(momentum, nesterov=True))
    return optax.chain(optax.add_decayed_weights(weight_decay), trace, optax.scale_by_learning_rate(learning_rate))


def _adamw(*, learning_rate: Any, weight_decay: Any) -> optax.GradientTransformation:
    """AdamW with b1 0.9, b2 0.999 and epsilon 1e-8."""
    return optax.chain(
        in_float32(optax.scale_by_adam()),
        optax.add_decayed_weights(weight_decay),
        optax.scale_by_learning_rate(learning_rate),
    )


def local_of(config: ConfigDict, meant: Mapping[str, Any], *, own_rate: bool = False) -> Local:
    """The local steps of a configuration.

    What is open has its usual value wherever a message is more than a gradient: the worker's rate and weight decay are
    those of `optimizer`, and an update of the server goes the whole way of the message.

    Args:
      config: its `local` entries that are not None count; a configuration without them has none.
      meant: entries that its method means, where the configuration leaves them open.
      own_rate: whether the rule has a learning rate of its own kind, such as Adam's, which it then keeps.

    Raises:
      ValueError: where an entry is impossible; it names the entry below `config`.

    Example:
      >>> from configs import digits
      >>> config = digits.get_config()
      >>> local_of(config, {}).active, local_of(config, {"steps": 4, "optimizer": "adamw"}).learning_rate
      (False, 0.001)
      >>> config.local.steps = 8
      >>> local_of(config, {"steps": 4}).steps
      8
    """
    given = {name: value for name, value in config.get("local", {}).items() if value is not None}
    chosen: dict[str, Any] = {**meant, **given}
    steps = arguments.whole("local.steps", chosen.get("steps", 1))
    optimizer = arguments.one_of("local.optimizer", chosen.get("optimizer", "sgd"), OPTIMIZERS)
    if steps == 1 and not chosen.get("keep_state") and "momentum" not in given:
        chosen["momentum"] = 0.0  # which begins anew with each message, and so would only lengthen its one step
    if "least_steps" not in given and "least_steps" in chosen:
        chosen["least_steps"] = min(chosen["least_steps"], steps)
    # Where a method means a rate of the server, that of the worker is another one, also of a single step.
    rate = "adam_learning_rate" if optimizer == "adamw" else "learning_rate"
    assumed = {"learning_rate": config.optimizer[rate]} if "server_learning_rate" in meant else {}
    if Local(**{**assumed, **chosen}).active:
        chosen = {
            "learning_rate": config.optimizer[rate],
            "weight_decay": config.optimizer.weight_decay,
            "server_learning_rate": None if own_rate else 1.0,
            **chosen,
        }
    local = Local(**chosen)
    arguments.real("local.learning_rate", local.learning_rate, above=0)
    arguments.real("local.momentum", local.momentum, above=-1, below=1)
    arguments.whole("local.least_steps", local.least_steps, most=local.steps)
    for name in ("weight_decay", "proximal"):
        arguments.real(f"local.{name}", getattr(local, name), least=0)
    if local.server_learning_rate is not None:
        arguments.real("local.server_learning_rate", local.server_learning_rate, above=0)
    if local.optimizer == "adamw" and local.momentum:
        raise ValueError(f"local.momentum={local.momentum} must be 0 for local.optimizer=adamw, which has its own")
    _check_fragments(local)
    if local.active:
        return local
    for name in ("momentum", "proximal", "by_speed", "keep_state"):
        if given.get(name):
            raise ValueError(f"local.{name}={given[name]} must be left out for one step of SGD; set local.steps")
    return Local(server_learning_rate=local.server_learning_rate)


def _check_fragments(local: Local) -> None:
    arguments.whole("local.fragments", local.fragments)
    arguments.whole("local.overlap", local.overlap, least=0)
    arguments.real("local.mix", local.mix, least=0, most=1)
    if not local.streams:
        return
    if local.overlap >= local.steps:
        raise ValueError(
            f"local.overlap={local.overlap} must be below local.steps={local.steps}: a fragment arrives before the "
            "next one is sent"
        )
    what = f"with local.fragments={local.fragments}, local.overlap={local.overlap} and local.mix={local.mix}"
    if not local.keep_state:
        raise ValueError(f"local.keep_state=False must be True {what}: workers go on with their own parameters")
    if local.by_speed:
        raise ValueError(f"local.by_speed=True must be False {what}: all workers send one fragment at one step")


def steps_by_worker(local: Local, runtimes: np.ndarray) -> np.ndarray:
    r"""int[N]: how many steps each worker makes for a message.

    .. math:: H_i = \max\left(H_{least}, \left\lfloor \frac{v_i}{\max_j v_j} H \right\rfloor\right)

    with v the speeds, the inverse of the mean run-times; without `by_speed` all make H.

    Args:
      local: the configuration's.
      runtimes: float64[T, N], seconds a step; the first 64 rows are looked at.

    Source: Liu et al. 2024, Dynamic Local Updates (DyLU); the least number is that of the authors' notebook.

    Example:
      >>> steps_by_worker(Local(steps=8, by_speed=True), np.array([[1.0, 1.9, 30.0]]))
      array([8, 4, 1])
    """
    workers = runtimes.shape[1]
    if not local.by_speed:
        return np.full(workers, local.steps)
    seconds = runtimes[:SAMPLE].mean(axis=0)
    # Equal run-times must give equal steps: a quotient just below a whole number is that number.
    return np.maximum(local.least_steps, np.floor(seconds.min() / seconds * local.steps * (1 + 1e-12)).astype(int))


def of_messages(runtimes: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """float64[T, N], seconds: what the messages take, each the sum of its steps.

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
    """int[K]: the steps of each gradient that is used, in the order in which they arrive.

    Args:
      schedule: of the messages.
      steps: int[N], of each worker.
    """
    return steps[schedule.worker[schedule.used().any(axis=1)]]


def with_enough_steps(make: Callable[[int], Any], schedule: Any, steps: np.ndarray, batches: float) -> tuple[Any, int]:
    """The schedule whose used gradients are of as many steps as there are batches to use, and the number of gradients.

    Args:
      make: `(gradients) -> schedule`.
      schedule: made of a number of gradients that is about right.
      steps: int[N], of each worker.
      batches: to use.
    """
    while (made := np.cumsum(of_used(schedule, steps)))[-1] < batches:
        schedule = make(math.ceil(1.05 * made.size * batches / made[-1]))
    gradients = int(np.searchsorted(made, batches)) + 1
    return make(gradients), gradients
