"""`PeerRecorder`: who averaged what, as it happens; the `PeerSchedule` of simulation and of real processes."""

import collections
import dataclasses
from collections.abc import Iterable

import numpy as np

from sgdlab.peer_schedule import PeerSchedule
from sgdlab.policies.peers import Source


@dataclasses.dataclass(slots=True)
class Event:
    """A gradient of a node and the averaging before it, or an averaging of the center.

    Attributes:
      ticket: the gradient's number in the order in which gradients are begun, which names its batch; that of the last
        attempt, if it was begun more than once; -1 of the center.
      node: whose event it is.
      sources: what was averaged.
      started: seconds, when it averaged.
      finished: seconds, when its step was done; NaN before.
    """

    ticket: int
    node: int
    sources: tuple[Source, ...]
    started: float
    finished: float = np.nan


class PeerRecorder:
    """Writes down averagings as they happen, and gradients as they end.

    Attributes:
      events: in the order of their beginning.
      open: node -> its event whose gradient has not come.
      tickets: how many gradients were begun, each as often as it was.

    Example:
      >>> recorder = PeerRecorder()
      >>> recorder.began(0, (Source(0, 0, 1.0),), now=0.0)
      0
      >>> recorder.ended(0, now=2.0)
      >>> print(recorder.schedule(num_nodes=1)[0])
      PeerSchedule: 1 nodes, 1 gradients and 1 edges in 2 s
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.open: dict[int, Event] = {}
        self.tickets = 0

    def began(self, node: int, sources: Iterable[Source], now: float) -> int:
        """A node averages and begins a gradient.

        Returns:
          The gradient's ticket.
        """
        event = Event(self.tickets, node, tuple(sources), now)
        self.tickets += 1
        self.events.append(event)
        self.open[node] = event
        return event.ticket

    def began_again(self, node: int) -> int:
        """A node begins the gradient that was lost, on the same parameters.

        Returns:
          The new ticket.
        """
        self.open[node].ticket, self.tickets = self.tickets, self.tickets + 1
        return self.open[node].ticket

    def ended(self, node: int, now: float) -> None:
        """The node's gradient has come, and its step is done."""
        self.open.pop(node).finished = now

    def moved(self, center: int, sources: Iterable[Source], now: float) -> None:
        """The center averages."""
        self.events.append(Event(-1, center, tuple(sources), now, now))

    def schedule(self, num_nodes: int, *, fresh: bool = True) -> tuple[PeerSchedule, np.ndarray]:
        """What has happened so far.

        Gradients that have not come are left out, where nobody has read what they were to be taken at.

        Args:
          num_nodes: N.
          fresh: whether gradients are taken at the averaged parameters.

        Returns:
          The schedule, and int64[G], the ticket of each of its gradients, in order.

        Raises:
          ValueError: where others have averaged with a node whose gradient has not come.
        """
        events = [event for event in self.events if not np.isnan(event.finished)]
        done = collections.Counter(event.node for event in events)
        read = {(source.node, source.version) for event in events for source in event.sources}
        for node in self.open:
            version = 2 * done[node] + 1
            if (node, version) in read:
                raise ValueError(
                    f"node={node} must finish its gradient: others have averaged with its version {version}"
                )
        sources = [(number, *source) for number, event in enumerate(events) for source in event.sources]
        number, source, version, weight = zip(*sources, strict=True) if sources else ((), (), (), ())
        schedule = PeerSchedule(
            node=np.array([event.node for event in events], np.int32),
            started=np.array([event.started for event in events], np.float64),
            finished=np.array([event.finished for event in events], np.float64),
            event=np.array(number, np.int32),
            source=np.array(source, np.int32),
            source_version=np.array(version, np.int32),
            weight=np.array(weight, np.float64),
            num_nodes=num_nodes,
            fresh=fresh,
        )
        return schedule, np.array([event.ticket for event in events if event.ticket >= 0], np.int64)
