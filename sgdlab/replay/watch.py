"""Evaluations and records during a run."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax

from sgdlab.replay.program import Every
from sgdlab.types import Tree

if TYPE_CHECKING:
    from sgdlab.replay.history import History

Evaluation = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Watch:
    """Sets what is evaluated and recorded during a run, which does not affect its result.

    Attributes:
      every: gradients between two evaluations, or a tuple of the numbers of gradients after which to evaluate, each at
        the end of an update; for peers, and if several blocks use gradients in different orders, at the gradient
        itself, possibly in the middle of an update. None: an evaluation at the end only.
      evaluate: `(params, stats) -> {name: scalar}`; traced for peers.
      report: `(history) -> None`, called at each evaluation with the `History` of the gradients so far; the new
        evaluation is the last of `history.evaluations`.
      ends: `(evaluations) -> bool`, asked after each evaluation with all of them so far, before it is reported: whether
        the run is to end there, with what it has done. None: it ends with the schedule.
      average_decay: alpha of the Polyak average, average <- alpha average + (1 - alpha) params after each update,
        starting at the initial parameters (Chen et al. 2016, Algorithm 2), in at least float32. It is evaluated too, as
        `average_<name>`, in the dtypes of the parameters and with running statistics that are averaged in the same way
        (with several blocks, after each update of the first one). None: no average.
      norms: whether to record the norm of each gradient, the distance between the server's parameters and those it was
        computed on, and the norm of each update; this costs about one more pass over the parameters per gradient.
      nodes_at_end: whether peers are evaluated one by one at the last evaluation only, and at the others only their
        average and the center. Evaluating all of them can take several times as long as training them.

    Raises:
      ValueError: if `average_decay` is out of its range, or `evaluate` is not a function.
    """

    every: Every = None
    evaluate: Callable[[Tree, Tree], dict[str, Any]] | None = None
    report: "Callable[[History], None] | None" = None
    ends: Callable[[Sequence[Evaluation]], bool] | None = None
    average_decay: float | None = None
    norms: bool = False
    nodes_at_end: bool = False

    def __post_init__(self) -> None:
        if self.average_decay is not None and not 0 <= self.average_decay < 1:
            raise ValueError(f"average_decay={self.average_decay} must be at least 0 and below 1")
        if self.evaluate is not None and not callable(self.evaluate):
            raise ValueError(f"evaluate must be a function, (params, stats) -> values; it is a {type(self.evaluate)}")


def as_pytree(function: Callable | None) -> Any:
    """A function as an argument of compiled code: its code is the program, the arguments of a Partial are data."""
    if function is None or isinstance(function, jax.tree_util.Partial):
        return function
    return jax.tree_util.Partial(function)
