"""`Rehearsal`, workers on a clock that is not real: a server is tested, faults and all, without a process."""

import dataclasses
import heapq
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from sgdlab import arguments
from sgdlab.live.gradients import Gradients
from sgdlab.live.log import Log
from sgdlab.live.messages import Came, Failed, GaveUp, Joined, Lost, Message
from sgdlab.live.server import serve
from sgdlab.live.settings import LiveSettings
from sgdlab.live.transport import ANEW

Tree = Any

KINDS = ("kill", "stop", "slow", "raise", "nan", "twice", "deaf", "replace", "give_up", "doomed")
"""Faults that can befall a worker; see `Fault`."""
QUICK = LiveSettings(
    join_seconds=5.0,
    wait_seconds=60.0,
    patience=3.0,
    least_patience=10.0,
    first_patience=30.0,
    respawn_seconds=0.5,
    checkpoint_updates=3,
    checkpoint_seconds=0.0,
)
"""Settings of a server that rehearses."""


class Fault(NamedTuple):
    """Something that befalls a worker.

    Attributes:
      kind: "kill" (its process ends, and the server hears of it `seconds` later), "stop" (it does nothing for
        `seconds`), "slow" (what it begins in the next `seconds` takes 10 times as long), "raise" (its next gradient
        raises), "nan" (its next gradient is not finite), "twice" (its next message comes again, `seconds` later),
        "deaf" (for `seconds` it hears no interrupt, and finishes), "replace" (another process takes its place at once,
        which joins `seconds` later, and nobody says that the first one is gone), "give_up" (it gives up its next
        gradient, without having been told to), "doomed" (for `seconds`, processes started for it end at once).
      worker: whom it befalls.
      at: when, seconds.
      seconds: see `kind`.
    """

    kind: str
    worker: int
    at: float
    seconds: float = 0.0


@dataclasses.dataclass
class _Process:
    """A worker's process: what it computes, and what it has been told to compute next."""

    number: int
    compute: Callable[..., tuple[Tree, Tree]]
    joined: bool = False
    ticket: int | None = None
    tree: Tree = None
    kept: Mapping[str, int] = dataclasses.field(default_factory=dict)  # `after` and `version` of `Transport.begin`
    ends: float = 0.0
    void: bool = False
    then: tuple[int, Tree, Mapping[str, int]] | None = None
    turn: int = 0  # of what it computes: an end that was put off is another


