"""Cutoff SGD: a predictor says how many workers an update waits for; the others are interrupted."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count, Whole
from sgdlab.knobs import Knob
from sgdlab.predictors import asking
from sgdlab.predictors.online import OBJECTIVES, CutoffRecord, run_online
from sgdlab.predictors.predictor import Prediction, Predictor
from sgdlab.protocols.policy import Action
from sgdlab.protocols.register import register
from sgdlab.protocols.rounds import Rounds, rounds_in_arrays
from sgdlab.runtimes import checked
from sgdlab.schedule import Schedule


@dataclasses.dataclass
class Cutoff(Rounds):
    """Rounds that wait for as many gradients as a predictor says; the first `window` ones wait for all workers alive.

    Who joins before the open round has a gradient begins it too; later, it waits for the next one. The prediction is
    made by `prepare`, while workers compute.

    Of each round the predictor is told the times of the gradients that came. A worker that is not there counts as one
    that was cut off; in the first window, whose rows must be complete, its time is that of the slowest that came. A
    worker that joined during the round, and whose gradient is not in it, was not cut off, since it began later than
    the others or not at all: such a round teaches nothing, and the first window is longer by it.

    Attributes:
      predictor: says how many workers to wait for.
      num_workers: N.
      window: number of rounds before the first prediction.
      objective: what the cutoff maximises, "throughput" or "rate".
      seed: of the predictor's random numbers.
      history: compute times of the rounds of the first window, seconds.
      seen: worker -> seconds, of the open round.
      late: workers that joined during the open round.
      used: number of gradients of the rounds that taught something.
      total: how long these rounds took, seconds.
      prediction: the newest prediction; None before the first.
    """

    predictor: Any = dataclasses.field(default=None, compare=False)
    num_workers: int = 1
    window: int = 20
    objective: str = "throughput"
    seed: int = 0
    interrupt: bool = True
    history: list[tuple[float, ...]] = dataclasses.field(default_factory=list, init=False)
    seen: dict[int, float] = dataclasses.field(default_factory=dict, init=False)
    late: set[int] = dataclasses.field(default_factory=set, init=False)
    used: int = dataclasses.field(default=0, init=False)
    total: float = dataclasses.field(default=0.0, init=False)
    # Functions of what is above, computed when there is time.
    prediction: Prediction | None = dataclasses.field(default=None, init=False, compare=False)
    _state: Any = dataclasses.field(default=None, init=False, compare=False, repr=False)
    _unlearned: dict[int, float] | None = dataclasses.field(default=None, init=False, compare=False, repr=False)

    @property
    def single(self) -> bool:
        """Tell whether there is one worker; else the first window's updates have more gradients."""
        return self.num_workers == 1

    def wanted(self) -> int:
        """The predicted cutoff; all workers in the first window."""
        self.prepare()
        return self.num_workers if self.prediction is None else self.prediction.cutoff

    def arrival(self, now: float, worker: int, version: int, seconds: float) -> list[Action]:
        """Takes the gradient, and remembers how long it took."""
        self.seen[worker] = seconds
        return super().arrival(now, worker, version, seconds)

    def joined(self, now: float, worker: int) -> list[Action]:
        """The worker begins, unless the open round has a gradient already."""
        self.alive.add(worker)
        self.late = {*self.late, worker} if self.busy or self.waiting else set()
        return [] if self.waiting else self.begin([worker])

    def warm(self) -> None:
        """Lets the predictor compile, on made-up times, what it needs; what it learns of them is forgotten."""
        times = np.ones((self.window + 1, self.num_workers))
        times[-1, 1:] = np.nan
        state = self.predictor.start(times[:-1], seed=self.seed)
        rate = 1.0 if self.objective == "rate" else None
        self.predictor.predict(state, rate=rate)
        self.predictor.predict(self.predictor.observe(state, times[-1], 1.0), rate=rate)

    def prepare(self) -> None:
        """Tells the predictor of the last round, and asks it for the open one's cutoff."""
        if self._unlearned is None:
            return
        seen, self._unlearned = self._unlearned, None
        if self._state is None:
            self._state = asking.start(self.predictor, np.array(self.history), seed=self.seed)
        else:
            times = np.full(self.num_workers, np.nan)
            times[list(seen)] = list(seen.values())
            self._state = asking.observe(self.predictor, self._state, times, max(seen.values()))
        rate = self.used / self.total if self.objective == "rate" else None
        self.prediction = asking.predict(self.predictor, self._state, rate=rate, workers=self.num_workers)

    def _close(self, now: float) -> list[Action]:
        self.prepare()  # the driver may not have had the time
        seen, self.seen = self.seen, {}
        if not (self.late & self.alive) - seen.keys():
            self._learn(seen)
        self.late = set()
        return super()._close(now)

    def _learn(self, seen: dict[int, float]) -> None:
        self.used, slowest = self.used + len(seen), max(seen.values())
        if self._state is not None:
            self.total, self._unlearned = self.total + slowest, seen
            return
        self.history.append(tuple(seen.get(worker, slowest) for worker in range(self.num_workers)))
        if len(self.history) == self.window:
            self.total, self._unlearned = float(np.max(self.history, axis=1).sum()), seen


