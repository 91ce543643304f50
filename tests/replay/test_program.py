"""The lowered program of one block, run in NumPy: the slot that a row loads holds the version it reads, in both orders.

In event order a row loads, then stores; in wave order all rows of a wave load, then store. Slots are as few as can be,
waves as long as can be, pauses and capacities where they should be.
"""

import dataclasses
import functools
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.replay_cases import schedules, with_backups
from lib.tiers import examples

from sgdlab import Schedule, cluster, protocols
from sgdlab.replay import MAX_BLOCKS, Capacity, ServerProgram, lower
from sgdlab.replay.program import cut_waves, power_of_two, waves_and_width

check = settings(derandomize=True, deadline=None, max_examples=examples(150), database=None)
LIMITS = st.one_of(st.none(), st.integers(1, 7))


BY_BLOCK = ("load", "store", "reload", "first", "last", "delay", "mean_delay", "count", "read", "update", "arrived")


def column(program: ServerProgram) -> types.SimpleNamespace:
    """The program, with the one column of whatever has a column for each block."""
    assert program.num_blocks == 1
    assert program.aligned
    everything = {field.name: getattr(program, field.name) for field in dataclasses.fields(program)}
    squeezed = {name: everything[name][:, 0] for name in (*BY_BLOCK, "applied")}
    return types.SimpleNamespace(**everything | squeezed, num_rows=program.num_rows, single=program.single)


def lowered(schedule, **options) -> types.SimpleNamespace:
    return column(lower(schedule, **options))


def event_order(program) -> np.ndarray:
    """The version that each row finds in its slot, one row at a time."""
    slots, found = np.zeros(program.num_slots, int), []
    for row in range(program.num_rows):
        found.append(slots[program.load[row]])
        if program.last[row]:
            slots[program.store[row]] = program.update[row] + 1
    return np.array(found)


def wave_order(program) -> np.ndarray:
    """The same, a wave at a time: all of it loads before any of it stores."""
    slots, found = np.zeros(program.num_slots, int), []
    for begin, end in zip(program.waves[:-1], program.waves[1:], strict=True):
        found.extend(slots[program.load[begin:end]])
        for row in range(begin, end):
            if program.last[row]:
                slots[program.store[row]] = program.update[row] + 1
    return np.array(found)


def made_by(program) -> dict[int, int]:
    """version -> the row that completes it; the initial one was there before."""
    return {0: -1} | {int(program.update[row]) + 1: row for row in np.flatnonzero(program.last)}


def fewest_slots(program) -> int:
    """Most versions in use at one time: made, and yet to be read; a new one needs its own slot."""
    maker = made_by(program)
    until = {version: max(np.flatnonzero(program.read == version), default=row) for version, row in maker.items()}
    return max(
        sum(made <= row and (until[version] > row or made == row) for version, made in maker.items())
        for row in [*np.flatnonzero(program.last), -1]
    )


class TestSlots:
    @check
    @given(case=schedules(), every=LIMITS, width=LIMITS)
    def test_every_row_finds_the_version_it_reads(self, case, every, width):
        program = lowered(case[1], every=every, width=width)
        np.testing.assert_array_equal(event_order(program), program.read)
        np.testing.assert_array_equal(wave_order(program), program.read)

    @check
    @given(case=schedules())
    def test_as_few_as_can_be(self, case):
        kind, schedule = case
        program = lowered(schedule)
        np.testing.assert_array_equal(program.reload, program.load)
        assert program.num_slots == fewest_slots(program)
        assert program.load.max() < program.num_slots
        assert program.store.max() < program.num_slots
        if kind in ("synchronous", "backup_workers"):
            assert program.num_slots == 1
        if kind == "asynchronous":
            assert program.num_slots <= schedule.num_workers

    def test_corruption_is_noticed(self):
        """The check can fail: a version in another slot, or overwritten too early, is not found."""
        runtimes = np.random.default_rng(0).uniform(1, 4, (8, 5))
        program = lowered(protocols.asynchronous(runtimes))
        assert program.num_slots > 2
        read = np.flatnonzero(np.isin(program.update + 1, program.read))  # rows whose version somebody reads
        for row in read:
            store = program.store.copy()
            store[row] = (store[row] + 1) % program.num_slots
            slip = types.SimpleNamespace(**vars(program) | {"store": store})
            assert (event_order(slip) != program.read).any()
            assert (wave_order(slip) != program.read).any()


