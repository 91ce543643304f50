"""The diagnosis of a recording: who is slow, since when, how much, whether it still is, and what is only chance."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from sgdlab.stragglers.diagnosis import blame, weighing
from sgdlab.stragglers.diagnosis.causes import Cause
from sgdlab.stragglers.diagnosis.history import Episode, relative
from sgdlab.stragglers.diagnosis.pauses import Pauses
from sgdlab.stragglers.diagnosis.weighing import Repair
from sgdlab.traces import Recording

SLOW = 1.2
"""A worker counts as slow in a step if its run-time is more than this multiple of the step's median."""

LEAST_SHARE, LEAST_SHARE_OF_SLIGHT = 0.002, 0.01
"""Least share of full synchrony's time that a cause costs, on average of mending it alone and after all the others; the
second one for causes of a factor below `SLIGHT`."""

SLIGHT = 1.1

MOST = 12
"""Most causes."""

_PAIRS = 5
"""Smallest number of pairs of consecutive recorded steps from which the correlation is estimated."""


@dataclasses.dataclass(frozen=True, eq=False)
class Diagnosis:
    """Holds what was found in the complete steps of a recording.

    Attributes:
      causes: what slows full synchrony, what costs most of the steps in which it shows first; empty if nothing
        stands out.
      histories: for each worker the stretches of steps in which it was slow; empty if it never was.
      pauses: the steps that paused all workers or many.
      ratio: float64[N], for each worker the median over the steps of its run-time divided by the step's median.
      slow: float64[N], share of the steps in which the worker takes more than 1.2 times the step's median.
      last: float64[N], share of the steps in which the worker finishes last.
      memory: correlation between consecutive steps of a worker's relative run-time, less the worker's own mean; None
        if too few recorded steps are consecutive.
      pairs: number of pairs of consecutive steps that `memory` is estimated from.
      chance: share of full synchrony's time that would vanish if, after all the causes, every worker took at most the
        median of its step: the waiting that no machine is to blame for.
    """

    causes: tuple[Cause, ...]
    histories: tuple[tuple[Episode, ...], ...]
    pauses: Pauses
    ratio: np.ndarray
    slow: np.ndarray
    last: np.ndarray
    memory: float | None
    pairs: int
    chance: float

    @property
    def machines(self) -> tuple[Cause, ...]:
        """The causes that are machines which are still slow: the candidates for leaving out."""
        return tuple(cause for cause in self.causes if cause.lasting)


def find_causes(complete: Recording, pauses: Pauses) -> Diagnosis:
    """Finds the causes in the complete steps of a recording."""
    runtimes = complete.runtimes
    ratio = relative(runtimes)
    following = np.flatnonzero(np.diff(complete.steps) == 1)
    suspects, histories = blame.find_suspects(complete, pauses)
    causes, chance = _weighed(suspects, runtimes, _transfer(complete))
    return Diagnosis(
        causes=causes,
        histories=histories,
        pauses=pauses,
        ratio=np.median(ratio, axis=0),
        slow=(ratio > SLOW).mean(axis=0),
        last=np.bincount(runtimes.argmax(axis=1), minlength=runtimes.shape[1]) / len(runtimes),
        memory=_memory(ratio, following) if following.size >= _PAIRS else None,
        pairs=int(following.size),
        chance=chance,
    )


def _weighed(
    suspects: Sequence[tuple[Cause, Repair]], runtimes: np.ndarray, transfer: np.ndarray
) -> tuple[tuple[Cause, ...], float]:
    """The causes with their shares, what costs most while it lasts first, and the share that is chance.

    Two equally slow workers gain nothing if only one is mended, and everything if it is mended last: what a cause costs
    is the mean of both shares.
    """
    weights = weighing.weigh_repairs([repair for _, repair in suspects], runtimes, transfer)
    causes = []
    for (cause, _), alone, last in zip(suspects, weights.alone, weights.last, strict=True):
        if (alone + last) / 2 >= (LEAST_SHARE if cause.factor >= SLIGHT else LEAST_SHARE_OF_SLIGHT):
            causes.append(dataclasses.replace(cause, share=alone, last_share=last))
    causes.sort(key=lambda cause: -(cause.share + cause.last_share))
    # What is short and grave is not hidden behind what is mild and lasts.
    return tuple(sorted(causes[:MOST], key=lambda cause: -cause.intensity(len(runtimes)))), weights.chance


def _transfer(recording: Recording) -> np.ndarray:
    transfer = getattr(recording, "transfer", None)
    return np.zeros(len(recording.steps)) if transfer is None else np.nan_to_num(transfer())


def _memory(ratio: np.ndarray, following: np.ndarray) -> float:
    deviation = ratio - ratio.mean(axis=0)
    covariance = (deviation[following] * deviation[following + 1]).mean()
    variance = (deviation**2).mean()
    return float(covariance / variance) if variance > 0 else 0.0
