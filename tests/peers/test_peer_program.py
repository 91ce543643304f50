"""The lowered program of peers, run in NumPy: every slot that is read holds the version that was meant.

In event order a gradient's averaging and the center's moves come before the step is stored; in wave order the
averagings of the whole wave come first, one after the other, then all its steps.
"""

import dataclasses

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab import PeerSchedule, policies, protocols  # noqa: F401 (policies register protocols)
from sgdlab.registry import PROTOCOLS
from sgdlab.replay import Capacity, PeerProgram, lower

check = settings(derandomize=True, deadline=None, max_examples=examples(120), database=None)
LIMITS = st.one_of(st.none(), st.integers(1, 7))


ON_GRAPHS = [
    ("d_psgd", {"graph": "complete"}),
    ("sgp", {"graph": "ring", "overlap": True}),
    ("sgp", {}),
    ("ad_psgd", {}),
    ("a2cid2", {}),
    ("a2cid2", {"rate": 4.0, "clock": "poisson"}),
    ("a2cid2", {"eta": 0.0}),
]


@st.composite
def schedules(draw) -> PeerSchedule:
    shape = draw(st.tuples(st.integers(1, 9), st.integers(1, 6)))
    elements = draw(st.sampled_from([st.integers(1, 3).map(float), st.floats(0.1, 9.0)]))
    runtimes = draw(hnp.arrays(np.float64, shape, elements=elements, fill=st.nothing()))
    period = draw(st.integers(1, 4))
    if draw(st.sampled_from([False, True])):
        name, own = draw(st.sampled_from(ON_GRAPHS))
        return PROTOCOLS.make(name, own, runtimes=runtimes, num_gradients=None, seed=draw(st.integers(0, 9)))
    if draw(st.sampled_from([False, False, True])):
        return protocols.elastic_averaging(runtimes, clock=draw(st.sampled_from(["own", "rounds"])), period=period)
    return protocols.gossip(
        runtimes,
        kind=draw(st.sampled_from(["pull", "push"])),
        clock=draw(st.sampled_from(["own", "rounds", "poisson"])),
        period=period,
        include_self=draw(st.booleans()),
        fresh=draw(st.booleans()),
        seed=draw(st.integers(0, 99)),
    )


def meaning(schedule: PeerSchedule):
    """(node, version) -> the version that stands for all that are equal to it.

    What an event averages is what was there before, if it averages nothing but its own newest parameters. Both versions
    of an event that only averages are one.
    """
    number = schedule.number()
    only_own, moved = set(), set()
    for event, node in enumerate(schedule.node.tolist()):
        if not schedule.takes_gradient()[event]:
            moved.add((node, 2 * int(number[event]) + 1))
            continue
        edges = np.flatnonzero(schedule.event == event)
        read = [(int(schedule.source[e]), int(schedule.source_version[e])) for e in edges]
        if read == [(node, 2 * int(number[event]))]:
            only_own.add((node, 2 * int(number[event]) + 1))
    return lambda node, version: (node, version - ((node, version) in only_own) + ((node, version) in moved))


class Machine:
    """Slots that hold the names of versions."""

    def __init__(self, schedule: PeerSchedule, program: PeerProgram):
        self.schedule, self.program, self.means, self.number = schedule, program, meaning(schedule), schedule.number()
        self.slots = [None] * (program.num_slots + 1)
        self.reads = schedule.reads().tolist()
        there = [v for v in range(schedule.num_variables) if v != schedule.num_nodes or schedule.has_center]
        for slot, variable in enumerate(there):
            self.slots[slot] = (variable, 0)

    def average(self, row: int) -> None:
        """The averaging of a row, and its moves: before it, or, if all are the center's, behind it."""
        program, schedule = self.program, self.schedule
        taken, first, end = program.event[row], program.first[row], program.first[row + 1]
        node = int(program.worker[row])
        assert node == schedule.node[taken]
        if row == 0:
            assert first == 0
        assert end == (taken + 1 if program.leads else program.event[row + 1])
        assert first == (taken if not program.leads else program.event[row - 1] + 1 if row else 0)
        for event in range(first, end):
            assert event == taken or program.leads or schedule.node[event] == schedule.num_nodes
            assert schedule.takes_gradient()[event] == (event == taken)
            if event == taken:
                at = 2 * int(self.number[taken]) if schedule.fresh else self.reads[taken]
                assert self.slots[program.own[row]] == self.means(node, at)
            for edge in range(program.edges[event], program.edges[event + 1]):
                assert schedule.event[edge] == event
                meant = self.means(int(schedule.source[edge]), int(schedule.source_version[edge]))
                assert self.slots[program.source[edge]] == meant, (event, edge)
                assert program.source[edge] < program.num_slots
                assert program.weight[edge] == schedule.weight[edge]
            made = self.means(int(schedule.node[event]), int(2 * self.number[event]) + 1)
            self.slots[program.publish[event]] = made

    def step(self, row: int) -> None:
        event = self.program.event[row]
        assert self.program.store[row] < self.program.num_slots
        self.slots[self.program.store[row]] = (int(self.program.worker[row]), int(2 * self.number[event]) + 2)

    def look(self, place: int) -> None:
        """Everybody's newest parameters are where they are said to be."""
        program, schedule = self.program, self.schedule
        rows = int(program.pauses[place - 1]) if place else 0
        before = schedule.node[: program.first[rows]] if place else schedule.node[:0]
        counts = np.bincount(before, minlength=schedule.num_variables)
        found = [self.slots[slot] for slot in program.newest[place]]
        assert found == [self.means(node, 2 * int(count)) for node, count in enumerate(counts)][: len(found)]
        assert len(found) == schedule.num_nodes + schedule.has_center


