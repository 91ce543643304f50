"""`InFlight`, the gradients that workers compute: their tickets, the versions that they read, and their end."""

from collections.abc import Callable
from typing import Any

from sgdlab.live.kept_versions import KeptVersions
from sgdlab.live.ledger import Ledger
from sgdlab.live.transport import Transport
from sgdlab.protocols.recorder import Recorder, Row
from sgdlab.schedule import DROPPED

Tree = Any


class InFlight:
    """Gradients from their beginning to their end; record, ledger and kept versions change together.

    Attributes:
      current: worker -> the ticket that it computes.
      tickets: how many gradients were begun; tickets number them in that order.
      recorder: what has happened.
      ledger: every gradient's fate.
      versions: the parameters that they are computed on.
    """

    def __init__(self) -> None:
        self.current: dict[int, int] = {}
        self.tickets = 0
        self.recorder, self.ledger, self.versions = Recorder(), Ledger(), KeptVersions()

    def row(self, worker: int) -> Row:
        """What the worker computes."""
        return self.recorder.open[self.current[worker]]

    def begin(
        self, worker: int, version: int, now: float, *, after: int, sent: Callable[[], Tree], transport: Transport
    ) -> None:
        """The worker begins a gradient on the newest version, or on one that the policy has held.

        Args:
          worker: who begins.
          version: on which.
          now: when.
          after: as of `Transport.begin`.
          sent: the newest version, where it was not sent yet.
          transport: to the worker.

        Raises:
          ValueError: if it computes one already, or the version is another.
        """
        if worker in self.current or version not in self.versions:
            raise ValueError(
                f"policy must begin workers that wait, on version {self.versions.newest} or one that it has held; it "
                f"begins worker {worker} on version {version}" + (", which computes" if worker in self.current else "")
            )
        ticket, self.tickets = self.tickets, self.tickets + 1
        handle = self.versions.begin(version, sent, transport)
        self.current[worker] = ticket
        self.recorder.began(ticket, worker, version, now)
        self.ledger.began(ticket, worker=worker)
        transport.begin(worker, ticket, handle, after=after, version=version)

    def taken(self, worker: int, update: int, now: float, transport: Transport) -> None:
        """The worker's gradient is in the open update."""
        row = self.row(worker)
        del self.current[worker]
        self.recorder.ended(row.ticket, now, update)
        self.ledger.taken(row.ticket)
        self.versions.done(row.read, transport)

    def ended(self, worker: int, now: float, fate: str, transport: Transport) -> None:
        """The worker's gradient enters no update."""
        row = self.row(worker)
        del self.current[worker]
        self.recorder.ended(row.ticket, now, DROPPED, fate)
        self.ledger.ended(row.ticket, fate)
        self.versions.done(row.read, transport)

    def closed(self, now: float, transport: Transport) -> None:
        """The open update was made: there is a new version."""
        self.recorder.closed(now)
        self.ledger.applied()
        self.versions.formed(len(self.recorder.applied), transport)
