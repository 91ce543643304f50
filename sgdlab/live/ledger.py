"""The books of a run: every gradient's ticket, fate and process, and the versions that gradients in flight read."""

import array
import collections
import math
from collections.abc import Callable, Collection, Hashable

import numpy as np

from sgdlab.live.transport import ANEW, Transport
from sgdlab.protocols.recorder import Recorder, Row
from sgdlab.schedule import DROPPED
from sgdlab.types import Tree

KINDS = {"late": "dropped", "interrupted": "dropped", "lost": "lost", "failed": "lost", "refused": "lost"}
"""Fates of gradients that enter no update: dropped by the protocol, or lost by a fault."""


class Ledger:
    """Counts gradients, by fate and by worker; it refuses a second fate.

    Example:
      >>> ledger = Ledger()
      >>> ledger.began(worker=3), ledger.began(worker=4)
      (0, 1)
      >>> ledger.taken(0)
      >>> ledger.counts()
      {'begun': 2, 'applied': 0, 'dropped': 0, 'lost': 0, 'in flight': 2}
      >>> ledger.applied()
      >>> ledger.ended(1, "late")
      >>> ledger.counts(), ledger.of(4)["dropped"]
      ({'begun': 2, 'applied': 1, 'dropped': 1, 'lost': 0, 'in flight': 0}, 1)
      >>> ledger.ended(0, "lost")
      Traceback (most recent call last):
      ...
      ValueError: ticket=0 must be of a gradient in flight; this one has its fate already, or was never begun
    """

    def __init__(self) -> None:
        self.begun = 0
        self._fates: collections.Counter[str] = collections.Counter()
        self._in_flight: dict[int, int] = {}  # ticket -> worker
        self._open: dict[int, int] = {}  # those that have entered the open update
        self._workers: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)

    def began(self, worker: int) -> int:
        """Return the ticket of the gradient that a worker begins; they rise by one."""
        ticket, self.begun = self.begun, self.begun + 1
        self._in_flight[ticket] = worker
        return ticket

    def taken(self, ticket: int) -> None:
        """Move a gradient into the open update."""
        self._open[ticket] = self._landed(ticket)

    def applied(self) -> None:
        """Count the gradients of the open update, which is made."""
        for worker in self._open.values():
            self._workers[worker]["applied"] += 1
        self._fates["applied"] += len(self._open)
        self._open.clear()

    def ended(self, ticket: int, fate: str) -> None:
        """Count a gradient that enters no update, for one of the reasons in `KINDS`."""
        kind = KINDS[fate]
        self._workers[self._landed(ticket)][kind] += 1
        self._fates[fate] += 1

    def of(self, worker: int) -> collections.Counter[str]:
        """Return the number of a worker's gradients that were applied, dropped and lost."""
        return self._workers[worker]

    @property
    def in_flight(self) -> set[int]:
        """Return tickets without a fate: being computed, or in the open update."""
        return self._in_flight.keys() | self._open.keys()

    def counts(self) -> dict[str, int]:
        """Return the number of gradients begun, and of those applied, dropped, lost and in flight, which add up."""
        dropped, lost = (
            sum(self._fates[fate] for fate, of in KINDS.items() if of == kind) for kind in ("dropped", "lost")
        )
        return {
            "begun": self.begun,
            "applied": self._fates["applied"],
            "dropped": dropped,
            "lost": lost,
            "in flight": len(self._in_flight) + len(self._open),
        }

    def _landed(self, ticket: int) -> int:
        if ticket not in self._in_flight:
            raise ValueError(
                f"ticket={ticket} must be of a gradient in flight; this one has its fate already, or was never begun"
            )
        return self._in_flight.pop(ticket)


class ByTicket:
    """Numbers by ticket; NaN where there is none.

    Example:
      >>> losses = ByTicket()
      >>> losses[2] = 0.5
      >>> losses[2], losses[7], losses.of(np.array([1, 2]))
      (0.5, nan, array([nan, 0.5]))
    """

    def __init__(self) -> None:
        self._values = array.array("d")

    def __getitem__(self, ticket: int) -> float:
        return self._values[ticket] if ticket < len(self._values) else math.nan

    def __setitem__(self, ticket: int, value: float) -> None:
        missing = ticket + 1 - len(self._values)
        if missing > 0:
            self._values.extend([math.nan] * missing)
        self._values[ticket] = value

    def set_first(self, ticket: int, value: float) -> None:
        """Set a number that is not there; one that is there stays, as where a message comes twice."""
        if math.isnan(self[ticket]):
            self[ticket] = value

    def of(self, tickets: np.ndarray) -> np.ndarray:
        """Return float64[G], the numbers of these tickets."""
        values = np.full(int(tickets.max(initial=-1)) + 1, np.nan)
        known = min(values.size, len(self._values))
        values[:known] = self._values[:known]
        return values[tickets]


