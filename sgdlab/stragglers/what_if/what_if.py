r"""Computes what a job would gain if causes of waiting were mended: each alone, and in turn in a table that adds up.

Full synchrony takes the sum over the steps of its slowest worker and the transfer; a repair shortens some of these
times (`repairs`), and the trace is replayed.

* Alone: everything else stays as recorded. Two causes that hide each other gain nothing alone, and two that overlap
  gain the same seconds twice.
* In turn: what has the largest effect is mended first, then what has the largest effect on the rest, and so on. These
  seconds and what is left add up to the recorded time.

Who and when is mended first (workers, nodes, steps, communication), then what is left of the phases of the work, and
last of all waiting for the slowest: that repair would include each slow worker.

Source: Lin et al. 2025, "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI): slowdown S
(equation 1) and M_W (equation 5). There the ideal of compute is the mean over workers and steps, here it is the median
of the step. The order in turn is this package's own.
"""

import dataclasses
import math

import numpy as np

from sgdlab import arrays
from sgdlab.pipelines import slowdown
from sgdlab.pipelines.slowdown import Slowdown
from sgdlab.stragglers import repairs
from sgdlab.stragglers.comparison.measured import Resamples, ends_of
from sgdlab.stragglers.diagnosis.diagnosis import Diagnosis, find_causes
from sgdlab.stragglers.diagnosis.pauses import Pauses
from sgdlab.stragglers.what_if import candidates, in_turn, pipelines, scores
from sgdlab.stragglers.what_if.candidates import CHANCE, NODE, PHASE, WORKER, Repair, Times
from sgdlab.stragglers.what_if.in_turn import MATTERS
from sgdlab.stragglers.what_if.scores import WorkerScores
from sgdlab.traces.recording import Recording

_SLOWEST = 0.03
"""Share of the workers that count as the slowest in M_W."""

_FEWEST = 3
"""Fewest workers of which M_W is known: the median of two is their mean, and one of them explains all of the waiting
or more."""

