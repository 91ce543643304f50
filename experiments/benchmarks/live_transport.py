"""Speed of the transport of live runs, over processes of this machine, relative to pickles through pipes.

Parameters go to two workers and gradients come back, with a new version for each gradient; a gradient is one addition,
by JAX in live workers, which has a cost of its own, and by NumPy behind the pipes. Then four workers that sleep for
100 ms in the place of computing: what the transport adds to that.

    python -m experiments.benchmarks live_transport
"""

import multiprocessing
import multiprocessing.connection
import statistics
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.timing import Figure, at_least, at_most, ratio
from sgdlab.live.messages import Came, GaveUp, Joined
from sgdlab.live.processes import Processes
from sgdlab.live.work import Work, WorkSource

MEGABYTES = {0.004: 400, 1.0: 400, 4.0: 200, 25.0: 60}
"""Size of the parameters -> gradients of one round."""

WORKERS, ROUNDS = 2, 5
GOAL = 1.0
SLEEPING, SECONDS, OVERHEAD = 4, 0.1, 0.05
INTERRUPTS = 50


def figures() -> Iterator[Figure]:
    """Both transports at each size; start, interrupt and overhead of the live one."""
    for megabytes, gradients in MEGABYTES.items():
        params = _params(megabytes)
        with _Ours(megabytes, params) as ours, _Pipes(params) as pipes:
            seconds: dict[str, list[float]] = {"shared": [], "pipes": []}
            for turn in range(ROUNDS + 1):
                for name, transport in (("shared", ours), ("pipes", pipes)):
                    took = transport.seconds(gradients)
                    if turn:
                        seconds[name].append(took)
        share = ratio(seconds["pipes"], seconds["shared"])
        per = {name: 1000 * statistics.median(many) / gradients for name, many in seconds.items()}
        yield at_least(
            f"shared memory over pickles through pipes, {megabytes:g} MB",
            share,
            "x",
            GOAL if megabytes >= 1 else None,
            f"a gradient: {per['shared']:.2f} ms, of which worker {1000 * ours.computing / gradients / WORKERS:.2f}; "
            f"pipes {per['pipes']:.2f} ms",
        )
    yield from _sleeping()


def _sleeping() -> Iterator[Figure]:
    megabytes, gradients = 4.0, 100
    with _Ours(megabytes, _params(megabytes), SLEEPING, SECONDS) as ours:
        yield Figure(f"from the start of {SLEEPING} processes to the last one's Joined", ours.joined, "s")
        more = [ours.seconds(gradients) * SLEEPING / gradients / SECONDS - 1 for _ in range(ROUNDS)]
        what = f"transport over a gradient of {1000 * SECONDS:g} ms, {megabytes:g} MB, {SLEEPING} workers"
        detail = f"rounds {', '.join(f'{one:.3f}' for one in sorted(more))}"
        yield at_most(what, statistics.median(more), "", OVERHEAD, detail)
        milliseconds = [1000 * ours.interrupted() for _ in range(INTERRUPTS)]
        median, detail = statistics.median(milliseconds), f"max {max(milliseconds):.1f}"
        yield Figure("from an interrupt to its answer", median, "ms", detail=detail)


def work(argument: dict[str, Any]) -> Work:
    """Return a gradient that is one addition."""
    params = jax.tree.map(jnp.asarray, _params(argument["megabytes"]))
    grad_fn = lambda params, batch: (jax.tree.map(lambda leaf: leaf + batch[0], params), {"loss": batch[0]})
    seconds = argument["seconds"]
    return Work(params, grad_fn, lambda ticket: jnp.ones([1]) * ticket, seconds=lambda worker, k: seconds)


def _params(megabytes: float) -> dict[str, np.ndarray]:
    """Ten arrays."""
    return {f"layer_{k}": np.zeros(max(1, int(megabytes * 1e6 / 4 / 10)), np.float32) for k in range(10)}


class _Ours:
    """The transport of live runs."""

    def __init__(self, megabytes: float, params: dict[str, np.ndarray], workers: int = WORKERS, seconds: float = 0.0):
        source = WorkSource(f"{__spec__.name}:work", {"megabytes": megabytes, "seconds": seconds})
        aux = {"loss": jax.ShapeDtypeStruct((), jnp.float32)}
        self._transport = Processes(source, params, aux, num_workers=workers, env={"JAX_ENABLE_X64": "0"})
        self._workers, self._params, self._ticket, self.computing = workers, params, 0, 0.0
        begun = time.perf_counter()
        for worker in range(workers):
            self._transport.spawn(worker)
        joined: list[Any] = []
        while len(joined) < workers:
            joined += self._transport.next(None)
        if any(type(message) is not Joined for message in joined):
            raise RuntimeError(f"workers cannot start: {joined}")
        self.joined = time.perf_counter() - begun

    def __enter__(self) -> "_Ours":
        return self

    def __exit__(self, *error: object) -> None:
        self._transport.close()

    def seconds(self, gradients: int) -> float:
        """Return what so many gradients take, each on a version of its own, which is the last gradient."""
        begun, left, self.computing = time.perf_counter(), gradients, 0.0
        held = {worker: self._begin(worker, self._params) for worker in range(self._workers)}
        while held:
            for came in self._transport.next(None):
                if type(came) is not Came:
                    raise RuntimeError(str(came))
                self.computing += came.seconds
                self._transport.release(held.pop(came.worker))
                left -= 1
                if left >= self._workers:
                    held[came.worker] = self._begin(came.worker, came.grads)
        return time.perf_counter() - begun

    def interrupted(self) -> float:
        """Return seconds from an interrupt in the middle of a gradient to its answer."""
        version = self._begin(0, self._params)
        time.sleep(SECONDS / 2)
        begun = time.perf_counter()
        self._transport.interrupt(0, self._ticket)
        (message,) = self._transport.next(None)
        took = time.perf_counter() - begun
        if type(message) is not GaveUp:
            raise RuntimeError(str(message))
        self._transport.release(version)
        return took

    def _begin(self, worker: int, params: dict[str, np.ndarray]) -> Any:
        self._ticket += 1
        version = self._transport.publish(params)
        self._transport.begin(worker, self._ticket, version)
        return version


class _Pipes:
    """Sends as the standard library does: pickled arrays through pipes, to processes without JAX."""

    def __init__(self, params: dict[str, np.ndarray]):
        context = multiprocessing.get_context("spawn")
        self._params = params
        pairs = [context.Pipe() for _ in range(WORKERS)]
        self._ends = [ours for ours, _ in pairs]
        self._children = [context.Process(target=_add, args=(theirs,), daemon=True) for _, theirs in pairs]
        for child in self._children:
            child.start()
        for _, theirs in pairs:
            theirs.close()

    def __enter__(self) -> "_Pipes":
        return self

    def __exit__(self, *error: object) -> None:
        for end in self._ends:
            end.close()
        for child in self._children:
            child.join()

    def seconds(self, gradients: int) -> float:
        """Return the same as the other transport's."""
        begun, left, busy = time.perf_counter(), gradients, list(self._ends)
        for end in self._ends:
            end.send((1.0, self._params))
        while busy:
            for end in multiprocessing.connection.wait(busy):
                grads = end.recv()
                left -= 1
                if left >= WORKERS:
                    end.send((1.0, grads))
                else:
                    busy.remove(end)
        return time.perf_counter() - begun


def _add(end: Any) -> None:
    while True:
        try:
            ticket, params = end.recv()
        except EOFError:
            return
        end.send({name: leaf + np.float32(ticket) for name, leaf in params.items()})
