"""A schedule of peers lowered to a program: versions of the nodes' parameters in slots, and waves of gradients."""

import dataclasses
import heapq

import numpy as np

from sgdlab.peer_schedule import PeerSchedule
from sgdlab.replay.lowering import Room, Waved, check_limits, cut_waves, even_pauses, num_lanes, power_of_two


@dataclasses.dataclass(frozen=True)
class PeerCapacity(Room):
    """What a compiled replay of peers has room for. Programs of one capacity share one compilation.

    Attributes:
      rows: gradients that fit.
      events: gradients and moves of the center.
      edges: of all events.
      slots: versions of parameters.
      width: gradients of a wave that are computed at once.

    Example:
      >>> PeerCapacity(4, 4, 8, 4, 2) | PeerCapacity(2, 8, 8, 2, 4)
      PeerCapacity(rows=4, events=8, edges=8, slots=4, width=4)
    """

    rows: int
    events: int
    edges: int
    slots: int
    width: int


@dataclasses.dataclass(frozen=True, eq=False)
class PeerProgram(Waved):
    """Instructions for E events of which R take gradients, with M edges.

    A row is a gradient; the center's moves stand behind the gradient that they follow. Averaging is done in order, so
    only a version that a step has made (an even one, design of `PeerSchedule`) ends a wave.

    Attributes:
      event: int32[R + 1], the event of each row, and E.
      node: int32[R], whose gradient it is.
      own: int32[R], the slot of the node's parameters before it averages.
      store: int32[R], the slot for the version that its step makes.
      publish: int32[E], the slot for what an event has averaged, `slots` where nobody reads it.
      edges: int32[E + 1], the first edge of each event, and M.
      source: int32[M], the slot that an edge reads.
      weight: float64[M].
      waves: int32[W + 1], where each wave begins, and R.
      started, finished: float64[R], seconds.
      newest: int32[P + 1, N or N + 1], the slot of every node's (and the center's) parameters at the start and at each
        pause.
      pauses: int32[P], numbers of gradients after which a runner may look at the parameters; the last one is R.
      publishes: some event's average is read by others, or is the center's.
      every: gradients between two pauses, as asked for.
      num_nodes: N.
      has_center: whether there is one.
      fresh: whether gradients are taken at what has been averaged.
      num_slots: slots that are used.
      capacity: what a compiled replay must hold; at least what this program uses.
    """

    event: np.ndarray
    node: np.ndarray
    own: np.ndarray
    store: np.ndarray
    publish: np.ndarray
    edges: np.ndarray
    source: np.ndarray
    weight: np.ndarray
    waves: np.ndarray
    started: np.ndarray
    finished: np.ndarray
    newest: np.ndarray
    pauses: np.ndarray
    publishes: bool
    every: int | None
    num_nodes: int
    has_center: bool
    fresh: bool
    num_slots: int
    capacity: PeerCapacity


def lower_peers(
    schedule: PeerSchedule, *, capacity: PeerCapacity | None = None, every: int | None = None, width: int | None = None
) -> PeerProgram:
    """Lowers a schedule of peers.

    Args:
      schedule: of peers.
      capacity: shapes to make room for at least; so that several programs share one compilation.
      every: pause after each `every` gradients. None: only at the end.
      width: longest wave. None: no limit.

    Returns:
      The `PeerProgram`, whose capacity is rounded up to powers of two.

    Raises:
      ValueError: where the schedule has no gradient, an event does not begin from its node's newest parameters, or
        `every` or `width` is below 1.

    Example:
      >>> import numpy as np
      >>> from sgdlab import protocols
      >>> lower_peers(protocols.gossip(np.ones((3, 4)), synchronous=True, seed=0)).waves
      array([ 0,  4,  8, 12], dtype=int32)
    """
    check_limits(every, width)
    nodes = schedule.num_nodes
    event = np.flatnonzero(schedule.node < nodes)
    if event.size == 0:
        raise ValueError("schedule has no gradient: there is nothing to replay")
    _check_own(schedule)
    rows = event.size
    pauses = even_pauses(rows, every)
    slots = _Slots(schedule)
    slots.assign()
    waves = cut_waves(_needs(schedule, slots, event), pauses, width)
    lanes = num_lanes(waves, nodes, width)
    needed = PeerCapacity(
        *(power_of_two(size) for size in (rows, schedule.node.size, schedule.event.size, slots.size, lanes))
    )
    center = schedule.has_center
    ends = np.append(event, schedule.node.size)
    return PeerProgram(
        event=ends.astype(np.int32),
        node=schedule.node[event],
        own=slots.own[event],
        store=slots.store[event],
        publish=np.where(slots.publish < 0, slots.size, slots.publish).astype(np.int32),
        edges=np.searchsorted(schedule.event, np.arange(schedule.node.size + 1)).astype(np.int32),
        source=slots.source,
        weight=schedule.weight,
        waves=waves,
        started=schedule.started[event],
        finished=schedule.finished[event],
        newest=slots.newest([0, *ends[pauses].tolist()])[:, : nodes + center],
        pauses=pauses,
        publishes=bool((slots.publish >= 0).any()),
        every=every,
        num_nodes=nodes,
        has_center=center,
        fresh=schedule.fresh,
        num_slots=slots.size,
        capacity=needed | capacity if capacity else needed,
    )


