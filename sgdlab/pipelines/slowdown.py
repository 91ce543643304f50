"""Slowdown of a job of pipelines: how long steps would be if operations of a kind all took equally long."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float64

from sgdlab.pipelines.job import PipelineJob, longest
from sgdlab.pipelines.operations import COMMUNICATION, TRANSFERS

SLOWEST = 0.03
"""Share of the (stage, rank) that count as the slowest in M_W."""


@dataclasses.dataclass(frozen=True, eq=False)
class Slowdown:
    r"""Holds the slowdowns of a job: mean step times over that of a step whose operations are all ideal.

    Ideal is, over all stages, ranks and steps, the mean duration of a kind of computation, and the median transfer of a
    kind of communication. Of S_t, S_w and S_s only the operations of one kind, rank or stage take as long as recorded.

    Attributes:
      recorded: float64[T], seconds of the steps as they were.
      base: float64[T], their longest paths, without launch delays.
      ideal: seconds of an ideal step.
      kinds: S_t by kind; both ends of a message count as one, such as "forward-pp-comm".
      ranks: float64[N], S_w.
      stages: float64[S], S_s.
      workers: M_W, the share of the slowdown that the slowest 3 % of the (stage, rank) explain.
      last_stage: M_S, the share that the last stage explains.
      slowest: (stage, rank) indices of these 3 %.

    Source: Lin et al. 2025, "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI),
    equations 1 to 5.
    """

    recorded: Float64[np.ndarray, " T"]
    base: Float64[np.ndarray, " T"]
    ideal: float
    kinds: Mapping[str, float]
    ranks: Float64[np.ndarray, " N"]
    stages: Float64[np.ndarray, " S"]
    workers: float
    last_stage: float
    slowest: tuple[tuple[int, int], ...]

    @property
    def overall(self) -> float:
        """Return S, the mean step over the ideal one."""
        return float(self.base.mean() / self.ideal)

    @property
    def explained(self) -> float:
        """Return the longest path over the recorded step, 1 where nothing happened between operations."""
        return float(self.base.mean() / self.recorded.mean())


def measure(job: PipelineJob) -> Slowdown:
    """Compute the slowdowns of a job."""
    ops, base, ideal = job.operations, job.steps.mean(), ideals(job)
    merged = np.array([f"{kind.split('-')[0]}-pp-comm" if kind in TRANSFERS else kind for kind in ops.kind])
    keeping = lambda keep: _mean_step(job, ideal, np.broadcast_to(keep, (ops.ranks.size, len(merged))).T)
    whole = keeping(False)
    of_stages = np.array([keeping(ops.stage == stage) for stage in ops.stages]) / whole
    of_ranks = _each_rank(job, ideal) / whole
    score = np.minimum(of_ranks[None, :], of_stages[:, None])  # [S, N]
    count = math.ceil(SLOWEST * score.size - 1e-9)
    slowest = [divmod(int(worker), ops.ranks.size) for worker in np.argsort(-score.ravel(), kind="stable")[:count]]
    others = np.ones((ops.ranks.size, len(merged)), bool)
    for stage, rank in slowest:
        others[rank, ops.stage == ops.stages[stage]] = False
    explained = lambda keep: float((base - keeping(keep)) / (base - whole)) if base > whole else math.nan
    return Slowdown(
        job.recorded,
        job.steps,
        whole,
        {str(name): keeping(merged == name) / whole for name in np.unique(merged)},
        of_ranks,
        of_stages,
        explained(others),
        explained(ops.stage != ops.stages[-1]),
        tuple(slowest),
    )


def ideals(job: PipelineJob) -> np.ndarray:
    """Return float64[O], the ideal seconds of each operation: the median of communication, the mean of all else."""
    found = np.empty(len(job.operations.kind))
    for kind in set(job.operations.kind):
        of = job.operations.of(kind)
        found[of] = np.median(job.seconds[of]) if kind in COMMUNICATION else job.seconds[of].mean()
    return found


def _mean_step(job: PipelineJob, ideal: np.ndarray, keep: np.ndarray) -> float:
    """Mean seconds of a step where only operations in keep, bool[O, N], take as long as recorded."""
    end = longest(job.graph, lambda o: np.where(keep[o], job.seconds[o], ideal[o]))
    return float(end.max(axis=-1).mean())


def _each_rank(job: PipelineJob, ideal: np.ndarray) -> np.ndarray:
    """float64[N], mean seconds of a step where one data-parallel rank alone takes as long as recorded.

    All others are alike, so that one stands for them: an axis of two instead of N scenarios of N ranks.
    """
    if job.seconds.shape[2] == 1:
        return job.steps.mean(keepdims=True)
    end = longest(job.graph, lambda o: np.stack(np.broadcast_arrays(job.seconds[o], ideal[o]), axis=-1))
    return end.max(axis=-1).mean(axis=0)