class Lives:
    """Counts the processes of each worker, and says after which message the present one goes on.

    What a worker keeps from one message to its next, such as the state of its optimizer, is what it had after the last
    of its messages that was used: one that was not leaves no trace, as in a simulation. Each process that joins has
    nothing, and begins anew. A worker that was silent, and whose process lives, goes on.

    Example:
      >>> lives = Lives()
      >>> lives.joined(3)
      >>> lives.begun(ticket=0, worker=3), lives.used(0, worker=3), lives.begun(ticket=1, worker=3)
      (-1, None, 0)
      >>> lives.joined(3)
      >>> lives.begun(ticket=2, worker=3), lives.of(np.array([1, 2]))
      (-1, array([0, 1]))
    """

    def __init__(self) -> None:
        self._count: dict[int, int] = {}
        self._after: dict[int, int] = {}
        self._lives = ByTicket()

    def joined(self, worker: int) -> None:
        """Count a new process of a worker, or one that serves a new run."""
        self._count[worker] = self._count.get(worker, -1) + 1
        self._after[worker] = ANEW

    def begun(self, ticket: int, worker: int) -> int:
        """Return the ticket after which a worker goes on that begins a gradient, or `ANEW`.

        One that has never joined will begin it with its first process.
        """
        self._lives[ticket] = self._count.get(worker, 0)
        return self._after.get(worker, ANEW)

    def used(self, ticket: int, worker: int) -> None:
        """Remember a worker's message that has entered an update."""
        self._after[worker] = ticket

    def of(self, tickets: np.ndarray) -> np.ndarray:
        """Return int64[G], which of its worker's processes, counted from 0, computed the gradients of these tickets."""
        return self._lives.of(tickets).astype(np.int64)


def begins_anew(worker: np.ndarray, life: np.ndarray, read: np.ndarray, update: np.ndarray | None = None) -> np.ndarray:
    """Return int32[R], the version from which the worker of each message begins anew; -1 where it goes on.

    Args:
      worker: int[R], of the messages that are used, those of each worker in their order.
      life: int[R], which of the worker's processes, as `Lives.of`.
      read: int[R], the version that each has read.
      update: int[R], the update that each entered, where a worker also begins anew that has missed an update: it has
        read another version than that which its last message has made. None: it does not.

    Example:
      >>> begins_anew(np.array([0, 1, 0, 0]), np.array([0, 0, 0, 1]), np.array([0, 0, 1, 2]))
      array([ 0,  0, -1,  2], dtype=int32)
      >>> begins_anew(np.zeros(3, int), np.zeros(3, int), np.array([0, 1, 3]), np.array([0, 1, 3]))
      array([ 0, -1,  3], dtype=int32)
    """
    order = np.argsort(worker, kind="stable")
    first = np.ones(worker.size, bool)
    first[order[1:]] = (np.diff(worker[order]) != 0) | (np.diff(life[order]) != 0)
    if update is not None:
        first[order[1:]] |= read[order[1:]] != update[order[:-1]] + 1
    return np.where(first, read, ANEW).astype(np.int32)