class TestRows:
    @check
    @given(case=schedules())
    def test_say_what_the_schedule_says(self, case):
        schedule = case[1]
        program = lowered(schedule)
        rows = [row for row in range(schedule.num_gradients) if schedule.update[row, 0] >= 0]
        updates = schedule.update[rows, 0].tolist()
        delays = schedule.delay()[rows, 0].tolist()
        groups = {update: [i for i, u in enumerate(updates) if u == update] for update in updates}
        expected = {
            "gradient": rows,
            "worker": schedule.worker[rows],
            "read": schedule.read[rows, 0],
            "update": updates,
            "arrived": schedule.arrived[rows, 0],
            "applied": schedule.applied[updates, 0],
            "delay": delays,
            "first": [i == groups[u][0] for i, u in enumerate(updates)],
            "last": [i == groups[u][-1] for i, u in enumerate(updates)],
            "count": [len(groups[u]) for u in updates],
        }
        for name, values in expected.items():
            np.testing.assert_array_equal(getattr(program, name), values, err_msg=name)
        means = [np.mean([delays[i] for i in groups[u]]) for u in updates]
        np.testing.assert_allclose(program.mean_delay, means, rtol=1e-14)
        assert program.num_rows == len(rows)
        assert program.num_workers == schedule.num_workers
        assert program.single == (len(groups) == len(rows))


class TestWaves:
    @check
    @given(case=schedules(), every=LIMITS, width=LIMITS)
    def test_read_nothing_made_inside_and_could_not_be_longer(self, case, every, width):
        program = lowered(case[1], every=every, width=width)
        maker, starts = made_by(program), program.waves[:-1].tolist()
        assert program.waves[0] == 0
        assert program.waves[-1] == program.num_rows
        assert (np.diff(program.waves) >= 1).all()
        limit = width or program.capacity.width
        assert np.diff(program.waves).max() <= limit
        assert lower(case[1], every=every, width=width).mean_wave_length() == program.num_rows / len(starts)
        for begin, end in zip(program.waves[:-1], program.waves[1:], strict=True):
            made = [maker[version] for version in program.read[begin:end].tolist()]
            assert max(made) < begin
            if end < program.num_rows:
                needs_this_wave = maker[int(program.read[end])] >= begin
                assert needs_this_wave or end in program.pauses or end - begin == limit
        assert set(program.pauses[:-1].tolist()) <= set(starts)

    @check
    @given(case=schedules(), every=LIMITS)
    def test_pauses_are_the_first_ends_of_updates_after_each_multiple(self, case, every):
        program = lowered(case[1], every=every)
        ends = [row + 1 for row in range(program.num_rows) if program.last[row]]
        wanted = range(every, ends[-1], every) if every else []
        assert program.pauses.tolist() == sorted({min(e for e in ends if e >= k) for k in wanted} | {ends[-1]})

    def test_synchronous_waves_are_updates(self):
        program = lowered(protocols.synchronous(np.ones((3, 4))))
        np.testing.assert_array_equal(program.waves, [0, 4, 8, 12])


def cut_row_by_row(needs: list[int], pauses: list[int], width: int) -> list[int]:
    """The first row of each wave, and R, by going through the rows."""
    starts = [0]
    for row, needed in enumerate(needs):
        if row > starts[-1] and (needed >= starts[-1] or row in pauses or row - starts[-1] == width):
            starts.append(row)
    return [*starts, len(needs)]


@st.composite
def dependences(draw) -> tuple[list[int], list[int]]:
    """Return what each row needs, an earlier row or none, and pauses, the last one after all rows."""
    size = draw(st.integers(1, 40))
    needs = [draw(st.one_of(st.just(-1), st.integers(max(row - 5, -1), row - 1))) for row in range(size)]
    return needs, sorted({*draw(st.lists(st.integers(1, size), max_size=4)), size})


class TestCuts:
    @settings(check, max_examples=examples(300))
    @given(case=dependences(), width=st.integers(1, 12))
    def test_are_those_of_going_row_by_row(self, case, width):
        waves = cut_waves(*map(np.array, case), width)
        assert waves.dtype == np.int32
        assert waves.tolist() == cut_row_by_row(*case, width)

    @pytest.mark.full
    @settings(check, max_examples=examples(300))
    @given(case=dependences(), num_workers=st.integers(1, 20))
    def test_of_the_width_that_is_chosen(self, case, num_workers):
        lanes = power_of_two(num_workers)
        whole = set(np.diff(cut_row_by_row(*case, lanes)).tolist())
        if len(whole) == 1:
            lanes = whole.pop()
        while lanes * (len(cut_row_by_row(*case, lanes)) - 1) > 1.5 * len(case[0]):
            lanes //= 2
        waves, width = waves_and_width(*map(np.array, case), num_workers, None)
        assert (waves.tolist(), width) == (cut_row_by_row(*case, lanes), lanes)


def gamma(num_workers: int, num_gradients: int) -> Schedule:
    """An asynchronous schedule of the heterogeneous cluster of Barkai et al. 2020, C.3."""
    draw = lambda rows: cluster.gamma(num_workers=num_workers, num_gradients=rows, heterogeneous=True, seed=0)
    protocol = functools.partial(protocols.asynchronous, num_gradients=num_gradients)
    return protocols.with_enough_rows(protocol, draw, rows=num_gradients)


