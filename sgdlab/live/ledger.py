"""The books of a run: every gradient's ticket and fate, and the versions that gradients in flight read."""

import collections
from collections.abc import Callable, Collection, Iterable
from typing import Any

from sgdlab.live.transport import Transport
from sgdlab.protocols.recorder import Recorder, Row
from sgdlab.schedule import DROPPED
from sgdlab.types import Tree

KINDS = {"late": "dropped", "interrupted": "dropped", "lost": "lost", "failed": "refused", "refused": "refused"}
"""Fates of gradients that enter no update: dropped by the protocol, lost with a worker, or of no use."""


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
        self._handles: dict[int, Any] = {}
        self._readers: collections.Counter[int] = collections.Counter()
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

    def begin(self, version: int) -> Any:
        """Return the transport's handle of a version, the newest or one that is held, for one reader more."""
        if version not in self._trees:
            self._trees[version] = self._sent()
        if version not in self._handles:
            self._handles[version] = self.transport.publish(self._trees[version])
        self._readers[version] += 1
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
        return {version: self._trees[version] for version in (*+self._readers, *self._held)}

    def restore(self, trees: dict[int, Tree]) -> None:
        """Put the parameters of a checkpoint in the place of those that were not computed again."""
        self._trees |= trees

    def go_on(self, newest: int, readers: Iterable[int], held: Collection[int]) -> None:
        """Count versions as before: the newest, those that gradients in flight read, and those that are held."""
        self.newest, self._readers, self._held = newest, collections.Counter(readers), frozenset(held)

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
        if self._readers[version] or version in self:
            return
        del self._readers[version]
        self._trees.pop(version, None)
        if version in self._handles:
            self.transport.release(self._handles.pop(version))


class InFlight:
    """Gradients from their beginning to their end; record, counts and kept versions change together.

    Attributes:
      begun: how many were begun; the next one has this ticket.
      current: worker -> the ticket that it computes.
      fates: worker -> how many of its gradients were applied, dropped, lost and refused.
      recorder: what has happened.
      versions: the parameters that they are computed on.
    """

    def __init__(self, transport: Transport, sent: Callable[[], Tree]):
        self.begun = 0
        self.current: dict[int, int] = {}
        self.fates: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.recorder, self.versions = Recorder(), KeptVersions(transport, sent)
        self._open: list[int] = []  # workers of the gradients in the open update

    def counts(self) -> dict[str, int]:
        """Return the number of gradients begun, and of those that ended in each way or are in flight, which add up."""
        kinds = ("applied", "dropped", "lost", "refused")
        ended = {kind: sum(own[kind] for own in self.fates.values()) for kind in kinds}
        return {"begun": self.begun, **ended, "in flight": self.begun - sum(ended.values())}

    def state(self) -> dict[str, Any]:
        """Return what `go_on` needs between two updates, besides the record of what has ended."""
        own = {"begun": self.begun, "fates": dict(self.fates)}
        return own | {"open": self.recorder.open, "updates": self.recorder.updates}

    def go_on(self, state: dict[str, Any], held: Collection[int]) -> None:
        """Continue from where others were in flight, where the policy holds these versions."""
        self.begun, recorder = state["begun"], self.recorder
        self.fates.update(state["fates"])
        recorder.open, recorder.updates = state["open"], state["updates"]
        self.current = {row.worker: ticket for ticket, row in recorder.open.items()}
        self.versions.go_on(recorder.updates, [row.read for row in recorder.open.values()], held)

    def row(self, worker: int) -> Row:
        """Return what the worker computes."""
        return self.recorder.open[self.current[worker]]

    def begin(self, worker: int, version: int, now: float, *, after: int, life: int) -> None:
        """Begin a gradient of a worker on the newest version, or on one that the policy has held (else: ValueError)."""
        if worker in self.current or version not in self.versions:
            raise ValueError(
                f"policy must begin workers that wait, on version {self.versions.newest} or one that it has held; it "
                f"begins worker {worker} on version {version}" + (", which computes" if worker in self.current else "")
            )
        handle, ticket = self.versions.begin(version), self.begun
        self.begun, self.current[worker] = ticket + 1, ticket
        self.recorder.began(ticket, worker, version, now, life=life)
        self.versions.transport.begin(worker, ticket, handle, after=after, version=version)

    def taken(self, worker: int, update: int, now: float) -> None:
        """Move the worker's gradient into the open update."""
        self._landed(worker, update, now)
        self._open.append(worker)

    def ended(self, worker: int, now: float, fate: str) -> None:
        """End the worker's gradient, which enters no update, for one of the reasons in `KINDS`."""
        self._landed(worker, DROPPED, now, fate)
        self.fates[worker][KINDS[fate]] += 1

    def closed(self, now: float) -> None:
        """Make the open update: there is a new version."""
        self.recorder.closed(now)
        for worker in self._open:
            self.fates[worker]["applied"] += 1
        self._open.clear()
        self.versions.formed(self.recorder.updates)

    def _landed(self, worker: int, update: int, now: float, fate: str = "") -> None:
        row = self.row(worker)
        del self.current[worker]
        self.versions.done(row.read)
        self.recorder.ended(row.ticket, now, update, fate)