def _fast(policy: Cutoff, runtimes: np.ndarray, num_gradients: int | None) -> Schedule:
    own = {"window": policy.window, "objective": policy.objective, "seed": policy.seed}
    return _with_record(runtimes, policy.predictor, num_gradients=num_gradients, **own)[0]


@register(
    title="Cutoff SGD",
    source="Teng and Wood 2018, Alg. 1",
    families=("Synchronous rounds",),
    rule="nag_asgd",
    fast=_fast,
    ends="rows",
    tunes=Knob("predictor.running_mean.at_least", 0.25, 0.95, log=False),
)
def cutoff(
    *, num_workers: Count, predictor: Predictor, window: Count = 20, objective: str = "throughput", seed: Whole = 0
) -> Cutoff:
    """Every update takes the first c gradients, with c predicted before the iteration; late workers are interrupted.

    An interrupted worker gives up its gradient at the update and begins a new one with all others. The first `window`
    updates wait for all workers.

    Args:
      num_workers: N.
      predictor: one of `sgdlab.predictors`, or anything with its `start`, `predict` and `observe`; for a schedule, also
        a function that makes one from the compute times.
      window: number of updates, from the first, that wait for all workers.
      objective: what the cutoff maximises: gradients per second of the iteration ("throughput", the paper's), or of the
        whole run ("rate").
      seed: of the predictor's random numbers.

    Raises:
      ValueError: where an argument is out of its range, or the predictor is for another number of workers.

    Source: Teng and Wood 2018, Algorithm 1.

    Example:
      >>> from sgdlab import predictors, protocols
      >>> runtimes = np.array([[1.0, 1.0, 9.0]] * 4)
      >>> protocols.cutoff(runtimes, predictor=predictors.RunningMean(window=1), window=2).applied[:, 0]
      array([ 9., 18., 19., 20.])
    """
    return Cutoff(
        num_workers=num_workers,
        predictor=predictor,
        window=window,
        objective=arguments.one_of("objective", objective, OBJECTIVES),
        seed=seed,
    )


def cutoff_with_record(
    runtimes: np.ndarray,
    *,
    predictor: Predictor | Callable[..., Predictor],
    window: int = 20,
    objective: str = "throughput",
    history: np.ndarray | None = None,
    num_gradients: int | None = None,
    seed: int = 0,
) -> tuple[Schedule, CutoffRecord]:
    """Return the schedule of `cutoff`, and a record of its predictions.

    Arguments and errors are those of `cutoff`; `history`, float64[W, N] seconds, is of earlier iterations, complete:
    it replaces the first window.

    Returns:
      The `Schedule`, and the record of predicted and true order statistics of its updates.

    Example:
      >>> from sgdlab import predictors
      >>> runtimes = np.array([[1.0, 1.0, 9.0]] * 4)
      >>> _, record = cutoff_with_record(runtimes, predictor=predictors.RunningMean(window=1), window=2)
      >>> record.cutoff
      array([3, 3, 2, 2])
    """
    runtimes = checked(runtimes)
    # pyrefly: ignore[bad-assignment]  # `hasattr` tells a predictor from what makes one
    own: Predictor = predictor if hasattr(predictor, "start") else predictor(runtimes)
    return _with_record(
        runtimes, own, window=window, objective=objective, history=history, num_gradients=num_gradients, seed=seed
    )


def _with_record(runtimes: np.ndarray, predictor: Predictor, **given: Any) -> tuple[Schedule, CutoffRecord]:
    record = run_online(runtimes, predictor, **given)
    schedule = rounds_in_arrays(runtimes[: record.cutoff.size], at_least=record.cutoff, seconds=0.0, interrupt=True)
    return schedule, record