class TestWidth:
    @check
    @given(case=schedules(), every=LIMITS)
    def test_is_the_widest_power_of_two_that_wastes_at_most_half(self, case, every):
        schedule = case[1]
        chosen = lower(schedule, every=every)
        widths = [2**k for k in range(8) if 2**k < 2 * schedule.num_workers]
        by_hand = {}
        for width in widths:
            program = lower(schedule, every=every, width=width)
            computed = sum(width for _ in program.waves[1:])
            by_hand[width] = computed / program.num_rows
            assert program.lanes_per_gradient() == by_hand[width]
        whole = np.diff(lower(schedule, every=every, width=2 * widths[-1]).waves)
        if len(set(whole.tolist())) == 1 and whole[0] <= widths[-1]:  # all of one length: none of it is wasted
            assert chosen.capacity.width == whole[0]
            assert chosen.lanes_per_gradient() == 1
            return
        assert chosen.capacity.width == max(width for width in widths if by_hand[width] <= 1.5)
        assert chosen.lanes_per_gradient() == by_hand[chosen.capacity.width] <= 1.5

    @pytest.mark.parametrize(("num_workers", "width"), [(8, 2), (32, 8), (128, 32)])
    def test_of_a_heterogeneous_cluster(self, num_workers, width):
        program = lower(gamma(num_workers, 40 * num_workers))
        assert program.capacity.width == width
        assert 1 <= program.lanes_per_gradient() <= 1.5

    @check
    @given(case=schedules(), width=st.integers(1, 9))
    def test_is_what_is_asked_for(self, case, width):
        program = lower(case[1], width=width, capacity=Capacity(1, 1, 64))
        assert program.capacity.width == width
        assert np.diff(program.waves).max() <= width


class TestUniform:
    @check
    @given(case=schedules(), every=LIMITS, width=LIMITS)
    def test_is_where_every_wave_reads_one_version(self, case, every, width):
        program = lowered(case[1], every=every, width=width)
        versions = [set(part) for part in np.split(program.read, program.waves[1:-1])]
        assert program.uniform == all(len(part) == 1 for part in versions)
        if case[0] in ("synchronous", "backup_workers"):
            assert program.uniform


class TestCapacity:
    @check
    @given(case=schedules())
    def test_is_rounded_up_to_powers_of_two(self, case):
        program = lowered(case[1])
        capacity = program.capacity
        for size, needed in (
            (capacity.rows, program.num_rows), (capacity.slots, program.num_slots),
            (capacity.workers, case[1].num_workers),
        ):  # fmt: skip
            assert size & (size - 1) == 0
            assert needed <= size < 2 * needed
        assert (capacity.kept, capacity.events, capacity.edges) == (0, 0, 0)  # one block uses every gradient at once

    def test_makes_room_for_others(self):
        small, large = (lower(with_backups(updates, num_workers=workers)) for updates, workers in ((3, 4), (40, 9)))
        assert small.capacity != large.capacity
        for updates, workers, first, second in ((3, 4, small, large), (40, 9, large, small)):
            program = lower(with_backups(updates, num_workers=workers), capacity=second.capacity)
            assert program.capacity == dataclasses.replace(large.capacity, width=first.capacity.width)

    def test_union(self):
        """The larger of everything but the lanes, which are the first one's."""
        one, other = Capacity(8, 1, 4, 2, kept=2, edges=1), Capacity(2, 4, 8, 4, events=3, edges=5)
        assert one | other == Capacity(8, 4, 4, 4, 2, 3, 5)
        assert other | one == Capacity(8, 4, 8, 4, 2, 3, 5)


class TestErrors:
    @pytest.mark.parametrize("name", ["every", "width"])
    @pytest.mark.parametrize("value", [0, -3])
    def test_limits_below_one(self, name, value):
        with pytest.raises(ValueError, match=f"{name}={value} must be a whole number of at least 1"):
            lower(protocols.synchronous(np.ones((2, 2))), **{name: value})

    @pytest.mark.parametrize("blocks", [1, 2])
    @pytest.mark.parametrize("update", [-1, -2])
    def test_nothing_to_replay(self, update, blocks):
        each = lambda value: [[value] * blocks]
        nothing = Schedule([0], each(0), each(update), [0], each(1), np.zeros((0, blocks)), num_workers=1)
        with pytest.raises(ValueError, match="no gradient that enters an update"):
            lower(nothing)

    def test_more_blocks_than_can_be_compiled(self):
        blocks = MAX_BLOCKS + 1
        schedule = protocols.layerwise(np.ones((2, 2)), num_blocks=blocks)
        with pytest.raises(ValueError, match=f"num_blocks={blocks} must be a whole number from 1 to {MAX_BLOCKS}"):
            lower(schedule)


@pytest.mark.parametrize("workers", [5, 8, 40])
def test_synchronous_waves_have_a_lane_for_every_gradient_and_no_more(workers):
    runtimes = np.random.default_rng(0).uniform(1, 2, (6, workers))
    program = lower(protocols.synchronous(runtimes))
    assert program.uniform
    assert program.capacity.width == workers
    assert program.lanes_per_gradient() == 1.0