class Rehearsal:
    """A `Transport` whose workers take given times, on a clock that moves only while the server waits.

    Args:
      runtimes: float[T, N], seconds; a worker's t-th gradient takes `runtimes[t % T, worker]`.
      compute: `(ticket, params) -> (grads, aux)`, the gradient; called when it has come.
      faults: what befalls the workers.
      join_seconds: how long a process needs to join, or how long each worker's needs; the first time only, for a
        worker that is not in it: at once.
      of_process: `(worker) -> compute`, called for each process, of workers that keep something between two messages;
        `compute` is then called with the keywords `after` and `version` of `begin`. In the place of `compute`.

    Attributes:
      now: seconds since the rehearsal began.
      at_once: how many workers may join at the same time: all.
      told: every call of the server but `time` and `next`, with its arguments: ("begin", worker, ticket) and so on.

    Raises:
      ValueError: if compute times are not positive, or a fault is not known.

    Example:
      >>> rehearsal = Rehearsal(np.array([[2.0, 3.0]]), lambda ticket, params: (params, {}))
      >>> for worker in range(2):
      ...     rehearsal.spawn(worker)
      >>> [message.worker for message in rehearsal.next(None)]
      [0, 1]
      >>> rehearsal.begin(1, ticket=0, handle=rehearsal.publish(np.zeros(1)))
      >>> rehearsal.next(1.0), rehearsal.next(None)
      ([], [Came(worker=1, ticket=0, grads=array([0.]), aux={}, seconds=3.0, finite=None)])
      >>> rehearsal.time()
      3.0
    """

    STARTS = True

    def __init__(
        self,
        runtimes: np.ndarray,
        compute: Callable[[int, Tree], tuple[Tree, Tree]] | None = None,
        *,
        faults: Sequence[Fault] = (),
        join_seconds: float | Mapping[int, float] = 0.0,
        of_process: Callable[[int], Callable[..., tuple[Tree, Tree]]] | None = None,
    ):
        runtimes = np.asarray(runtimes, np.float64)
        if runtimes.ndim != 2 or not (runtimes > 0).all():
            raise ValueError(f"runtimes of shape {runtimes.shape} must be positive, [T, N]")
        if (compute is None) == (of_process is None):
            raise ValueError("compute and of_process must be given one without the other")
        self._times, self._join_seconds = runtimes, join_seconds
        self._of_process = of_process or (lambda worker: lambda ticket, tree, **kept: compute(ticket, tree))
        self.now, self.told, self.at_once = 0.0, [], runtimes.shape[1]
        self._begun = [0] * runtimes.shape[1]
        self._order, self._numbers, self._handles = itertools.count(), itertools.count(1), itertools.count()
        self._processes: dict[int, _Process] = {}
        self._trees: dict[Hashable, Tree] = {}
        self._last: dict[tuple[str, int], float] = {}  # (fault, worker) -> until when it holds
        self._next: set[tuple[str, int]] = set()  # faults of a worker's next gradient, or message
        self._twice: dict[int, float] = {}
        self._heap: list[tuple[float, int, Callable[[], list[Message]]]] = []
        for fault in faults:
            arguments.one_of("kind", fault.kind, KINDS)
            self._at(fault.at, lambda fault=fault: self._befalls(fault))

    def time(self) -> float:
        """The clock."""
        return self.now

    def spawn(self, worker: int) -> None:
        """Starts a process, which joins after its time; one that is there is free again, and says so at once."""
        self.told.append(("spawn", worker))
        process = self._processes.get(worker)
        if process is not None and process.joined:
            process.ticket = process.then = None
            process.turn += 1
            self._at(self.now, lambda: [Joined(worker, process.number, "rehearsal")])
            return
        if process is not None:
            raise ValueError(f"worker={worker} must have no process; one is starting")
        seconds = self._join_seconds
        if isinstance(seconds, Mapping):
            seconds = seconds.get(worker, 0.0)
        self._start(worker, seconds)

    def publish(self, tree: Tree) -> Hashable:
        """Keeps a version until it is released."""
        handle = next(self._handles)
        self._trees[handle] = tree
        return handle

    def release(self, handle: Hashable) -> None:
        """Forgets a version."""
        del self._trees[handle]

    def begin(self, worker: int, ticket: int, handle: Hashable, *, after: int = ANEW, version: int = 0) -> None:
        """The worker computes, once it has ended, or given up, what it computes."""
        self.told.append(("begin", worker, ticket))
        process = self._processes.get(worker)
        if process is None:
            return  # the server does not know it yet
        asked = ticket, self._trees[handle], {"after": after, "version": version}
        if process.ticket is None:
            self._compute_now(worker, process, *asked)
        else:
            process.then = asked

    def interrupt(self, worker: int, ticket: int) -> None:
        """The worker gives up this ticket, if it computes it and hears."""
        self.told.append(("interrupt", worker, ticket))
        process = self._processes.get(worker)
        if process is None or process.ticket != ticket:
            return
        process.void = True
        if self._last.get(("deaf", worker), 0.0) <= self.now:
            process.turn += 1
            at = max(self.now, self._last.get(("stop", worker), 0.0))
            self._at(at, self._ends(worker, process, process.turn))

    def kill(self, worker: int) -> None:
        """The process ends; nobody says so."""
        self.told.append(("kill", worker))
        self._processes.pop(worker, None)

    def next(self, timeout: float | None) -> list[Message]:
        """The messages of the next instant at which there are any, before `timeout` has passed."""
        until = np.inf if timeout is None else self.now + timeout
        while self._heap and self._heap[0][0] < until:
            self.now = max(self.now, self._heap[0][0])
            messages: list[Message] = []
            while self._heap and self._heap[0][0] <= self.now:
                messages += heapq.heappop(self._heap)[2]()
            if messages:
                return messages
        if timeout is None:
            raise ValueError("timeout=None must be a number of seconds: nothing will ever come")
        self.now = until
        return []

    def close(self) -> None:
        """Ends all workers."""
        self._processes.clear()

    def _at(self, when: float, happens: Callable[[], list[Message]]) -> None:
        heapq.heappush(self._heap, (when, next(self._order), happens))

    def _start(self, worker: int, seconds: float) -> None:
        process = self._processes[worker] = _Process(next(self._numbers), self._of_process(worker))
        self._last.pop(("stop", worker), None)  # that was another process

        def joins() -> list[Message]:
            if self._processes.get(worker) is not process:
                return []
            if self._last.get(("doomed", worker), 0.0) > self.now:
                del self._processes[worker]
                return [Lost(worker, "exit code 1 before it had joined")]
            process.joined = True
            return [Joined(worker, process.number, "rehearsal")]

        self._at(self.now + seconds, joins)

    def _compute_now(self, worker: int, process: _Process, ticket: int, tree: Tree, kept: Mapping[str, int]) -> None:
        seconds = float(self._times[self._begun[worker] % len(self._times), worker])
        self._begun[worker] += 1
        if self._last.get(("slow", worker), 0.0) > self.now:
            seconds *= 10
        process.ticket, process.tree, process.kept = ticket, tree, kept
        process.void, process.turn = False, process.turn + 1
        process.ends = max(self.now, self._last.get(("stop", worker), 0.0)) + seconds
        self._at(process.ends, self._ends(worker, process, process.turn, seconds))

    def _ends(self, worker: int, process: _Process, turn: int, seconds: float = 0.0) -> Callable[[], list[Message]]:
        """Handle that a worker has ended a gradient, or given it up."""

        def ends() -> list[Message]:
            if self._processes.get(worker) is not process or process.turn != turn:
                return []
            stopped_until = self._last.get(("stop", worker), 0.0)
            if stopped_until > self.now:  # it was stopped while it computed
                self._at(stopped_until, self._ends(worker, process, turn, seconds))
                return []
            message = self._answer(worker, process, seconds)
            process.ticket = process.tree = None
            if process.then is not None:
                asked, process.then = process.then, None
                self._compute_now(worker, process, *asked)
            if worker in self._twice:
                self._at(self.now + self._twice.pop(worker), lambda: [message])
            return [message]

        return ends

    def _answer(self, worker: int, process: _Process, seconds: float) -> Message:
        ticket: Any = process.ticket
        if process.void and seconds == 0.0:
            return GaveUp(worker, ticket, 0.0)
        if self._is_next("give_up", worker):
            return GaveUp(worker, ticket, seconds)
        if self._is_next("raise", worker):
            return Failed(worker, ticket, "RuntimeError: its own mistake")
        try:
            grads, aux = process.compute(ticket, process.tree, **process.kept)
        except ValueError as error:  # as where a worker has not what it is to go on from
            return Failed(worker, ticket, f"ValueError: {error}")
        if self._is_next("nan", worker):
            nan = lambda leaf: np.full_like(leaf, np.nan) if np.issubdtype(leaf.dtype, np.floating) else leaf
            grads = jax.tree.map(nan, grads)
        return Came(worker, ticket, grads, aux, seconds)

    def _is_next(self, kind: str, worker: int) -> bool:
        if (kind, worker) not in self._next:
            return False
        self._next.remove((kind, worker))
        return True

    def _befalls(self, fault: Fault) -> list[Message]:
        kind, worker, _, seconds = fault
        if kind in ("stop", "slow", "deaf", "doomed"):
            self._last[kind, worker] = self.now + seconds
        elif kind in ("raise", "nan", "give_up"):
            self._next.add((kind, worker))
        elif kind == "twice":
            self._twice[worker] = seconds
        elif worker in self._processes:
            gone = self._processes.pop(worker)
            if kind == "replace":
                self._start(worker, seconds)
            else:
                error = "killed by SIGKILL" if gone.joined else "killed by SIGKILL before it had joined"
                self._at(self.now + seconds, lambda: [Lost(worker, error)] if worker not in self._processes else [])
        return []


