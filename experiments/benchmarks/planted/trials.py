"""Trials of the diagnosis on planted causes, in two processes, and what they add up to."""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from experiments.benchmarks.planted import fleets, plants
from experiments.benchmarks.planted.plants import Plant
from sgdlab.stragglers import diagnosis
from sgdlab.stragglers.diagnosis import pauses
from sgdlab.traces import Recording

NOTHING = "nothing"


@dataclasses.dataclass(frozen=True)
class Trial:
    """Describes what to draw.

    Attributes:
      name: of the planted cause, in `plants.PLANTS`, or `NOTHING`.
      draw: number of the draw.
      seed: of all draws.
      law: of the noise; None: one of those for tuning.
      factor: of one worker that is slow since the middle of 600 steps of 16 workers, with noise of 5 %; without `name`.
    """

    name: str
    draw: int
    seed: int
    law: str | None = None
    factor: float | None = None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Holds what the diagnosis said.

    Attributes:
      right: whether the planted cause came first.
      named: number of causes.
      first: headline of the first cause, empty if there is none.
      since_error: rows between the planted beginning and the found one, if both exist and the cause is right.
    """

    right: bool
    named: int
    first: str
    since_error: int | None


def run(trial: Trial) -> Outcome:
    """Draws, diagnoses, compares."""
    plant = planted(trial)
    runtimes = plant.fleet.runtimes
    names = tuple(str(worker) for worker in range(runtimes.shape[1]))
    recording = Recording(runtimes, np.arange(len(runtimes)), names, plant.fleet.nodes)
    paused = pauses.find_pauses(recording)
    found = diagnosis.find_causes(recording, paused).causes
    if not found:
        return Outcome(plant.kind is None, 0, "", None)
    right = plant.kind is not None and plant.named_by(found[0], paused.period.every if paused.period else None)
    error = found[0].since - plant.since if right and plant.since and found[0].since is not None else None
    return Outcome(right, len(found), found[0].headline(recording), error)


def planted(trial: Trial) -> Plant:
    """Return the fleet and the cause of a trial."""
    if trial.factor is not None:
        generator = np.random.default_rng([trial.seed, 10_000, round(1000 * trial.factor), trial.draw])
        fleet = fleets.draw(generator, noise=0.05, steps=600, workers=16, nodes=False)
        worker = int(generator.integers(16))
        fleet.runtimes[300:, worker] *= trial.factor
        return Plant(fleet, plants.causes.SLOW_WORKER, (worker,), 300)
    names = [NOTHING, *plants.PLANTS]
    law = 0 if trial.law is None else 1 + [*fleets.HELD_OUT, *fleets.SKEWED].index(trial.law)
    generator = np.random.default_rng([trial.seed, names.index(trial.name), law, trial.draw])
    make = plants.nothing if trial.name == NOTHING else plants.PLANTS[trial.name]
    return make(generator, trial.law)


def run_all(trials: Sequence[Trial], processes: int = 2) -> list[Outcome]:
    """Return all outcomes, in order."""
    return pooled(run, trials, processes)


def pooled(call: Callable[[Any], Any], given: Sequence[Any], processes: int = 2) -> list[Any]:
    """Return what a function makes of each value, in order, with a progress bar on the terminal's standard error."""
    shown = functools.partial(tqdm, total=len(given), leave=False)
    if processes < 2:
        return list(shown(map(call, given)))
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
        return list(shown(pool.map(call, given, chunksize=4)))


def wilson(hits: int, draws: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, Wilson 1927.

    Example:
      >>> tuple(round(end, 3) for end in wilson(98, 100))
      (0.93, 0.994)
    """
    z = 1.959964
    share, scale = hits / draws, 1 + z**2 / draws
    middle, half = share + z**2 / (2 * draws), z * np.sqrt(share * (1 - share) / draws + z**2 / (4 * draws**2))
    return float(max(middle - half, 0) / scale), float(min(middle + half, scale) / scale)
