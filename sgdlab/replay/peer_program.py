"""`PeerProgram`: a lowered schedule of peers, its versions of the parameters in slots, and its waves of gradients."""

import dataclasses

import numpy as np

from sgdlab.peer_schedule import PeerSchedule
from sgdlab.replay.program import Capacity, Program, pauses_after, power_of_two, waves_and_width
from sgdlab.replay.registers import allocate


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PeerProgram(Program):
    """Instructions for E events of which R take gradients, with M edges.

    A row is a gradient; moves of the center belong to the row of the gradient that they follow. Averages are computed
    in order, so that only reading a version made by a step (an even number, see `PeerSchedule`) ends a wave.

    Attributes:
      event: int32[R + 1], the event of each row, and E.
      own: int32[R], the slot of the node's parameters before it averages.
      store: int32[R], the slot for the version that its step makes.
      publish: int32[E], the slot for the average of an event, `num_slots` if nobody reads it.
      edges: int32[E + 1], the first edge of each event, and M.
      source: int32[M], the slot that an edge reads.
      weight: float64[M], the weight of an edge.
      number: int32[R], index of each gradient among the gradients of its node.
      finished: float64[R], seconds, when its step is done.
      newest: int32[P + 1, N or N + 1], the slot of the parameters of every node (and of the center) at the start and
        at each pause.
      publishes: whether the average of some event is read by other nodes, or is the center's.
      has_center: whether there is a center.
      fresh: whether gradients are computed at the averaged parameters.
    """

    event: np.ndarray
    own: np.ndarray
    store: np.ndarray
    publish: np.ndarray
    edges: np.ndarray
    source: np.ndarray
    weight: np.ndarray
    number: np.ndarray
    finished: np.ndarray
    newest: np.ndarray
    publishes: bool
    has_center: bool
    fresh: bool

    @property
    def num_nodes(self) -> int:
        """N, number of nodes."""
        return self.num_workers

    @property
    def single(self) -> bool:
        """True: every gradient is a step of its node."""
        return True

    @property
    def synchronous(self) -> bool:
        """False: no gradient of another node enters a step."""
        return False

    @property
    def versions(self) -> int:
        """Copies of the parameters: versions, the nodes' own in the result, and three of each lane."""
        return self.capacity.slots + self.num_nodes + 3 * self.capacity.width

    def made(self, gradients: int) -> tuple[int, float]:
        """Steps of the node that has made most after so many gradients, and the time of the last step of any."""
        if gradients == 0:
            return 0, 0.0
        return int(self.number[:gradients].max()) + 1, float(self.finished[:gradients].max())

    def record(self) -> dict[str, np.ndarray]:
        """The fields of `History` that are known from the schedule: a gradient is applied at once, and never stale."""
        return {
            "gradient": self.gradient,
            "worker": self.worker,
            "update": self.number,
            "delay": np.ones(self.num_rows),
            "arrived": self.finished,
            "applied": self.finished,
        }


def lower_peers(
    schedule: PeerSchedule, *, capacity: Capacity | None, every: int | None, width: int | None, by_worker: bool
) -> PeerProgram:
    """Lowers a schedule of peers; see `sgdlab.replay.lowering.lower`."""
    del by_worker  # a node's gradient needs the step before it: no wave has two of them
    nodes, number = schedule.num_nodes, schedule.number()
    event = np.flatnonzero(schedule.node < nodes).astype(np.int32)
    if event.size == 0:
        raise ValueError("schedule has no gradient: there is nothing to replay")
    _check_own(schedule, number)
    versions = _versions(schedule, number)
    ends = np.append(event, schedule.node.size).astype(np.int32)
    pauses = pauses_after(np.arange(event.size) + 1, every)
    waves, lanes = waves_and_width(_needs(schedule, versions, event), pauses, nodes, width)
    needed = Capacity(
        rows=power_of_two(event.size),
        slots=power_of_two(versions.num_slots),
        width=lanes,
        workers=power_of_two(nodes),
        events=power_of_two(schedule.node.size),
        edges=power_of_two(schedule.event.size),
    )
    return PeerProgram(
        gradient=event,
        worker=schedule.node[event],
        waves=waves,
        uniform=False,
        pauses=pauses,
        every=every,
        by_worker=True,
        num_workers=nodes,
        num_slots=versions.num_slots,
        capacity=needed | capacity if capacity else needed,
        event=ends,
        own=versions.own[event],
        store=versions.store[event],
        publish=versions.publish,
        edges=np.searchsorted(schedule.event, np.arange(schedule.node.size + 1)).astype(np.int32),
        source=versions.source,
        weight=schedule.weight,
        number=number[event].astype(np.int32),
        finished=schedule.finished[event],
        newest=_newest(schedule, versions, [0, *ends[pauses].tolist()]),
        publishes=bool((versions.publish < versions.num_slots).any()),
        has_center=schedule.has_center,
        fresh=schedule.fresh,
    )


