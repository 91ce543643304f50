r"""What could be mended in a job of pipelines: slow stages of a rank, links, long data, a long stage, communication.

Each repair shortens operations, and the longest path through each step is taken again. The order is fixed, since one
cause hides another: a slow machine would be taken for long data, and long data for a long stage.

1. **Workers**, a stage of a data-parallel rank each, that compute longer than the same stage of the other ranks: found
   by the diagnosis of run-times (`sgdlab.advice.diagnosis`) in the medians over micro-batches. Mended, they take the
   median of the others.
2. **Links**, the messages between two stages of a rank, likewise; and between two stages of all ranks, if they take
   `SLOWER_LINK` times as long as those between the other stages.
3. **Long data**: within a step and rank the same micro-batches are long forward and backward, and in the first and the
   last stage: the length travels with the data. Mended, the micro-batches of a step are dealt to the ranks anew, the
   longest first to the rank that has least to do.
4. **A long stage**, `LONGER` times the median of the others on all ranks. Mended, layers move; what the stage does
   beyond the others, such as an output head, stays.
5. **Communication** that takes longer than its median.

Source: Lin et al. 2025, "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI), section 5,
has the causes and the correlation of 0.9; the order, the thresholds and the repairs are this package's own.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sgdlab.advice.diagnosis import blame, pauses
from sgdlab.advice.diagnosis.causes import Cause
from sgdlab.advice.what_if.candidates import CHANCE, COMMUNICATION, Repair, rows_of, since_of, when
from sgdlab.advice.what_if.in_turn import NOTHING, Mended
from sgdlab.pipelines import COMPUTE, PipelineJob
from sgdlab.pipelines.operations import COMMUNICATION as TRANSFERRING
from sgdlab.pipelines.operations import TRANSFERS
from sgdlab.report.words import listed, some
from sgdlab.traces.recording import Recording

STAGE_OF_RANK, LINK, LINKS = "stage of a rank", "link", "links"
LENGTHS, LONG_STAGE = "sequence lengths", "long stage"

LONGER = 1.1
"""Multiple of the median of the others from which a stage is long."""

SLOWER_LINK = 2.0
"""Multiple of the messages between other stages from which those between two stages are slow."""

ALIKE = 0.9
"""Correlation from which micro-batches are long by themselves."""

VARIES = 0.05
"""Coefficient of variation of the micro-batches of a rank and step from which their lengths matter."""

_CHANCE_TITLE = "all computation"


@dataclasses.dataclass(frozen=True, eq=False)
class OperationTimes:
    """Holds the seconds of the operations of a job, between repairs.

    Attributes:
      job: with these seconds.
    """

    job: PipelineJob

    def seconds(self) -> np.ndarray:
        """Return float64[T], the longest path through each step."""
        return self.job.steps

    def having(self, seconds: np.ndarray) -> "OperationTimes":
        """Return the same job with other seconds, float64[O, T, N]."""
        return OperationTimes(dataclasses.replace(self.job, seconds=seconds))


class _Unit(NamedTuple):
    """Operations of one data-parallel rank that one machine, or one link, does."""

    name: str
    group: str  # of all ranks
    rank: int
    operations: tuple[int, ...]


def order(recording: Recording) -> Iterator[Mended]:
    """Yield the repairs of a job of pipelines, each made after those before it; the last one is waiting by chance.

    Those that save next to nothing are left out.
    """
    times = OperationTimes(recording.job)
    recorded = times.seconds().sum()
    finders = (_workers, _links, _lengths, _long_stage, _communication, _chance)
    for find in finders:
        for repair in find(times.job, recording):
            before, after = times.seconds().sum(), repair.apply(times)
            seconds = float(after.seconds().sum())
            if repair.kind in (CHANCE, COMMUNICATION) or before - seconds >= NOTHING * recorded:
                times = after
                yield Mended(repair, times, repair.kind != CHANCE)


def _workers(job: PipelineJob, recording: Recording) -> Iterator[Repair]:
    ops = job.operations
    units = [
        _Unit(f"stage {stage} of rank {name}", f"stage {stage}", rank, tuple(ops.of(COMPUTE, stage)))
        for stage in ops.stages
        for rank, name in enumerate(recording.workers)
    ]
    if len(ops.stages) == 1:
        units = [unit._replace(name=f"rank {recording.workers[unit.rank]}") for unit in units]
    did = "computes {:.2f} times as long as {} of the other ranks"
    yield from _slow(job, recording, units, STAGE_OF_RANK, "as fast as the same stage of the other ranks", did)


def _links(job: PipelineJob, recording: Recording) -> Iterator[Repair]:
    between: dict[tuple[int, int], list[int]] = {}
    for party in job.graph.parties:
        if len(party) == 2 and job.operations.kind[party[0]] in TRANSFERS:
            low, high = sorted(job.operations.stage[list(party)].tolist())
            between.setdefault((low, high), []).extend(party)
    if not between:
        return
    units = [
        _Unit(f"the messages between stages {low} and {high} of rank {name}", f"{low}-{high}", rank, tuple(found))
        for (low, high), found in between.items()
        for rank, name in enumerate(recording.workers)
    ]
    did = "take {:.2f} times as long as those of the other ranks"
    yield from _slow(job, recording, units, LINK, "as fast as those of the other ranks", did)
    usual = {pair: float(np.median(job.seconds[found])) for pair, found in between.items()}
    for pair, found in between.items():
        others = [value for other, value in usual.items() if other != pair]
        if others and usual[pair] >= SLOWER_LINK * np.median(others) > 0:
            factor = usual[pair] / float(np.median(others))
            title = f"the messages between stages {pair[0]} and {pair[1]}"
            yield Repair(
                LINKS,
                title,
                "as fast as those between other stages",
                functools.partial(_scaled, operations=found, factor=factor),
                said=f"{title} take {factor:.2f} times as long as those between other stages, on all ranks",
            )


def _slow(
    job: PipelineJob, recording: Recording, units: Sequence[_Unit], kind: str, mended: str, did: str
) -> Iterator[Repair]:
    """Yield the repairs of machines or links that are slower than the same ones of other ranks."""
    values = np.stack([_usual(job, unit) for unit in units], axis=-1)  # [T, units]
    for group in {unit.group for unit in units}:
        of = [i for i, unit in enumerate(units) if unit.group == group]
        values[:, of] /= np.median(values[:, of]) or 1.0
    if values.shape[1] < 2 or not (values > 0).all():
        return
    causes = _causes(Recording(values, recording.steps, tuple(unit.name for unit in units)))
    blamed = {worker for cause in causes for worker in cause.workers}
    for cause in causes:
        members = [units[worker] for worker in cause.workers]
        rows = rows_of(cause, len(recording.steps))
        well: dict[str, list[int]] = {
            member.group: [unit.rank for i, unit in enumerate(units) if unit.group == member.group and i not in blamed]
            for member in members
        }
        apply = functools.partial(_as_others, members=members, well=well, rows=rows, factor=cause.factor)
        names = some([member.name for member in members])
        same = f"the same {'stage' if kind == STAGE_OF_RANK else 'messages'}"
        what = f"{names} {did.format(cause.factor, members[0].group if len(members) == 1 else same)}"
        always = ", in all steps" if not cause.since and cause.until is None and len(cause.episodes) <= 1 else ""
        ranks = tuple(sorted({member.rank for member in members}))
        yield Repair(
            kind,
            f"{names}{when(cause, recording.steps)}",
            mended,
            apply,
            ranks,
            since_of(cause, recording.steps),
            cause.until is not None,
            said=f"{what}{when(cause, recording.steps) or always}",
        )


def _causes(medians: Recording) -> list[Cause]:
    """The columns that the diagnosis of run-times calls slow."""
    found = [cause for cause, _ in blame.find_suspects(medians, pauses.find_pauses(medians))[0]]
    return [cause for cause in found if 0 < len(cause.workers) < len(medians.workers)]


def _usual(job: PipelineJob, unit: _Unit) -> np.ndarray:
    """float64[T], the sum over kinds of the median over the operations of that kind."""
    kinds: dict[str, list[int]] = {}
    for operation in unit.operations:
        kinds.setdefault(job.operations.kind[operation], []).append(operation)
    return np.sum([np.median(job.seconds[of][:, :, unit.rank], axis=0) for of in kinds.values()], axis=0)


def _as_others(
    times: OperationTimes, members: Sequence[_Unit], well: dict[str, list[int]], rows: np.ndarray, factor: float
) -> OperationTimes:
    seconds = times.job.seconds.copy()
    for member in members:
        of = np.ix_(member.operations, np.flatnonzero(rows), [member.rank])
        others = well[member.group]
        if others:
            usual = np.median(seconds[np.ix_(member.operations, np.flatnonzero(rows), others)], axis=2, keepdims=True)
            seconds[of] = np.minimum(seconds[of], usual)
        else:  # nobody else does this: as before it was slow
            seconds[of] /= factor
    return times.having(seconds)


def _scaled(times: OperationTimes, operations: Sequence[int], factor: float) -> OperationTimes:
    seconds = times.job.seconds.copy()
    seconds[list(operations)] /= factor
    return times.having(seconds)


class _Work(NamedTuple):
    """The computations of a job by micro-batch: int[2, C, M] operations, and the stage of each of the C chunks."""

    operations: np.ndarray
    stage: np.ndarray

    def seconds(self, job: PipelineJob) -> np.ndarray:
        """Return float64[2, C, M, T, N], forward and backward."""
        return job.seconds[self.operations]

    def having(self, times: OperationTimes, seconds: np.ndarray) -> OperationTimes:
        """Return the times with other computations."""
        found = times.job.seconds.copy()
        found[self.operations] = seconds
        return times.having(found)


def _work(job: PipelineJob) -> _Work | None:
    """The computations by micro-batch; None where stages have different numbers of them."""
    ops = job.operations
    chunks: dict[int, tuple[int, list[list[int]]]] = {}
    interleaved = int(ops.chunk.max()) >= len(ops.stages)
    for stage, stream in zip(ops.stages, job.graph.order, strict=True):
        for operation in stream:
            if ops.kind[operation] in COMPUTE:
                chunk = int(ops.chunk[operation]) if interleaved else stage
                chunks.setdefault(chunk, (stage, [[], []]))[1][COMPUTE.index(ops.kind[operation])].append(operation)
    found = [chunks[chunk] for chunk in sorted(chunks)]
    if len({len(of_way) for _, both in found for of_way in both}) != 1:
        return None
    return _Work(np.array([both for _, both in found]).swapaxes(0, 1), np.array([stage for stage, _ in found]))


def _lengths(job: PipelineJob, recording: Recording) -> Iterator[Repair]:
    work = _work(job)
    if work is None or len(recording.workers) < 2 or work.operations.shape[2] < 2:
        return
    seconds = work.seconds(job)
    centred = seconds - seconds.mean(axis=2, keepdims=True)  # within a step and rank: a slow machine does not count
    both, total = centred.sum(axis=0), seconds.sum(axis=0)
    ways, stages = _alike(centred[0], centred[1]), _alike(both[0], both[-1])
    with np.errstate(invalid="ignore", divide="ignore"):
        varies = float(np.nanmedian(total.std(axis=1) / total.mean(axis=1)))
    if not (min(ways, stages) >= ALIKE and varies >= VARIES):
        return
    in_all = f" and in all stages ({stages:.2f})" if len(work.stage) > 1 else ""
    yield Repair(
        LENGTHS,
        "the sequence lengths",
        "the micro-batches of each step dealt to the ranks by their cost",
        functools.partial(_dealt, work=work),
        said=f"the data are long, no machine is slow: micro-batches differ by {100 * varies:.0f} %, and the same ones "
        f"are long forward and backward ({ways:.2f}){in_all}, so that in each step some rank gets more than the others",
    )


def _alike(a: np.ndarray, b: np.ndarray) -> float:
    norm = np.sqrt((a * a).sum() * (b * b).sum())
    return float((a * b).sum() / norm) if norm > 0 else 0.0


def _dealt(times: OperationTimes, work: _Work) -> OperationTimes:
    """The micro-batches of each step dealt anew: the longest first, to the rank that has least to do and has room."""
    seconds = work.seconds(times.job)
    ways, chunks, batches, steps, ranks = seconds.shape
    total = seconds.sum(axis=0)
    usual = np.median(total, axis=(1, 2))  # [C, N]
    factor = (usual / np.median(usual, axis=1, keepdims=True))[:, None, None, :]  # of a machine; it stays with the rank
    of_stage = np.array([(total / factor)[work.stage == stage].sum(axis=0) for stage in np.unique(work.stage)])
    cost = of_stage.max(axis=0).transpose(1, 2, 0).reshape(steps, ranks * batches)  # of the longest stage
    load, held = np.zeros((steps, ranks)), np.zeros((steps, ranks), int)
    dealt, rows = np.empty((steps, ranks, batches), int), np.arange(steps)
    for item in np.argsort(-cost, axis=1, kind="stable").T:
        rank = np.where(held < batches, load, np.inf).argmin(axis=1)
        dealt[rows, rank, held[rows, rank]] = item
        load[rows, rank] += cost[rows, item]
        held[rows, rank] += 1
    flat = (seconds / factor).transpose(0, 1, 3, 4, 2).reshape(ways, chunks, steps, ranks * batches)
    fresh = np.take_along_axis(flat, dealt.reshape(1, 1, steps, -1), axis=3)
    fresh = fresh.reshape(ways, chunks, steps, ranks, batches).transpose(0, 1, 4, 2, 3) * factor
    after = work.having(times, fresh)
    return after if after.seconds().sum() < times.seconds().sum() else times


def _long_stage(job: PipelineJob, recording: Recording) -> Iterator[Repair]:
    del recording
    work = _work(job)
    if work is None or len(job.operations.stages) < 2:
        return
    usual = np.median(work.seconds(job), axis=(2, 3, 4)).sum(axis=0)  # [C]
    stages = np.unique(work.stage)
    total = np.array([usual[work.stage == stage].sum() for stage in stages])
    longest = int(total.argmax())
    layer = float(np.median(np.delete(total, longest)))  # of a stage that holds nothing but layers
    if not total[longest] >= LONGER * layer:
        return
    other = total - layer  # what a stage holds besides layers
    share = np.maximum((total.sum() / total.size - other) / layer, 0.0)
    share *= total.size / share.sum()
    shares = listed([f"{part:.2f}" for part in share])
    factor = total[longest] / layer
    moved = functools.partial(_moved, work=work, share=dict(zip(stages.tolist(), share, strict=True)), longest=longest)
    yield Repair(
        LONG_STAGE,
        f"stage {stages[longest]}",
        f"layers moved, so that the stages hold {shares} of what one holds now",
        moved,
        said=f"stage {stages[longest]} computes {factor:.2f} times as long as the other stages, on all ranks",
    )


def whole_layers(job: PipelineJob, layers: int) -> tuple[list[int], float]:
    """Split layers over stages such that the longest stage is shortest, and price it by the longest path.

    Args:
      job: of at least two stages.
      layers: L, that a stage holds now.

    Returns:
      The layers of each stage, and the seconds that all steps take with them.

    Raises:
      ValueError: where stages compute different numbers of micro-batches.
    """
    work = _work(job)
    if work is None:
        raise ValueError("stages must compute the same number of micro-batches")
    usual, stages = np.median(work.seconds(job), axis=(2, 3, 4)).sum(axis=0), np.unique(work.stage)
    total = np.array([usual[work.stage == stage].sum() for stage in stages])
    longest = int(total.argmax())
    layer = float(np.median(np.delete(total, longest)))
    held = np.zeros(total.size, int)
    for _ in range(layers * total.size):  # one after the other, to where the stage is then shortest
        held[((total - layer) + (held + 1) / layers * layer).argmin()] += 1
    share = dict(zip(stages.tolist(), held / layers, strict=True))
    return held.tolist(), float(_moved(OperationTimes(job), work, share, longest).seconds().sum())


def _moved(times: OperationTimes, work: _Work, share: dict[int, float], longest: int) -> OperationTimes:
    """Layers moved: one takes for each micro-batch what it takes in the other stages, so that long data go with it."""
    seconds = work.seconds(times.job)
    stages = np.unique(work.stage)
    each = np.median(seconds[:, work.stage != stages[longest]], axis=1, keepdims=True)  # of a chunk
    more = np.array([share[stage] for stage in work.stage]) - 1
    return work.having(times, np.maximum(seconds + more[None, :, None, None, None] * each, 0.0))


def _communication(job: PipelineJob, recording: Recording) -> Iterator[Repair]:
    del recording
    kinds = [kind for kind in sorted(set(job.operations.kind)) if kind in TRANSFERRING]
    if kinds:
        yield Repair(COMMUNICATION, "communication", "never longer than its median", _transfers_at_median)


def _transfers_at_median(times: OperationTimes) -> OperationTimes:
    ops, seconds = times.job.operations, times.job.seconds.copy()
    for kind in set(ops.kind) & TRANSFERRING:
        for stage in ops.stages:
            of = ops.of(kind, stage)
            if of:
                seconds[of] = np.minimum(seconds[of], np.median(seconds[of]))
    return times.having(seconds)


def _chance(job: PipelineJob, recording: Recording) -> Iterator[Repair]:
    del job, recording
    yield Repair(CHANCE, _CHANCE_TITLE, "every rank as fast as the median of its step", _all_at_median)


def _all_at_median(times: OperationTimes) -> OperationTimes:
    seconds = times.job.seconds.copy()
    of = times.job.operations.of(COMPUTE)
    seconds[of] = np.minimum(seconds[of], np.median(seconds[of], axis=2, keepdims=True))
    return times.having(seconds)
