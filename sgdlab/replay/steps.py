"""`Steps`: the server of a replay one gradient at a time; live runs apply their gradients with it."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sgdlab.replay.functions import Parts
from sgdlab.replay.server import Instruction, Server, apply_one, close, norm, receive, start_server
from sgdlab.replay.watch import as_pytree
from sgdlab.rules import accumulators
from sgdlab.rules.server_rule import ServerRule, absorbed, called, server_rule
from sgdlab.tasks.task import check_statistics
from sgdlab.types import Tree
from sgdlab.xla import apart


class Kept(NamedTuple):
    """Holds what a server keeps between two gradients."""

    server: Server
    stats: Tree  # running statistics; None without them.
    average_stats: Tree  # their Polyak average; None without one.


class Steps:
    """The server of a replay in event mode, told what to do as it happens.

    A gradient is given to `receive`, on which it enters the open update; `close` applies that update, and then there is
    one version more, which is `sent` to workers. Given the same gradients in the same order as `sgdlab.replay.run` in
    event mode computes them, it makes the same parameters, states, statistics and averages, to rounding: its programs
    end where replay's loop has a branch, but how a loop is rounded is for XLA to decide. Given them again, it makes the
    same bits (`sgdlab.live.repeat`).

    All arrays that it gives away are its own or copies: they stay as they are when it goes on. Nothing that it is given
    is needed after a call, so that the memory of a transport may be used again at once.

    Args:
      rule: a rule of `sgdlab.rules`, or any optax transform.
      params: initial parameters.
      single: whether every update has exactly one gradient, which is then applied by one program.
      stats: initial running statistics; None: none.
      fold: `(stats, aux) -> stats`, called for each gradient received; together with `stats`.
      average_decay: of the Polyak averages of parameters and statistics after each update; None: no averages.
      packer: of packets in which gradients come, with their shapes `like`, and `unpack(packet, number) -> grads`, which
        `receive` and `measured` call first (`sgdlab.live.packing.Packer`). None: gradients come as they are.

    Raises:
      ValueError: if one of `stats` and `fold` is given without the other, or if workers compute at points of their own.

    Example:
      >>> from sgdlab import rules
      >>> steps = Steps(rules.asgd(learning_rate=0.5), jnp.zeros([]), single=False)
      >>> first = steps.sent()
      >>> steps.receive(jnp.array(-1.0), {}, read=first, worker=0, delay=1.0)
      >>> steps.receive(jnp.array(-3.0), {}, read=first, worker=1, delay=1.0)
      >>> steps.close()
      >>> float(steps.sent()), steps.version
      (1.0, 1)
    """

    def __init__(
        self,
        rule: ServerRule | optax.GradientTransformation,
        params: Tree,
        *,
        single: bool,
        stats: Tree = None,
        fold: Callable[[Tree, Tree], Tree] | None = None,
        average_decay: float | None = None,
        packer: Any = None,
    ):
        check_statistics(stats, fold)
        rule = rule if isinstance(rule, ServerRule) else server_rule(rule)
        if rule.point is not None:
            raise ValueError(
                "rule must be one whose workers compute on what they are sent: this one adds something of the worker's "
                "own (rule.point), which replay knows and a worker does not"
            )
        self._parts = Parts.of(rule, fold=fold, average_decay=average_decay)
        self._penalty, self._single, self._packer = as_pytree(rule.penalty), single, packer
        self._kept, self._sent = _start(params, stats, self._parts, single=single)
        self._next = self._sent  # of single updates, what is sent once the open one is closed
        self._version, self._received, self._delays = 0, 0, 0.0

    def compile(self, aux: Tree) -> None:
        """Compiles all that `receive`, `close` and the reading of results need, so that nothing is compiled later.

        Args:
          aux: of the gradient function, or objects with its shapes and dtypes.
        """
        before = self.snapshot()
        grads, aux = self.nothing(), _zeros(aux)
        # Twice: what the first update returns may differ from the initial state in how weakly it is typed.
        for _ in range(2):
            self._received = 0
            self.receive(grads, aux, read=self._sent, worker=0, delay=1.0)
            self.close()
        self.restore(before)
        for tree in (self.params, self.state, self.stats, self.average, self.average_stats):
            jax.block_until_ready(tree)

    def nothing(self) -> Tree:
        """Return zeros, as a gradient comes."""
        return _zeros(self._kept.server.params if self._packer is None else self._packer.like)

    @property
    def single(self) -> bool:
        """Return True if every update has exactly one gradient."""
        return self._single

    @property
    def version(self) -> int:
        """Number of updates made; also the number of the newest version."""
        return self._version

    def sent(self) -> Tree:
        """The newest version, as workers read it: arrays of JAX that never change."""
        return self._sent

    def receive(
        self, grads: Tree, aux: Tree, *, read: Tree, worker: int, delay: float, number: int = 0, anew: bool = False
    ) -> None:
        """A gradient enters the open update.

        Args:
          grads: the gradient, arrays like the parameters, or its packet.
          aux: what else the gradient function returned.
          read: the version that it was computed on, as it was `sent`.
          worker: who computed it.
          delay: staleness + 1, the number of the open update less that of the version read, plus 1.
          number: of the gradient, its ticket, as rules are told it.
          anew: whether its worker begins anew with it.

        Raises:
          ValueError: if every update has one gradient, and the open one has it.
        """
        if self._single and self._received:
            raise ValueError("single=True must be False for updates of several gradients: the open one has one already")
        parts = self._parts
        inputs = (self._unpacked(grads, number), aux if parts.fold is not None else None, read)
        self._received, self._delays = self._received + 1, self._delays + delay
        use = _instruction(worker, delay, self._delays, self._received, number, anew, first=self._received == 1)
        if self._single:
            self._kept, self._next, done = _apply(self._kept, inputs, use, parts)
        else:
            self._kept, done = _receive(self._kept, inputs, use, parts)
        done.block_until_ready()  # JAX on CPU may read the memory of the inputs until then

    def measured(
        self, grads: Tree, *, read: Tree, worker: int, delay: float, number: int = 0, anew: bool = False
    ) -> dict[str, jax.Array | None]:
        """Return the norm, distance and penalty of a gradient that is about to be received, as `History` names them.

        Args: as of `receive`.
        """
        use = _instruction(worker, delay, delay, 1, number, anew, first=True)
        return _measured(
            self._kept.server, self._unpacked(grads, number), read, use, self._parts._replace(penalty=self._penalty)
        )

    def _unpacked(self, grads: Tree, number: int) -> Tree:
        return grads if self._packer is None else self._packer.unpack(grads, number)

    def close(self) -> None:
        """Applies the open update: its gradients' messages, added up in the order of their coming, over their number.

        Raises:
          ValueError: if no gradient has entered it.
        """
        if not self._received:
            raise ValueError("close() must come after a gradient of the open update was received")
        if not self._single:
            use = _instruction(0, 1.0, self._delays, self._received, first=False)
            self._kept, self._next = _close(self._kept, use, self._parts)
        self._sent = self._next
        self._version, self._received, self._delays = self._version + 1, 0, 0.0

    @property
    def params(self) -> Tree:
        """The parameters."""
        return _copied(self._kept.server.params)

    @property
    def state(self) -> Tree:
        """The state of the rule."""
        return _copied(self._kept.server.state)

    @property
    def stats(self) -> Tree:
        """Running statistics; None without them."""
        return _copied(self._kept.stats)

    @property
    def average(self) -> Tree:
        """The Polyak average of the parameters, in at least float32; None without one."""
        return _copied(self._kept.server.average)

    @property
    def average_stats(self) -> Tree:
        """The Polyak average of the running statistics; None without one."""
        return _copied(self._kept.average_stats)

    def snapshot(self) -> dict[str, np.ndarray]:
        """The whole state as arrays that `np.savez` can write, also inside an open update; they never change."""
        counts = np.array([self._version, self._received, self._delays], np.float64)
        whole = self._whole()
        kept = {name: plain(leaf) for name, leaf in _leaves({"kept": whole.pop("kept")})}  # whose memory is used again
        return {"counts": counts} | kept | {name: plain(leaf, copy=None) for name, leaf in _leaves(whole)}

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> None:
        """Continues from a snapshot of the same rule, parameters and settings, bit for bit.

        Args:
          snapshot: what `snapshot` returned, or a file of it that `np.load` has opened.

        Raises:
          ValueError: if it is of other settings.
        """
        like = {"kept": self._kept, "sent": self._sent} | (
            {"next": self._sent} if any(name.startswith("['next']") for name in snapshot) else {}
        )
        missing = sorted({name for name, _ in _leaves(like)} ^ (set(snapshot) - {"counts"}))
        if missing:
            raise ValueError(f"snapshot must be of the same rule, parameters and settings; it differs in {missing[0]}")
        leaves = [_like(name, snapshot[name], leaf) for name, leaf in _leaves(like)]
        found = jax.tree.unflatten(jax.tree.structure(like), leaves)
        self._kept, self._sent = found["kept"], found["sent"]
        self._next = found.get("next", self._sent)
        version, received, self._delays = snapshot["counts"].tolist()
        self._version, self._received = int(version), int(received)

    def _whole(self) -> dict[str, Tree]:
        # Versions are not made anew from the parameters: other programs would round them otherwise.
        whole = {"kept": self._kept, "sent": self._sent}
        return whole if self._next is self._sent else whole | {"next": self._next}


def _instruction(
    worker: int, delay: float, delays: float, count: int, number: int = 0, anew: bool = False, *, first: bool
) -> Instruction:
    real = jax.dtypes.canonicalize_dtype(np.float64)
    return Instruction(
        worker=np.int32(worker),
        number=np.int32(number),
        anew=np.bool_(anew),
        delay=real.type(delay),
        mean_delay=real.type(delays / count),
        count=np.int32(count),
        first=np.bool_(first),
        last=np.bool_(True),
        store=np.int32(0),
    )


def _zeros(like: Tree) -> Tree:
    return jax.tree.map(lambda leaf: np.zeros(np.shape(leaf), leaf.dtype), like)


@functools.partial(jax.jit, static_argnames="single")
def _start(params: Tree, stats: Tree, parts: Parts, *, single: bool) -> tuple[Kept, Tree]:
    server = start_server(params, parts, slots=1, single=single)
    sent = jax.tree.map(lambda leaf: leaf[0], server.slots)
    average_stats = None if parts.average_decay is None else jax.tree.map(jnp.copy, accumulators.wide(stats))
    return Kept(server._replace(slots=None), jax.tree.map(jnp.copy, stats), average_stats), sent


@functools.partial(jax.jit, donate_argnums=0)
def _receive(kept: Kept, inputs: tuple[Tree, Tree, Tree], use: Instruction, parts: Parts) -> tuple[Kept, jax.Array]:
    grads, stats, read = _folded(kept, inputs, parts)
    return kept._replace(server=receive(kept.server, grads, read, use, parts), stats=stats), jnp.copy(use.count)


@functools.partial(jax.jit, donate_argnums=0)
def _close(kept: Kept, use: Instruction, parts: Parts) -> tuple[Kept, Tree]:
    sent, _, server = close(kept.server, use, parts)
    return _averaged(kept._replace(server=server), use, parts), sent


@functools.partial(jax.jit, donate_argnums=0)
def _apply(kept: Kept, inputs: tuple[Tree, Tree, Tree], use: Instruction, parts: Parts) -> tuple[Kept, Tree, jax.Array]:
    grads, stats, read = _folded(kept, inputs, parts)
    sent, _, server = apply_one(kept.server, grads, read, use, parts)
    return _averaged(kept._replace(server=server, stats=stats), use, parts), sent, jnp.copy(use.count)


@jax.jit
def _measured(server: Server, grads: Tree, read: Tree, use: Instruction, parts: Parts) -> dict[str, jax.Array | None]:
    penalty, own = None, {"worker": use.worker, "delay": use.delay, "read_params": read, "number": use.number}
    if parts.penalty is not None:
        state = absorbed(parts, grads, server.state, server.params, anew=use.anew, **own)  # as `receive` sees it
        penalty = called(parts.penalty, grads, state, server.params, **own)
    return {
        "norm": norm(grads),
        "distance": norm(jax.tree.map(jnp.subtract, server.params, read)),
        "penalty": penalty,
    }


def _folded(kept: Kept, inputs: tuple[Tree, Tree, Tree], parts: Parts) -> tuple[Tree, Tree, Tree]:
    """The gradient, the running statistics after it, and the version it was computed on."""
    # No output may be an input itself, whose memory is another's.
    grads, aux, read = jax.lax.optimization_barrier(inputs)
    return grads, kept.stats if parts.fold is None else parts.fold(kept.stats, aux), read


def _averaged(kept: Kept, use: Instruction, parts: Parts) -> Kept:
    if kept.average_stats is None:
        return kept
    # Apart from how the statistics were folded, as in replay.
    moved = lambda _, average, stats: accumulators.moving_average(average, stats, parts.average_decay)
    return kept._replace(average_stats=apart(moved, use.worker, kept.average_stats, kept.stats))


@jax.jit
def _copied(tree: Tree) -> Tree:
    return jax.tree.map(jnp.copy, tree)


def _leaves(tree: Tree) -> list[tuple[str, jax.Array]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree.leaves_with_path(tree)]


def plain(leaf: jax.Array | np.ndarray, *, copy: bool | None = True) -> np.ndarray:
    """A copy in one of NumPy's own dtypes, with the same bits: `.npz` files know no others; None copies if it must."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.array(leaf, copy=copy)
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")


def _like(name: str, array: np.ndarray, like: jax.Array) -> jax.Array:
    """The array of a snapshot with the dtype that it had."""
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.array(array), impl=jax.random.key_impl(like))
    if array.dtype != like.dtype and array.dtype.itemsize == like.dtype.itemsize:
        array = array.view(like.dtype)
    if (array.shape, array.dtype) != (like.shape, like.dtype):
        found = f"{array.dtype}{list(array.shape)}, which must be {like.dtype}{list(like.shape)}"
        raise ValueError(f"snapshot must be of the same rule, parameters and settings; {name} is {found}")
    if like.weak_type and not like.ndim:
        return jnp.asarray(array.item())  # as weakly typed as before
    return jnp.array(array)
