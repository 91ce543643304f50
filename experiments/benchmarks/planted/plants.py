"""Plants one cause in a fleet, and tells whether a diagnosis names it."""

import dataclasses
from collections.abc import Callable

import numpy as np

from experiments.benchmarks.planted import fleets
from experiments.benchmarks.planted.fleets import Fleet
from sgdlab.stragglers.diagnosis import causes
from sgdlab.stragglers.diagnosis.causes import Cause

LEAST = 1.15
"""Smallest factor of a slow worker, a slow node or a slower cluster."""

NOISES = 3.0
"""Its smallest distance from 1 in units of the noise (of what all have in common, for the cluster)."""


@dataclasses.dataclass(frozen=True, eq=False)
class Plant:
    """A fleet with one cause.

    Attributes:
      fleet: with the cause in its compute times.
      kind: of the cause, as in `sgdlab.stragglers.diagnosis.causes`; None if there is none.
      workers: that are slow; empty if all are.
      since: first slow row; None if the cause has no beginning.
      until: last slow row; None if it lasts.
      period: of pauses.
      times: number of stretches.
    """

    fleet: Fleet
    kind: str | None = None
    workers: tuple[int, ...] = ()
    since: int | None = None
    until: int | None = None
    period: int | None = None
    times: int = 1

    def named_by(self, cause: Cause, period: int | None) -> bool:
        """Return whether a cause is this one: its kind, its workers, whether it is over, whether it comes and goes."""
        if cause.kind != self.kind or set(cause.workers) != set(self.workers):
            return False
        if self.kind == causes.PAUSES:
            return period == self.period
        if self.kind == causes.SLOW_NODE and cause.node != self.fleet.nodes[self.workers[0]]:
            return False
        return (len(cause.episodes) > 1) == (self.times > 1) and (cause.until is None) == (self.until is None)


def worker_all_along(generator: np.random.Generator, law: str | None) -> Plant:
    """One worker is slow in all steps."""
    fleet = fleets.draw(generator, law)
    return _slow(fleet, generator, [_any(generator, fleet)], 0, None)


def worker_since(generator: np.random.Generator, law: str | None) -> Plant:
    """One worker becomes slow at a step and stays slow."""
    fleet = fleets.draw(generator, law)
    return _slow(fleet, generator, [_any(generator, fleet)], _row(generator, fleet, 0.15, 0.85), None)


def worker_for_a_while(generator: np.random.Generator, law: str | None) -> Plant:
    """One worker is slow for 10 to 30 % of the steps, and then no longer."""
    fleet = fleets.draw(generator, law)
    first = _row(generator, fleet, 0.15, 0.6)
    last = first + round(generator.uniform(0.1, 0.3) * len(fleet.runtimes)) - 1
    return _slow(fleet, generator, [_any(generator, fleet)], first, last)


def worker_at_times(generator: np.random.Generator, law: str | None) -> Plant:
    """One worker is slow in 20 of 100 steps, again and again."""
    fleet = fleets.draw(generator, law, steps=int(generator.integers(400, 2000)))
    worker, first = _any(generator, fleet), int(generator.integers(0, 80))
    factor = _factor(generator, fleet.noise)
    starts = range(first, len(fleet.runtimes) - 20, 100)
    for start in starts:
        fleet.runtimes[start : start + 20, worker] *= factor
    return Plant(fleet, causes.SLOW_WORKER, (worker,), first, None, times=len(starts))


def node_since(generator: np.random.Generator, law: str | None) -> Plant:
    """Return all workers of a node become slow at a step; the nodes are known."""
    fleet = fleets.draw(generator, law, nodes=True)
    name = fleet.nodes[_any(generator, fleet)]
    workers = [worker for worker, node in enumerate(fleet.nodes) if node == name]
    return dataclasses.replace(
        _slow(fleet, generator, workers, _row(generator, fleet, 0.15, 0.85), None), kind=causes.SLOW_NODE
    )


def group_since(generator: np.random.Generator, law: str | None) -> Plant:
    """Two to four workers become slow at the same step; the nodes are unknown."""
    fleet = fleets.draw(generator, law, nodes=False, workers=int(generator.integers(8, 65)))
    workers = np.sort(generator.choice(fleet.runtimes.shape[1], int(generator.integers(2, 5)), replace=False))
    return _slow(fleet, generator, workers.tolist(), _row(generator, fleet, 0.15, 0.85), None)


