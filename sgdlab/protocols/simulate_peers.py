"""`simulate_peers`, a policy of peers on a virtual clock, and what it writes down of it."""

import collections
import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from sgdlab import arguments
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.protocols.costly_run import is_free
from sgdlab.protocols.peer_policy import Begin, Keep, Mix, Move, PeerAction, PeerPolicy, Source, Step
from sgdlab.runtimes import NotEnoughRuntimes, checked, too_short
from sgdlab.transports.links import Fifo
from sgdlab.transports.star import Star

_SOURCE = np.dtype([("node", np.int32), ("version", np.int32), ("weight", np.float64)])


def simulate_peers(
    make_policy: Callable[..., PeerPolicy],
    runtimes: np.ndarray,
    *,
    num_gradients: int | None = None,
    transport: Star | None = None,
) -> PeerSchedule:
    """Return the schedule of a policy of peers on given compute times; that of `protocols`, field by field.

    Gradients that come at one instant come by node number. In rounds, the protocols' `num_gradients=None` means all T N
    gradients; elsewhere it means what it means here.

    Args:
      make_policy: called with `num_workers`, N, and `num_gradients`; it makes a new policy.
      runtimes: float64[T, N], seconds; row t holds each node's t-th gradient.
      num_gradients: how many gradients to begin. None: until a node that has to begin runs out of compute times.
      transport: what messages cost. The parameters of each edge, `parameter_bytes`, leave the link of the node (or the
        center) that sends them one after the other, as they enter that of the node that averages; it begins its next
        gradient when all are there. They are asked for, and their versions decided, when a node averages: nothing is
        sent ahead, during a gradient. None: nothing.

    Raises:
      ValueError: where compute times are not positive and finite, `num_gradients` is below 1, or the transport is of
        another number of workers, or an all-reduce.
      NotEnoughRuntimes: (a ValueError) where compute times end first; it says how many rows would be enough.

    Example:
      >>> from sgdlab import policies
      >>> print(simulate_peers(policies.gossip, np.array([[1.0, 2.0], [1.0, 2.0]])))
      PeerSchedule: 2 nodes, 3 gradients and 4 edges in 2 s
    """
    runtimes = checked(runtimes)
    if num_gradients is not None:
        arguments.whole("num_gradients", num_gradients)
    rows, nodes = runtimes.shape
    policy = make_policy(num_workers=nodes, num_gradients=num_gradients)
    free = is_free(nodes, transport, None)
    if transport is not None and transport.collective:
        raise ValueError("transport must be a star, and no all-reduce, where nodes average with each other")
    run = _Run(runtimes, None if free else transport)
    actions, now = policy.start(list(range(nodes))), 0.0
    while run.perform(actions, now) and run.heap:
        now, node = heapq.heappop(run.heap)
        actions = policy.arrived(now, node)
    if run.ran_out and num_gradients is not None:
        raise NotEnoughRuntimes.after(num_gradients, rows=rows, done=run.recorder.gradients, who="a node", spare=True)
    while run.heap:  # what was begun ends when it would have
        now, node = heapq.heappop(run.heap)
        run.recorder.ended(node, now)
    return run.recorder.schedule(nodes, fresh=policy.fresh)


class _Run:
    """Nodes, what they have begun, and their clock."""

    def __init__(self, runtimes: np.ndarray, transport: Star | None):
        self.recorder = PeerRecorder()
        self.ready: dict[int, float] = {}  # node -> when all that it averages is there
        self.links = None if transport is None else _Links(transport)
        self.times = [column.tolist() for column in runtimes.T]
        self.begun = [0] * len(self.times)
        self.mixed: dict[int, Mix] = {}
        self.heap: list[tuple[float, int]] = []  # when a gradient comes, and whose
        self.ran_out = False

    def perform(self, actions: Sequence[PeerAction], now: float) -> bool:
        """Tell whether all of the actions could be done; else a node that has to begin has no compute time."""
        for action in actions:
            if self.links is not None and isinstance(action, Mix) and action.node < len(self.times):
                self.ready[action.node] = self.links.carry(action.node, action.sources, now)
            match action:
                case Step(node) | Keep(node):
                    self._come(node, now)
                case Move(node, sources):
                    self.recorder.moved(node, sources, now)
                case Mix(node, sources) if node == len(self.times):
                    self.recorder.moved(node, sources, now)
                case Mix(node, sources, scale) if node in self.recorder.open:
                    self.recorder.averaged(node, sources, scale=scale)
                case Mix(node):
                    self.mixed[node] = action
                case Begin(node, version):
                    row = self.begun[node]
                    if row == len(self.times[node]):
                        self.ran_out = True
                        return False
                    self._begin(node, version, row, now)
        return True

    def _come(self, node: int, now: float) -> None:
        """The gradient that has come; one that was kept has come before."""
        event = self.recorder.open.get(node)
        if event is not None and np.isnan(event.finished):
            self.recorder.ended(node, now)

    def _begin(self, node: int, version: int, row: int, now: float) -> None:
        now = max(now, self.ready.pop(node, now))
        finished = now + self.times[node][row]
        if not finished > now:
            raise too_short(row, node, self.times[node][row], now)
        self.begun[node] = row + 1
        mix = self.mixed.pop(node, None)
        if mix is None:
            self.recorder.began_first(node, version, now)
        else:
            self.recorder.began(node, mix.sources, now, scale=mix.scale)
        heapq.heappush(self.heap, (finished, node))


