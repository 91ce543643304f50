"""What every replay takes besides its program: what to look at on the way, and in which mode to run."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh

Tree = Any
Evaluation = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Watch:
    """What is looked at during a run; none of it changes the run.

    Attributes:
      every: gradients between two looks, each at the end of an update; of several blocks, at the gradient itself, when
        some may be amid an update. None: only at the end.
      evaluate: `(params, stats) -> {name: scalar}`.
      report: called with each evaluation as soon as it is there.
      average_decay: alpha of the Polyak average, average <- alpha average + (1 - alpha) params after each update,
        from the initial parameters (Chen et al. 2016, Algorithm 2). It is evaluated too, as `average_<name>`.
        None: not kept.
      norms: note the distance between the server's parameters and those each gradient was computed on, and the
        length of each update; it costs about one more pass over the parameters per gradient.
    """

    every: int | None = None
    evaluate: Callable[[Tree, Tree], dict[str, Any]] | None = None
    report: Callable[[Evaluation], None] | None = None
    average_decay: float | None = None
    norms: bool = False


def check(watch: Watch, program: Any, stats: Tree, fold: Any) -> None:
    """Raises a `ValueError` where what every replay takes does not fit together.

    Args:
      watch: what to look at.
      program: a lowered program; None where it is still to be lowered.
      stats: initial running statistics.
      fold: `(stats, aux) -> stats`.
    """
    if program is not None and watch.every not in (None, program.every):
        raise ValueError(f"every={watch.every} comes too late for a program lowered with every={program.every}")
    if (stats is None) != (fold is None):
        raise ValueError("stats and fold must be given together: fold(stats, aux) -> stats")


def as_pytree(function: Callable | None) -> Callable | None:
    """A function as an argument of compiled code: its code is the program, a Partial's arguments are data."""
    if function is None or isinstance(function, jax.tree_util.Partial):
        return function
    return jax.tree_util.Partial(function)


def uses_waves(mode: str | None, mesh: Mesh | None) -> bool:
    """Whether a run is in wave mode: "wave", or None where the backend or a mesh makes that the faster one."""
    if mode not in (None, "event", "wave"):
        raise ValueError(f"mode={mode!r} must be 'event', 'wave' or None")
    if mode == "event" and mesh is not None:
        raise ValueError("mode='event' computes one gradient at a time; a mesh shards waves: use mode='wave'")
    return mode == "wave" or (mode is None and (mesh is not None or jax.default_backend() != "cpu"))
