"""`Gradients` and `PseudoGradients`, what a worker computes: one after another, each can be given up on the way."""

import copy
import functools
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import arguments
from sgdlab.errors import in_one_line
from sgdlab.live.packing import Packer
from sgdlab.live.shared_arrays import MemoryLayout
from sgdlab.live.transport import ANEW
from sgdlab.live.work import LocalSteps, OwnGradients, OwnLoop, Work, WorkSource
from sgdlab.replay import local_steps, streaming
from sgdlab.replay import micro_batches as in_parts
from sgdlab.replay.local_steps import LocalState, Walk
from sgdlab.replay.micro_batches import Cut, in_micro_batches
from sgdlab.replay.streaming import Stream
from sgdlab.replay.watch import as_pytree
from sgdlab.types import Tree

SLICE_SECONDS = 0.002
"""Seconds that a worker that is slowed down sleeps before it asks again whether to stop."""


def never() -> bool:
    """Return False: a gradient that nobody gives up."""
    return False


class Gradients:
    """Computes gradients, each of which can be given up between two micro-batches, or between two local steps.

    The same parameters and the same ticket give the same gradient, bit for bit, in every process with the same version
    of jaxlib, the same settings of precision, the same kind of processor, and as many processors that the process may
    use: large products and sums are divided among them (with batches of 256 one processor differs from two in the last
    bit, with batches of 32 it does not; `xla_cpu_multi_thread_eigen` makes no difference). It is the gradient of
    replay's event mode, with `sgdlab.replay.micro_batches.in_micro_batches` of as many parts, to rounding: it is
    computed in a loop whose length the compiler does not know, as there, since XLA rounds otherwise in loops.

    Args:
      work: what to compute.
      worker: whose gradients these are, for `work.seconds` and `work.own`.

    Attributes:
      aux: shapes and dtypes of the gradient function's aux.
      packer: makes packets of gradients, which `compute` returns in their place; None: they are not compressed.
      sent: arrays like a gradient, or shapes and dtypes of a packet.

    Raises:
      ValueError: if the batch cannot be cut into so many micro-batches.

    Example:
      >>> grad_fn = lambda params, batch: (params - batch.mean(), {"loss": jnp.mean((params - batch) ** 2) / 2})
      >>> gradients = Gradients(Work(jnp.zeros([]), grad_fn, lambda ticket: ticket + jnp.arange(4.0), micro_batches=2))
      >>> grads, aux = gradients.compute(7, np.float32(1.0))
      >>> float(grads), float(aux["loss"])
      (-7.5, 28.75)
    """

    def __init__(self, work: Work, *, worker: int = 0):
        self._work, self._worker, self._begun, self.params = work, worker, 0, work.params
        self._cut = Cut(arguments.whole("micro_batches", work.micro_batches))
        self._steps: PseudoGradients | None = None
        self.packer = None if work.channel is None else Packer(work.channel, work.seed, work.params)
        self.sent = work.params if self.packer is None else self.packer.like
        batch_fn = work.batch_fn if work.own is None else work.own(worker)
        if work.local is not None:
            grad_fn = in_micro_batches(work.grad_fn, work.micro_batches, work.finish)
            self._steps = PseudoGradients(grad_fn, batch_fn, work.local, worker, work.params)
            self.aux = self._steps.aux
            return
        functions = Functions(*(as_pytree(part) for part in (work.grad_fn, batch_fn, work.finish)))
        self._functions = _on_device(functions)
        shapes = functools.partial(_shapes, cut=self._cut)
        self._like = jax.eval_shape(shapes, work.params, self._functions)
        self.aux = self._like[1]
        self._nothing = in_parts.zeros(self._like) if self._cut.number > 1 else None

    def compile(self) -> None:
        """Compile the programs, so that the first gradient takes no longer than the others."""
        self._computed(0, jax.tree.map(np.asarray, self._work.params), never)

    def compute(
        self, ticket: int, params: Tree, stop: Callable[[], bool] = never, *, after: int = ANEW, version: int = 0
    ) -> tuple[Tree, Tree] | None:
        """Compute a gradient.

        Args:
          ticket: names the batch.
          params: the version to compute it on; not needed after the call.
          stop: whether to give it up; asked before each micro-batch, and while the worker is slowed down.
          after: the ticket from after which a worker goes on that keeps something between its messages; `ANEW`: it
            begins anew.
          version: the number of the version.

        Returns:
          (grads, aux) in NumPy arrays, with the packet in the place of grads where there is a `packer`; None if it was
          given up.
        """
        begin, index = time.monotonic(), self._begun
        self._begun += 1
        found = self._computed(ticket, params, stop, after=after, version=version)
        if found is None or self._work.seconds is None:
            return found
        return found if _slept(begin + self._work.seconds(self._worker, index), stop) else None

    def _computed(self, ticket: int, params: Tree, stop: Callable[[], bool], **kept: int) -> tuple[Tree, Tree] | None:
        span = np.int32(ticket), np.int32(ticket + 1)
        if self._steps is not None:
            found = self._steps.compute(ticket, params, stop, **kept)
        elif self._cut.number == 1:
            found = None if stop() else _whole(span, params, self._functions)
        else:
            found = self._summed(span, params, stop)
        if found is not None and self.packer is not None:
            grads, aux = found
            found = self.packer.pack(ticket, grads, after=kept.get("after", ANEW)), aux
        return None if found is None else jax.tree.map(np.asarray, found)  # which waits for it

    def _summed(self, span: tuple[np.int32, np.int32], params: Tree, stop: Callable[[], bool]) -> Any:
        total = self._nothing
        for part in range(self._cut.number):
            if stop():
                return None
            within = np.int32(part), np.int32(part + 1)
            total = jax.block_until_ready(_parts(total, span, within, params, self._functions, cut=self._cut))
        return _mean(total, params, np.int32(self._cut.number), self._functions, cut=self._cut)


