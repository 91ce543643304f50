"""Pseudo-gradients of several local steps, each of which can be given up between two of its steps."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab.live.lives import ANEW
from sgdlab.replay import local_steps, streaming
from sgdlab.replay.local_steps import LocalState, Walk
from sgdlab.replay.streaming import Stream
from sgdlab.replay.watch import as_pytree

Tree = Any


class Factors(Protocol):
    """Of the learning rate of a worker: `sgdlab.jobs.rates.InnerRate`.

    Attributes:
      factors: float64[S], of its steps, one after the other.
    """

    @property
    def factors(self) -> np.ndarray:
        """See above."""
        ...

    def place(self, version: Any) -> np.ndarray:
        """int32: the place of the first step of a message that begins on this version."""
        ...


class LocalSteps(NamedTuple):
    """The steps that a worker makes for one message.

    Attributes:
      optimizer: () -> an optax transform.
      steps: `(worker) -> H_i`, how many steps a worker makes.
      stride: H, the largest number: step k of ticket t has the batch t H + k.
      proximal: strength of the pull towards what the worker has read; None: none.
      keep_state: whether a worker keeps its optimizer's state from one message to its next; otherwise it begins anew
        with each.
      stream: how a worker that keeps its parameters too sends them, a fragment with each message; None: it does not.
      inner: warm-up and decay of the worker's learning rate; None: it is constant.
    """

    optimizer: Callable[[], Any]
    steps: Callable[[int], int]
    stride: int
    proximal: float | None = None
    keep_state: bool = False
    stream: Stream | None = None
    inner: Factors | None = None

    @property
    def keeps(self) -> bool:
        """Whether a worker keeps anything between two messages, so that nobody else can compute its gradient."""
        return self.keep_state or self.stream is not None


class PseudoGradients:
    """Computes the pseudo-gradients of one worker, step by step.

    The steps are those of `sgdlab.replay.in_local_steps`, or of `sgdlab.replay.in_fragments`, in a loop whose length
    the compiler does not know, as there. A worker that keeps something between two messages has what it had after the
    last of them that was used, and what it has after the newest, of which it does not know yet whether it will be.

    Args:
      grad_fn: `(params, batch) -> (grads, aux)`.
      batch_fn: `(number) -> batch`, traced.
      own: the worker's steps.
      worker: whose they are.
      params: with the shapes and dtypes of the parameters.

    Attributes:
      aux: shapes and dtypes of the aux of a message.
    """

    def __init__(self, grad_fn: Any, batch_fn: Any, own: LocalSteps, worker: int, params: Tree):
        walk = Walk(as_pytree(grad_fn), as_pytree(batch_fn), as_pytree(own.optimizer), own.proximal)
        if own.inner is not None:
            walk = walk._replace(factors=own.inner.factors)
        # On the device once, and not with every message.
        self._walk = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, walk)
        self._steps, self._stride = own.steps(worker), own.stride
        self._keeps, self._stream, self._inner = own.keeps, own.stream, own.inner
        self._kept: dict[int, tuple[int, Tree]] = {}  # ticket -> the version that it read, what the worker has after it
        self.aux = jax.eval_shape(local_steps.shapes, self._walk, params)

    def compute(
        self, ticket: int, params: Tree, stop: Callable[[], bool], *, after: int = ANEW, version: int = 0
    ) -> tuple[Tree, Tree] | None:
        """The pseudo-gradient and aux of a ticket; None if it was given up, which is asked before each step.

        Args:
          ticket: which gradient.
          params: what the worker has read.
          stop: whether to give up.
          after: the ticket from after which it goes on, if it keeps anything; `ANEW`: it begins anew.
          version: the number of what it has read.

        Raises:
          ValueError: if this worker has nothing from after that ticket.
        """
        goes_on, kept = self._kept_after(after, params, version) if self._keeps else (False, None)
        span, steps = (np.int32(ticket), np.int32(ticket + 1)), np.int32(self._steps)
        arrives = np.int32(min(self._stream.overlap, self._steps - 1) if self._stream and goes_on else -1)
        place = None if self._inner is None else np.int32(self._inner.place(version))
        progress = _begin(params, kept, self._walk)
        for step in range(self._steps):
            if stop():
                return None
            within = np.int32(step), np.int32(step + 1)
            first = np.int32(ticket * self._stride)
            # pyrefly: ignore[unsupported-operation]  # a stream keeps something
            due = None if self._stream is None else (self._stream, kept["messages"], arrives)
            progress = jax.block_until_ready(_step(progress, params, span, within, first, self._walk, due, place))
        if self._stream is not None:
            # pyrefly: ignore[unsupported-operation]  # it is of a stream
            found, after_it = _end_of_fragment(params, progress, steps, self._walk, due[:2])
            self._kept[ticket] = version, after_it
            return found
        if self._keeps:
            self._kept[ticket] = version, {"optimizer": progress.state}
        return _end(params, progress, steps, self._walk)

    def _kept_after(self, after: int, params: Tree, version: int) -> tuple[bool, Tree]:
        """Whether the worker goes on, and what it begins with; it forgets all else, for which nobody will ask again.

        Of a stream, one that has missed an update has not got the fragment of it, and begins anew.
        """
        if after != ANEW and after not in self._kept:
            raise ValueError(f"after={after} must be a message of this process that was used: it keeps nothing of it")
        self._kept = {after: self._kept[after]} if after != ANEW else {}
        read, kept = self._kept.get(after, (ANEW, None))
        if kept is not None and (self._stream is None or read + 1 == version):
            return True, kept
        return False, _anew(params, np.int32(version), self._walk, self._stream)


@jax.jit
def _anew(params: Tree, version: jax.Array, walk: Walk, stream: Stream | None) -> Tree:
    """What a worker has that has read a version, and nothing else."""
    found = streaming.anew_at(walk, jax.tree.map(jnp.asarray, params), version)
    return {"optimizer": found["optimizer"]} if stream is None else found


@jax.jit
def _begin(params: Tree, kept: Tree, walk: Walk) -> LocalState:
    shapes = local_steps.shapes(walk, params)
    if kept is None:
        return local_steps.begun(walk, params, shapes)
    return local_steps.begun(walk, kept.get("params", params), shapes, kept["optimizer"])


@jax.jit
def _step(
    progress: LocalState,
    start: Tree,
    span: tuple[jax.Array, jax.Array],
    within: tuple[jax.Array, jax.Array],
    first: jax.Array,
    walk: Walk,
    due: tuple[Stream, jax.Array, jax.Array] | None,
    place: jax.Array | None,
) -> LocalState:
    """The steps `within` of the one ticket in `span`; of a stream, the fragment that is `due` arrives before one."""

    def of_ticket(ticket: jax.Array, progress: LocalState) -> LocalState:
        # So that nothing can be computed of the parameters before the loop: in replay each gradient has its own.
        _, own = jax.lax.optimization_barrier((ticket, start))

        def one_more(index: jax.Array, progress: LocalState) -> LocalState:
            if due is not None:
                stream, messages, arrives = due
                merged = streaming.merged_at(stream, index, progress.params, own, messages, arrives)
                progress = progress._replace(params=merged)
            return local_steps.stepped(walk, progress, own, first + index, local_steps.later(walk, place, index))

        return jax.lax.fori_loop(*within, one_more, progress)

    return jax.lax.fori_loop(*span, of_ticket, progress)


@jax.jit
def _end(start: Tree, ended: LocalState, steps: jax.Array, walk: Walk) -> tuple[Tree, Tree]:
    return local_steps.arrived(start, ended, local_steps.shapes(walk, start), steps)


@jax.jit
def _end_of_fragment(
    start: Tree, ended: LocalState, steps: jax.Array, walk: Walk, due: tuple[Stream, jax.Array]
) -> tuple[tuple[Tree, Tree], Tree]:
    """The message, zero but for one fragment, with its aux, and what the worker keeps."""
    stream, messages = due
    found = streaming.sent(stream, start, ended, local_steps.shapes(walk, start), steps, messages)
    return found, {"optimizer": ended.state, "params": ended.params, "messages": messages + 1}
