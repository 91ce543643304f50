"""`InFlight`, gradients from their beginning to their end, and `LiveRecording`, what a live run leaves of them."""

import collections
import dataclasses
import functools
import json
import os
import platform
import sys
from collections.abc import Callable, Collection, Iterable
from importlib import metadata
from typing import Any

import jax
import numpy as np

from sgdlab import arrays
from sgdlab.live.environment import own_cores
from sgdlab.live.lines import differs
from sgdlab.live.transport import ANEW, Transport
from sgdlab.protocols.recorder import Recorder, Row
from sgdlab.schedule import DROPPED, FIELDS, Schedule
from sgdlab.types import Tree

RECORDING = 2
"""Format of recordings."""
FATES = ("applied", "late", "interrupted", "lost", "failed", "refused", "pending")
"""Fates of a gradient: applied; dropped by the protocol; lost by a fault; in flight when the run ended."""

KINDS = {"late": "dropped", "interrupted": "dropped", "lost": "lost", "failed": "refused", "refused": "refused"}
"""Fates of gradients that enter no update: dropped by the protocol, lost with a worker, or of no use."""
_CAME = ("applied", "late", "refused")
_OWN = {"ticket": np.int64, "seconds": np.float64, "loss": np.float64, "life": np.int64, "fate": "U11"}


