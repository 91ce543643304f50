"""Slowdown of a job of pipelines: how long steps would be if operations of a kind all took equally long."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float64

from sgdlab.pipelines.job import PipelineJob, longest
from sgdlab.pipelines.operations import COMMUNICATION, TRANSFERS

_BLOCK = 2**22
"""Numbers of an operation that are held at once, over scenarios, steps and ranks."""

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
    ops = job.operations
    shape = (len(ops.kind), len(ops.ranks))
    merged = [f"{kind.split('-')[0]}-pp-comm" if kind in TRANSFERS else kind for kind in ops.kind]
    names = sorted(set(merged))
    ideal = ideals(job)
    stages = [ops.stage == stage for stage in ops.stages]
    rows = [np.zeros(len(ops.kind), bool), *(np.array(merged) == np.array(names)[:, None]), *stages, ~stages[-1]]
    times = _keeping(job, ideal, np.broadcast_to(np.array(rows)[:, :, None], (len(rows), *shape))).mean(axis=1)
    whole, of_kinds, of_stages = times[0], times[1 : 1 + len(names)], times[1 + len(names) : -1] / times[0]
    base = job.steps
    alone = _each_rank(job, ideal).mean(axis=1) if len(ops.ranks) > 1 else base.mean()[None]
    of_ranks = alone / whole
    score = np.minimum(of_ranks[None, :], of_stages[:, None])  # [S, N]
    count = math.ceil(SLOWEST * score.size - 1e-9)
    slowest = [divmod(int(worker), len(ops.ranks)) for worker in np.argsort(-score.ravel(), kind="stable")[:count]]
    keep = np.ones(shape, bool)
    for stage, rank in slowest:
        keep[stages[stage], rank] = False
    waiting = base.mean() - whole
    without = _keeping(job, ideal, keep[None]).mean()
    return Slowdown(
        job.recorded,
        base,
        float(whole),
        {name: float(time / whole) for name, time in zip(names, of_kinds, strict=True)},
        of_ranks,
        of_stages,
        float((base.mean() - without) / waiting) if waiting > 0 else math.nan,
        float((base.mean() - times[-1]) / waiting) if waiting > 0 else math.nan,
        tuple(slowest),
    )


def ideals(job: PipelineJob) -> np.ndarray:
    """Return float64[O], the ideal seconds of each operation: the median of communication, the mean of all else."""
    found = np.empty(len(job.operations.kind))
    for kind in set(job.operations.kind):
        of = job.operations.of(kind)
        found[of] = np.median(job.seconds[of]) if kind in COMMUNICATION else job.seconds[of].mean()
    return found


def _keeping(job: PipelineJob, ideal: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """float64[K, T], step times where only operations in keep, bool[K, O, N], take as long as recorded."""
    block = max(1, _BLOCK // job.seconds[0].size)
    parts = []
    for first in range(0, len(keep), block):
        part = keep[first : first + block]
        end = longest(job.graph, lambda o, part=part: np.where(part[:, o, None, :], job.seconds[o], ideal[o]))
        parts.append(end.max(axis=-1))
    return np.concatenate(parts)


def _each_rank(job: PipelineJob, ideal: np.ndarray) -> np.ndarray:
    """float64[N, T], step times where one data-parallel rank alone takes as long as recorded.

    All others are alike, so that one stands for them: an axis of two instead of N scenarios of N ranks.
    """
    end = longest(job.graph, lambda o: np.stack(np.broadcast_arrays(job.seconds[o], ideal[o]), axis=-1))
    return end.max(axis=-1).T