def half_since(generator: np.random.Generator, law: str | None) -> Plant:
    """Half of the workers become slow at the same step."""
    fleet = fleets.draw(generator, law, nodes=False)
    workers = fleet.runtimes.shape[1]
    slow = np.sort(generator.choice(workers, workers // 2, replace=False))
    return _slow(fleet, generator, slow.tolist(), _row(generator, fleet, 0.15, 0.85), None)


def all_slower(generator: np.random.Generator, law: str | None) -> Plant:
    """Return all workers become slower at a step."""
    fleet = fleets.draw(generator, law)
    since = _row(generator, fleet, 0.15, 0.85)
    fleet.runtimes[since:] *= _factor(generator, max(fleet.common, fleet.noise / 2))
    return Plant(fleet, causes.ALL_SLOWER, (), since)


def all_slower_for_a_while(generator: np.random.Generator, law: str | None) -> Plant:
    """Return all workers are slower for 15 to 30 % of the steps, and then no longer."""
    fleet = fleets.draw(generator, law)
    since = _row(generator, fleet, 0.15, 0.6)
    until = since + round(generator.uniform(0.15, 0.3) * len(fleet.runtimes)) - 1
    fleet.runtimes[since : until + 1] *= _factor(generator, max(fleet.common, fleet.noise / 2))
    return Plant(fleet, causes.ALL_SLOWER, (), since, until)


def drift_of_all(generator: np.random.Generator, law: str | None) -> Plant:
    """Return all workers become gradually slower, from the first step to the last."""
    fleet = fleets.draw(generator, law)
    end = max(1.2, 1 + 5 * max(fleet.common, fleet.noise / 2)) * generator.uniform(1.0, 1.3)
    fleet.runtimes[:] *= np.linspace(1, end, len(fleet.runtimes))[:, None]
    return Plant(fleet, causes.DRIFT, ())


def drift_of_worker(generator: np.random.Generator, law: str | None) -> Plant:
    """One worker becomes gradually slower, from the first step to the last."""
    fleet = fleets.draw(generator, law)
    worker = _any(generator, fleet)
    end = max(1.2, 1 + 5 * fleet.noise) * generator.uniform(1.0, 1.3)
    fleet.runtimes[:, worker] *= np.linspace(1, end, len(fleet.runtimes))
    return Plant(fleet, causes.DRIFT, (worker,))


def pauses_with_period(generator: np.random.Generator, law: str | None) -> Plant:
    """Return every n-th step takes 2 to 7 times as long for all workers, n from 10 to a fifth of the steps."""
    fleet = fleets.draw(generator, law)
    steps = len(fleet.runtimes)
    period = int(generator.integers(10, steps // 5 + 1))
    rows = np.arange(int(generator.integers(0, period)), steps, period)
    fleet.runtimes[rows] += generator.uniform(1, 6) * generator.uniform(0.8, 1.2, (rows.size, 1))
    return Plant(fleet, causes.PAUSES, period=period)


def mild_pauses_with_period(generator: np.random.Generator, law: str | None) -> Plant:
    """Return every n-th step takes 1.3, 1.45 or 1.5 times as long for all workers, n from 2 to a tenth of the steps."""
    fleet = fleets.draw(generator, law)
    steps = len(fleet.runtimes)
    period = int(generator.integers(2, steps // 10 + 1))
    factor = generator.choice([1.3, 1.45, 1.5])
    fleet.runtimes[int(generator.integers(0, period)) :: period] *= max(factor, 1 + NOISES * fleet.common)
    return Plant(fleet, causes.PAUSES, period=period)


def pauses_without_period(generator: np.random.Generator, law: str | None) -> Plant:
    """Two to twenty steps, anywhere, take 2 to 7 times as long for all workers."""
    fleet = fleets.draw(generator, law)
    rows = generator.choice(len(fleet.runtimes), int(generator.integers(2, 21)), replace=False)
    fleet.runtimes[rows] += generator.uniform(1, 6) * generator.uniform(0.8, 1.2, (rows.size, 1))
    return Plant(fleet, causes.PAUSES)


def heavy_tail(generator: np.random.Generator, law: str | None) -> Plant:
    """1 to 4 % of the compute times, of any worker, are 2 to 4 times as long; at least 10 are."""
    fleet = fleets.draw(generator, law)
    share = max(generator.uniform(0.01, 0.04), 10 / fleet.runtimes.size)
    hit = generator.random(fleet.runtimes.shape) < share
    fleet.runtimes[hit] *= generator.uniform(2, 4, np.count_nonzero(hit))
    return Plant(fleet, causes.HEAVY_TAIL)


def nothing(generator: np.random.Generator, law: str | None) -> Plant:
    """No cause."""
    return Plant(fleets.draw(generator, law))


PLANTS: dict[str, Callable[[np.random.Generator, str | None], Plant]] = {
    "one slow worker, all along": worker_all_along,
    "one slow worker since a step": worker_since,
    "one slow worker for a while": worker_for_a_while,
    "one slow worker at times": worker_at_times,
    "a slow node since a step": node_since,
    "2 to 4 slow workers since a step": group_since,
    "half of the workers since a step": half_since,
    "all slower since a step": all_slower,
    "all slower for a while": all_slower_for_a_while,
    "drift of all": drift_of_all,
    "drift of one worker": drift_of_worker,
    "pauses with a period": pauses_with_period,
    "pauses without a period": pauses_without_period,
    "heavy tail": heavy_tail,
    "mild pauses with a period": mild_pauses_with_period,
}


def _slow(fleet: Fleet, generator: np.random.Generator, workers: list[int], first: int, last: int | None) -> Plant:
    end = len(fleet.runtimes) if last is None else last + 1
    fleet.runtimes[first:end, workers] *= _factor(generator, fleet.noise)
    return Plant(fleet, causes.SLOW_WORKER, tuple(workers), first, last)


def _factor(generator: np.random.Generator, noise: float) -> float:
    """Between the smallest planted factor and 2, more often small than large."""
    least = max(LEAST, 1 + NOISES * noise)
    return float(least * (2 / least) ** (generator.random() ** 2))


def _any(generator: np.random.Generator, fleet: Fleet) -> int:
    return int(generator.integers(fleet.runtimes.shape[1]))


def _row(generator: np.random.Generator, fleet: Fleet, low: float, high: float) -> int:
    return round(generator.uniform(low, high) * len(fleet.runtimes))
