"""`PeerProgram`: a lowered schedule of peers, its versions of the parameters in slots, and its waves of gradients."""

import dataclasses

import numpy as np
from jaxtyping import Float64, Int32

from sgdlab.peer_schedule import PeerSchedule
from sgdlab.replay.program import Capacity, Every, Program, pauses_after, power_of_two, waves_and_width
from sgdlab.replay.registers import allocate


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PeerProgram(Program):
    """Instructions for E events of which R take gradients, with M edges.

    A row is a gradient. Events that only average, its moves, belong to the row of the gradient that they precede; those
    behind the last gradient are left out. If all are the center's, they belong to the row of the gradient that they
    follow, and come before its step. Averages are computed in order, so that only reading a version made by a step (an
    even number, see `PeerSchedule`) ends a wave.

    Attributes:
      event: int32[R + 1], the event of each row, and E.
      first: int32[R + 1], the first event of each row, and the end of the last one.
      own: int32[R], the slot of the parameters that a gradient is taken at, if it is not fresh: the node's before it
        averages, or older ones.
      store: int32[R], the slot for the version that its step makes.
      publish: int32[E], the slot for the average of an event, `num_slots` if nobody reads it.
      edges: int32[E + 1], the first edge of each event, and M.
      source: int32[M], the slot that an edge reads.
      weight: float64[M], the weight of an edge.
      number: int32[R], index of each gradient among the gradients of its node.
      finished: float64[R], seconds, when its step is done.
      scale: float64[R], what its step is multiplied by.
      newest: int32[P + 1, N or N + 1], the slot of the parameters of every node (and of the center) at the start and
        at each pause.
      leads: whether moves come before the gradient of their row.
      publishes: whether the average of some event is read by other nodes, or is the center's.
      has_center: whether there is a center.
      fresh: whether gradients are computed at the averaged parameters.
    """

    event: Int32[np.ndarray, " R+1"]
    first: Int32[np.ndarray, " R+1"]
    own: Int32[np.ndarray, " R"]
    store: Int32[np.ndarray, " R"]
    publish: Int32[np.ndarray, " E"]
    edges: Int32[np.ndarray, " E+1"]
    source: Int32[np.ndarray, " M"]
    weight: Float64[np.ndarray, " M"]
    number: Int32[np.ndarray, " R"]
    finished: Float64[np.ndarray, " R"]
    scale: Float64[np.ndarray, " R"]
    newest: Int32[np.ndarray, "P+1 nodes"]
    leads: bool
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
    schedule: PeerSchedule, *, capacity: Capacity | None, every: Every, width: int | None, by_worker: bool
) -> PeerProgram:
    """Lowers a schedule of peers; see `sgdlab.replay.lowering.lower`."""
    del by_worker  # a node's gradient needs the step before it: no wave has two of them
    nodes, number = schedule.num_nodes, schedule.number()
    event = np.flatnonzero(schedule.takes_gradient()).astype(np.int32)
    if event.size == 0:
        raise ValueError("schedule has no gradient: there is nothing to replay")
    leads, first = _rows(schedule, event)
    _check_own(schedule, number, event, leads=leads)
    versions = _versions(schedule, number)
    pauses = pauses_after(np.arange(event.size) + 1, every)
    waves, lanes = waves_and_width(_needs(schedule, versions, event, first), pauses, nodes, width)
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
        event=np.append(event, schedule.node.size).astype(np.int32),
        first=first,
        own=versions.own[event],
        store=versions.store[event],
        publish=versions.publish,
        edges=np.searchsorted(schedule.event, np.arange(schedule.node.size + 1)).astype(np.int32),
        source=versions.source,
        weight=schedule.weight,
        number=schedule.gradient_number().astype(np.int32),
        finished=schedule.finished[event],
        scale=np.ones(event.size) if schedule.scale is None else schedule.scale[event],
        newest=_newest(schedule, versions, [0, *first[pauses].tolist()]),
        leads=leads,
        publishes=bool((versions.publish < versions.num_slots).any()),
        has_center=schedule.has_center,
        fresh=schedule.fresh,
    )


def _rows(schedule: PeerSchedule, event: np.ndarray) -> tuple[bool, np.ndarray]:
    """Return whether moves come before the gradient of their row, and int32[R + 1], the first event of each row."""
    moves = schedule.node[~schedule.takes_gradient()]
    leads = bool((moves != schedule.num_nodes).any() or event[0] > 0)
    first = [[0], event + 1] if leads else [event, [schedule.node.size]]
    return leads, np.concatenate(first).astype(np.int32)


