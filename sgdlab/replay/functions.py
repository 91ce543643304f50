"""The user's functions of a replay: the record `Parts`, and the checks of what the functions are and return."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sgdlab.replay.watch import as_pytree
from sgdlab.rules.server_rule import ServerRule
from sgdlab.tasks.task import described
from sgdlab.types import Tree

_GRADIENT = (
    "grad_fn must return (grads, aux), as jax.grad(loss, has_aux=True) does for a loss that returns (value, aux)"
)


class Parts(NamedTuple):
    """The functions of a run, as pytrees: their code is part of the program, their leaves are its data."""

    init: Any
    receive: Any
    update: Any
    send: Any
    grad_fn: Any
    batch_fn: Any
    fold: Any  # None: no statistics.
    average_decay: Any  # None: no Polyak average.
    penalty: Any  # what the rule divides a gradient by; None: it is not recorded.
    absorb: Any  # what the rule keeps of a gradient in its state; None: nothing.
    point: Any  # where a worker computes, given what it has read; None: there.

    @classmethod
    def of(
        cls,
        rule: ServerRule,
        *,
        grad_fn: Callable | None = None,
        batch_fn: Callable | None = None,
        fold: Callable | None = None,
        average_decay: float | None = None,
        penalty: bool = False,
    ) -> "Parts":
        """Return the functions of a run.

        Args:
          rule: whose functions these are.
          grad_fn: that of `run`; None: gradients are given.
          batch_fn: that of `run`; None: gradients are given.
          fold: that of `run`; None: there are no statistics.
          average_decay: of the Polyak average; None: there is none.
          penalty: whether what the rule divides gradients by is recorded.

        Example:
          >>> from sgdlab import rules
          >>> Parts.of(rules.asgd(learning_rate=0.1)).fold is None
          True
        """
        return cls(
            init=as_pytree(rule.init),
            receive=as_pytree(rule.receive),
            update=as_pytree(rule.update),
            send=as_pytree(rule.send),
            grad_fn=as_pytree(grad_fn),
            batch_fn=as_pytree(batch_fn),
            fold=as_pytree(fold),
            average_decay=average_decay,
            penalty=as_pytree(rule.penalty) if penalty else None,
            absorb=as_pytree(rule.absorb),
            point=as_pytree(rule.point),
        )


def check_batches(batch_fn: Any) -> None:
    """Check that `batch_fn` of a run is a function.

    Raises:
      ValueError: if it is not; it says what it is.

    Example:
      >>> check_batches(jnp.zeros([3, 2]))
      Traceback (most recent call last):
      ...
      ValueError: batch_fn must be a function of the gradient's index g, such as lambda g: batches[g] for a jax array
      of batches; it is an array of shape (3, 2)
    """
    if not callable(batch_fn):
        raise ValueError(
            "batch_fn must be a function of the gradient's index g, such as lambda g: batches[g] for a jax array of "
            f"batches; it is {described(batch_fn)}"
        )


def computed(parts: Parts, params: Tree, batch: Tree, local: Tree) -> tuple[Tree, Tree, Tree]:
    """A gradient, its aux, and the state of its worker afterwards (None without one)."""
    if local is None:
        return (*parts.grad_fn(params, batch), None)
    return parts.grad_fn(params, batch, local)


def checked_aux(parts: Parts, params: Tree, stats: Tree, local: Tree = None) -> Tree:
    """Shapes and dtypes of the gradient function's aux, after a check of what the functions return.

    Nothing is computed or compiled; it is called while the start of a run is traced, hence once for each program. What
    the functions themselves raise is not caught.

    Args:
      parts: the functions of the run.
      params: initial parameters.
      stats: initial running statistics, or None.
      local: initial state of one worker, or None.

    Returns:
      A pytree of `jax.ShapeDtypeStruct`.

    Raises:
      ValueError: if `grad_fn` does not return (grads, aux), or (grads, aux, local), with gradients like the parameters
        and a state like the worker's, or `fold` does not return statistics like those it is given.
    """
    batch = jax.eval_shape(parts.batch_fn, jnp.zeros([], jnp.int32))
    states = () if local is None else (local,)
    found = jax.eval_shape(parts.grad_fn, params, batch, *states)
    if not isinstance(found, tuple) or len(found) != 2 + len(states):
        wanted = f"{_GRADIENT} or, of workers that have a state, (grads, aux, local)" if states else _GRADIENT
        raise ValueError(f"{wanted}; it returns {described(found)}")
    grads, aux, *after = found
    for before, now in zip(states, after, strict=True):
        wrong = _difference(before, now)
        if wrong:
            raise ValueError(f"grad_fn must return a worker's state like local: {wrong}")
    wrong = _difference(params, grads)
    if wrong:
        why = "it returns (value, grads)" if not _difference(params, aux) else f"of its gradients {wrong}"
        raise ValueError(f"{_GRADIENT}, with the tree, shapes and dtypes of params; {why}")
    if parts.fold is not None:
        wrong = _difference(stats, jax.eval_shape(parts.fold, stats, aux))
        if wrong:
            raise ValueError(f"fold must return statistics like stats: {wrong}")
    return aux


def _difference(expected: Tree, found: Tree) -> str:
    """The first difference between two trees, in words; empty where structures, shapes and dtypes are the same."""
    wanted, given = _leaves(expected), _leaves(found)
    missing, extra = ([leaf for leaf in one if leaf not in other] for one, other in ((wanted, given), (given, wanted)))
    if missing or extra:
        words = [f"{leaf or 'the array'} is missing" for leaf in missing[:1]]
        return " and ".join([*words, *(f"{leaf or 'one array'} must be left out" for leaf in extra[:1])])
    for leaf, left in wanted.items():
        right = given[leaf]
        if (left.shape, left.dtype) != (right.shape, right.dtype):
            shapes = (f"{kind.dtype}{list(kind.shape)}" for kind in (right, left))
            return f"{leaf or 'the array'} is {', which must be '.join(shapes)}"
    if jax.tree.structure(expected) != jax.tree.structure(found):
        return f"the tree {jax.tree.structure(found)} must be {jax.tree.structure(expected)}"
    return ""


def _leaves(tree: Tree) -> dict[str, Any]:
    """The type of each leaf by its path, such as "['kernel']"."""
    return {jax.tree_util.keystr(path): jax.typeof(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
