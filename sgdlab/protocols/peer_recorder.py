"""`PeerRecorder`: who averaged what, as it happens; the `PeerSchedule` of a simulation."""

import collections
import dataclasses
import itertools
from collections.abc import Iterable

import numpy as np

from sgdlab.peer_schedule import PeerSchedule
from sgdlab.protocols.peer_policy import Source

_SOURCE = np.dtype([("node", np.int32), ("version", np.int32), ("weight", np.float64)])


@dataclasses.dataclass(slots=True)
class Event:
    """A gradient of a node and the averaging before it, or an averaging of the center.

    Attributes:
      node: whose event it is.
      sources: what was averaged; none before it was.
      started: seconds, when it began.
      finished: seconds, when its gradient had come; NaN before.
      scale: what its step is multiplied by.
      read: the version that its gradient is taken at; -1 if it takes none. None: as the policy's `fresh` says.
    """

    node: int
    sources: tuple[Source, ...]
    started: float
    finished: float = np.nan
    scale: float = 1.0
    read: int | None = None


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
        self.events: list[Event] = []
        self.open: dict[int, Event] = {}
        self.gradients = 0

    def began(self, node: int, sources: Iterable[Source], now: float, *, scale: float = 1.0) -> None:
        """A node averages and begins a gradient."""
        self.open[node] = Event(node, tuple(sources), now, scale=scale)
        self.events.append(self.open[node])
        self.gradients += 1

    def began_first(self, node: int, read: int, now: float) -> None:
        """A node begins a gradient at one of its versions, and will average when it makes its step."""
        self.open[node] = Event(node, (), now, read=read)
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
        self.events.append(Event(node, tuple(sources), now, now, read=-1))

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


def _reads(events: list[Event], num_nodes: int, *, fresh: bool) -> np.ndarray | None:
    """int32[E], at which version each gradient is taken; None if that is as `fresh` says, and only the center moves."""
    counts: collections.Counter[int] = collections.Counter()
    reads, usual = [], True
    for event in events:
        known = 2 * counts[event.node] + fresh if event.node < num_nodes else -1
        counts[event.node] += 1
        reads.append(known if event.read is None else event.read)
        usual &= reads[-1] == known
    return None if usual else np.array(reads, np.int32)
