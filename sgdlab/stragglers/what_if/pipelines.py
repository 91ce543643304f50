r"""Repairs of a job of pipelines: slow stages of a rank, links, long data, a long stage, communication.

Each repair changes the seconds of operations, and the longest path through each step is taken again. The order is
fixed, since one cause hides another: a slow machine would be taken for long data, and long data for a long stage.

1. **Pauses** of all ranks, as the diagnosis of times finds them. Mended, their operations take the median of the
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
from collections.abc import Iterable, Iterator

import numpy as np

from sgdlab.pipelines.job import PipelineJob
from sgdlab.pipelines.operations import COMMUNICATION as TRANSFERRING
from sgdlab.stragglers import repairs
from sgdlab.stragglers.diagnosis import blame, pauses
from sgdlab.stragglers.diagnosis.causes import PAUSES
from sgdlab.stragglers.what_if.candidates import COMMUNICATION, Repair, mending, of_chance, of_fleet
from sgdlab.stragglers.what_if.in_turn import NOTHING
from sgdlab.stragglers.what_if.micro_batches import long_data, long_stage
from sgdlab.stragglers.what_if.slow_machines import slow_links, slow_stages
from sgdlab.traces.recording import Recording


def order(recording: Recording, job: PipelineJob) -> Iterator[tuple[Repair, PipelineJob]]:
    """Yield the repairs of a job of pipelines, each made after those before it; the last one is waiting by chance.

    Those that save next to nothing are left out.
    """
    least = NOTHING * job.steps.sum()
    uneven = functools.partial(slow_stages, medians=False)
    for find in (_pauses, slow_stages, slow_links, long_data, long_stage, uneven, _slower, _communication):
        for repair in find(job, recording):
            after = repair.apply(job)
            if job.steps.sum() - after.steps.sum() >= least:
                job = after
                yield repair, job
    chance = of_chance("rank", "all computation", _own(job))
    yield chance, chance.apply(job)


def _of_ranks(job: PipelineJob, recording: Recording) -> tuple[Recording, pauses.Pauses]:
    """The compute times of the ranks, with what follows their last backward computation, and their pauses."""
    rest = job.steps - job.runtimes.max(axis=1)
    steps = dataclasses.replace(recording, runtimes=job.runtimes + rest[:, None], phases={})
    return steps, pauses.find_pauses(steps)


def _own(job: PipelineJob) -> list[int]:
    """The operations that are a machine's own work: all but communication."""
    return [operation for operation, kind in enumerate(job.operations.kind) if kind not in TRANSFERRING]


def _pauses(job: PipelineJob, recording: Recording) -> Iterator[Repair]:
    _, found = _of_ranks(job, recording)
    if found.rows.size:
        apply = mending(repairs.rows_at_own_median, rows=[(slice(None), found.rows)])
        said = found.describe(recording.steps)
        yield Repair(PAUSES, "pauses of all", "as fast as the other steps", apply, said=said)


def _slower(job: PipelineJob, recording: Recording) -> Iterator[Repair]:
    for cause in blame.find_suspects(*_of_ranks(job, recording))[0]:
        if not cause.workers:
            said = cause.headline(recording).replace("All workers", "All ranks")
            yield from of_fleet(recording, cause, "all ranks", _own(job), said)


def _communication(job: PipelineJob, recording: Recording) -> Iterator[Repair]:
    del recording
    ops = job.operations
    repaired = {kind: _mend_transfers(job, [kind]) for kind in sorted(set(ops.kind) & TRANSFERRING)}
    if repaired:
        most = min(repaired, key=lambda kind: repaired[kind].steps.sum())
        apply = functools.partial(_mend_transfers, kinds=tuple(repaired))
        said = f"communication takes longer than its median in some steps or ranks, most of all {most}"
        yield Repair(COMMUNICATION, "communication", "never longer than its median", apply, said=said)


def _mend_transfers(job: PipelineJob, kinds: Iterable[str]) -> PipelineJob:
    seconds = job.seconds.copy()
    for kind in kinds:
        for stage in job.operations.stages:
            if of := job.operations.of(kind, stage):
                seconds[of] = np.minimum(seconds[of], np.median(seconds[of]))
    return dataclasses.replace(job, seconds=seconds)