def warm(work: Work | OwnLoop) -> None:
    """Compile the programs of a process that is nobody's yet: all workers compute by the same.

    What makes a loop of the user's own is called with a worker's number, and may keep something for it: it must wait.
    """
    if isinstance(work, Work):
        _compile(Gradients(work), "a spare")


def _compile(gradients: Any, whose: str) -> None:
    """Compile the programs of a process, which goes on where that fails: the batch may be one of few that do.

    If it is not, all gradients fail, which the server counts.
    """
    try:
        gradients.compile()
    except Exception as error:
        traceback.print_exc()
        print(f"The warm-up of {whose} has failed ({in_one_line(error)}); it goes on to its gradients.", flush=True)


class Computer:
    """The gradients of a worker's process, which finds them in the memory of its server, and leaves them there.

    Args:
      source: the fields of a `WorkSource`.
      layout: of the gradients, as `MemoryLayout.described` by the server; ValueError if the source makes others.
      worker: whose they are.
      made: what the source has made already, if it has.

    Attributes:
      params: where a version's arrays lie.
      sent: where those of a gradient, and of its aux, lie.
    """

    def __init__(
        self,
        source: Mapping[str, Any],
        layout: Sequence[Sequence[str]],
        worker: int,
        made: Work | OwnLoop | None = None,
    ):
        work = WorkSource(**source).make() if made is None else made
        own = isinstance(work, OwnLoop)
        self._fresh = OwnGradients(work.of_worker(worker)) if own else Gradients(work, worker=worker)
        self._run, self._gradients = -1, self._fresh
        self.params = MemoryLayout(self._fresh.params)
        self.sent = MemoryLayout({"params": self._fresh.sent, "aux": self._fresh.aux})
        self.sent.check(layout)
        _compile(self._fresh, f"worker {worker}")

    def answer(
        self,
        asked: Mapping[str, int],
        memory: Callable[[Mapping[str, int]], np.ndarray],
        views: Sequence[np.ndarray],
        void: Callable[[], tuple[int, int]],
    ) -> dict[str, Any]:
        """Compute a gradient, and return what a worker says of it: that it came, was given up, or failed.

        Args:
          asked: its "run" and "ticket", with "after" and "version" as of `Gradients.compute`.
          memory: `(asked) -> uint8`, where the parameters lie.
          views: where the gradient is written, made by `sent`.
          void: () -> (run, ticket), the last that was interrupted; both only grow, and all before it are void too.
        """
        begun, run, ticket = time.perf_counter(), asked["run"], asked["ticket"]
        if run != self._run:  # a run counts its own gradients, and finds the programs compiled
            self._run, self._gradients = run, copy.copy(self._fresh)
        try:
            params, stop = self.params.tree(memory(asked)), lambda: void() >= (run, ticket)
            found = self._gradients.compute(ticket, params, stop, after=asked["after"], version=asked["version"])
            if found is not None:
                self.sent.write(views, dict(zip(("params", "aux"), found, strict=True)))
            said = {"kind": "gave_up" if found is None else "came", "seconds": time.perf_counter() - begun}
        except Exception as error:
            traceback.print_exc()
            said = {"kind": "failed", "error": in_one_line(error)}
        return {**said, "run": run, "ticket": ticket}


