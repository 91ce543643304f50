r"""Stages of a step: in which of them a slow worker is slow, and where full synchrony's time first shows.

From the end of one wait to that of the next, worker n has done the stages 1 to s after :math:`c_{n s}` seconds of its
own clock. The frontier :math:`F_s = \max_n c_{n s}` is that of who is furthest; its increments add up to the step, and
each is that of the workers that are at the frontier. No clocks are compared.

Source: Yoon, Chen, Kallioniemi 2026, "StageFrontier: Synchronization-Aware Stage Accounting for Distributed ML
Training" (arXiv:2606.06751). Which workers may be last in the stage of the wait is our own definition.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from sgdlab import arrays
from sgdlab.stragglers.diagnosis.causes import Cause, named
from sgdlab.traces import Recording
from sgdlab.traces.phases import WAIT
from sgdlab.traces.stages import behind

_MOST_OF = 0.8
"""A cause is in the stages that have at least so much of what it costs, if these are one or two."""

_WITHIN = 0.05
"""Workers whose waits in a stage differ by less than this share of it cannot be told apart."""


@dataclasses.dataclass(frozen=True, eq=False)
class Frontier:
    """Holds where the time of a step of full synchrony goes.

    Attributes:
      stages: names in their order, behind a wait; the last one contains the next.
      seconds: float64[S, N], mean seconds a step that the frontier gains in each stage with each worker; what workers
        have together is dealt out evenly. All add up to the mean time of a step.
      exposed: float64[S], of these, seconds that the median worker does not need for the stage.
      last: indices of the workers that may be the last in the stage of the wait, and cannot be told apart.
    """

    stages: tuple[str, ...]
    seconds: np.ndarray
    exposed: np.ndarray
    last: tuple[int, ...]

    def said_of_last(self, workers: Sequence[str]) -> str:
        """Say who may be the last in the stage of the wait."""
        apart = "cannot be told apart" if len(self.last) > 1 else "waits least"
        return f"in which {named(workers, self.last)} {apart}"


def find_frontier(complete: Recording) -> Frontier | None:
    """Find the frontier of a recording whose workers wait inside of a stage; None where none is known to do so.

    A worker may be the last one in the stage of the wait if its wait there, the distance of its lower quartile from its
    shortest (the 5 % quantile), is hardly longer than that of the worker with the least: nobody waits less.

    Example:
      >>> data = np.array([[1.0, 3.0], [1.0, 2.0], [1.0, 1.5]])
      >>> found = find_frontier(Recording(
      ...     data + 4, np.arange(3), ("a", "b"), phases={"data": data, "backward": np.full((3, 2), 4.0)},
      ...     communication={"backward + wait": data.max(axis=1, keepdims=True) - data}))
      >>> found.stages, found.seconds.tolist(), found.last
      (('data', 'backward'), [[0.0, 1.75], [2.0, 2.0]], (0, 1))
    """
    waits = [name for name in complete.communication if name.endswith(WAIT)]
    if not waits or np.count_nonzero(np.diff(complete.steps) == 1) < 2:
        return None
    wait = waits[-1].removesuffix(WAIT)
    whole = {
        name: times + np.nan_to_num(complete.communication.get(name + WAIT, 0.0))
        for name, times in complete.phases.items()
    }
    cut = behind(whole, wait, complete.steps)
    reached = np.cumsum(np.stack(list(cut.values())), axis=0)  # [S, T, N]
    furthest = reached.max(axis=2)
    gained = np.diff(furthest, axis=0, prepend=0.0)
    leads = reached == furthest[:, :, None]
    inside = cut[wait]
    low, usual = np.quantile(inside, [0.05, 0.25], axis=0, method="lower")  # others stall in many steps, if not in most
    waited = usual - low
    least = inside.min(axis=1)  # of who is last; where nobody stalls, in the upper half, its own noise
    apart = max(_WITHIN * np.median(least), np.quantile(least, 0.9) - np.quantile(least, 0.6))
    last = np.flatnonzero(waited <= waited.min() + apart)
    leads[-1] = np.isin(np.arange(inside.shape[1]), last)  # their ends are one, but for the noise of clocks
    shares = gained[:, :, None] * leads / leads.sum(axis=2, keepdims=True)
    exposed = gained.mean(axis=1) - np.array([arrays.median(times, axis=1).mean() for times in cut.values()])
    return Frontier(tuple(cut), shares.mean(axis=1), exposed, tuple(last.tolist()))


def located(cause: Cause, complete: Recording, frontier: Frontier | None = None) -> Cause:
    """Return a cause with the stages of the step in which it is: those that are longer than of others, or before.

    Of what all have longer in the stage of the wait, it says who may be the last one there.
    """
    phases, rows = complete.phases, cause.among(len(complete.steps))
    own = np.isin(np.arange(len(complete.workers)), cause.workers)
    if len(phases) < 2 or own.all() or (not cause.workers and (rows.all() or cause.since is None)):
        return cause  # nothing to compare with

    def excess(times: np.ndarray) -> float:
        if cause.workers:
            others = arrays.median(times[rows][:, ~own], axis=1, keepdims=True)
            return float((times[rows][:, own] - others).mean())
        return float(arrays.median(times[rows]) - arrays.median(times[~rows]))

    found = {name: more for name, times in phases.items() if (more := excess(np.nan_to_num(times))) > 0}
    ordered = sorted(found, key=lambda name: -found[name])
    for count in (1, 2):
        share = sum(found[name] for name in ordered[:count]) / max(sum(found.values()), 1e-300)
        if share >= _MOST_OF:
            stages = tuple(ordered[:count])
            said = f"{cause.evidence}; {100 * share:.0f} % of that in {' and '.join(map(repr, stages))}"
            if frontier is not None and not cause.workers and stages[0] == frontier.stages[-1]:
                said += f", {frontier.said_of_last(complete.workers)}"
            return dataclasses.replace(cause, evidence=said, stages=stages)
    return cause
