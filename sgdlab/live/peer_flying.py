"""`PeerFlying`, the gradients that workers compute for nodes: tickets, parameters that were sent, and their end."""

from collections.abc import Callable, Hashable
from typing import Any

from sgdlab.live.ledger import Ledger
from sgdlab.live.transport import Transport
from sgdlab.protocols.peer_recorder import PeerRecorder

Tree = Any


class PeerFlying:
    """Gradients from their beginning to their end; record and ledger change together.

    Attributes:
      current: worker -> the ticket that it computes.
      node: worker -> the node that it computes for.
      began: worker -> when it began, seconds.
      recorder: what has happened.
      ledger: every gradient's fate.
      lost: tickets of gradients that were lost, and begun again under another.
    """

    def __init__(self) -> None:
        self.current: dict[int, int] = {}
        self.node: dict[int, int] = {}
        self.began: dict[int, float] = {}
        self.recorder, self.ledger = PeerRecorder(), Ledger()
        self.lost: list[int] = []
        self._handles: dict[int, Hashable] = {}  # ticket -> of the parameters
        self.versions = self  # what the turns of a server release at their end

    @property
    def tickets(self) -> int:
        """How many gradients were begun."""
        return self.recorder.tickets

    def begin(
        self, worker: int, node: int, begins: Callable[[], int], params: Tree, now: float, transport: Transport
    ) -> None:
        """A worker begins a gradient of a node at some parameters; `begins` writes it down and returns its ticket."""
        ticket = begins()
        self.current[worker], self.node[worker], self.began[worker] = ticket, node, now
        self.ledger.began(ticket, worker=worker)
        self._handles[ticket] = transport.publish(params)
        transport.begin(worker, ticket, self._handles[ticket])

    def taken(self, worker: int, now: float, transport: Transport) -> None:
        """The worker's gradient was a step of its node, or is kept for it."""
        ticket = self._ended(worker, transport)
        self.recorder.ended(self.node[worker], now)
        self.ledger.taken(ticket)
        self.ledger.applied()

    def void(self, worker: int, fate: str, transport: Transport) -> None:
        """The worker's gradient is lost."""
        ticket = self._ended(worker, transport)
        self.ledger.ended(ticket, fate)
        self.lost.append(ticket)

    def release(self, transport: Transport) -> None:
        """Nobody will begin or need a gradient any more."""
        for handle in self._handles.values():
            transport.release(handle)
        self._handles.clear()

    def _ended(self, worker: int, transport: Transport) -> int:
        ticket = self.current.pop(worker)
        transport.release(self._handles.pop(ticket))
        return ticket