class _Links:
    """The links of nodes, and of a center, each of which carries one message after the other, each way."""

    def __init__(self, star: Star):
        self.latency, nodes = star.latency, star.num_workers
        rates = [star.worker_rate] * nodes + [star.server_rate]
        self.out, self.into = ([Fifo(star.parameter_bytes, rate, math.inf) for rate in rates] for _ in range(2))

    def carry(self, node: int, sources: Iterable[Source], now: float) -> float:
        """Return when all that a node averages is there; its own variables are at once."""
        last = now
        for source in sources:
            if source.node != node and source.node < len(self.out):
                reaches = self.out[source.node].carry(now) + self.latency[node]
                last = max(last, self.into[node].carry(reaches))
        return last


@dataclasses.dataclass(slots=True)
class _Event:
    """A gradient of a node and the averaging before it, or an averaging of the center."""

    node: int
    sources: tuple[Source, ...]  # none before they were averaged
    started: float
    finished: float = np.nan  # NaN before its gradient has come
    scale: float = 1.0
    read: int | None = None  # at which version its gradient is taken, -1 if it takes none; None: as `fresh` says


class PeerRecorder:
    """Writes down averagings as they happen, and gradients as they end.

    Attributes:
      events: in the order of their averaging.
      open: node -> its event whose gradient has not come, or that has yet to average.
      gradients: how many were begun.

    Example:
      >>> recorder = PeerRecorder()
      >>> recorder.began(0, (Source(0, 0, 1.0),), now=0.0)
      >>> recorder.ended(0, now=2.0)
      >>> print(recorder.schedule(num_nodes=1))
      PeerSchedule: 1 nodes, 1 gradients and 1 edges in 2 s
    """

    def __init__(self) -> None:
        self.events: list[_Event] = []
        self.open: dict[int, _Event] = {}
        self.gradients = 0

    def began(self, node: int, sources: Iterable[Source], now: float, *, scale: float = 1.0) -> None:
        """A node averages and begins a gradient."""
        self.open[node] = _Event(node, tuple(sources), now, scale=scale)
        self.events.append(self.open[node])
        self.gradients += 1

    def began_first(self, node: int, read: int, now: float) -> None:
        """A node begins a gradient at one of its versions, and will average when it makes its step."""
        self.open[node] = _Event(node, (), now, read=read)
        self.gradients += 1

    def averaged(self, node: int, sources: Iterable[Source], *, scale: float = 1.0) -> None:
        """A node that has begun its gradient before averages."""
        event = self.open[node]
        event.sources, event.scale = tuple(sources), scale
        self.events.append(event)
        if not np.isnan(event.finished):
            del self.open[node]

    def ended(self, node: int, now: float) -> None:
        """The node's gradient has come."""
        event = self.open[node]
        event.finished = now
        if event.sources:
            del self.open[node]

    def moved(self, node: int, sources: Iterable[Source], now: float) -> None:
        """The center, or a node besides its gradients, averages."""
        self.events.append(_Event(node, tuple(sources), now, now, read=-1))

    def schedule(self, num_nodes: int, *, fresh: bool = True) -> PeerSchedule:
        """Returns what has happened; every gradient that was begun must have ended.

        Args:
          num_nodes: N.
          fresh: whether gradients are taken at the averaged parameters.
        """
        events = self.events
        counts = np.array([len(event.sources) for event in events], np.int64)
        flat = itertools.chain.from_iterable(event.sources for event in events)
        sources = np.fromiter(flat, _SOURCE, counts.sum())
        scales = np.array([event.scale for event in events], np.float64)
        return PeerSchedule(
            node=np.array([event.node for event in events], np.int32),
            started=np.array([event.started for event in events], np.float64),
            finished=np.array([event.finished for event in events], np.float64),
            event=np.repeat(np.arange(counts.size, dtype=np.int32), counts),
            source=sources["node"],
            source_version=sources["version"],
            weight=sources["weight"],
            num_nodes=num_nodes,
            fresh=fresh,
            read=_reads(events, num_nodes, fresh=fresh),
            scale=scales if (scales != 1.0).any() else None,
        )


def _reads(events: list[_Event], num_nodes: int, *, fresh: bool) -> np.ndarray | None:
    """Return int32[E], at which version each gradient is taken; None if as `fresh` says, and only the center moves."""
    counts: collections.Counter[int] = collections.Counter()
    reads, usual = [], True
    for event in events:
        known = 2 * counts[event.node] + fresh if event.node < num_nodes else -1
        counts[event.node] += 1
        reads.append(known if event.read is None else event.read)
        usual &= reads[-1] == known
    return None if usual else np.array(reads, np.int32)