class KeptVersions:
    """Keeps the versions that valid tickets read, those that the policy holds for later tickets, and the newest.

    Args:
      transport: to which versions are published.
      sent: `() -> params`, the newest version, asked for when it is first read or held.
    """

    def __init__(self, transport: Transport, sent: Callable[[], Tree]):
        self.newest = 0  # its number
        self.transport, self._sent = transport, sent
        self._trees: dict[int, Tree] = {}
        self._handles: dict[int, Hashable] = {}
        self._readers: dict[int, int] = {}
        self._held: Collection[int] = ()

    def __contains__(self, version: int) -> bool:
        """Return True if a gradient can begin on a version: the newest, or one that is held."""
        return version == self.newest or version in self._held

    def formed(self, version: int) -> None:
        """Count a new version; the one before is kept for its readers only, or because it is held."""
        before, self.newest = self.newest, version
        self._forget_unless_needed(before)

    def hold(self, versions: Collection[int]) -> None:
        """Keep these versions, each the newest or held before, for gradients that begin later, and no others."""
        for version in versions:
            if version not in self:
                raise ValueError(
                    f"policy must hold versions from when they are the newest on; it holds version {version}, and "
                    f"{self.newest} is the newest"
                )
            if version not in self._trees:
                self._trees[version] = self._sent()
        before, self._held = self._held, frozenset(versions)
        for version in before:
            self._forget_unless_needed(version)

    def begin(self, version: int) -> Hashable:
        """Return the transport's handle of a version, the newest or one that is held, for one reader more."""
        if version not in self._trees:
            self._trees[version] = self._sent()
        if version not in self._handles:
            self._handles[version] = self.transport.publish(self._trees[version])
        self._readers[version] = self._readers.get(version, 0) + 1
        return self._handles[version]

    def read(self, version: int) -> Tree:
        """Return the parameters of a version that has a reader."""
        return self._trees[version]

    def done(self, version: int) -> None:
        """Count a reader less: its gradient has come, or never will."""
        self._readers[version] -= 1
        self._forget_unless_needed(version)

    def held(self) -> dict[int, Tree]:
        """Return the versions with readers, and those that are held."""
        read = [version for version, readers in self._readers.items() if readers]
        return {version: self._trees[version] for version in (*read, *self._held)}

    def restore(self, trees: dict[int, Tree]) -> None:
        """Put the parameters of a checkpoint in the place of those that were not computed again."""
        self._trees |= trees

    def connect(self, transport: Transport) -> None:
        """Publish versions to another transport from now on, each when it is next read."""
        self.transport = transport
        self._handles.clear()

    def release(self) -> None:
        """Release all versions: nobody will begin or need a gradient any more."""
        for handle in self._handles.values():
            self.transport.release(handle)
        self._handles.clear()

    def _forget_unless_needed(self, version: int) -> None:
        if self._readers.get(version) or version in self:
            return
        self._readers.pop(version, None)
        self._trees.pop(version, None)
        if version in self._handles:
            self.transport.release(self._handles.pop(version))


class InFlight:
    """Gradients from their beginning to their end; record, ledger and kept versions change together.

    Attributes:
      current: worker -> the ticket that it computes.
      recorder: what has happened.
      ledger: every gradient's fate.
      versions: the parameters that they are computed on.
    """

    def __init__(self, transport: Transport, sent: Callable[[], Tree]):
        self.current: dict[int, int] = {}
        self.recorder, self.ledger, self.versions = Recorder(), Ledger(), KeptVersions(transport, sent)

    @property
    def tickets(self) -> int:
        """Return the number of gradients that were begun; the next one has this ticket."""
        return self.ledger.begun

    def row(self, worker: int) -> Row:
        """Return what the worker computes."""
        return self.recorder.open[self.current[worker]]

    def begin(self, worker: int, version: int, now: float, *, after: int) -> None:
        """Begin a gradient of a worker on the newest version, or on one that the policy has held (else: ValueError)."""
        if worker in self.current or version not in self.versions:
            raise ValueError(
                f"policy must begin workers that wait, on version {self.versions.newest} or one that it has held; it "
                f"begins worker {worker} on version {version}" + (", which computes" if worker in self.current else "")
            )
        handle, ticket = self.versions.begin(version), self.ledger.began(worker)
        self.current[worker] = ticket
        self.recorder.began(ticket, worker, version, now)
        self.versions.transport.begin(worker, ticket, handle, after=after, version=version)

    def taken(self, worker: int, update: int, now: float) -> None:
        """Move the worker's gradient into the open update."""
        ticket = self._landed(worker)
        self.recorder.ended(ticket, now, update)
        self.ledger.taken(ticket)

    def ended(self, worker: int, now: float, fate: str) -> None:
        """End the worker's gradient, which enters no update."""
        ticket = self._landed(worker)
        self.recorder.ended(ticket, now, DROPPED, fate)
        self.ledger.ended(ticket, fate)

    def closed(self, now: float) -> None:
        """Make the open update: there is a new version."""
        self.recorder.closed(now)
        self.ledger.applied()
        self.versions.formed(len(self.recorder.applied))

    def _landed(self, worker: int) -> int:
        row = self.row(worker)
        del self.current[worker]
        self.versions.done(row.read)
        return row.ticket
