"""What could be mended in a recorded trace: slow workers and nodes, every n-th step, pauses, phases, communication."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from sgdlab.report.words import counted, node_named, ordinal
from sgdlab.stragglers import repairs
from sgdlab.stragglers.diagnosis.causes import ALL_SLOWER, DRIFT, Cause, named
from sgdlab.stragglers.diagnosis.diagnosis import Diagnosis
from sgdlab.stragglers.diagnosis.pauses import Pauses
from sgdlab.stragglers.what_if import periods
from sgdlab.stragglers.what_if.scores import above_median
from sgdlab.traces.recording import Recording

WORKER, WORKERS, NODE, SLOWER = "worker", "workers", "node", "all slower"
PERIOD, STEPS, COMMUNICATION, PHASE, CHANCE = "every n-th step", "slow steps", "communication", "phase", "chance"

_SEARCHED = 32
"""Most workers whose own steps are searched for a period: those whose excess is largest."""


@dataclasses.dataclass(frozen=True, eq=False)
class Times:
    """The times of a trace, between repairs.

    Attributes:
      runtimes: float64[T, N], seconds of each worker's own work.
      transfer: float64[T], seconds of communication.
      scale: what earlier repairs have left of the recorded run-times, float64[T, N] or 1.
    """

    runtimes: np.ndarray
    transfer: np.ndarray
    scale: np.ndarray | float = 1.0

    def seconds(self) -> np.ndarray:
        """Duration of each step under full synchrony, float64[T]."""
        return repairs.synchronous_seconds(self.runtimes, self.transfer)


@dataclasses.dataclass(frozen=True, eq=False)
class Repair:
    """One thing that could be mended.

    Attributes:
      kind: one of the constants of this module.
      title: what is mended, in a few words.
      mended: what it would be like instead.
      apply: from the times before to the times after, both `Times`, or of pipelines `OperationTimes`.
      workers: indices of the workers it concerns; empty if all.
      since: number of the step since which it shows; None if it always does, comes and goes, or this is not known.
      over: whether it no longer shows in the last steps.
      parts: the repairs that are made together; empty if it is one.
      phase: name of the phase it mends, if it is one.
      said: what was seen, without the capital and the full stop of a sentence; empty where the title says it.
    """

    kind: str
    title: str
    mended: str
    apply: Callable[[Any], Any]
    workers: tuple[int, ...] = ()
    since: int | None = None
    over: bool = False
    parts: tuple["Repair", ...] = ()
    phase: str = ""
    said: str = ""


def of_workers(recording: Recording, workers: Sequence[int] | np.ndarray, *, cause: Cause | None = None) -> Repair:
    """The repair of some workers, in all steps or in those in which a cause shows.

    Args:
      recording: the complete steps.
      workers: their indices.
      cause: of the diagnosis, which tells since when; None: they are repaired in all steps.
    """
    workers = tuple(int(worker) for worker in workers)
    node = cause.node if cause else node_of(recording, workers)
    if node is not None:
        kind, title = NODE, node_named(node)
    else:
        kind = WORKER if len(workers) == 1 else WORKERS
        title = f"{named(recording.workers, workers)}{' together' * (len(workers) > 1)}"
    rows, since, shown = None, None, ""
    if cause is not None:
        rows = rows_of(cause, len(recording.steps))
        since = since_of(cause, recording.steps)
        shown = when(cause, recording.steps)
    apply = functools.partial(_mend, repair=repairs.AtMedian(workers, rows))
    over = cause is not None and cause.until is not None
    return Repair(kind, title + shown, "as fast as the median of the others", apply, workers, since, over)


def of_diagnosis(recording: Recording, diagnosis: Diagnosis | None) -> Iterator[Repair]:
    """The repairs of the causes that a diagnosis names: workers, nodes, and a cluster that has become slower."""
    for cause in diagnosis.causes if diagnosis else ():
        if 0 < len(cause.workers) < len(recording.workers):
            yield of_workers(recording, cause.workers, cause=cause)
        elif cause.kind in (ALL_SLOWER, DRIFT) and cause.factor > 1:
            rows, shown = rows_of(cause, len(recording.steps)), when(cause, recording.steps)
            # What has become slower gradually has the factor at the end.
            ramp = np.linspace(1, cause.factor, int(rows.sum())) if cause.kind == DRIFT else cause.factor
            apply = functools.partial(_mend, repair=repairs.faster, factor=ramp, rows=rows)
            since = since_of(cause, recording.steps)
            yield Repair(
                SLOWER, f"the whole cluster{shown}", "as fast as before", apply, (), since, cause.until is not None
            )


def of_pauses(recording: Recording, pauses: Pauses) -> Iterator[Repair]:
    """The repairs of common pauses: those that come every n-th step, and the others."""
    periodic = np.zeros(pauses.rows.size, bool)
    if pauses.period is not None:
        periodic = (recording.steps[pauses.rows] - pauses.offset) % pauses.period == 0
    for chosen, kind, title in (
        (periodic, PERIOD, f"every {ordinal(pauses.period or 0)} step ({counted(int(periodic.sum()), 'pause')})"),
        (~periodic, STEPS, f"{counted(int((~periodic).sum()), 'slow step')}{' besides' if periodic.any() else ''}"),
    ):
        if chosen.any():
            known = {"rows": pauses.rows[chosen], "extra": pauses.extra[chosen], "usual": pauses.usual}
            yield Repair(
                kind, title, "as fast as a usual step", functools.partial(_mend, repair=repairs.pauses_removed, **known)
            )


def of_periods(recording: Recording, pauses: Pauses) -> Iterator[Repair]:
    """The repairs of every n-th step of some workers, where it is longer and no common pause."""
    runtimes, steps = recording.runtimes, recording.steps
    kept = np.ones(len(steps), bool)
    kept[pauses.rows] = False
    runtimes, steps, rows = runtimes[kept], steps[kept], np.flatnonzero(kept)
    if len(steps) < 2:
        return
    relative = runtimes / np.median(runtimes, axis=1, keepdims=True)
    searched = np.argsort(-above_median(runtimes), kind="stable")
    found = periods.find_periods(relative[:, searched[:_SEARCHED]], steps)
    lengths = sorted({period.every for period in found if period})
    if lengths and searched.size > _SEARCHED:  # of the other workers, only these periods are tried
        found += periods.find_periods(relative[:, searched[_SEARCHED:]], steps, lengths)
    for every in lengths:
        entries = np.zeros(recording.runtimes.shape, bool)
        of = {int(worker): p for worker, p in zip(searched, found, strict=False) if p and p.every == every}
        for worker, period in of.items():
            entries[rows[period.rows], worker] = True
        workers = sorted(of)
        whose = "each worker" if len(workers) == len(recording.workers) else named(recording.workers, workers)
        apply = functools.partial(_mend, repair=repairs.entries_at_own_median, entries=entries)
        title = f"every {ordinal(every)} step of {whose}"
        yield Repair(PERIOD, title, "as fast as the steps between", apply, tuple(workers))


def of_communication(recording: Recording) -> Iterator[Repair]:
    """The repair of communication, if the trace has it and it is not the same in all steps."""
    if np.ptp(recording.transfer()) > 0:
        yield Repair(COMMUNICATION, "communication", "never longer than its median over the steps", _mend_transfer)


def of_phases(recording: Recording) -> Iterator[Repair]:
    """The repairs of the phases that the work of a step consists of, if the trace has more than one."""
    if len(recording.phases) > 1:
        for name, seconds in recording.phases.items():
            apply = functools.partial(_mend_phase, phase=seconds, usual=float(np.median(seconds)))
            mended = "never longer than its median over workers and steps"
            yield Repair(PHASE, f"phase {name}", mended, apply, phase=name)


def of_chance() -> Repair:
    """The repair of all waiting for the slowest: every worker at most at the median of its step."""
    title, mended = "all compute", "every worker as fast as the median of its step"
    return Repair(CHANCE, title, mended, functools.partial(_mend, repair=repairs.all_at_median))


def node_of(recording: Recording, workers: tuple[int, ...]) -> str | None:
    """The node whose workers exactly these are, if it has several."""
    if not recording.nodes or len(workers) < 2:
        return None
    names = {recording.nodes[worker] for worker in workers}
    return recording.nodes[workers[0]] if len(names) == 1 and recording.nodes.count(*names) == len(workers) else None


def rows_of(cause: Cause, steps: int) -> np.ndarray:
    """The rows in which a cause shows: bool[T]."""
    rows = np.zeros(steps, bool)
    for episode in cause.episodes:
        rows[episode.first : episode.last + 1] = True
    if not cause.episodes:
        rows[cause.since or 0 : steps if cause.until is None else cause.until + 1] = True
    return rows


def since_of(cause: Cause, steps: np.ndarray) -> int | None:
    """The step since which a cause shows, unless it has always shown or comes and goes."""
    return int(steps[cause.since]) if cause.since and len(cause.episodes) <= 1 else None


def when(cause: Cause, steps: np.ndarray) -> str:
    """Say in brackets when a cause shows; empty if it always does."""
    if len(cause.episodes) > 1:
        return f" ({len(cause.episodes)} times)"
    if cause.until is not None:
        return f" (steps {steps[cause.since or 0]} to {steps[cause.until]})"
    return f" (since step {steps[cause.since]})" if cause.since else ""


def _mend(times: Times, repair: Callable[..., np.ndarray], **others: Any) -> Times:
    """The times after a repair that shortens run-times alone; `others` are its further arguments."""
    return dataclasses.replace(times, runtimes=repair(times.runtimes, **others))


def _mend_transfer(times: Times) -> Times:
    return dataclasses.replace(times, transfer=repairs.transfer_at_median(times.transfer))


def _mend_phase(times: Times, phase: np.ndarray, usual: float) -> Times:
    return dataclasses.replace(times, runtimes=repairs.phase_at_usual(times.runtimes, phase, usual, times.scale))
