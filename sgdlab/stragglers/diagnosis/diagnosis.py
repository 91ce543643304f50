"""The diagnosis of a recording: who is slow, since when, how much, whether it still is, and what is only chance."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from sgdlab.stragglers.diagnosis import blame
from sgdlab.stragglers.diagnosis.causes import Cause
from sgdlab.stragglers.diagnosis.history import Episode, relative
from sgdlab.stragglers.diagnosis.pauses import Pauses
from sgdlab.stragglers.diagnosis.weighing import Repair, weigh_repairs
from sgdlab.traces import Recording

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
      memory: correlation between consecutive steps of a worker's relative run-time, less the worker's own mean; None
        if too few recorded steps are consecutive.
      pairs: number of pairs of consecutive steps that `memory` is estimated from.
    """

    causes: tuple[Cause, ...]
    histories: tuple[tuple[Episode, ...], ...]
    memory: float | None
    pairs: int

    @property
    def machines(self) -> tuple[Cause, ...]:
        """The causes that are machines which are still slow: the candidates for leaving out."""
        return tuple(cause for cause in self.causes if cause.lasting)


def find_causes(complete: Recording, pauses: Pauses) -> Diagnosis:
    """Finds the causes in the complete steps of a recording."""
    suspects, histories = blame.find_suspects(complete, pauses)
    following = np.flatnonzero(np.diff(complete.steps) == 1)
    memory = _memory(relative(complete.runtimes), following) if following.size >= _PAIRS else None
    return Diagnosis(_weighed(suspects, complete), histories, memory, int(following.size))


def _weighed(suspects: Sequence[tuple[Cause, Repair]], complete: Recording) -> tuple[Cause, ...]:
    """The causes with their shares, what costs most while it lasts first.

    Two equally slow workers gain nothing if only one is mended, and everything if it is mended last: what a cause costs
    is the mean of both shares.
    """
    shares = weigh_repairs([repair for _, repair in suspects], complete.runtimes, np.nan_to_num(complete.transfer()))
    causes = []
    for (cause, _), (alone, last) in zip(suspects, shares, strict=True):
        if (alone + last) / 2 >= (LEAST_SHARE if cause.factor >= SLIGHT else LEAST_SHARE_OF_SLIGHT):
            causes.append(dataclasses.replace(cause, share=alone, last_share=last))
    causes.sort(key=lambda cause: -(cause.share + cause.last_share))
    # What is short and grave is not hidden behind what is mild and lasts.
    return tuple(sorted(causes[:MOST], key=lambda cause: -cause.intensity(len(complete.steps))))


def _memory(ratio: np.ndarray, following: np.ndarray) -> float:
    deviation = ratio - ratio.mean(axis=0)
    covariance = (deviation[following] * deviation[following + 1]).mean()
    variance = (deviation**2).mean()
    return float(covariance / variance) if variance > 0 else 0.0
