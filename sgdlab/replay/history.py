"""`Result` and `History`: the parameters that a run ends with, and the record of every gradient."""

import dataclasses

import jax
import numpy as np

from sgdlab.replay.watch import Evaluation
from sgdlab.types import Tree


@dataclasses.dataclass(frozen=True)
class History:
    """The record of the gradients that entered an update, in order; arrays of length R.

    If a schedule of servers has several blocks, arrays marked [, S] have a column for each block, with NaN (a negative
    number in `update`) for gradients that entered no update of that block.

    Attributes:
      gradient: int32[R], the gradient's row in the schedule; of peers, its event.
      worker: int32[R], the worker that computed it.
      update: int32[R[, S]], the update it entered; for peers, the index of the step among the steps of its node.
      delay: float64[R[, S]], staleness + 1; for peers, 1.
      arrived: float64[R[, S]], seconds, when it reached the server; for peers, when it was finished.
      applied: float64[R[, S]], seconds, when its update was applied; for peers, when it was finished.
      aux: the scalar leaves of the gradient function's aux, as arrays [R]; other leaves are None.
      distance: float[R[, S]], distance between the server's parameters and those it was computed on; None unless
        recorded (`Watch.norms`).
      step: float[R[, S]], norm of the update that it completed, 0 if it completed none; None unless recorded.
      penalty: float[R[, S]], what the rule divided the gradient by, the mean over the parameters: the gap G of a
        Gap-Aware rule; of DC-ASGD, the length of its correction over that of the gradient. None unless recorded, or if
        the rule has none (`ServerRule.penalty`).
      norm: float[R], Euclidean norm of the gradient as the gradient function returned it; None unless recorded.
      evaluations: one dict for each evaluation: `gradients`, `updates` (of the block, or node, that has made most),
        `seconds`, and the values of `evaluate`. For peers these are of the average of the nodes, and, under names that
        begin with `node_mean_`, `node_lowest_`, `node_highest_` and `center_`, of the nodes, each with its own running
        statistics (with `Watch.nodes_at_end` in the last one alone), and of the center; `consensus` is
        `sgdlab.replay.mixing.consensus_distance`.
    """

    gradient: np.ndarray
    worker: np.ndarray
    update: np.ndarray
    delay: np.ndarray
    arrived: np.ndarray
    applied: np.ndarray
    aux: Tree
    distance: np.ndarray | None = None
    step: np.ndarray | None = None
    penalty: np.ndarray | None = None
    norm: np.ndarray | None = None
    evaluations: list[Evaluation] = dataclasses.field(default_factory=list)

    def first(self, gradients: int) -> "History":
        """The history of the first so many gradients, with the evaluations after them at the latest."""
        rows = {name: jax.tree.map(lambda array: array[:gradients], getattr(self, name)) for name in _PER_GRADIENT}
        evaluations = [found for found in self.evaluations if found["gradients"] <= gradients]
        return dataclasses.replace(self, **rows, evaluations=evaluations)


_PER_GRADIENT = tuple(field.name for field in dataclasses.fields(History) if field.name != "evaluations")


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
      params: the parameters of the server; for peers, the average over the nodes.
      state: the state of the rule; a tuple with the state of each block if there are several; for peers, [N, ...].
      stats: the folded running statistics; for peers, the mean over the nodes.
      average: the Polyak average, in at least float32; None without `Watch.average_decay`.
      average_stats: the Polyak average of the running statistics; None without `Watch.average_decay`.
      nodes: [N, *shape], the parameters of every node; None for servers.
      center: the parameters of the center; None if there is none.
      local: [N, ...], the state of every worker; None if they have none.
      history: the record of every gradient, and the evaluations.
    """

    params: Tree
    state: Tree
    stats: Tree
    history: History
    average: Tree = None
    average_stats: Tree = None
    nodes: Tree = None
    center: Tree = None
    local: Tree = None