def _check_own(schedule: PeerSchedule, number: np.ndarray, of_node: np.ndarray, *, leads: bool) -> None:
    """Checks what the compiled loop relies on, which holds for the schedules of all protocols here."""
    own = (schedule.source == schedule.node[schedule.event]) & (schedule.source_version == 2 * number[schedule.event])
    has_own = np.zeros(schedule.node.size, bool)
    has_own[schedule.event[own]] = True
    if not has_own.all():
        event = int(np.argmin(has_own))
        raise ValueError(
            f"event {event} of node {schedule.node[event]} must average the node's newest parameters too, version "
            f"{2 * number[event]}"
        )
    if leads:
        return
    # A move of the center is computed with the gradient that it follows, before the step of that gradient.
    moves = schedule.node[schedule.event] == schedule.num_nodes
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
      step: int64[M], the event whose step made the version that an edge reads; -1 for averages and the initial ones.
      own, store, publish: int32[E], slots, as in the program.
      source: int32[M], slots, as in the program.
      num_slots: number of slots that are used.
    """

    step: np.ndarray
    own: np.ndarray
    store: np.ndarray
    publish: np.ndarray
    source: np.ndarray
    num_slots: int


def _versions(schedule: PeerSchedule, number: np.ndarray) -> _Versions:
    """Assigns slots to versions: event e averages at time 3 e, publishes at 3 e + 1, and stores its step at 3 e + 2."""
    variables, events = schedule.num_variables, schedule.node.size
    of_node = np.argsort(schedule.node, kind="stable")
    first = np.searchsorted(schedule.node[of_node], np.arange(variables + 1))
    event_of = lambda node, number: of_node[np.minimum(first[node] + number, events - 1)]
    moves, alone = ~schedule.takes_gradient(), np.bincount(schedule.event, minlength=events) == 1
    # Values in slots: initial parameters, averages of events, and their steps; a move is both.
    time = 3 * np.arange(events)
    initial, averaged = np.arange(variables), variables + np.arange(events)
    stepped = np.where(moves, averaged, averaged + events)

    def value_of(source: np.ndarray, version: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The value that is a version, and the event whose step made it, or -1."""
        maker = event_of(source, np.maximum(version - 1, 0) // 2)
        # An event with one edge averages nothing: its average is the version before it.
        version = np.where((version % 2 == 1) & alone[maker] & ~moves[maker], version - 1, version)
        maker = event_of(source, np.maximum(version - 1, 0) // 2)
        value = np.where(version == 0, initial[source], np.where(version % 2 == 1, averaged[maker], stepped[maker]))
        return value, np.where((version > 0) & (version % 2 == 0) & ~moves[maker], maker, -1)

    read, step = value_of(schedule.source, schedule.source_version.astype(np.int64))
    older = schedule.read is not None and not schedule.fresh
    own, _ = value_of(schedule.node, np.maximum(schedule.read, 0) if older else 2 * number)
    counts = np.diff(first)
    newest = np.where(counts == 0, initial, stepped[event_of(initial, np.maximum(counts - 1, 0))])

    born = np.concatenate([np.full(variables, -1), time + 1, time + 2])
    last_use = np.full(born.size, -2)
    np.maximum.at(last_use, read, time[schedule.event])
    np.maximum.at(last_use, own[~moves], time[~moves])
    last_use[newest] = 3 * events
    lives = last_use >= 0
    lives[schedule.num_nodes] &= schedule.has_center
    slot = np.zeros(born.size, np.int32)
    slot[lives], num_slots = allocate(born[lives], last_use[lives])
    slot[~lives] = num_slots
    return _Versions(step, slot[own], slot[stepped], slot[averaged], slot[read], num_slots)


def _newest(schedule: PeerSchedule, versions: _Versions, events: list[int]) -> np.ndarray:
    """int32[., N or N + 1]: the slot of the parameters of each node (and the center) before each of these events."""
    shown = schedule.num_nodes + schedule.has_center
    made = np.where(schedule.takes_gradient(), versions.store, versions.publish)
    now = np.arange(shown, dtype=np.int32)
    rows, begin = [], 0
    for end in events:
        now, mine = now.copy(), begin + np.flatnonzero(schedule.node[begin:end] < shown)
        now[schedule.node[mine]] = made[mine]  # the last of several is the newest
        rows.append(now)
        begin = end
    return np.array(rows)


def _needs(schedule: PeerSchedule, versions: _Versions, event: np.ndarray, first: np.ndarray) -> np.ndarray:
    """int64[R]: the last row whose step makes a version that a row averages; -1 for none."""
    edges = np.flatnonzero((versions.step >= 0) & (schedule.event < first[-1]))
    needs = np.full(event.size, -1)
    rows = np.searchsorted(first, schedule.event[edges], side="right") - 1
    np.maximum.at(needs, rows, np.searchsorted(event, versions.step[edges]))
    return needs
