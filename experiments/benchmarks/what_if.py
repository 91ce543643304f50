"""Counts how often what-if mends the planted cause first, and how near the seconds it promises are to the truth.

    python -m experiments.benchmarks.what_if [--draws=100] [--seed=0]

A fleet is drawn without a cause, and full synchrony is timed; then one cause is planted, which costs at least 2 % of
the time (fleets are drawn anew until it does). Right is a draw whose first cause is the planted one, of the same kind
and the same workers. The truth is the time before planting; the error is that of the seconds saved, relative to it.
"""

import argparse
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator

import numpy as np

from experiments.benchmarks.planted import fleets
from experiments.benchmarks.planted.trials import pooled, wilson
from experiments.benchmarks.timing import Figure, at_least, at_most
from sgdlab.stragglers import diagnosis, repairs, what_if
from sgdlab.stragglers.diagnosis import causes, pauses
from sgdlab.stragglers.what_if import candidates
from sgdlab.traces import Recording

DRAWS = 100
"""Draws of each cause; five times as many without a cause."""

LEAST_COST = 0.02
"""Smallest share of the time of full synchrony that a planted cause costs."""

RIGHT, FALSE = 0.95, 0.01
"""Least share of draws whose cause is mended first, and largest share of clean draws with a cause to mend."""


@dataclasses.dataclass(frozen=True, eq=False)
class Planted:
    """A recording with one cause.

    Attributes:
      recording: with the cause.
      kind: of the repair, as in `sgdlab.stragglers.what_if.candidates`; None if there is no cause.
      workers: that it concerns; empty if all.
      seconds: of full synchrony without the cause.
    """

    recording: Recording
    kind: str | None
    workers: tuple[int, ...]
    seconds: float


def slow_worker(generator: np.random.Generator) -> Planted:
    """Plant a worker that is slow from a step in the first 60 % on."""
    return _slow(generator, 1)


def two_slow_workers(generator: np.random.Generator) -> Planted:
    """Plant two workers that are slow by the same factor from the first step on: each hides the other."""
    return _slow(generator, 2)


def slow_node(generator: np.random.Generator) -> Planted:
    """Plant a node whose workers are all slow from a step in the first 60 % on."""
    return _slow(generator, 0)