def workers_of(job: Any) -> Rehearsal:
    """Return workers of a run, each of which makes its own steps, and keeps what its process keeps; some fail."""
    work = job.source.make()._replace(seconds=None)

    faults = [Fault("kill", 1, 3.0, 1.0), Fault("nan", 2, 5.0)]
    return Rehearsal(
        np.array([[1.0, 1.7, 2.2, 3.1]]),
        faults=faults,
        of_process=lambda worker: Gradients(work, worker=worker).compute,
    )


def dyadic(generator, shape, least=1.0, most=4.0):
    """Compute times whose sums are exact."""
    return np.round(generator.uniform(least, most, shape) * 2**20) / 2**20


LOSSES = (
    Fault("kill", 1, 10.3, 0.1),
    Fault("stop", 2, 14.0, 14.0),
    Fault("nan", 0, 6.0),
    Fault("twice", 2, 3.0, 0.5),
    Fault("deaf", 0, 8.0, 9.0),
)
"""Killed, silent and back with what it keeps, refused, twice, deaf to interrupts."""


def logged(policy, steps, compute_of, folder, *, like, stop=lambda: False, faults=LOSSES, say=lambda line: None):
    """Return the recording of a run of three workers with a log in a folder, and the steps.

    Messages are kept that are like `like`, {"params": ..., "aux": ...}, unless its "params" is None.
    """
    steps.compile(like["aux"])
    log = Log(folder, {}, compute_of=compute_of, sent_like=None if like["params"] is None else like, say=say)
    transport = Rehearsal(dyadic(np.random.default_rng(4), (30, 3)), faults=faults, of_process=compute_of)
    given = {"num_workers": 3, "num_gradients": 60, "settings": QUICK, "log": log, "stop": stop}
    return serve(policy, steps, transport, **given), steps


def crashed_and_resumed(run):
    """Return what `run(stop=..., say=...)` does after one that has crashed without a checkpoint, and its first line."""
    asked, said = iter([False] * 130), []
    with pytest.raises(StopIteration):
        run(stop=lambda: next(asked))
    return *run(say=said.append), said[0]