@dataclasses.dataclass(frozen=True, eq=False)
class LiveRecording:
    """Records what happened in a live run; G gradients, in the rows of the schedule.

    Gradients that were begun after the last update, and had not come, are in no row: nothing depends on them.

    Attributes:
      schedule: which gradients entered which updates, and when, by the server's clock.
      ticket: int64[G], each gradient's number in the order in which gradients were begun; it names its batch.
      seconds: float64[G], how long the worker computed, by its own clock; NaN where that is unknown.
      loss: float64[G]; NaN where it is unknown.
      fate: str[G], one of `FATES`.
      config: the configuration of the run, as JSON holds it.
      versions: of Python, libraries and devices, by name.
      life: int64[G], which of its worker's processes computed the gradient, counted from 0: what a worker keeps between
        its messages begins anew with each. None: all 0.

    Raises:
      ValueError: from the constructor, where the fields contradict each other; it names the first row that does.
    """

    schedule: Schedule
    ticket: np.ndarray
    seconds: np.ndarray
    loss: np.ndarray
    fate: np.ndarray
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    life: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.life is None:
            object.__setattr__(self, "life", np.zeros(self.schedule.num_gradients))
        for name, dtype in _OWN.items():
            object.__setattr__(self, name, arrays.frozen_copy(name, getattr(self, name), dtype))
        for name in _OWN:
            if getattr(self, name).shape != (self.schedule.num_gradients,):
                raise ValueError(
                    f"{name} has shape {getattr(self, name).shape}; the schedule calls for "
                    f"{(self.schedule.num_gradients,)}"
                )
        if self.schedule.num_blocks != 1:
            raise ValueError(f"schedule must have one block, not {self.schedule.num_blocks}")
        ticket, fate = self.ticket, self.fate
        arrays.refuse(ticket < 0, "ticket", ticket, "at least 0")
        if not _are_different(ticket):
            again = np.ones(ticket.size, bool)
            again[np.unique(ticket, return_index=True)[1]] = False
            arrays.refuse(again, "ticket", ticket, "of one gradient only")
        known = np.zeros(fate.size, bool)
        for name in FATES:  # `np.isin` would sort copies of them
            known |= fate == name
        arrays.refuse(~known, "fate", fate, f"one of {', '.join(FATES)}")
        wrong = (fate == "applied") != self.schedule.used()[:, 0]
        wrong |= (fate == "pending") != self.schedule.pending()[:, 0]
        arrays.refuse(wrong, "fate", fate, "that of the schedule's update")

    def used_tickets(self) -> np.ndarray:
        """Return int64[R], the tickets of gradients that entered updates, in the order of a replay."""
        return self.ticket[self.schedule.used()[:, 0]]

    def begins_anew(self, *, streams: bool = False) -> np.ndarray:
        """Return int32[G], the version from which the worker of each gradient begins anew; -1 where it goes on.

        A worker goes on after its last message that was used. Of gradients that were not, this says nothing.

        Args:
          streams: whether workers keep their parameters, and so begin anew where they have missed an update: they have
            read another version than that which their last message has made.
        """
        read, anew = self.schedule.read[:, 0], self.after() == ANEW
        if streams:
            rows, before = self._later()
            anew[rows] |= read[rows] != self.schedule.update[before, 0] + 1
        return np.where(anew & self.schedule.used()[:, 0], read, ANEW).astype(np.int32)

    def after(self) -> np.ndarray:
        """Return int64[G], the ticket of the message from after which the worker of each gradient went on, or `ANEW`.

        Of gradients that did not enter an update, this says nothing.
        """
        found, (rows, before) = np.full(self.ticket.size, ANEW), self._later()
        # pyrefly: ignore[unsupported-operation]  # the constructor has set it
        found[rows] = np.where(self.life[rows] == self.life[before], self.ticket[before], ANEW)
        return found

    def _later(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of all messages that were used but their workers' first ones, and of the one before each."""
        worker = self.schedule.worker
        order = np.lexsort((self.ticket, worker))
        order = order[self.schedule.used()[order, 0]]
        same = np.diff(worker[order]) == 0
        return order[1:][same], order[:-1][same]

    def runtimes(self) -> np.ndarray:
        """Return float64[T, N], the seconds that the server waited for each worker's t-th gradient.

        NaN where that is unknown: the gradient was interrupted or lost, it failed, or the worker had fewer.
        """
        schedule = self.schedule
        order = np.lexsort((schedule.started, schedule.worker))
        worker = schedule.worker[order]
        count = np.arange(worker.size) - np.searchsorted(worker, worker)  # each worker's own gradients, from 0
        times = np.full((int(count.max(initial=-1)) + 1, schedule.num_workers), np.nan)
        known = np.isin(self.fate, _CAME)[order]
        seconds = (schedule.arrived[:, 0] - schedule.started)[order]
        times[count[known], worker[known]] = seconds[known]
        return times

    def ledger(self) -> dict[str, int]:
        """Return the number of gradients by fate, and of all of them, as `begun`."""
        counts = collections.Counter(self.fate.tolist())
        return {"begun": self.ticket.size} | {fate: counts[fate] for fate in FATES}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recording to one `.npz` file, whole or not at all; it can be read as a schedule too."""
        fields = {name: getattr(self.schedule, name) for name in FIELDS}
        fields |= {name: getattr(self, name) for name in _OWN}
        fields |= {name: np.array(json.dumps(getattr(self, name))) for name in ("config", "versions")}
        arrays.save(path, fields | {"format": np.array(RECORDING)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "LiveRecording":
        """Read and check a recording that `save` wrote; nothing is unpickled.

        Raises:
          ValueError: where the file is not such a recording, or is written in another format; it names both.
        """

        def made(**fields: Any) -> LiveRecording:
            if (written := int(fields.pop("format", 1))) != RECORDING:
                raise ValueError(f"it {differs(written, RECORDING)}")
            schedule = Schedule(**{name: fields.pop(name) for name in FIELDS})
            texts = {name: json.loads(str(fields.pop(name))) for name in ("config", "versions")}
            return cls(schedule=schedule, **fields, **texts)

        made.__name__ = "LiveRecording"
        names = (*FIELDS, *(name for name in _OWN if name != "life"), "config", "versions")
        return arrays.load(path, names, made, what="a recording", optional=("life", "format"))

    def __str__(self) -> str:
        fates = ", ".join(f"{number:,} {fate}" for fate, number in self.ledger().items() if number)
        return f"Recording: {self.schedule.num_workers} workers, {self.schedule.wall_clock():.6g} s; {fates}"


def _are_different(tickets: np.ndarray) -> bool:
    """Return True if no ticket comes twice; False, too, where they are too large to look quickly."""
    most = int(tickets.max(initial=0))
    if most > 64 * (tickets.size + 1):
        return False
    seen = np.zeros(most + 1, bool)
    seen[tickets] = True
    return int(seen.sum()) == tickets.size


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


def versions() -> dict[str, str]:
    """Return what the bits of a run depend on besides its configuration: versions, devices, settings of JAX."""
    packages = ("sgdlab", "jax", "jaxlib", "flax", "optax", "numpy")
    device = jax.devices()[0]
    found = {"python": sys.version.split()[0], "machine": f"{platform.system()} {platform.machine()}"}
    found |= {name: _installed(name) for name in packages}
    return found | {
        "backend": device.platform,
        "device": device.device_kind,
        "cpus": str(own_cores()),  # XLA cuts large products and sums by it
        "x64": str(jax.config.jax_enable_x64),  # pyrefly: ignore[missing-attribute]  # JAX sets it when it is imported
        # pyrefly: ignore[missing-attribute]  # the same
        "matmul_precision": str(jax.config.jax_default_matmul_precision),
    }


@functools.cache
def _installed(package: str) -> str:
    """Return its version, which a process does not change; the file that says it is long."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # used from its folder
        return "not installed"