def _check_own(schedule: PeerSchedule, number: np.ndarray) -> None:
    """Checks what the compiled loop relies on, which holds for the schedules of all protocols here."""
    nodes = schedule.num_nodes
    own = (schedule.source == schedule.node[schedule.event]) & (schedule.source_version == 2 * number[schedule.event])
    has_own = np.zeros(schedule.node.size, bool)
    has_own[schedule.event[own]] = True
    if not has_own.all():
        event = int(np.argmin(has_own))
        raise ValueError(
            f"event {event} of node {schedule.node[event]} must average the node's newest parameters too, version "
            f"{2 * number[event]}"
        )
    # A move of the center is computed with the gradient that it follows, before the step of that gradient.
    moves = schedule.node[schedule.event] == nodes
    of_node = np.flatnonzero(schedule.node < nodes)
    before = of_node[np.searchsorted(of_node, schedule.event, side="left") - 1]
    stepped = 2 * number[before] + 2
    late = moves & (schedule.source == schedule.node[before]) & (schedule.source_version >= stepped)
    if late.any():
        raise ValueError(
            f"event {schedule.event[np.argmax(late)]} of the center must not read the step of the event before it"
        )


@dataclasses.dataclass(frozen=True)
class _Versions:
    """Versions of the parameters, and their slots.

    Attributes:
      version: int64[M], version of each edge's source; equal versions have one number.
      maker: int64[M], the event that makes it; -1 for the initial parameters.
      own, store, publish: int32[E], slots, as in the program.
      source: int32[M], slots, as in the program.
      num_slots: number of slots that are used.
    """

    version: np.ndarray
    maker: np.ndarray
    own: np.ndarray
    store: np.ndarray
    publish: np.ndarray
    source: np.ndarray
    num_slots: int


def _versions(schedule: PeerSchedule, number: np.ndarray) -> _Versions:
    """Assigns slots to versions: event e averages at time 3 e, publishes at 3 e + 1, and stores its step at 3 e + 2."""
    nodes, events = schedule.num_nodes, schedule.node.size
    of_node = np.argsort(schedule.node, kind="stable")
    first = np.searchsorted(schedule.node[of_node], np.arange(nodes + 2))
    event_of = lambda node, number: of_node[np.minimum(first[node] + number, events - 1)]
    version, source = schedule.source_version.astype(np.int64), schedule.source
    # An event with one edge averages nothing: its average is the version before it.
    maker = event_of(source, np.maximum(version - 1, 0) // 2)
    alone = np.bincount(schedule.event, minlength=events) == 1
    version = np.where((version % 2 == 1) & alone[maker] & (source < nodes), version - 1, version)
    maker = np.where(version > 0, event_of(source, np.maximum(version - 1, 0) // 2), -1)

    # Values in slots: initial parameters, averages of events, and their steps; a move of the center is both.
    center, time = schedule.node == nodes, 3 * np.arange(events)
    initial, averaged = np.arange(nodes + 1), nodes + 1 + np.arange(events)
    stepped = np.where(center, averaged, averaged + events)
    read = np.where(version == 0, initial[source], np.where(version % 2 == 1, averaged[maker], stepped[maker]))
    before = event_of(schedule.node, np.maximum(number - 1, 0))
    own = np.where(number == 0, initial[schedule.node], stepped[before])
    counts = np.diff(first)
    newest = np.where(counts == 0, initial, stepped[event_of(initial, np.maximum(counts - 1, 0))])

    born = np.concatenate([np.full(nodes + 1, -1), time + 1, time + 2])
    last_use = np.full(born.size, -2)
    np.maximum.at(last_use, read, time[schedule.event])
    np.maximum.at(last_use, own, time)
    last_use[newest] = 3 * events
    lives = last_use >= 0
    lives[nodes] &= schedule.has_center
    slot = np.zeros(born.size, np.int32)
    slot[lives], num_slots = allocate(born[lives], last_use[lives])
    slot[~lives] = num_slots
    return _Versions(version, maker, slot[own], slot[stepped], slot[averaged], slot[read], num_slots)


def _newest(schedule: PeerSchedule, versions: _Versions, events: list[int]) -> np.ndarray:
    """int32[., N or N + 1]: the slot of the parameters of each node (and the center) before each of these events."""
    nodes = schedule.num_nodes
    made = np.where(schedule.node == nodes, versions.publish, versions.store)
    now = np.arange(nodes + schedule.has_center, dtype=np.int32)
    rows, begin = [], 0
    for end in events:
        now = now.copy()
        now[schedule.node[begin:end]] = made[begin:end]  # the last of several is the newest
        rows.append(now)
        begin = end
    return np.array(rows)


def _needs(schedule: PeerSchedule, versions: _Versions, event: np.ndarray) -> np.ndarray:
    """int64[R]: the last row whose step makes a version that a row averages; -1 for none."""
    # Only even versions of nodes come from steps.
    stepped = (versions.version % 2 == 0) & (versions.maker >= 0) & (schedule.source < schedule.num_nodes)
    needs = np.full(schedule.node.size, -1)
    np.maximum.at(needs, schedule.event[stepped], np.searchsorted(event, versions.maker)[stepped])
    return needs[event]
