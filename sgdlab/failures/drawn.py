"""Failures that are drawn: of workers each by itself, of racks together, of the server; and of spot machines."""

import dataclasses
import heapq
import math
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count, NotNegative, Positive
from sgdlab.failures.family import FAILURES
from sgdlab.failures.outages import Outages
from sgdlab.failures.rollback import CheckpointCosts

Means = Literal["lose", "pause", "rollback"]
Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Recovery:
    """Holds what a failure does to a worker's job, and what it costs until it is whole again.

    Attributes:
      means: what a worker computes is lost, and its state ("lose"); its state survives and it goes on where it was
        ("pause"); or the whole job restarts from its last checkpoint ("rollback").
      detect_seconds: with "lose", until the server knows that a worker is gone.
      rejoin_seconds: until a worker that is up again can begin.
      interval_seconds: with "rollback", of work between two checkpoints.
      checkpoint_seconds: seconds for which all wait while a checkpoint is written.
      restart_seconds: from when the worker is up again until the job goes on.
    """

    means: Means = "lose"
    detect_seconds: float = 0.0
    rejoin_seconds: float = 0.0
    interval_seconds: float = 1800.0
    checkpoint_seconds: float = 60.0
    restart_seconds: float = 300.0

    def outages(self, intervals: list[Iterator[Interval]], **more: float) -> Outages:
        """Return the outages of these intervals, with what they mean.

        Raises:
          ValueError: where a number is out of its range; it names the entry.
        """
        if self.means not in ("lose", "pause", "rollback"):
            raise ValueError(f"recovery.means={self.means!r} must be 'lose', 'pause' or 'rollback'")
        for name in ("detect_seconds", "rejoin_seconds"):
            arguments.real(f"recovery.{name}", getattr(self, name), least=0)
        checkpoints = None
        if self.means == "rollback":
            names = [field.name for field in dataclasses.fields(CheckpointCosts)]
            try:
                checkpoints = CheckpointCosts(**{name: getattr(self, name) for name in names})
            except ValueError as error:
                raise ValueError(f"recovery.{error}") from error
        return Outages(
            intervals,
            pauses=self.means == "pause",
            checkpoints=checkpoints,
            detect_seconds=self.detect_seconds,
            rejoin_seconds=self.rejoin_seconds,
            **more,
        )


@FAILURES.register(title="no failures")
def none() -> Outages:
    """Make a cluster in which nobody ever fails.

    Example:
      >>> none().never
      True
    """
    return Outages(())


@FAILURES.register(title="independent failures", source="Weibull 1951; Schroeder and Gibson 2010")
def independent(
    *,
    num_workers: Count,
    seed: int,
    mean_up_hours: Positive = 24.0,
    repair_minutes: NotNegative = 10.0,
    shape: Positive = 1.0,
    spread: NotNegative = 1.0,
    group_size: Count = 8,
    group_up_hours: Positive | None = None,
    server: bool = False,
    recovery: Recovery = Recovery(),
) -> Outages:
    r"""Draw when each worker fails, and for how long; and when whole racks do.

    .. math:: up \sim \mathrm{Weibull}(k), \qquad down \sim \mathrm{LogNormal}(\log r - \sigma^2 / 2,\; \sigma^2)

    Each worker, each group of workers and the server have a generator of their own: neither more time nor more workers
    change anything earlier.

    Args:
      num_workers: N.
      seed: of all draws.
      mean_up_hours: mean hours that a worker is up between two failures.
      repair_minutes: r, mean minutes that it is down.
      shape: k, of the Weibull law; 1 is the exponential law, less than 1 makes failures come in bursts.
      spread: sigma, of the logarithm of the repair; 0 for repairs of equal length.
      group_size: workers of a rack, which also fail together.
      group_up_hours: mean hours that a rack is up. None: racks do not fail.
      server: the server fails too, as a worker does; what comes to it meanwhile waits.
      recovery: what a failure does, and what it costs.

    Raises:
      ValueError: where a number is out of its range.

    Example:
      >>> outages = independent(num_workers=4, seed=0, mean_up_hours=1.0, repair_minutes=5.0, spread=0.0)
      >>> down, up = outages.away(0, 0.0)
      >>> round(up - down)
      300
    """
    draw = _process(repair_minutes * 60, spread, shape)
    intervals = []
    for worker in range(num_workers + server):
        own = draw(3600.0 * mean_up_hours, (seed, 0, worker))
        if worker < num_workers and group_up_hours is not None:
            own = heapq.merge(own, draw(3600.0 * group_up_hours, (seed, 1, worker // group_size)))
        intervals.append(own)
    return recovery.outages(intervals)


@FAILURES.register(title="spot machines")
def spot(
    *,
    num_workers: Count,
    seed: int,
    mean_up_hours: Positive = 6.0,
    back_minutes: NotNegative = 20.0,
    notice_seconds: Positive = 30.0,
    rejoin_seconds: NotNegative = 60.0,
) -> Outages:
    """Draw when machines are taken away that are cheap because they may be, after a notice.

    A worker that has got the notice finishes its gradient if it can until it is stopped, begins no other, and is lost
    at once for the server.

    Args:
      num_workers: N.
      seed: of all draws.
      mean_up_hours: mean hours that a machine is there, by the exponential law.
      back_minutes: mean minutes until another takes its place, by the exponential law.
      notice_seconds: from the notice to the stop.
      rejoin_seconds: until the new machine can begin.

    Example:
      >>> spot(num_workers=2, seed=0).notice_seconds
      30.0
    """
    draw = _process(back_minutes * 60, None, 1.0)
    intervals = [draw(3600.0 * mean_up_hours, (seed, 0, worker)) for worker in range(num_workers)]
    return Recovery(rejoin_seconds=rejoin_seconds).outages(intervals, notice_seconds=notice_seconds)


def _process(
    repair: float, spread: float | None, shape: float
) -> Callable[[float, tuple[int, ...]], Iterator[Interval]]:
    """Return what draws intervals without end: up by Weibull's law, down log-normal, or exponential (None)."""

    def draw(mean_up: float, seed: tuple[int, ...]) -> Iterator[Interval]:
        generator, now = np.random.default_rng(seed), 0.0
        scale = mean_up / math.gamma(1 + 1 / shape)
        while True:
            down = now + scale * float(generator.weibull(shape))
            if spread is None:
                now = down + float(generator.exponential(repair))
            else:
                now = down + repair * math.exp(spread * float(generator.standard_normal()) - spread**2 / 2)
            yield down, now

    return draw
