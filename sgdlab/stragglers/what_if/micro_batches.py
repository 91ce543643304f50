"""Micro-batches and layers of pipelines: sequences that are long, and stages that hold too much."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sgdlab.pipelines.job import PipelineJob
from sgdlab.pipelines.operations import COMPUTE
from sgdlab.report.words import listed
from sgdlab.stragglers.what_if.candidates import Repair
from sgdlab.stragglers.what_if.operation_times import LENGTHS, LONG_STAGE, OperationTimes
from sgdlab.traces.recording import Recording

LONGER = 1.1
"""Multiple of the median of the others from which a stage is long."""

ALIKE = 0.9
"""Correlation from which micro-batches are long by themselves."""

VARIES = 0.05
"""Coefficient of variation of the micro-batches of a rank and step from which their lengths matter."""


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
    for stage, stream in zip(ops.stages, job.graph.order, strict=True):
        for operation in stream:
            if ops.kind[operation] in COMPUTE:
                _, both = chunks.setdefault(ops.chunk_of(operation), (stage, [[], []]))
                both[COMPUTE.index(ops.kind[operation])].append(operation)
    found = [chunks[chunk] for chunk in sorted(chunks)]
    if len({len(of_way) for _, both in found for of_way in both}) != 1:
        return None
    return _Work(np.array([both for _, both in found]).swapaxes(0, 1), np.array([stage for stage, _ in found]))


def long_data(times: OperationTimes, recording: Recording) -> Iterator[Repair]:
    """Yield the repair of micro-batches that are long by themselves, if they are: to deal them to the ranks by cost."""
    job = times.job
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
        said=f"the data are long: micro-batches differ by {100 * varies:.0f} %, and the same ones "
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


def long_stage(times: OperationTimes, recording: Recording) -> Iterator[Repair]:
    """Yield the repair of stages that are long on all ranks, if some are: to move layers."""
    job, work = times.job, _work(times.job)
    if work is None or len(job.operations.stages) < 2:
        return
    stages, total, longest, layer = _stage_seconds(job, work)
    if not total[longest] >= LONGER * layer:
        return
    other = total - layer  # what a stage holds besides layers
    share = np.maximum((total.sum() / total.size - other) / layer, 0.0)
    share *= total.size / share.sum()
    shares = listed([f"{part:.2f}" for part in share])
    long = [str(stage) for stage, seconds in zip(stages, total, strict=True) if seconds >= LONGER * layer]
    alone = len(long) == 1
    names, verb = (f"stage {long[0]}", "computes") if alone else (f"stages {listed(long)}", "compute up to")
    only = "; with a single rank, a slow machine would look the same" if len(recording.workers) == 1 else ""
    moved = functools.partial(_moved, work=work, share=dict(zip(stages.tolist(), share, strict=True)), longest=longest)
    yield Repair(
        LONG_STAGE,
        names,
        f"layers moved, so that the stages hold {shares} of what one holds now",
        moved,
        said=f"{names} {verb} {total[longest] / layer:.2f} times as long as the other stages, on all ranks{only}",
    )


def _stage_seconds(job: PipelineJob, work: "_Work") -> tuple[np.ndarray, np.ndarray, int, float]:
    """The stages, the usual seconds of a micro-batch in each, the longest, and those of one with nothing but layers."""
    usual, stages = np.median(work.seconds(job), axis=(2, 3, 4)).sum(axis=0), np.unique(work.stage)
    total = np.array([usual[work.stage == stage].sum() for stage in stages])
    longest = int(total.argmax())
    return stages, total, longest, float(np.median(np.delete(total, longest)))


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
    stages, total, longest, layer = _stage_seconds(job, work)
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
