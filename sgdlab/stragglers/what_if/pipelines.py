r"""Repairs of a job of pipelines: slow stages of a rank, links, long data, a long stage, communication.

Each repair changes the seconds of operations, and the longest path through each step is taken again. The order is
fixed, since one cause hides another: a slow machine would be taken for long data, and long data for a long stage.

1. **Pauses** of all ranks, as the diagnosis of run-times finds them. Mended, their operations take the median of the
   other steps.
2. **Workers**, a stage of a data-parallel rank each, that compute longer than the same stage of the other ranks: found
   by the diagnosis (`sgdlab.stragglers.diagnosis`) in the medians over micro-batches. Mended, all of them take the
   median of the others.
3. **Links**, the messages between two stages of a rank, likewise; and between two stages of all ranks, if they take
   `SLOWER_LINK` times as long as those between the other stages.
4. **Long data**: within a step and rank the same micro-batches are long forward and backward, and in the first and the
   last stage: the length travels with the data. Mended, the micro-batches of a step are dealt to the ranks anew, the
   longest first to the rank that has least to do.
5. **A long stage**, `LONGER` times the median of the others on all ranks. Mended, layers move; what the stage does
   beyond the others, such as an output head, stays.
6. **Uneven workers**, whose sums over a step are long, though not their medians: as 2.
7. **All ranks slower** since some step. Mended, they compute as before.
8. **Communication** that takes longer than its median.

Source: Lin et al. 2025, "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI), section 5,
has the causes and the correlation of 0.9; the order, the thresholds and the repairs are this package's own.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np

from sgdlab.pipelines.job import PipelineJob
from sgdlab.pipelines.operations import COMMUNICATION as TRANSFERRING
from sgdlab.stragglers.diagnosis import blame, pauses
from sgdlab.stragglers.diagnosis.causes import ALL_SLOWER, DRIFT
from sgdlab.stragglers.what_if.candidates import CHANCE, COMMUNICATION, SLOWER, Repair, rows_of, since_of, when
from sgdlab.stragglers.what_if.in_turn import NOTHING, Mended
from sgdlab.stragglers.what_if.micro_batches import long_data, long_stage
from sgdlab.stragglers.what_if.operation_times import PAUSED, OperationTimes
from sgdlab.stragglers.what_if.slow_machines import slow_links, slow_stages
from sgdlab.traces.recording import Recording

_CHANCE_TITLE = "all computation"


def order(recording: Recording) -> Iterator[Mended]:
    """Yield the repairs of a job of pipelines, each made after those before it; the last one is waiting by chance.

    Those that save next to nothing are left out.
    """
    times = OperationTimes(recording.job)  # pyrefly: ignore[bad-argument-type]  # of pipelines alone
    least = NOTHING * times.seconds().sum()
    uneven = functools.partial(slow_stages, medians=False)
    finders = (_pauses, slow_stages, slow_links, long_data, long_stage, uneven, _slower, _communication, _chance)
    for find in finders:
        for repair in find(times, recording):
            after = repair.apply(times)
            if repair.kind == CHANCE or times.seconds().sum() - after.seconds().sum() >= least:
                times = after
                yield Mended(repair, times, repair.kind != CHANCE)


def _steps(times: OperationTimes, recording: Recording) -> Recording:
    """The run-times of the ranks, with what follows their last backward computation."""
    own = times.job.runtimes
    return dataclasses.replace(recording, runtimes=own + (times.job.steps - own.max(axis=1))[:, None], phases={})


def _pauses(times: OperationTimes, recording: Recording) -> Iterator[Repair]:
    found = pauses.find_pauses(_steps(times, recording))
    if found.rows.size:
        title = found.describe(recording.steps)
        yield Repair(
            PAUSED,
            "pauses of all",
            "as fast as the other steps",
            functools.partial(_as_usual, rows=found.rows),
            said=title,
        )


def _as_usual(times: OperationTimes, rows: np.ndarray) -> OperationTimes:
    seconds = times.job.seconds.copy()
    usual = np.median(np.delete(seconds, rows, axis=1), axis=1, keepdims=True)
    seconds[:, rows] = np.minimum(seconds[:, rows], usual)
    return times.having(seconds)


def _slower(times: OperationTimes, recording: Recording) -> Iterator[Repair]:
    work, steps = _own(times.job), _steps(times, recording)
    for cause, _ in blame.find_suspects(steps, pauses.find_pauses(steps))[0]:
        if cause.kind in (ALL_SLOWER, DRIFT) and not cause.workers and cause.factor > 1:
            rows = np.flatnonzero(rows_of(cause, len(recording.steps)))
            factor = (
                np.linspace(1, cause.factor, rows.size) if cause.kind == DRIFT else np.full(rows.size, cause.factor)
            )
            yield Repair(
                SLOWER,
                f"all ranks{when(cause, recording.steps)}",
                "as fast as before",
                functools.partial(_divided, operations=work, rows=rows, factor=factor),
                since=since_of(cause, recording.steps),
                over=cause.until is not None,
                said=cause.headline(recording).replace("All workers", "All ranks"),
            )


def _divided(times: OperationTimes, operations: Sequence[int], rows: np.ndarray, factor: np.ndarray) -> OperationTimes:
    seconds = times.job.seconds.copy()
    seconds[np.ix_(operations, rows)] /= factor[None, :, None]
    return times.having(seconds)


def _own(job: PipelineJob) -> list[int]:
    """The operations that are a machine's own work: all but communication."""
    return [operation for operation, kind in enumerate(job.operations.kind) if kind not in TRANSFERRING]


def _communication(times: OperationTimes, recording: Recording) -> Iterator[Repair]:
    del recording
    now = times.seconds().sum()
    kinds = sorted(set(times.job.operations.kind) & TRANSFERRING)
    saved = {kind: now - _transfers_at_median(times, [kind]).seconds().sum() for kind in kinds}
    if kinds:
        most = max(saved, key=lambda kind: saved[kind])
        yield Repair(
            COMMUNICATION,
            "communication",
            "never longer than its median",
            functools.partial(_transfers_at_median, kinds=kinds),
            said=f"communication takes longer than its median in some steps or ranks, most of all {most}",
        )


def _transfers_at_median(times: OperationTimes, kinds: Sequence[str]) -> OperationTimes:
    ops, seconds = times.job.operations, times.job.seconds.copy()
    for kind in kinds:
        for stage in ops.stages:
            of = ops.of(kind, stage)
            if of:
                seconds[of] = np.minimum(seconds[of], np.median(seconds[of]))
    return times.having(seconds)


def _chance(times: OperationTimes, recording: Recording) -> Iterator[Repair]:
    del times, recording
    yield Repair(CHANCE, _CHANCE_TITLE, "every rank as fast as the median of its step", _all_at_median)


def _all_at_median(times: OperationTimes) -> OperationTimes:
    seconds = times.job.seconds.copy()
    of = _own(times.job)
    seconds[of] = np.minimum(seconds[of], np.median(seconds[of], axis=2, keepdims=True))
    return times.having(seconds)