def in_event_order(schedule, program):
    machine = Machine(schedule, program)
    machine.look(0)
    for row in range(program.num_rows):
        machine.average(row)
        machine.step(row)
        for place in np.flatnonzero(program.pauses == row + 1):
            machine.look(int(place) + 1)


def in_wave_order(schedule, program):
    machine = Machine(schedule, program)
    machine.look(0)
    for begin, end in zip(program.waves[:-1].tolist(), program.waves[1:].tolist(), strict=True):
        nodes = program.worker[begin:end]
        assert np.unique(nodes).size == nodes.size  # one optimiser does not take two steps at once
        for row in range(begin, end):
            machine.average(row)
        for row in range(begin, end):
            machine.step(row)
        for place in np.flatnonzero(program.pauses == end):
            machine.look(int(place) + 1)
    assert np.isin(program.pauses, program.waves).all()


class TestSlots:
    @check
    @given(schedule=schedules(), every=LIMITS, width=LIMITS)
    def test_every_read_finds_what_was_meant(self, schedule, every, width):
        program = lower(schedule, every=every, width=width)
        in_event_order(schedule, program)
        in_wave_order(schedule, program)

    def test_corruption_is_noticed(self):
        """The check can fail: what is kept elsewhere, or too short, is not found."""
        runtimes = np.random.default_rng(0).uniform(1, 4, (5, 4))
        for schedule in (protocols.gossip(runtimes, seed=0), protocols.elastic_averaging(runtimes)):
            program = lower(schedule)
            for name in ("store", "publish"):
                for place, slot in enumerate(getattr(program, name)):
                    changed = getattr(program, name).copy()
                    changed[place] = (slot + 1) % program.num_slots
                    slip = dataclasses.replace(program, **{name: changed})
                    for order in (in_event_order, in_wave_order):
                        if name == "publish" and slot == program.num_slots:
                            continue  # nobody reads it: it may be put in a free slot
                        with pytest.raises(AssertionError):
                            order(schedule, slip)

    @check
    @given(schedule=schedules())
    def test_as_few_as_can_be(self, schedule):
        """Most versions that have to be kept at once: made, and yet to be read, or somebody's newest."""
        means, number, nodes = meaning(schedule), schedule.number().tolist(), schedule.num_nodes
        variables = [v for v in range(schedule.num_variables) if v != nodes or schedule.has_center]
        made, until, reads = {(variable, 0): -1 for variable in variables}, {}, schedule.reads().tolist()
        for event, node in enumerate(schedule.node.tolist()):
            made[node, 2 * number[event] + 2] = event
            until[node, 2 * number[event]] = event
            if reads[event] >= 0 and not schedule.fresh:
                at = means(node, reads[event])
                until[at] = max(until.get(at, -1), event)
        for edge, event in enumerate(schedule.event.tolist()):
            version = means(int(schedule.source[edge]), int(schedule.source_version[edge]))
            until[version] = max(until.get(version, -1), event)
            if version not in made:  # an average that somebody reads
                made[version] = next(e for e, n in enumerate(number) if (schedule.node[e], 2 * n + 1) == version)
        alive = lambda event: sum(m <= event and (until.get(v, np.inf) > event or m == event) for v, m in made.items())
        assert lower(schedule).num_slots == max(alive(event) for event in range(-1, schedule.node.size))


class TestWaves:
    @check
    @given(schedule=schedules(), every=LIMITS, width=LIMITS)
    def test_are_as_long_as_can_be(self, schedule, every, width):
        """A wave ends where the next gradient reads what a step inside it has made, or at a pause, or is full."""
        program, means = lower(schedule, every=every, width=width), meaning(schedule)
        starts = program.waves[:-1].tolist()
        assert (program.waves[0], program.waves[-1]) == (0, program.num_rows)
        number = schedule.number()
        row_of = {(int(schedule.node[e]), int(2 * number[e]) + 2): row for row, e in enumerate(program.event[:-1])}
        for begin, end in zip(starts, program.waves[1:].tolist(), strict=True):
            limit = width or program.capacity.width
            assert end - begin <= limit
            if end == program.num_rows:
                continue
            edges = range(program.edges[program.first[end]], program.edges[program.event[end] + 1])
            read = [means(int(schedule.source[e]), int(schedule.source_version[e])) for e in edges]
            needed = max(row_of.get(version, -1) for version in read)
            assert needed >= begin or end in program.pauses or end - begin == limit

    @pytest.mark.parametrize("kind", ["pull", "push"])
    def test_of_rounds_are_the_rounds(self, kind):
        runtimes = np.random.default_rng(0).uniform(1, 2, (6, 5))
        program = lower(protocols.gossip(runtimes, kind=kind, clock="rounds", seed=0), width=8)
        np.testing.assert_array_equal(program.waves, np.arange(0, 31, 5))
        assert program.mean_wave_length() == 5
        program = lower(protocols.elastic_averaging(runtimes, clock="rounds"), width=8)
        np.testing.assert_array_equal(program.waves, np.arange(0, 31, 5))


