"""A recorded job of pipelines: what each operation takes without waiting, and how long steps are."""

import collections
import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float64

from sgdlab.pipelines import graph as graphs
from sgdlab.pipelines.graph import StepGraph
from sgdlab.pipelines.operations import ACROSS, COMPUTE, Operations


@dataclasses.dataclass(frozen=True, eq=False)
class PipelineJob:
    """Holds the operations of a job, their order, and their seconds without waiting.

    Attributes:
      operations: as recorded.
      graph: what waits for what.
      seconds: float64[O, T, N], of each operation after all that it waits for, and all that begin with it, are there.
    """

    operations: Operations
    graph: StepGraph
    seconds: Float64[np.ndarray, "O T N"]

    @classmethod
    def of(cls, operations: Operations) -> "PipelineJob":
        """Find the order of recorded operations, and their seconds without waiting.

        Raises:
          NotAPipeline: as `sgdlab.pipelines.graph.build`.
        """
        operations, graph = graphs.build(operations)
        return cls(operations, graph, without_waiting(operations, graph))

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what was decided, in sentences."""
        return self.operations.notes

    @functools.cached_property
    def recorded(self) -> np.ndarray:
        """Return float64[T], the duration of each step as it was: of the stage and rank that took longest.

        No two clocks are compared.
        """
        ops, spans = self.operations, []
        for stage in ops.stages:
            of = ops.stage == stage
            spans.append(np.nanmax(ops.end[of], axis=0) - np.nanmin(ops.begin[of], axis=0))
        return np.nanmax(spans, axis=(0, 2))

    @functools.cached_property
    def steps(self) -> np.ndarray:
        """Return float64[T], the longest path through each step: its duration without launch delays."""
        return self.step_seconds(self.seconds)

    def step_seconds(self, seconds: np.ndarray) -> np.ndarray:
        """Return float64[T], the longest path through each step with other seconds of the operations [O, T, N]."""
        return longest(self.graph, lambda operation: seconds[operation]).max(axis=-1)

    @functools.cached_property
    def runtimes(self) -> np.ndarray:
        """Return float64[T, N], the longest path of each data-parallel rank alone, to its last backward computation.

        Nobody is waited for, and collectives with other ranks take no time.
        """
        ops, nothing = self.operations, np.zeros(self.seconds.shape[1:])
        alone = dataclasses.replace(self.graph, across=np.zeros_like(self.graph.across))
        seconds = lambda operation: nothing if ops.kind[operation] in ACROSS else self.seconds[operation]
        return longest(alone, seconds, until=frozenset(ops.of(COMPUTE)))

    def select(self, rows: Any = slice(None), ranks: Any = slice(None)) -> "PipelineJob":
        """Return the same with fewer steps or ranks; seconds stay those that were found among all ranks."""
        operations = self.operations.select(rows, ranks)
        return dataclasses.replace(self, operations=operations, seconds=self.seconds[:, rows][:, :, ranks])


def without_waiting(ops: Operations, graph: StepGraph) -> np.ndarray:
    """Return float64[O, T, N], the seconds of each operation without its waiting.

    Of those that begin together, the last to come waits for nobody: the shortest of their durations is the transfer
    of all. So no clocks of two hosts are compared. Where one of a party lacks, its transfer is not known. What is not
    known is the median of its kind in the stage, step and rank, else of its kind in the stage.
    """
    seconds = ops.end - ops.begin
    for party, across in zip(graph.parties, graph.across, strict=True):
        if across or len(party) > 1:
            of = list(party)
            seconds[of] = seconds[of].min(axis=(0, 2) if across else 0, keepdims=True)
    if not np.isnan(seconds).any():
        return seconds
    for kind in sorted(set(ops.kind)):
        for stage in ops.stages:
            of = ops.of(kind, stage)
            if of and np.isnan(seconds[of]).any():
                usual = np.nan_to_num(_median(seconds[of].ravel()))
                known = np.nan_to_num(_median(seconds[of]), nan=usual)
                seconds[of] = np.where(np.isnan(seconds[of]), known, seconds[of])
    return seconds


def longest(graph: StepGraph, seconds: Callable[[int], np.ndarray], until: frozenset[int] | None = None) -> np.ndarray:
    r"""Return float64[..., T, N], when each rank has done a step.

    .. math:: b_o = \max_{p \text{ of its party}} \max_{q \text{ before } p} e_q, \qquad e_o = b_o + d_o

    Args:
      graph: of the step.
      seconds: `(operation) -> d`, float64[..., T, N], or what is broadcast to it.
      until: operations that a step ends with; None: all.
    """
    uses = collections.Counter(needed for needs in graph.before for needed in needs)
    ends: dict[int, np.ndarray] = {}
    total: np.ndarray = np.zeros(())
    for party, across in zip(graph.parties, graph.across.tolist(), strict=True):
        begin: np.ndarray = np.zeros(())
        for needed in {needed for o in party for needed in graph.before[o]}:
            begin = np.maximum(begin, ends[needed])
        if across and begin.ndim:
            begin = begin.max(axis=-1, keepdims=True)
        for o in party:
            ends[o] = begin + seconds(o)
            if o in until if until is not None else not uses[o]:
                total = np.maximum(total, ends[o])
            if not uses[o]:
                del ends[o]
            for needed in graph.before[o]:
                uses[needed] -= 1
                if not uses[needed]:
                    del ends[needed]
    return total


def _median(seconds: np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # where nothing is known
        return np.nanmedian(seconds, axis=0)
