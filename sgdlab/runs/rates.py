"""Learning rates in epochs of used gradients or in updates, turned into one rate per update."""

import dataclasses
import itertools
import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import optax

from sgdlab import arguments
from sgdlab.replay.program import power_of_two

DECAYS = ("constant", "step", "linear", "hold_linear", "cosine", "exponential")
OF = ("gradient", "update")
"""Units that a learning rate is given for: one gradient, so that an update that averages n takes n times the rate
(Chen et al. 2016; Goyal et al. 2017), or one update, however many gradients it averages."""
UNITS = ("epochs", "updates")
"""Units of the lengths of a decay: epochs of used gradients, or updates of the parameters."""


@dataclasses.dataclass(frozen=True)
class RateSchedule:
    """Warm-up and decay of a learning rate over a run: the entries `config.rate`.

    Raises:
      ValueError: where an entry is out of its range; it names the entry.
    """

    of: str = OF[0]  # one of `OF`
    warmup_epochs: float | None = 0.0  # e_warm; 0 for none, None for a quarter of the run. In epochs, whatever the unit
    decay: str = DECAYS[0]  # one of `DECAYS`
    unit: str = UNITS[0]  # of `steps`, `period`, `last` and `length`, one of `UNITS`
    steps: tuple[float, ...] = ()  # of "step", where the rate is multiplied by `factor`
    period: float | None = None  # of "exponential", the length over which the rate is multiplied by `factor`
    last: float | None = None  # of "hold_linear", the length over which the rate falls to `final`
    # L, of "linear", "hold_linear" and "cosine"; None for that of the run. The rate stays at `final` after it
    length: float | None = None
    factor: float | None = None  # of "step" and "exponential"
    final: float = 0.0  # f, the share of the peak that the decay ends at

    def __post_init__(self) -> None:
        arguments.one_of("of", self.of, OF)
        arguments.one_of("decay", self.decay, DECAYS)
        arguments.one_of("unit", self.unit, UNITS)
        if self.warmup_epochs is not None:
            arguments.real("warmup_epochs", self.warmup_epochs, least=0)
        for name in ("factor", "period", "last", "length"):
            if getattr(self, name) is not None:
                arguments.real(name, getattr(self, name), above=0)
        arguments.real("final", self.final, least=0, most=1)
        steps: tuple[Any, ...] = tuple(self.steps)
        # pyrefly: ignore[unsupported-operation]  # `numbers.Real` has no order to the checker
        numeric = all(isinstance(step, numbers.Real) and math.isfinite(step) and step >= 0 for step in steps)
        if not numeric or any(later <= earlier for earlier, later in itertools.pairwise(steps)):
            raise ValueError(f"steps={steps} must be rising numbers of epochs or updates, finite and at least 0")

    def warmup(self, epochs: float) -> float:
        """Return the epochs over which the rate rises: those that are set, else a quarter of the run's."""
        return epochs / 4 if self.warmup_epochs is None else self.warmup_epochs

    def decayed(self, run: float) -> Callable[[np.ndarray], np.ndarray]:
        """Return d(t) of a run of that length, in its unit: optax's schedules, with t in the place of the step."""
        length, last = run if self.length is None else self.length, self.last or 0.0
        schedule: Any
        match self.decay:
            case "constant":
                return np.ones_like
            case "step":
                schedule = optax.piecewise_constant_schedule(1.0, dict.fromkeys(self.steps, self.factor))
            case "linear":
                schedule = optax.linear_schedule(1.0, self.final, length)
            case "hold_linear":
                schedule = optax.linear_schedule(1.0, self.final, last, max(length - last, 0))
            case "cosine":
                schedule = optax.cosine_decay_schedule(1.0, length, self.final)
            case "exponential":
                schedule = optax.exponential_decay(1.0, self.period, self.factor)
        return lambda position: np.maximum(_at(schedule, position), self.final)


def _at(schedule: Any, position: np.ndarray) -> np.ndarray:
    """Return a schedule's values, computed on arrays of few sizes: JAX compiles every operation for each size anew."""
    found = np.asarray(schedule(np.pad(position, (0, power_of_two(position.size) - position.size), mode="edge")), float)
    return found[: position.size]


CONSTANT = RateSchedule()
"""A rate that is the same for all updates."""


