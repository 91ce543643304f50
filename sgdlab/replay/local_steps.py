"""`in_local_steps`: a worker makes several steps of its own on what it has read, and sends how far it has come."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sgdlab.replay import micro_batches
from sgdlab.replay.watch import as_pytree
from sgdlab.rules.hyperparameters import like
from sgdlab.types import Tree
from sgdlab.xla import apart


class Span(NamedTuple):
    """The batches of a gradient of several steps: those numbered `first` to `first + steps - 1`; int32 scalars.

    Attributes:
      first: number of the first batch.
      steps: how many there are.
      anew: of a worker that keeps a state: the number of the version from which it begins anew with this gradient, as a
        new process does; -1 where it goes on. None: it always goes on.
      place: of the first step, in the factors of the learning rate, where there are such. None: 0.
    """

    first: Any
    steps: Any
    anew: Any = None
    place: Any = None


class Walk(NamedTuple):
    """The functions of local steps, as pytrees: their code is part of a program, their leaves are its data."""

    grad_fn: Any  # (params, batch[, memory]) -> (grads, aux[, memory]).
    batch_fn: Any  # (number) -> batch.
    optimizer: Any  # () -> an optax transform.
    proximal: Any  # strength of the pull towards where the worker began; None: none.
    factors: Any = None  # float[S], of the learning rate of the step at each place; None: they are 1.


class LocalState(NamedTuple):
    """Holds the state of a worker between two of its steps."""

    params: Tree
    state: Tree  # of its optimizer.
    memory: Tree  # what the network remembers of the worker's batches; None without one.
    total: Tree  # sums of the aux of its steps.


def in_local_steps(
    grad_fn: Callable[..., tuple[Tree, ...]],
    optimizer: optax.GradientTransformation | Callable[[], optax.GradientTransformation],
    batch_fn: Callable[[jax.Array], Tree],
    *,
    proximal: float | None = None,
    keep_state: bool = False,
    factors: np.ndarray | None = None,
) -> Callable[..., tuple[Tree, ...]]:
    r"""A gradient function that makes several steps of an optimizer, and returns the way that they have gone.

    .. math:: \theta_{h+1} = \theta_h + c_{s+h} \, \text{optimizer}\left(\nabla f(\theta_h, \text{batch}_h)
        + \rho (\theta_h - \theta_0)\right), \qquad g = \theta_0 - \theta_H

    The "pseudo-gradient" g takes the place of a gradient in every rule. With one step of SGD of learning rate 1 it is
    the gradient, but for rounding.

    Args:
      grad_fn: `(params, batch) -> (grads, aux)`, or of a network with a memory `(params, batch, memory) -> (grads, aux,
        memory)`, which then runs through the steps.
      optimizer: an optax transform of the worker, or a function that makes one, such as a `jax.tree_util.Partial` of
        `optax.adamw`, whose hyperparameters are then data of the compiled program.
      batch_fn: `(number) -> batch`, traced; the batches of all gradients are numbered through.
      proximal: rho, of FedProx and FedAsync; None: 0.
      keep_state: whether a worker keeps the state of its optimizer from one gradient to its next, as `local` of
        `sgdlab.replay.run`, which must begin as `state_of_worker`; otherwise it begins anew with each gradient.
      factors: c, float[S], by which the optimizer's steps are multiplied: warm-up and decay of its learning rate. The
        first step has the factor of `span.place`, s; those after the last have the last. None: 1.

    Returns:
      `(params, span) -> (pseudo-gradient, aux)`, or `(params, span, local) -> (..., local)` where `keep_state` or a
      memory ask for it. `span` is a `Span`: how many steps a gradient has is data, so that slower workers can make
      fewer in one compiled program. Of the aux, floating numbers are averaged over the steps and whole numbers added.

    Source: McMahan et al. 2017 (FedAvg); Li et al. 2020 (FedProx) for the proximal term.

    Example:
      Two steps on the batches 3 and 4, each half of the way to the batch.

      >>> grad_fn = lambda params, batch: (params - batch, {"loss": (params - batch) ** 2 / 2})
      >>> walk = in_local_steps(grad_fn, optax.sgd(0.5), lambda number: 2.0 * number)
      >>> grads, aux = walk(jnp.zeros([]), Span(3, 2))
      >>> float(grads), float(aux["loss"])
      (-5.5, 15.25)
    """
    made = optimizer if callable(optimizer) else lambda: optimizer
    walk = Walk(as_pytree(grad_fn), as_pytree(batch_fn), as_pytree(made), proximal, array_of(factors))
    return jax.tree_util.Partial(_kept if keep_state else _anew, walk)


def state_of_worker(
    optimizer: optax.GradientTransformation | Callable[[], optax.GradientTransformation],
    params: Tree,
    memory: Tree = None,
) -> Tree:
    """The state with which a worker begins that keeps the state of its optimizer.

    Args:
      optimizer: as for `in_local_steps`.
      params: initial parameters.
      memory: what the network remembers at first; None without a memory.
    """
    made = optimizer if not callable(optimizer) else optimizer()
    return {"optimizer": made.init(params), "memory": memory}


def _anew(walk: Walk, params: Tree, span: Span, *memory: Tree) -> tuple[Tree, ...]:
    grads, aux, ended = walked(walk, params, span, None, *memory)
    return (grads, aux, ended.memory) if memory else (grads, aux)


def _kept(walk: Walk, params: Tree, span: Span, local: Tree) -> tuple[Tree, ...]:
    state = renewed(span.anew, lambda: walk.optimizer().init(params), local["optimizer"])
    grads, aux, ended = walked(walk, params, span, state, local["memory"])
    return grads, aux, {"optimizer": ended.state, "memory": ended.memory}


def renewed(anew: Any, new: Callable[[], Tree], old: Tree) -> Tree:
    """Return what a worker keeps when it begins a gradient: as it was, or new where `Span.anew` says so."""
    if anew is None:
        return old
    return jax.tree.map(lambda new, old: jnp.where(anew >= 0, jnp.asarray(new, old.dtype), old), new(), old)


def walked(
    walk: Walk, params: Tree, span: Span, state: Tree = None, memory: Tree = None
) -> tuple[Tree, Tree, LocalState]:
    """The pseudo-gradient and aux of all steps of a span, and where the worker ends; `state` None: a new one."""
    like = shapes(walk, params, memory)
    steps = jnp.asarray(span.steps, jnp.int32)
    first = jnp.asarray(span.first, jnp.int32)
    step = lambda index, progress: stepped(walk, progress, params, first + index, later(walk, span.place, index))
    ended = jax.lax.fori_loop(jnp.zeros_like(steps), steps, step, begun(walk, params, like, state, memory))
    return *arrived(params, ended, like, steps), ended


def shapes(walk: Walk, params: Tree, memory: Tree = None) -> Tree:
    """Shapes and dtypes of the aux of one step."""
    batch = jax.eval_shape(walk.batch_fn, jnp.zeros([], jnp.int32))
    own = () if memory is None else (memory,)
    return jax.eval_shape(walk.grad_fn, params, batch, *own)[1]


def begun(walk: Walk, params: Tree, like: Tree, state: Tree = None, memory: Tree = None) -> LocalState:
    """A worker before its first step."""
    state = walk.optimizer().init(params) if state is None else state
    return LocalState(params, state, memory, micro_batches.zeros(like))


def array_of(factors: Any) -> np.ndarray | None:
    """Factors of the learning rate, of any sequence, as an array; None where there are none."""
    return None if factors is None else np.asarray(factors)


def later(walk: Walk, place: Any, index: jax.Array) -> Any:
    """The place, in the factors of the learning rate, of step `index` of a message; None where there are none."""
    return None if walk.factors is None else jnp.asarray(0 if place is None else place, jnp.int32) + index


def stepped(walk: Walk, progress: LocalState, start: Tree, number: jax.Array, place: Any = None) -> LocalState:
    """A worker after one more step, on the batch of this number, and with the factor at this place.

    The gradient and what is done with it are compiled apart, so that every program rounds them alike.
    """
    own = () if progress.memory is None else (progress.memory,)
    gradient = lambda number, params, *own: walk.grad_fn(params, walk.batch_fn(number), *own)
    grads, aux, *memory = apart(gradient, number, progress.params, *own)

    factor = None if walk.factors is None else jnp.asarray(walk.factors)[jnp.minimum(place, walk.factors.size - 1)]

    def move(
        number: jax.Array, grads: Tree, aux: Tree, params: Tree, state: Tree, total: Tree, factor: Any
    ) -> tuple[Tree, ...]:
        del number
        if walk.proximal is not None:
            pull = lambda g, now, then: g + like(walk.proximal, g) * (now - then)
            grads = jax.tree.map(pull, grads, params, start)
        updates, after = walk.optimizer().update(grads, state, params)
        if factor is not None:
            updates = jax.tree.map(lambda update: like(factor, update) * update, updates)
        total = jax.tree.map(lambda whole, leaf: whole + leaf.astype(whole.dtype), total, aux)
        return optax.apply_updates(params, updates), _as_before(after, state), total

    params, state, total = apart(move, number, grads, aux, progress.params, progress.state, progress.total, factor)
    return LocalState(params, state, memory[0] if memory else None, total)


def arrived(start: Tree, ended: LocalState, like: Tree, steps: jax.Array) -> tuple[Tree, Tree]:
    """The pseudo-gradient and the aux, in its own dtypes, of a worker that has made its steps."""
    _, aux = micro_batches.mean(((), ended.total), ((), like), steps, None)
    return jax.tree.map(jnp.subtract, start, ended.params), aux


def _as_before(tree: Tree, before: Tree) -> Tree:
    """In the dtypes that it had: a hyperparameter that is an array must not promote a narrower state."""
    return jax.tree.map(lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), tree, before)
