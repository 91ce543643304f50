"""Candidates for repair in a recorded trace: slow workers and nodes, every n-th step, pauses, phases, communication."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from sgdlab.report.words import counted, node_named, ordinal
from sgdlab.stragglers import repairs
from sgdlab.stragglers.diagnosis import history, periods
from sgdlab.stragglers.diagnosis.causes import ALL_SLOWER, DRIFT, Cause, named
from sgdlab.stragglers.diagnosis.diagnosis import Diagnosis
from sgdlab.stragglers.diagnosis.pauses import Pauses
from sgdlab.stragglers.what_if.scores import above_median
from sgdlab.traces.recording import Recording

WORKER, WORKERS, NODE = "worker", "workers", "node"
PERIOD, STEPS, COMMUNICATION, PHASE, CHANCE = "every n-th step", "slow steps", "communication", "phase", "chance"
STAGE_OF_RANK, LINK, LINKS = "stage of a rank", "link", "links"
LENGTHS, LONG_STAGE = "sequence lengths", "long stage"
"""Kinds of repairs; those of all workers are called as their causes are, `ALL_SLOWER` and `PAUSES`."""

_SEARCHED = 32
"""Most workers whose own steps are searched for a period: those whose excess is largest."""


@dataclasses.dataclass(frozen=True, eq=False)
class Times:
    """Holds the times of a trace between repairs, as `PipelineJob` holds those of the operations of pipelines.

    Attributes:
      seconds: float64[T, N], of each worker's own work.
      transfer: float64[T], seconds of communication.
      scale: what earlier repairs have left of the recorded compute times, float64[T, N] or 1.
    """

    seconds: np.ndarray
    transfer: np.ndarray
    scale: np.ndarray | float = 1.0

    @functools.cached_property
    def steps(self) -> np.ndarray:
        """Return float64[T], the duration of each step under full synchrony."""
        return repairs.synchronous_seconds(self.seconds, self.transfer)


@dataclasses.dataclass(frozen=True, eq=False)
class Repair:
    """Holds one thing that could be mended.

    Attributes:
      kind: one of the constants of this module, or of a cause.
      title: what is mended, in a few words.
      mended: what it would be like instead.
      apply: from the times before to the times after, both `Times`, or of pipelines `PipelineJob`.
      workers: indices of the workers it concerns; empty if all.
      since: number of the step since which it shows; None if it always does, comes and goes, or this is not known.
      over: whether it no longer shows in the last steps.
      said: what was seen, without the capital and the full stop of a sentence; empty where the title says it.
      evident: whether it is a cause, and not merely the slowest of equals.
    """

    kind: str
    title: str
    mended: str
    apply: Callable[[Any], Any]
    workers: tuple[int, ...] = ()
    since: int | None = None
    over: bool = False
    said: str = ""
    evident: bool = True


def mending(repair: Callable[..., np.ndarray], operations: Any = None, **others: Any) -> Callable[[Any], Any]:
    """Return what applies a repair of seconds, [..., T, N], to times: to all, or to some operations of pipelines."""
    return functools.partial(_mend, repair=functools.partial(repair, **others), operations=operations)


def _mend(times: Any, repair: Callable[[np.ndarray], np.ndarray], operations: Any) -> Any:
    if operations is None:
        return dataclasses.replace(times, seconds=repair(times.seconds))
    seconds = times.seconds.copy()
    seconds[operations] = repair(seconds[operations])
    return dataclasses.replace(times, seconds=seconds)


def of_workers(recording: Recording, workers: Sequence[int] | np.ndarray, *, cause: Cause | None = None) -> Repair:
    """Return the repair of some workers in the steps in which a cause shows; without one, in all."""
    workers = tuple(int(worker) for worker in workers)
    node = cause.node if cause else node_of(recording, workers)
    if node is not None:
        kind, title = NODE, node_named(node)
    else:
        kind = WORKER if len(workers) == 1 else WORKERS
        title = f"{named(recording.workers, workers)}{' together' * (len(workers) > 1)}"
    since, over = None, False
    if cause:
        since, over = cause.began(recording.steps), cause.over
        title += cause.when(recording.steps)
    apply = mending(repairs.AtMedian(workers) if cause is None or cause.repair is None else cause.repair)
    return Repair(kind, title, "as fast as the median of the others", apply, workers, since, over)


def of_diagnosis(recording: Recording, diagnosis: Diagnosis) -> Iterator[Repair]:
    """Yield the repairs of the causes that a diagnosis names: workers, nodes, and a cluster that has become slower."""
    for cause in diagnosis.causes:
        if 0 < len(cause.workers) < len(recording.workers):
            yield of_workers(recording, cause.workers, cause=cause)
        else:
            yield from of_fleet(recording, cause, "the whole cluster")


def of_fleet(
    recording: Recording, cause: Cause, who: str, operations: Sequence[int] | None = None, said: str = ""
) -> Iterator[Repair]:
    """Yield the repair of a cause, named `who`, if it is that all have become slower."""
    if cause.kind in (ALL_SLOWER, DRIFT) and cause.repair is not None:
        title, since = who + cause.when(recording.steps), cause.began(recording.steps)
        apply = mending(cause.repair, operations)
        yield Repair(ALL_SLOWER, title, "as fast as before", apply, since=since, over=cause.over, said=said)


def of_pauses(recording: Recording, pauses: Pauses) -> Iterator[Repair]:
    """Yield the repairs of common pauses: those that come every n-th step, and the others."""
    periodic, every = np.zeros(pauses.rows.size, bool), ""
    if pauses.period:
        periodic[pauses.period.rows(recording.steps[pauses.rows])] = True
        every = ordinal(pauses.period.every)
    for chosen, kind, title in (
        (periodic, PERIOD, f"every {every} step ({counted(int(periodic.sum()), 'pause')})"),
        (~periodic, STEPS, f"{counted(int((~periodic).sum()), 'slow step')}{' besides' if periodic.any() else ''}"),
    ):
        if chosen.any():
            yield Repair(kind, title, "as fast as a usual step", mending(pauses.removed, chosen=chosen))


def of_periods(recording: Recording, pauses: Pauses) -> Iterator[Repair]:
    """Yield the repairs of every n-th step of some workers, where it is longer and no common pause."""
    kept = np.flatnonzero(~pauses.among(len(recording.steps)))
    runtimes, steps = recording.runtimes[kept], recording.steps[kept]
    if len(steps) < 2:
        return
    medians = recording.medians[kept]
    relative, searched = runtimes / medians[:, None], np.argsort(-above_median(runtimes, medians), kind="stable")
    found = periods.of_workers(relative[:, searched[:_SEARCHED]], steps)
    lengths = sorted({period.every for period in found if period})
    if lengths and searched.size > _SEARCHED:  # of the other workers, only these periods are tried
        found += periods.of_workers(relative[:, searched[_SEARCHED:]], steps, lengths)
    for every in lengths:
        rows = [
            (int(worker), kept[period.rows(steps)])
            for worker, period in zip(searched, found, strict=False)
            if period and period.every == every
        ]
        workers = tuple(sorted(worker for worker, _ in rows))
        whose = "each worker" if len(workers) == len(recording.workers) else named(recording.workers, workers)
        apply = mending(repairs.rows_at_own_median, rows=rows)
        yield Repair(PERIOD, f"every {ordinal(every)} step of {whose}", "as fast as the steps between", apply, workers)


def of_communication(recording: Recording) -> Iterator[Repair]:
    """Yield the repair of communication, if the trace has it and it is not the same in all steps."""
    if np.ptp(recording.transfer()) > 0:
        yield Repair(COMMUNICATION, "communication", "never longer than its median over the steps", _mend_transfer)


def _mend_transfer(times: Times) -> Times:
    return dataclasses.replace(times, transfer=np.minimum(times.transfer, np.median(times.transfer)))


def of_phases(recording: Recording) -> dict[str, Repair]:
    """Return the repairs of the phases that the work of a step consists of, by name, if the trace has more than one."""
    mended = "never longer than its median over workers and steps"
    return {
        name: Repair(
            PHASE, f"phase {name}", mended, functools.partial(_mend_phase, phase=phase, usual=float(np.median(phase)))
        )
        for name, phase in recording.phases.items()
        if len(recording.phases) > 1
    }


def _mend_phase(times: Times, phase: np.ndarray, usual: float) -> Times:
    """A phase takes at most a usual time; by earlier repairs it is taken to have shrunk as the compute times have."""
    saved = np.maximum(phase - usual, 0.0)
    saved *= times.scale
    return dataclasses.replace(times, seconds=np.maximum(times.seconds - saved, 0.0, out=saved))


def of_chance(who: str = "worker", title: str = "all compute", operations: Sequence[int] | None = None) -> Repair:
    """Return the repair of all waiting for the slowest: every worker at most at the median of its step."""
    mended = f"every {who} as fast as the median of its step"
    return Repair(CHANCE, title, mended, mending(repairs.all_at_median, operations), evident=False)


def node_of(recording: Recording, workers: tuple[int, ...]) -> str | None:
    """Return the node whose workers exactly these are, if it may be to blame."""
    members = history.of_nodes(recording.nodes)
    return next((name for name, own in members.items() if set(own) == set(workers)), None)