def rates(
    schedule: RateSchedule, *, peak: float, num_workers: int, epochs: float, updates_per_epoch: float
) -> np.ndarray:
    r"""Return the learning rate of every update of a run.

    .. math:: \eta(e) = \eta_{peak} \left( \frac{1}{N} + \left(1 - \frac{1}{N}\right) \min(1, e / e_{warm}) \right) d(t)

    with e the epoch, N the number of workers (Barkai et al., C.4, after Goyal et al. 2017), and d the decay, 1 at
    t = 0. By `unit`, t is the epoch or the number of updates made before; without a server, N steps of nodes are an
    update, or each step where the rate is that of an update. With f = `final` and L = `length`, d(t) is

    * "constant": 1;
    * "step": `factor` to the power of the number of `steps` that t has reached;
    * "linear": 1 - (1 - f) min(1, t / L);
    * "hold_linear": 1 up to t = L - `last`, then linear down to f at t = L (Chen et al. 2016, A.1);
    * "cosine": f + (1 - f) (1 + cos(pi min(1, t / L))) / 2;
    * "exponential": `factor` to the power of t / `period`;

    and f where that is less than f.

    Args:
      schedule: warm-up and decay.
      peak: the rate after warm-up.
      num_workers: N.
      epochs: length of the run.
      updates_per_epoch: updates that use one epoch of gradients.

    Returns:
      float64[ceil(epochs updates_per_epoch)].

    Example:
      A warm-up with 4 workers; then a rate that falls from 1e-4 to 3e-6 in 200,000 updates and stays there, as for
      PixelCNN (Chen et al. 2016, A.4).

      >>> rates(RateSchedule(warmup_epochs=1.0), peak=0.4, num_workers=4, epochs=2, updates_per_epoch=2)
      array([0.1 , 0.25, 0.4 , 0.4 ])
      >>> falling = RateSchedule(decay="exponential", unit="updates", period=200_000.0, factor=0.03, final=0.03)
      >>> found = rates(falling, peak=1e-4, num_workers=1, epochs=24, updates_per_epoch=12_500)
      >>> [f"{found[update]:.2e}" for update in (0, 100_000, 200_000, 299_999)]
      ['1.00e-04', '1.73e-05', '3.00e-06', '3.00e-06']
    """
    updates = np.arange(int(np.ceil(epochs * updates_per_epoch)))
    epoch = updates / updates_per_epoch
    warmup = schedule.warmup(epochs)
    ramp = np.minimum(1.0, epoch / warmup) if warmup else np.ones_like(epoch)
    in_updates = schedule.unit == "updates"
    position, run = (updates.astype(float), epochs * updates_per_epoch) if in_updates else (epoch, epochs)
    return peak * (1 / num_workers + (1 - 1 / num_workers) * ramp) * schedule.decayed(run)(position)


@dataclasses.dataclass(frozen=True)
class InnerRate:
    r"""Warm-up and decay of the learning rate of workers with local steps: `config.rate` over the steps of a worker.

    .. math:: c_j = \eta(j / J) / \eta_{peak}, \qquad j = \lfloor v u \rfloor + h, \qquad u = J / U

    for step h = 0, 1, ... of a message that began on version v, with eta of `sgdlab.runs.rates`, J the steps of a
    worker of mean speed in an epoch, and U the updates in an epoch, as planned.

    In rounds of H steps u is H, and j counts each worker's own steps, as DiLoCo does. Where workers are of unequal
    speeds, the authors of asynchronous DiLoCo count the steps that were made on each share of the data, which workers
    take in turn: shares, and not workers, go at one pace. Here workers go by the version that they have read, so that
    slow ones, and those that join, end their decay with the run too, and all know it without another message.

    Source: Douillard et al. 2023 (DiLoCo), a warm-up and a cosine over inner steps; Liu et al. 2024 in their notebook,
    `local_updates` of each share. That versions stand for steps is sgdlab's own.

    Example:
      Rounds of two steps, ten steps for each worker in an epoch.

      >>> falling = RateSchedule(decay="linear")
      >>> rate = InnerRate.of(falling, num_workers=4, epochs=1.0, steps_per_epoch=10.0, steps_per_update=2.0)
      >>> rate.factors[:3].round(6), rate.place(np.array([0, 1, 4]))
      (array([1. , 0.9, 0.8]), array([0, 2, 8], dtype=int32))
    """

    factors: np.ndarray  # c, float64[S]; the last holds for all further steps
    steps_per_update: float  # u, a worker's steps for each update, on average

    @classmethod
    def of(
        cls, rate: RateSchedule, *, num_workers: int, epochs: float, steps_per_epoch: float, steps_per_update: float
    ) -> "InnerRate":
        """Return the rate of the workers of a run; what `rate` counts in updates is counted in a worker's steps."""
        found = rates(rate, peak=1.0, num_workers=num_workers, epochs=epochs, updates_per_epoch=steps_per_epoch)
        # Of few sizes, so that runs of about equal length share a compiled program.
        return cls(np.pad(found, (0, power_of_two(found.size) - found.size), mode="edge"), steps_per_update)

    def place(self, version: np.ndarray | int) -> np.ndarray:
        """Return int32, of the shape of `version`: the place in `factors` of the first step on that version."""
        # Rounds of H steps must give multiples of H: a product just below a whole number is that number.
        steps = np.floor(np.asarray(version) * self.steps_per_update * (1 + 1e-12))
        return np.minimum(steps, self.factors.size - 1).astype(np.int32)