class TestPrograms:
    @check
    @given(schedule=schedules(), every=LIMITS)
    def test_say_what_the_schedule_says(self, schedule, every):
        program = lower(schedule, every=every)
        ours = schedule.takes_gradient()
        np.testing.assert_array_equal(program.gradient, np.flatnonzero(ours))
        scale = np.ones(ours.size) if schedule.scale is None else schedule.scale
        for name, values in {"worker": schedule.node, "finished": schedule.finished, "scale": scale}.items():
            np.testing.assert_array_equal(getattr(program, name), values[ours])
        nodes = schedule.node[ours].tolist()
        np.testing.assert_array_equal(program.number, [nodes[:row].count(node) for row, node in enumerate(nodes)])
        assert program.single
        assert not program.uniform
        rows = int(ours.sum())
        assert program.pauses.tolist() == sorted({*range(every or rows, rows, every or rows), rows})
        assert (program.num_nodes, program.has_center, program.fresh) == (
            schedule.num_nodes, schedule.has_center, schedule.fresh,
        )  # fmt: skip
        room = program.capacity
        for size, least in (
            (room.rows, rows), (room.events, ours.size), (room.edges, schedule.event.size),
            (room.slots, program.num_slots), (room.workers, schedule.num_nodes),
        ):  # fmt: skip
            assert least <= size < 2 * least
            assert size & (size - 1) == 0
        assert np.diff(program.waves).max() <= room.width <= room.workers
        assert program.lanes_per_gradient() == room.width * (program.waves.size - 1) / rows <= 1.5

    def test_capacity_is_at_least_what_is_asked_for(self):
        schedule = protocols.gossip(np.ones((3, 4)), seed=0)
        asked = Capacity(64, 2, 16, edges=128)
        room = lower(schedule, capacity=asked, width=8).capacity
        assert room == lower(schedule, width=8).capacity | asked
        assert (room.rows, room.edges, room.width) == (64, 128, 8)

    @pytest.mark.parametrize("name", ["every", "width"])
    @pytest.mark.parametrize("value", [0, -3])
    def test_limits(self, name, value):
        with pytest.raises(ValueError, match=f"{name}={value} must be a whole number of at least 1"):
            lower(protocols.gossip(np.ones((3, 4)), seed=0), **{name: value})

    def test_nothing_to_replay(self):
        with pytest.raises(ValueError, match="schedule has no gradient"):
            lower(PeerSchedule([], [], [], [], [], [], [], num_nodes=2))


def hand_made(rows, **options) -> PeerSchedule:
    """A schedule of (node, [(source, version, weight), ...]), one second each."""
    node = [row[0] for row in rows]
    flat = [(event, *edge) for event, row in enumerate(rows) for edge in row[1]]
    event, source, version, weight = zip(*flat, strict=True)
    started = np.arange(len(rows), dtype=float)
    return PeerSchedule(node, started, started + 1, event, source, version, weight, **{"num_nodes": 2} | options)


SELF = [(0, [(0, 0, 1.0)]), (1, [(1, 0, 1.0)])]  # both nodes take a gradient of their own
UNUSUAL = {
    # A node takes over the other's average and uses nothing of its own: its own step came first all the same.
    "another's average alone": hand_made([SELF[0], (1, [(1, 0, 0.5), (0, 0, 0.5)]), (0, [(1, 1, 1.0)])]),
    "another's average alone, not fresh": hand_made(
        [SELF[0], (1, [(1, 0, 0.5), (0, 0, 0.5)]), (0, [(1, 1, 1.0)])], fresh=False
    ),
    # A node goes back to older parameters of its own, and the other reads what that has given.
    "own older version": hand_made([*SELF, (0, [(0, 0, 1.0)]), (1, [(0, 3, 1.0)])]),
    # The center, number 2, moves right behind a step, to what the step has made.
    "center after the step": hand_made([SELF[0], (2, [(2, 0, 0.5), (0, 2, 0.5)]), (1, [(1, 0, 0.5), (2, 2, 0.5)])]),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_schedules_that_no_protocol_makes_are_refused(name):
    with pytest.raises(ValueError, match=r"must average the node's newest|must not read the step"):
        lower(UNUSUAL[name])
