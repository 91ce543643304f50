"""What a run leaves: its result, and what happened to every gradient."""

import dataclasses
from typing import Any

import jax
import numpy as np

from sgdlab.replay.watch import Evaluation

Tree = Any


@dataclasses.dataclass(frozen=True)
class History:
    """What happened to the gradients that entered an update, in order; arrays of length R.

    Where a schedule of servers has several blocks, whatever is marked [, S] has a column for each block, which holds
    NaN, or a negative update, where the gradient entered no update of that block.

    Attributes:
      gradient: int32[R], the gradient's row in the schedule; of peers, its event.
      worker: int32[R], who computed it.
      update: int32[R[, S]], the update it entered; of peers, the index of the step among those of its node.
      delay: float64[R[, S]], staleness + 1; of peers, 1.
      arrived: float64[R[, S]], seconds, when the server had it; of peers, when it was finished.
      applied: float64[R[, S]], seconds, when its update was applied; of peers, when it was finished.
      aux: the scalar leaves of the gradient function's aux, as arrays [R]; other leaves are None.
      distance: float[R[, S]], norm of the server's parameters less those it was computed on; None unless watched.
      step: float[R[, S]], norm of the update that it completed, 0 where it completed none; None unless watched.
      norm: float[R], Euclidean norm of the gradient as the gradient function gave it; None unless watched.
      evaluations: one dict for each evaluation: `gradients`, `updates` (of the block, or node, that has made most),
        `seconds`, and what `evaluate` gave. Of peers that is for the average of the nodes, and, under names that begin
        with `node_mean_`, `node_lowest_`, `node_highest_` and `center_`, for the nodes, each with its own running
        statistics, and the center; and `consensus` is `sgdlab.replay.mixing.consensus_distance`.
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
    """What a run leaves.

    Attributes:
      params: the server's parameters; of peers, the average of the nodes'.
      state: the rule's state; a tuple with that of every block where there are several; of peers, [N, ...].
      stats: running statistics, as given to `run` and folded; of peers, the mean of the nodes'.
      average: the Polyak average, in at least float32; None where it was not kept.
      average_stats: that of the running statistics; None where it was not kept.
      nodes: [N, *shape], every node's parameters; None of servers.
      center: the center's parameters; None where there is none.
      history: see `History`.
    """

    params: Tree
    state: Tree
    stats: Tree
    history: History
    average: Tree = None
    average_stats: Tree = None
    nodes: Tree = None
    center: Tree = None
