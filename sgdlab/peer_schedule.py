"""The PeerSchedule, for methods without a parameter server: which node averages whose parameters, and when."""

import dataclasses
import operator
import os
from typing import Any

import numpy as np
from jaxtyping import Float64, Int32

from sgdlab import arguments, arrays
from sgdlab.ordering import by_number
from sgdlab.schedule import Schedule

_DTYPES = {
    "node": np.int32,
    "started": np.float64,
    "finished": np.float64,
    "event": np.int32,
    "source": np.int32,
    "source_version": np.int32,
    "weight": np.float64,
}
_OPTIONAL = {"read": np.int32, "scale": np.float64}
SCHEDULE_FIELDS = (*_DTYPES, "num_nodes", "fresh")
"""Arrays that every file of a `PeerSchedule` holds."""
OPTIONAL_FIELDS = (*_OPTIONAL, "companions")
"""Arrays that it holds besides, where they differ from the default."""


@dataclasses.dataclass(frozen=True, eq=False)
class PeerSchedule:
    """Holds which node averages whose parameters before each of its gradients, and when.

    E events, M edges, N nodes, and possibly a center, which has the number N, and companions, of which that of node i
    has the number N + 1 + i. An event of a node averages parameters along its edges, then takes a gradient and a step
    of the node's own optimiser; an event that takes no gradient, such as any of the center, only averages. Events stand
    in dependency order. The k-th event of a node, counted from 0, makes two versions of its parameters: 2 k + 1, after
    averaging, and 2 k + 2, after its step (the same, if it only averages); version 0 is the initial parameters. A node
    that asks another for its parameters while that one computes gets those after averaging.

    Attributes:
      node: int32[E], the node of each event; N is the center.
      started: float64[E], seconds, when it begins its gradient.
      finished: float64[E], seconds, when its gradient is done.
      event: int32[M], the event that each edge belongs to, in order.
      source: int32[M], the node whose parameters are averaged.
      source_version: int32[M], their version.
      weight: float64[M], their weight; those of an event add up to 1.
      num_nodes: N.
      fresh: whether the gradient is taken at the averaged parameters; else at the node's own before averaging, or at
        those that `read` names.
      read: int32[E], the version of its node's parameters that each gradient is taken at; -1 for events that take none.
        None: as `fresh` says, and only those of the center take none.
      scale: float64[E], what the step of each gradient is multiplied by. None: 1.
      companions: whether every node has a companion, a further variable that only averages.

    Raises:
      ValueError: from the constructor, where the arrays contradict each other; it names the first row that does.

    Example:
      >>> import numpy as np
      >>> from sgdlab import protocols
      >>> print(protocols.gossip(np.array([[1.0, 2.0], [1.0, 2.0]]), kind="pull", seed=0))
      PeerSchedule: 2 nodes, 3 gradients and 4 edges in 2 s
    """

    node: Int32[np.ndarray, " E"]
    started: Float64[np.ndarray, " E"]
    finished: Float64[np.ndarray, " E"]
    event: Int32[np.ndarray, " M"]
    source: Int32[np.ndarray, " M"]
    source_version: Int32[np.ndarray, " M"]
    weight: Float64[np.ndarray, " M"]
    num_nodes: int
    fresh: bool = True
    read: Int32[np.ndarray, " E"] | None = None
    scale: Float64[np.ndarray, " E"] | None = None
    companions: bool = False

    def __post_init__(self) -> None:
        for name, dtype in (_DTYPES | _OPTIONAL).items():
            if name in _DTYPES or getattr(self, name) is not None:
                object.__setattr__(self, name, arrays.frozen_copy(name, getattr(self, name), dtype))
        object.__setattr__(self, "num_nodes", operator.index(self.num_nodes))
        for name in ("fresh", "companions"):
            object.__setattr__(self, name, bool(getattr(self, name)))
        _check(self)

    @property
    def num_workers(self) -> int:
        """N, as a `Schedule` calls its workers."""
        return self.num_nodes

    @property
    def has_server(self) -> bool:
        """False: nodes average with each other, or with a center."""
        return False

    @property
    def has_center(self) -> bool:
        """True if any event is the center's."""
        return bool((self.node == self.num_nodes).any())

    @property
    def num_variables(self) -> int:
        """Numbers that events can have: nodes, the center, and companions."""
        return (2 if self.companions else 1) * self.num_nodes + 1

    @property
    def num_gradients(self) -> int:
        """Number of events that take a gradient."""
        return int(np.count_nonzero(self.takes_gradient()))

    def takes_gradient(self) -> np.ndarray:
        """bool[E]: whether each event takes a gradient; the others only average."""
        return self.node < self.num_nodes if self.read is None else self.read >= 0

    def reads(self) -> np.ndarray:
        """int64[E]: the version of its node's own that each gradient is taken at; -1 where there is none."""
        if self.read is not None:
            return self.read.astype(np.int64)
        return np.where(self.node < self.num_nodes, 2 * self.number() + self.fresh, -1)

    @property
    def num_blocks(self) -> int:
        """1: nodes average all parameters at once."""
        return 1

    def number(self) -> np.ndarray:
        """int64[E]: index of each event among the events of its node."""
        return _index_among_equals(self.node, self.num_variables)

    def gradient_number(self) -> np.ndarray:
        """int64[G]: index of each gradient, in the order of events, among the gradients of its node."""
        return _index_among_equals(self.node[self.takes_gradient()], self.num_variables)

    def wall_clock(self) -> float:
        """Seconds from the start until the last step is done."""
        return float(self.finished.max()) if self.finished.size else 0.0

    def gradients_per_second(self) -> float:
        """Gradients per second of virtual time."""
        return self.num_gradients / self.wall_clock() if self.finished.size else 0.0

    def gradients_per_update(self) -> float:
        """1: every gradient is a step of its node's own."""
        return 1.0

    def figures(self) -> dict[str, float | None]:
        """The figures of a `Schedule`; no server's version grows older than a gradient, so that staleness is None."""
        return {"dropped": 0, "staleness": None, "idle_share": float(self.idle_share().mean()), "wasted_share": 0.0}

    def busy_share(self) -> np.ndarray:
        """float64[N]: share of the wall clock that each node spent on gradients."""
        rows = self.takes_gradient()
        seconds = (self.finished - self.started)[rows]
        return np.bincount(self.node[rows], weights=seconds, minlength=self.num_nodes) / (self.wall_clock() or 1.0)

    def idle_share(self) -> np.ndarray:
        """float64[N]: share of the wall clock that each node spent waiting, or after its last event."""
        return np.clip(1.0 - self.busy_share(), 0.0, 1.0)

    def until(self, seconds: float) -> "PeerSchedule":
        """Return the schedule up to an instant.

        A node that computes then takes no gradient. It has averaged, if it does that before its gradient, and others
        may have read it; what it would average afterwards is left out.

        Args:
          seconds: since the start, of virtual time.

        Raises:
          ValueError: where no gradient was done by then, or `seconds` is not finite.

        Example:
          >>> import numpy as np
          >>> from sgdlab import protocols
          >>> print(protocols.gossip(np.array([[1.0, 2.0]] * 3), kind="pull", seed=0).until(1.5))
          PeerSchedule: 2 nodes, 1 gradients and 4 edges in 1.5 s
        """
        end = arguments.real("seconds", seconds)
        rows, late = self.started < end, self.finished > end
        makers = _makers(self, slice(None))
        while (lost := rows[self.event] & (makers >= 0) & ~rows[makers]).any():
            rows[self.event[lost]] = False
        read = np.where(late, -1, self.reads())[rows]
        if not (read >= 0).any():
            first = self.finished[self.takes_gradient()]
            when = f"the first is at {first.min():g} s" if first.size else "it has none"
            raise ValueError(f"seconds={seconds:g} must be late enough for a gradient of the schedule: {when}")
        edges = rows[self.event]
        return PeerSchedule(
            node=self.node[rows],
            started=self.started[rows],
            finished=np.minimum(self.finished, end)[rows],
            event=(np.cumsum(rows) - 1)[self.event[edges]],
            source=self.source[edges],
            source_version=self.source_version[edges],
            weight=self.weight[edges],
            num_nodes=self.num_nodes,
            fresh=self.fresh,
            read=read,
            scale=None if self.scale is None else self.scale[rows],
            companions=self.companions,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the schedule to one `.npz` file, whole or not at all."""
        arrays.save(path, self.fields())

    def fields(self) -> dict[str, Any]:
        """Return what a file of it holds; what is as by default is left out."""
        optional = {name: getattr(self, name) for name in _OPTIONAL if getattr(self, name) is not None}
        optional |= {"companions": True} if self.companions else {}
        return {name: getattr(self, name) for name in SCHEDULE_FIELDS} | optional

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PeerSchedule":
        """Reads and checks a schedule that `save` wrote; nothing is unpickled.

        Raises:
          ValueError: where the file is not such a schedule.
        """
        return arrays.load(path, SCHEDULE_FIELDS, cls, optional=OPTIONAL_FIELDS)

    def __str__(self) -> str:
        return self.describe()

    def describe(self, unit: str = "gradient") -> str:
        """The schedule in a line; `unit` is what nodes step along."""
        center = " and a center" if self.has_center else ""
        return (
            f"PeerSchedule: {self.num_nodes} nodes{center}, {self.num_gradients} {unit}s and {self.event.size} edges "
            f"in {self.wall_clock():.6g} s"
        )


def _index_among_equals(numbers: np.ndarray, count: int) -> np.ndarray:
    """Return the index, int64[K], of each number below `count` among those that equal it."""
    order = by_number(numbers, count)
    counts = np.bincount(numbers, minlength=count)
    index = np.empty(order.size, np.int64)
    index[order] = np.arange(order.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return index


AnySchedule = Schedule | PeerSchedule
"""The result of a protocol, with a server or without one."""


def _check(schedule: PeerSchedule) -> None:
    if schedule.num_nodes < 1:
        raise ValueError(f"num_nodes={schedule.num_nodes} must be at least 1")
    for names in (("node", "started", "finished"), ("event", "source", "source_version", "weight")):
        shapes = {name: getattr(schedule, name).shape for name in names}
        if len(set(shapes.values())) != 1 or len(shapes[names[0]]) != 1:
            raise ValueError(f"{', '.join(names)} must have one shape, [events] or [edges]; they have {shapes}")
    events, most = schedule.node.size, schedule.num_variables - 1
    refuse = arrays.refuse
    for name in _OPTIONAL:
        if getattr(schedule, name) is not None and getattr(schedule, name).shape != (events,):
            raise ValueError(f"{name} has shape {getattr(schedule, name).shape}; there are {events} events")
    refuse((schedule.node < 0) | (schedule.node > most), "node", schedule.node, f"0 to {most}")
    started, finished = schedule.started, schedule.finished
    refuse(~np.isfinite(started) | (started < 0), "started", started, "finite, not negative")
    late = np.where(schedule.takes_gradient(), finished > started, finished >= started) & np.isfinite(finished)
    refuse(~late, "finished", finished, "finite and later than started (compute times must move the clock)")
    _check_gradients(schedule)
    event, source, version = schedule.event, schedule.source, schedule.source_version
    steps = np.diff(event, prepend=-1)
    refuse((steps < 0) | (steps > 1) | (event >= events), "event", event, "0 to E - 1 in order, none left out")
    if events and (not event.size or event[-1] != events - 1):
        raise ValueError(f"event must name all {events} events: every one averages at least its own parameters")
    refuse((source < 0) | (source > most), "source", source, f"0 to {most}")
    refuse(~np.isfinite(schedule.weight), "weight", schedule.weight, "finite")
    total = np.bincount(event, weights=schedule.weight, minlength=events)
    refuse(np.abs(total - 1) > 1e-9, "weight", total, "such that those of an event add up to 1")
    number = (version + 1) // 2 - 1
    known = (number < np.bincount(schedule.node, minlength=most + 1)[source]) & (version >= 0)
    makers = np.full(version.shape, -1)
    makers[known] = _makers(schedule, known)
    refuse(~known | (makers >= event), "source_version", version, "0 or a version that earlier events have made")


def _makers(schedule: PeerSchedule, edges: Any) -> np.ndarray:
    """Return the event that made the version of each edge: (v - 1) // 2 of its node's own; -1 for the initial one."""
    counts = np.bincount(schedule.node, minlength=schedule.num_variables)
    source, version = schedule.source[edges], schedule.source_version[edges]
    makers = np.full(version.shape, -1)
    made = version > 0
    first = (np.cumsum(counts) - counts)[source[made]]
    makers[made] = by_number(schedule.node, schedule.num_variables)[first + (version[made] + 1) // 2 - 1]
    return makers


def _check_gradients(schedule: PeerSchedule) -> None:
    """Checks what says of gradients at what they are taken, and by what their steps are multiplied."""
    if schedule.scale is not None:
        arrays.refuse(~np.isfinite(schedule.scale), "scale", schedule.scale, "finite")
    if schedule.read is None:
        return
    read, averaged = schedule.read, 2 * schedule.number() + 1
    known = read == averaged if schedule.fresh else (read >= 0) & (read < averaged)
    right = "-1, or the version that its event averages" if schedule.fresh else "-1, or a version from before its event"
    arrays.refuse(~known & (read != -1), "read", read, right)
    arrays.refuse((read >= 0) & (schedule.node >= schedule.num_nodes), "read", read, "-1: only nodes take gradients")