def checkpoints(generator: np.random.Generator) -> Planted:
    """Make every n-th step 0.5 to 4 times longer for all workers, n from 10 to 50."""
    fleet = fleets.draw(generator)
    every = int(generator.integers(10, min(50, len(fleet.runtimes) // 5) + 1))
    runtimes = fleet.runtimes.copy()
    runtimes[int(generator.integers(every)) :: every] += generator.uniform(0.5, 4.0)
    return _planted(fleet, runtimes, candidates.PERIOD, ())


def collected_by_all(generator: np.random.Generator) -> Planted:
    """Make every n-th step of each worker 0.4 to 1 times longer, n from 20 to 40; the steps differ between workers."""
    return _collected(generator, each=True)


def collected_by_one(generator: np.random.Generator) -> Planted:
    """Make every n-th step of one worker 0.4 to 1 times longer, n from 5 to 20."""
    return _collected(generator, each=False)


def communication(generator: np.random.Generator) -> Planted:
    """Let the transfer take 0.2 of a step, and in 10 to 30 % of the steps 2 to 6 times as long."""
    fleet = fleets.draw(generator)
    steps = len(fleet.runtimes)
    usual = 0.2 * generator.gamma(400.0, 1 / 400, steps)
    longer = np.where(generator.random(steps) < generator.uniform(0.1, 0.3), generator.uniform(2, 6, steps), 1.0)
    inside = (usual * longer)[:, None] + fleet.runtimes.max(axis=1, keepdims=True) - fleet.runtimes
    seconds = repairs.synchronous_seconds(fleet.runtimes, usual).sum()
    return Planted(_recording(fleet, fleet.runtimes, all_reduce=inside), candidates.COMMUNICATION, (), float(seconds))


def data_loading(generator: np.random.Generator) -> Planted:
    """Make the phase data, 5 % of the work, 0.3 to 1 of a step longer in 3 to 10 % of the times, of any worker."""
    fleet = fleets.draw(generator)
    shape = fleet.runtimes.shape
    hit = generator.random(shape) < generator.uniform(0.03, 0.1)
    late = np.where(hit, generator.uniform(0.3, 1.0, shape), 0.0)
    parts = {"forward": 0.3, "backward": 0.65, "data": 0.05}
    phases = {name: share * fleet.runtimes for name, share in parts.items()}
    phases["data"] = phases["data"] + late
    given = dataclasses.replace(_recording(fleet, fleet.runtimes + late), phases=phases)
    return Planted(given, candidates.PHASE, (), float(fleet.runtimes.max(axis=1).sum()))


def slower_cluster(generator: np.random.Generator) -> Planted:
    """Make all workers slower from a step in the middle 60 % on."""
    fleet = fleets.draw(generator)
    runtimes = fleet.runtimes.copy()
    factor = max(1.15, 1 + 3 * max(fleet.common, fleet.noise / 2)) * generator.uniform(1.0, 1.5)
    runtimes[round(generator.uniform(0.2, 0.8) * len(runtimes)) :] *= factor
    return _planted(fleet, runtimes, causes.ALL_SLOWER, ())


def nothing(generator: np.random.Generator) -> Planted:
    """Plant no cause."""
    fleet = fleets.draw(generator)
    return _planted(fleet, fleet.runtimes, None, ())


PLANTS: tuple[Callable[[np.random.Generator], Planted], ...] = (
    slow_worker,
    two_slow_workers,
    slow_node,
    checkpoints,
    collected_by_all,
    collected_by_one,
    communication,
    data_loading,
    slower_cluster,
)


def figures(draws: int = DRAWS, seed: int = 0) -> Iterator[Figure]:
    """Yield one line for each planted cause, and one for fleets without a cause."""
    plants = [*range(len(PLANTS)), -1]
    trials = [(plant, draw, seed) for plant in plants for draw in range(draws if plant >= 0 else 5 * draws)]
    outcomes = pooled(_outcome, trials)
    for plant, group in itertools.groupby(zip(trials, outcomes, strict=True), key=lambda pair: pair[0][0]):
        right, errors = zip(*(outcome for _, outcome in group), strict=True)
        low, high = wilson(sum(right), len(right))
        share = 100 * sum(right) / len(right)
        detail = f"{sum(right)} of {len(right)}, 95 % interval {100 * low:.1f}-{100 * high:.1f} %"
        if plant < 0:
            yield at_most("what if: clean: a cause to mend", share, "%", 100 * FALSE, detail)
            continue
        error = f"; seconds saved off by {100 * np.median(np.abs(errors)):.1f} % (median)"
        name = PLANTS[plant].__name__.replace("_", " ")
        yield at_least(f"what if: {name}: mended first", share, "%", 100 * RIGHT, detail + error)


def _outcome(trial: tuple[int, int, int]) -> tuple[bool, float]:
    """Return whether the planted cause (any, without one) is mended first, and the error of the seconds saved."""
    plant, draw, seed = trial
    generator = np.random.default_rng([seed, draw, plant + 1])
    planted = _costly(generator, PLANTS[plant]) if plant >= 0 else nothing(generator)
    paused = pauses.find_pauses(planted.recording)
    result = what_if.try_repairs(planted.recording, paused, diagnosis.find_causes(planted.recording, paused))
    first = result.first
    if plant < 0:
        return first is not None, 0.0
    cost = result.recorded - planted.seconds
    right = first is not None and (first.kind, set(first.workers)) == (planted.kind, set(planted.workers))
    return right, (0.0 if first is None else first.in_turn) / cost - 1


def _costly(generator: np.random.Generator, plant: Callable[[np.random.Generator], Planted]) -> Planted:
    while True:
        planted = plant(generator)
        recording = planted.recording
        recorded = repairs.synchronous_seconds(recording.runtimes, recording.transfer()).sum()
        if planted.seconds <= (1 - LEAST_COST) * recorded:
            return planted


def _slow(generator: np.random.Generator, count: int) -> Planted:
    """So many workers are slow; 0: those of a node."""
    fleet = fleets.draw(generator, nodes=count == 0, workers=None if count != 2 else int(generator.integers(8, 65)))
    workers = fleet.runtimes.shape[1]
    slow = np.sort(generator.choice(workers, max(count, 1), replace=False))
    if count == 0:
        slow = np.flatnonzero(np.array(fleet.nodes) == fleet.nodes[slow[0]])
    kind = {0: candidates.NODE, 1: candidates.WORKER, 2: candidates.WORKERS}[count]
    runtimes = fleet.runtimes.copy()
    since = 0 if count == 2 else round(generator.uniform(0.0, 0.6) * len(runtimes))
    runtimes[since:, slow] *= generator.uniform(max(1.15, 1 + 3 * fleet.noise), 2.0)
    return _planted(fleet, runtimes, kind, tuple(slow.tolist()))


def _collected(generator: np.random.Generator, *, each: bool) -> Planted:
    fleet = fleets.draw(generator, steps=int(generator.integers(400, 1500)), noise=generator.uniform(0.02, 0.05))
    workers = fleet.runtimes.shape[1]
    chosen = range(workers) if each else [int(generator.integers(workers))]
    every = int(generator.integers(20, 41) if each else generator.integers(5, 21))
    runtimes = fleet.runtimes.copy()
    longer = generator.uniform(0.4, 1.0)
    for worker in chosen:
        runtimes[int(generator.integers(every)) :: every, worker] += longer
    return _planted(fleet, runtimes, candidates.PERIOD, tuple(chosen))


def _planted(fleet: fleets.Fleet, runtimes: np.ndarray, kind: str | None, workers: tuple[int, ...]) -> Planted:
    return Planted(_recording(fleet, runtimes), kind, workers, float(fleet.runtimes.max(axis=1).sum()))


def _recording(fleet: fleets.Fleet, runtimes: np.ndarray, **communication: np.ndarray) -> Recording:
    names = tuple(str(worker) for worker in range(runtimes.shape[1]))
    return Recording(runtimes, np.arange(len(runtimes)), names, fleet.nodes, communication=communication)


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks.what_if", allow_abbrev=False)
    parser.add_argument("--draws", type=int, default=DRAWS, metavar="NUMBER", help="of each cause")
    parser.add_argument("--seed", type=int, default=0, metavar="NUMBER", help="of all draws")
    given = parser.parse_args()
    if given.draws < 1:
        parser.error(f"--draws={given.draws} must be at least 1")
    for figure in functools.partial(figures, given.draws, given.seed)():
        print(figure, flush=True)


if __name__ == "__main__":
    main()