_LEAST_PRESENT = 10
"""Fewest steps since a change by which workers are left out; otherwise all steps count."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RepairRow(Repair):
    """Holds one row: a repair, and what it gains.

    Attributes:
      alone: seconds saved if only this is mended.
      times: how many times as fast full synchrony would be if only this were mended.
      in_turn: seconds saved if this is mended after the rows above.
      alone_interval, times_interval, in_turn_interval: the ends of their 90 % intervals.
      times_since: the same as `times`, of the steps from `since` on alone.
    """

    alone: float
    alone_interval: tuple[float, float]
    times: float
    times_interval: tuple[float, float]
    in_turn: float
    in_turn_interval: tuple[float, float]
    times_since: float


@dataclasses.dataclass(frozen=True, eq=False)
class WhatIf:
    """Holds what mending each cause would gain.

    Attributes:
      recording: the complete steps.
      lines: in the order in which they are mended.
      recorded: seconds of full synchrony, as recorded.
      left: seconds that are left when all is mended: `recorded` less the sum of `in_turn`.
      waiting: seconds of waiting for the slowest that are left when the causes, other than phases, are mended; they
        fall on whoever happens to be slow.
      scores: of the workers.
      drained: whom to leave out first as things are in the last steps; pairs of a worker and of how many times the
        gradients per second full synchrony has without it and without those before it.
      drained_since: number of the step since which `drained` is measured: the last change of a cause that is not over;
        None if it is measured over all steps.
      slowest: number of workers in the slowest 3 %.
      slowest_share: M_W, share of the waiting for the slowest that the slowest 3 % of the workers explain; nan if
        nobody waits, or with two workers.
      pipelines: the slowdowns of the operations of pipelines; None where these are not known.
      layers: that each stage holds, if a person says it.
    """

    recording: Recording
    lines: tuple[RepairRow, ...]
    recorded: float
    left: float
    waiting: float
    scores: WorkerScores
    drained: tuple[tuple[int, float], ...]
    drained_since: int | None
    slowest: int
    slowest_share: float
    pipelines: Slowdown | None = None
    layers: int | None = None

    @property
    def first(self) -> RepairRow | None:
        """The cause to mend first, which costs most in turn; None if no cause costs 1 % of the time.

        One that is over is named only if no other is left.
        """
        evident = [line for line in self.lines if line.evident and line.in_turn >= MATTERS * self.recorded]
        return max(evident, key=lambda line: (not line.over, line.in_turn), default=None)

    @property
    def chance(self) -> RepairRow:
        """Waiting for the slowest; in turn it is what is left of it after all other rows, which is chance."""
        return next(line for line in self.lines if line.kind == CHANCE)

    @property
    def slowdown(self) -> float:
        """S, the recorded time over what is left."""
        return self.recorded / self.left


def try_repairs(
    complete: Recording, pauses: Pauses, diagnosis: Diagnosis | None = None, *, seed: int = 0, layers: int | None = None
) -> WhatIf:
    """Replay a trace with each cause of waiting mended.

    Args:
      complete: the complete steps of a recording of at least two workers.
      pauses: of these steps.
      diagnosis: of these steps; the workers, nodes and changes it names are rows, from the step on that it names. None:
        it is made.
      seed: of the intervals.
      layers: that each stage of a pipeline holds, to say which of them to move.
    """
    phases = {name: np.nan_to_num(seconds) for name, seconds in complete.phases.items()}
    complete, job = dataclasses.replace(complete, phases=phases), complete.job
    diagnosis = diagnosis or find_causes(complete, pauses)
    times = Times(complete.runtimes, complete.transfer())
    before = times if job is None else job
    made = in_turn.order(complete, pauses, diagnosis, times) if job is None else pipelines.order(complete, job)
    resamples = Resamples(before.steps.size, seed=seed)
    lines, last, rest, by_chance = [], before, before, 0.0
    for repair, after in made:
        first = 0 if repair.since is None else int(np.searchsorted(complete.steps, repair.since))
        alone = repair.apply(before).steps
        lines.append(_line(repair, before.steps, alone, last.steps - after.steps, first, resamples))
        last = after
        rest = rest if repair.kind in (PHASE, CHANCE) else after
        by_chance += lines[-1].in_turn if repair.kind in (WORKER, NODE) and not repair.evident else 0.0
    slowest, share = _slowest(times)
    present, rows = _present(complete, diagnosis, times)
    return WhatIf(
        complete,
        tuple(lines),
        float(before.steps.sum()),
        float(last.steps.sum()),
        # The last repair is that of all waiting for the slowest.
        by_chance + float((rest.steps - repair.apply(rest).steps).sum()),
        scores.score_workers(times.seconds, times.transfer),
        tuple(scores.drained(present.seconds[rows], present.transfer[rows])),
        int(complete.steps[rows][0]) if rows.start else None,
        slowest,
        share,
        None if job is None else slowdown.measure(job),
        layers,
    )


def _line(
    repair: Repair, recorded: np.ndarray, alone: np.ndarray, saved: np.ndarray, first: int, resamples: Resamples
) -> RepairRow:
    """The row of a repair: the steps as recorded, if it alone is made, what it saves in turn, and from which row on."""
    before, after = resamples.weights @ recorded, resamples.weights @ alone
    return RepairRow(
        **vars(repair),
        alone=float((recorded - alone).sum()),
        alone_interval=ends_of(before - after),
        times=float(recorded.sum() / alone.sum()),
        times_interval=ends_of(before / after),
        in_turn=float(saved.sum()),
        in_turn_interval=ends_of(resamples.weights @ saved),
        times_since=float(recorded[first:].sum() / alone[first:].sum()),
    )


def _present(complete: Recording, diagnosis: Diagnosis, times: Times) -> tuple[Times, slice]:
    """The times without causes that are over, and the rows since the last change of the causes that are not."""
    first = 0
    for repair in candidates.of_diagnosis(complete, diagnosis):
        if repair.over:
            times = repair.apply(times)
        elif repair.workers and repair.since is not None:
            first = max(first, int(np.searchsorted(complete.steps, repair.since)))
    return times, slice(first if len(complete.steps) - first >= _LEAST_PRESENT else 0, None)


def _slowest(times: Times) -> tuple[int, float]:
    """The number of the slowest 3 % of the workers, and M_W of them."""
    runtimes, workers = times.seconds, times.seconds.shape[1]
    count = min(math.ceil(_SLOWEST * workers), workers - 1)
    if workers < _FEWEST:
        return count, math.nan
    recorded = runtimes.max(axis=1).sum()
    medians = arrays.median(runtimes, axis=1)
    waiting = recorded - medians.sum()
    slow = np.argsort(-scores.above_median(runtimes, medians), kind="stable")[:count]
    saved = recorded - repairs.AtMedian(slow.tolist())(runtimes).max(axis=1).sum()
    return count, float(saved / waiting) if waiting > 0 else math.nan
