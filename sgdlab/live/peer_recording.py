"""`PeerRecording`, what a live run of peers leaves: the schedule that happened, and each gradient's ticket and time."""

import dataclasses
import json
import os
from typing import Any

import numpy as np

from sgdlab import arrays
from sgdlab.peer_schedule import OPTIONAL_FIELDS, SCHEDULE_FIELDS, PeerSchedule

_OWN = {"ticket": np.int64, "seconds": np.float64, "loss": np.float64}


@dataclasses.dataclass(frozen=True, eq=False)
class PeerRecording:
    """What happened in a live run of peers; G gradients, in the order of the schedule's events.

    Attributes:
      schedule: which node averaged what, and when, by the coordinator's clock.
      ticket: int64[G], each gradient's number in the order in which gradients were begun; it names its batch.
      seconds: float64[G], how long the worker computed, by its own clock; NaN where that is unknown.
      loss: float64[G]; NaN where it is unknown.
      lost: int64[L], tickets of gradients that were lost with their workers, and computed again under other tickets.
      config: the configuration of the run, as JSON holds it.
      versions: of Python, libraries and devices, by name.

    Raises:
      ValueError: from the constructor, where the fields contradict each other.
    """

    schedule: PeerSchedule
    ticket: np.ndarray
    seconds: np.ndarray
    loss: np.ndarray
    lost: Any  # np.ndarray, or whatever makes one
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, dtype in (_OWN | {"lost": np.int64}).items():
            object.__setattr__(self, name, arrays.frozen_copy(name, getattr(self, name), dtype))
        for name in _OWN:
            if getattr(self, name).shape != (self.schedule.num_gradients,):
                raise ValueError(
                    f"{name} has shape {getattr(self, name).shape}; the schedule calls for "
                    f"{(self.schedule.num_gradients,)}"
                )
        tickets = np.concatenate([self.ticket, self.lost])
        if np.unique(tickets).size != tickets.size or (tickets < 0).any():
            raise ValueError("ticket and lost must name every gradient once, by a number of at least 0")

    def used_tickets(self) -> np.ndarray:
        """int64[G]: tickets of all gradients, in the order in which a replay numbers them."""
        return self.ticket

    def runtimes(self) -> np.ndarray:
        """float64[T, N], seconds: how long each node's t-th gradient took; NaN where the node had fewer.

        A gradient that was lost and computed again took as long as both.
        """
        schedule = self.schedule
        rows, number = schedule.takes_gradient(), schedule.gradient_number()
        times = np.full((int(number.max(initial=-1)) + 1, schedule.num_nodes), np.nan)
        times[number, schedule.node[rows]] = (schedule.finished - schedule.started)[rows]
        return times

    def ledger(self) -> dict[str, int]:
        """Number of gradients begun, applied and lost."""
        applied, lost = self.ticket.size, self.lost.size
        return {"begun": applied + lost, "applied": applied, "lost": lost}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the recording to one `.npz` file, whole or not at all; it can be read as a schedule too."""
        fields = self.schedule.fields()
        fields |= {name: getattr(self, name) for name in (*_OWN, "lost")}
        fields |= {name: np.array(json.dumps(getattr(self, name))) for name in ("config", "versions")}
        arrays.save(path, fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PeerRecording":
        """Reads and checks a recording that `save` wrote; nothing is unpickled.

        Raises:
          ValueError: where the file is not such a recording.
        """
        names = (*SCHEDULE_FIELDS, *_OWN, "lost", "config", "versions")
        return arrays.load(path, names, _stored, what="a recording of peers", optional=OPTIONAL_FIELDS)

    def __str__(self) -> str:
        fates = ", ".join(f"{number:,} {fate}" for fate, number in self.ledger().items() if number)
        return f"PeerRecording: {self.schedule.num_nodes} nodes, {self.schedule.wall_clock():.6g} s; {fates}"


def _stored(**fields: Any) -> PeerRecording:
    """The recording of the arrays of a file."""
    schedule = PeerSchedule(
        **{name: fields.pop(name) for name in (*SCHEDULE_FIELDS, *OPTIONAL_FIELDS) if name in fields}
    )
    texts = {name: json.loads(str(fields.pop(name))) for name in ("config", "versions")}
    return PeerRecording(schedule=schedule, **fields, **texts)
