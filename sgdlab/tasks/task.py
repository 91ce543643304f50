"""`Task`: initial parameters and the pure functions of a worker."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from sgdlab.types import Tree


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """A task of training: the gradient of a loss, and the parameters that training begins with.

    A function is identified by the function object: the same object compiles nothing again. Arrays that a function
    closes over are constants of the program; the arguments of a `jax.tree_util.Partial` are data.

    Attributes:
      grad_fn: `(params, batch[, local]) -> (grads, aux[, local])`, such as `jax.grad(loss, has_aux=True)`; grads have
        the tree, shapes and dtypes of params, and scalar leaves of aux are recorded.
      params: initial parameters, a pytree of arrays.
      stats: initial running statistics (BatchNorm), held by the server, or by each peer; None: none.
      fold: `(stats, aux) -> stats`, called once per gradient, in order; given together with `stats`.
      local: the state of one worker at the start, such as a memory of the text that it reads; every worker has its own,
        and a gradient that is dropped, interrupted or not finished leaves it as it was. None: none.

    Raises:
      ValueError: if one of `stats` and `fold` is given without the other, or a function is none.

    Example:
      >>> Task(lambda params, batch: (params - batch, {}), params=np.zeros(2)).stats is None
      True
      >>> Task(np.zeros(2), params=np.zeros(2))
      Traceback (most recent call last):
      ...
      ValueError: grad_fn must be a function, (params, batch) -> (grads, aux); it is an array of shape (2,)
    """

    grad_fn: Callable[..., Any]
    params: Tree
    stats: Tree = None
    fold: Callable[[Tree, Tree], Tree] | None = None
    local: Tree = None

    def __post_init__(self):
        if not callable(self.grad_fn):
            raise ValueError(
                f"grad_fn must be a function, (params, batch) -> (grads, aux); it is {described(self.grad_fn)}"
            )
        check_statistics(self.stats, self.fold)


def check_statistics(stats: Tree, fold: Any) -> None:
    """Check that statistics and the function that folds a gradient's own into them are given together.

    Raises:
      ValueError: if they are not, or `fold` is not a function.

    Example:
      >>> check_statistics(None, None)
    """
    if (stats is None) != (fold is None):
        raise ValueError("stats and fold must be given together: fold(stats, aux) -> stats")
    if fold is not None and not callable(fold):
        raise ValueError(f"fold must be a function, (stats, aux) -> stats; it is {described(fold)}")


def described(value: Any) -> str:
    """Return what a wrong argument is, in a few words.

    Example:
      >>> described(np.zeros((3, 2)))
      'an array of shape (3, 2)'
    """
    if isinstance(value, np.ndarray | jax.Array):
        return f"an array of shape {value.shape}"
    if isinstance(value, jax.ShapeDtypeStruct):
        return f"one array of shape {value.shape}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if hasattr(value, "__qualname__"):
        return f"{value.__qualname__} itself: call it with its hyperparameters"
    return "None" if value is None else f"a value of type {type(value).__name__}"
