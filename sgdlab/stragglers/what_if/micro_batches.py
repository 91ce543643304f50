"""Micro-batches and layers of pipelines: sequences that are long, and stages that hold too much."""

import collections
import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sgdlab.pipelines.job import PipelineJob
from sgdlab.pipelines.operations import COMPUTE
from sgdlab.report.words import listed
from sgdlab.stragglers.what_if.candidates import LENGTHS, LONG_STAGE, Repair, mending
from sgdlab.traces.recording import Recording

LONGER = 1.1
"""Multiple of the median of the others, or of the shortest, from which a stage is long."""

ALIKE = 0.9
"""Correlation from which micro-batches are long by themselves."""

VARIES = 0.05
"""Coefficient of variation of the micro-batches of a rank and step from which their lengths matter."""


class _Work(NamedTuple):
    """The computations of a job by micro-batch: int[2, C, M] operations, and the stage of each of the C chunks."""

    operations: np.ndarray
    stage: np.ndarray

    def stages(self, seconds: np.ndarray) -> np.ndarray:
        """Return float64[S, ...], the sums over the chunks of a stage of float64[C, ...]."""
        return np.array([seconds[self.stage == stage].sum(axis=0) for stage in np.unique(self.stage)])


def _work(job: PipelineJob) -> _Work | None:
    """The computations by micro-batch; None where stages have different numbers of them."""
    ops = job.operations
    found: dict[tuple[str, int], list[int]] = collections.defaultdict(list)
    for operation in ops.of(COMPUTE):
        found[ops.kind[operation], ops.chunk_of(operation)].append(operation)
    chunks = sorted({chunk for _, chunk in found})
    operations = [[found[kind, chunk] for chunk in chunks] for kind in COMPUTE]
    if len({len(of_chunk) for of_kind in operations for of_chunk in of_kind}) != 1:
        return None
    return _Work(np.array(operations), ops.stage[np.array(operations)[0, :, 0]])


def long_data(job: PipelineJob, recording: Recording) -> Iterator[Repair]:
    """Yield the repair of micro-batches that are long by themselves, if they are: to deal them to the ranks by cost."""
    work = _work(job)
    if work is None or len(recording.workers) < 2 or work.operations.shape[2] < 2:
        return
    seconds = job.seconds[work.operations]  # [2, C, M, T, N]
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


def _dealt(job: PipelineJob, work: _Work) -> PipelineJob:
    """The micro-batches of each step dealt anew: the longest first, to the rank that has least to do and has room."""
    seconds = job.seconds[work.operations]
    batches, steps, ranks = seconds.shape[2:]
    total = seconds.sum(axis=0)
    usual = np.median(total, axis=(1, 2))  # [C, N]
    factor = (usual / np.median(usual, axis=1, keepdims=True))[:, None, None, :]  # of a machine; it stays with the rank
    cost = work.stages(total / factor).max(axis=0)  # of the longest stage
    cost = cost.transpose(1, 2, 0).reshape(steps, ranks * batches)
    load, held = np.zeros((steps, ranks)), np.zeros((steps, ranks), int)
    dealt, rows = np.empty((steps, ranks, batches), int), np.arange(steps)
    for item in np.argsort(-cost, axis=1, kind="stable").T:
        rank = np.where(held < batches, load, np.inf).argmin(axis=1)
        dealt[rows, rank, held[rows, rank]] = item
        load[rows, rank] += cost[rows, item]
        held[rows, rank] += 1
    fresh = (seconds / factor)[:, :, dealt % batches, rows[:, None, None], dealt // batches]  # [2, C, T, N, M]
    after = mending(lambda _: np.moveaxis(fresh, -1, 2) * factor, work.operations)(job)
    return after if after.steps.sum() < job.steps.sum() else job


def long_stage(job: PipelineJob, recording: Recording) -> Iterator[Repair]:
    """Yield the repair of stages that are long on all ranks, if some are: to move layers."""
    work = _work(job)
    if work is None or len(job.operations.stages) < 2:
        return
    total, longest, layer = _stage_seconds(job, work)
    usual = layer if total[longest] >= LONGER * layer else total.min()  # of more than half, the others are short
    if not total[longest] >= LONGER * usual:
        return
    other = total - layer  # what a stage holds besides layers
    share = np.maximum((total.sum() / total.size - other) / layer, 0.0)
    share *= total.size / share.sum()
    shares = listed([f"{part:.2f}" for part in share])
    long = [str(stage) for stage in np.flatnonzero(total >= LONGER * usual)]
    names, verb = (f"stage {long[0]}", "computes") if len(long) == 1 else (f"stages {listed(long)}", "compute up to")
    only = "; with a single rank, a slow machine would look the same" if len(recording.workers) == 1 else ""
    yield Repair(
        LONG_STAGE,
        names,
        f"layers moved, so that the stages hold {shares} of what one holds now",
        mending(_moved, work.operations, stage=work.stage, share=share, longest=longest),
        said=f"{names} {verb} {total[longest] / usual:.2f} times as long as the other stages, on all ranks{only}",
    )


def _stage_seconds(job: PipelineJob, work: _Work) -> tuple[np.ndarray, int, float]:
    """The usual seconds of a micro-batch in each stage, the longest, and those of one with nothing but layers."""
    total = work.stages(np.median(job.seconds[work.operations], axis=(2, 3, 4)).sum(axis=0))
    longest = int(total.argmax())
    return total, longest, float(np.median(np.delete(total, longest)))


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
    total, longest, layer = _stage_seconds(job, work)
    held = np.zeros(total.size, int)
    for _ in range(layers * total.size):  # one after the other, to where the stage is then shortest
        held[((total - layer) + (held + 1) / layers * layer).argmin()] += 1
    moved = mending(_moved, work.operations, stage=work.stage, share=held / layers, longest=longest)(job)
    return held.tolist(), float(moved.steps.sum())


def _moved(seconds: np.ndarray, stage: np.ndarray, share: np.ndarray, longest: int) -> np.ndarray:
    """Layers moved: one takes for each micro-batch what it takes in the other stages, so that long data go with it."""
    each = np.median(seconds[:, stage != longest], axis=1, keepdims=True)  # of a chunk
    return np.maximum(seconds + (share[stage] - 1)[None, :, None, None, None] * each, 0.0)