def _check_own(schedule: PeerSchedule) -> None:
    """Refuses what no protocol makes, and the compiled loop does not do."""
    number, nodes = schedule.number(), schedule.num_nodes
    own = (schedule.source == schedule.node[schedule.event]) & (schedule.source_version == 2 * number[schedule.event])
    has_own = np.zeros(schedule.node.size, bool)
    has_own[schedule.event[own]] = True
    if not has_own.all():
        event = int(np.argmin(has_own))
        raise ValueError(
            f"event {event} of node {schedule.node[event]} must average the node's newest parameters too, version "
            f"{2 * number[event]}"
        )
    # A move of the center is made with the gradient that it follows, before that one's step.
    moves = schedule.node[schedule.event] == nodes
    of_node = np.flatnonzero(schedule.node < nodes)
    behind = of_node[np.searchsorted(of_node, schedule.event, side="left") - 1]
    stepped = 2 * number[behind] + 2
    late = moves & (schedule.source == schedule.node[behind]) & (schedule.source_version >= stepped)
    if late.any():
        raise ValueError(
            f"event {schedule.event[np.argmax(late)]} of the center must not read the step of the event before it"
        )


class _Slots:
    """Versions in slots, given out like registers: a version lives from its making to its last reader."""

    def __init__(self, schedule: PeerSchedule):
        self.schedule = schedule
        events, nodes = schedule.node.size, schedule.num_nodes
        self.number = schedule.number()
        degree = np.bincount(schedule.event, minlength=events)
        alone = np.zeros(events, bool)
        single = np.flatnonzero((degree == 1)[schedule.event])
        alone[schedule.event[single]] = schedule.source[single] == schedule.node[schedule.event[single]]
        # The event that makes each version: of node n, its k-th event is at `of_node[first[n] + k]`.
        of_node = np.argsort(schedule.node, kind="stable")
        counts = np.bincount(schedule.node, minlength=nodes + 1)
        first = np.cumsum(counts) - counts
        version = schedule.source_version.astype(np.int64)
        maker = np.full(version.size, -1)
        made = version > 0
        maker[made] = of_node[first[schedule.source[made]] + (version[made] - 1) // 2]
        # An event that averages nothing leaves what was there: who reads its average reads the version before.
        odd = version % 2 == 1
        idle = odd & made & alone[maker]
        version = np.where(idle, version - 1, version)
        back = np.flatnonzero(idle)
        place = (version[back] - 1) // 2
        maker[back] = np.where(version[back] > 0, of_node[first[schedule.source[back]] + np.maximum(place, 0)], -1)
        self.version, self.maker = version, maker

        self.own, self.store, self.publish = (np.full(events, -1, np.int32) for _ in range(3))
        self.source = np.empty(version.size, np.int32)
        self.size = 0

    def assign(self) -> None:
        """Goes through the events in order."""
        schedule, nodes = self.schedule, self.schedule.num_nodes
        source, version = schedule.source.tolist(), self.version.tolist()
        until: dict[tuple[int, int], int] = {}
        for edge, event in enumerate(schedule.event.tolist()):
            until[source[edge], version[edge]] = event  # the last one stays
        own = list(zip(schedule.node.tolist(), (2 * self.number).tolist(), strict=True))
        for event, key in enumerate(own):
            until[key] = max(until.get(key, -1), event)
        counts = np.bincount(schedule.node, minlength=nodes + 1).tolist()
        last = {(node, 2 * count) for node, count in enumerate(counts)}

        slot = {(node, 0): node for node in range(nodes + schedule.has_center)}
        free: list[int] = []
        self.size = len(slot)

        def give(key: tuple[int, int]) -> int:
            if not free:
                free.append(self.size)
                self.size += 1
            slot[key] = heapq.heappop(free)
            return slot[key]

        edges = np.searchsorted(schedule.event, np.arange(schedule.node.size + 1)).tolist()
        for event, key in enumerate(own):
            node, before = key
            self.own[event] = slot[key]
            keys = {key}
            for edge in range(edges[event], edges[event + 1]):
                read = source[edge], version[edge]
                self.source[edge] = slot[read]
                keys.add(read)
            for read in keys:
                if until[read] == event and read not in last:
                    heapq.heappush(free, slot.pop(read))
            averaged, stepped = (node, before + 1), (node, before + 2)
            if node == nodes:  # the center takes no step
                self.publish[event] = give(stepped)
            else:
                if averaged in until:
                    self.publish[event] = give(averaged)
                self.store[event] = give(stepped)
            if stepped not in last and stepped not in until:
                heapq.heappush(free, slot.pop(stepped))

    def newest(self, events: list[int]) -> np.ndarray:
        """int32[., N + 1]: where every node's parameters are before each of these events."""
        nodes = self.schedule.num_nodes
        now = np.arange(nodes + 1, dtype=np.int32)
        found, begin = [], 0
        for end in events:
            made = np.where(self.schedule.node == nodes, self.publish, self.store)[begin:end]
            now = now.copy()
            now[self.schedule.node[begin:end]] = made  # of several, the last one stays
            found.append(now)
            begin = end
        return np.array(found)


def _needs(schedule: PeerSchedule, slots: _Slots, event: np.ndarray) -> np.ndarray:
    """int64[R]: the last row whose step makes a version that a row averages; -1 for none."""
    # Only even versions of nodes come from steps.
    stepped = (slots.version % 2 == 0) & (slots.maker >= 0) & (schedule.source < schedule.num_nodes)
    needs = np.full(schedule.node.size, -1)
    np.maximum.at(needs, schedule.event[stepped], np.searchsorted(event, slots.maker)[stepped])
    return needs[event]
