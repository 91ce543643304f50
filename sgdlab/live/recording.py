"""`LiveRecording`, what a live run leaves: the schedule that happened, and the ticket, fate and time of gradients."""

import collections
import dataclasses
import functools
import json
import os
import platform
import sys
from importlib import metadata
from typing import Any

import jax
import numpy as np

from sgdlab import arrays
from sgdlab.live.environment import own_cores
from sgdlab.live.lines import differs
from sgdlab.live.transport import ANEW
from sgdlab.schedule import FIELDS, Schedule

RECORDING = 2
"""Format of recordings."""
FATES = ("applied", "late", "interrupted", "lost", "failed", "refused", "pending")
"""Fates of a gradient: applied; dropped by the protocol; lost by a fault; in flight when the run ended."""

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