class Functions(NamedTuple):
    """The functions of a `Work`, as pytrees: their code is part of a program, their leaves are its data."""

    grad_fn: Any
    batch_fn: Any
    finish: Any


def _on_device(functions: Tree) -> Tree:
    """Return functions whose data are on the device once, and need not be brought there with every gradient."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, functions)


def _shapes(params: Tree, functions: Functions, *, cut: Cut) -> Any:
    return in_parts.shapes(cut, functions.grad_fn, params, functions.batch_fn(np.int32(0)))


@jax.jit
def _whole(span: tuple[jax.Array, jax.Array], params: Tree, functions: Functions) -> tuple[Tree, Tree]:
    """Return the gradient and aux of the one ticket in `span`."""
    grad_fn = in_micro_batches(functions.grad_fn, 1, functions.finish)

    def gradient(ticket: jax.Array, before: Tree) -> Tree:
        del before
        ticket, own = jax.lax.optimization_barrier((ticket, params))
        return jax.lax.optimization_barrier(grad_fn(own, functions.batch_fn(ticket)))

    like = jax.eval_shape(gradient, span[0], None)
    return jax.lax.fori_loop(*span, gradient, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like))


@functools.partial(jax.jit, static_argnames="cut")
def _parts(
    total: Tree,
    span: tuple[jax.Array, jax.Array],
    within: tuple[jax.Array, jax.Array],
    params: Tree,
    functions: Functions,
    *,
    cut: Cut,
) -> Tree:
    """Return the sum with the parts `within` of the batch of the one ticket in `span`."""

    def add(ticket: jax.Array, total: Tree) -> Tree:
        # So that nothing can be computed of the parameters before the loop: in replay each gradient has its own.
        ticket, own = jax.lax.optimization_barrier((ticket, params))
        batch = functions.batch_fn(ticket)
        one_more = lambda index, total: in_parts.added(cut, functions.grad_fn, total, own, batch, index)
        return jax.lax.fori_loop(*within, one_more, total)

    return jax.lax.fori_loop(*span, add, total)


@functools.partial(jax.jit, static_argnames="cut")
def _mean(total: Tree, params: Tree, count: jax.Array, functions: Functions, *, cut: Cut) -> tuple[Tree, Tree]:
    return in_parts.mean(total, _shapes(params, functions, cut=cut), count, functions.finish)


def _slept(until: float, stop: Callable[[], bool]) -> bool:
    """Sleep until an instant; return False if it was told to stop before."""
    while (left := until - time.monotonic()) > 0:
        if stop():
            return False
        time.sleep(min(left, SLICE_SECONDS))
    return not stop()


class PseudoGradients:
    """Computes the pseudo-gradients of one worker, step by step; `aux` has shapes and dtypes of what comes with them.

    The steps are those of `sgdlab.replay.in_local_steps`, or of `sgdlab.replay.in_fragments`, in a loop whose length
    the compiler does not know, as there. A worker that keeps something between two messages has what it had after the
    last of them that was used, and what it has after the newest, of which it does not know yet whether it will be.
    """

    def __init__(self, grad_fn: Any, batch_fn: Any, own: LocalSteps, worker: int, params: Tree):
        walk = Walk(as_pytree(grad_fn), as_pytree(batch_fn), as_pytree(own.optimizer), own.proximal)
        if own.inner is not None:
            walk = walk._replace(factors=own.inner.factors)
        self._walk = _on_device(walk)
        self._steps, self._stride = own.steps(worker), own.stride
        self._keeps, self._stream, self._inner = own.keeps, own.stream, own.inner
        self._kept: dict[int, tuple[int, Tree]] = {}  # ticket -> the version that it read, what the worker has after it
        self.aux = jax.eval_shape(local_steps.shapes, self._walk, params)

    def compute(
        self, ticket: int, params: Tree, stop: Callable[[], bool], *, after: int = ANEW, version: int = 0
    ) -> tuple[Tree, Tree] | None:
        """Compute one, as `Gradients.compute` says; ValueError if the worker has nothing from after `after`."""
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
        """Return True if the worker goes on, and what it begins with; forget all else, for which nobody will ask.

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
    """Return what a worker has that has read a version, and nothing else."""
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
    """Do the steps `within` of the one ticket in `span`; of a stream, the fragment that is `due` arrives before one."""

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
    """Return the message, zero but for one fragment, with its aux, and what the worker keeps."""
    stream, messages = due
    found = streaming.sent(stream, start, ended, local_steps.shapes(walk, start), steps, messages)
    return found, {"optimizer": ended.state, "params": ended.params, "messages": messages + 1}
