"""The lowered program, run in NumPy: the slot that a row loads holds the version it reads, in both orders of execution.

In event order a row loads, then stores; in wave order all rows of a wave load, then store. Slots are as few as can be,
waves as long as can be, pauses and capacities where they should be.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_cases import schedules, with_backups

from sgdlab import Schedule, protocols
from sgdlab.replay import Capacity, Program, lower

check = settings(derandomize=True, deadline=None, max_examples=150, database=None)
LIMITS = st.one_of(st.none(), st.integers(1, 7))


def event_order(program: Program) -> np.ndarray:
    """The version that each row finds in its slot, one row at a time."""
    slots, found = np.zeros(program.num_slots, int), []
    for row in range(program.num_rows):
        found.append(slots[program.load[row]])
        if program.last[row]:
            slots[program.store[row]] = program.update[row] + 1
    return np.array(found)


def wave_order(program: Program) -> np.ndarray:
    """The same, a wave at a time: all of it loads before any of it stores."""
    slots, found = np.zeros(program.num_slots, int), []
    for begin, end in zip(program.waves[:-1], program.waves[1:], strict=True):
        found.extend(slots[program.load[begin:end]])
        for row in range(begin, end):
            if program.last[row]:
                slots[program.store[row]] = program.update[row] + 1
    return np.array(found)


def made_by(program: Program) -> dict[int, int]:
    """version -> the row that completes it; the initial one was there before."""
    return {0: -1} | {int(program.update[row]) + 1: row for row in np.flatnonzero(program.last)}


def fewest_slots(program: Program) -> int:
    """Most versions that have to be kept at once: made, and yet to be read; a new one needs a place of its own."""
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
        program = lower(case[1], every=every, width=width)
        np.testing.assert_array_equal(event_order(program), program.read)
        np.testing.assert_array_equal(wave_order(program), program.read)

    @check
    @given(case=schedules())
    def test_as_few_as_can_be(self, case):
        kind, schedule = case
        program = lower(schedule)
        assert program.num_slots == fewest_slots(program)
        assert program.load.max() < program.num_slots
        assert program.store.max() < program.num_slots
        if kind in ("synchronous", "backup_workers"):
            assert program.num_slots == 1
        if kind == "asynchronous":
            assert program.num_slots <= schedule.num_workers

    def test_corruption_is_noticed(self):
        """The check can fail: a version put elsewhere, or kept too short, is not found."""
        runtimes = np.random.default_rng(0).uniform(1, 4, (8, 5))
        program = lower(protocols.asynchronous(runtimes))
        assert program.num_slots > 2
        read = np.flatnonzero(np.isin(program.update + 1, program.read))  # rows whose version somebody reads
        for row in read:
            store = program.store.copy()
            store[row] = (store[row] + 1) % program.num_slots
            slip = dataclasses.replace(program, store=store)
            assert (event_order(slip) != program.read).any()
            assert (wave_order(slip) != program.read).any()


class TestRows:
    @check
    @given(case=schedules())
    def test_say_what_the_schedule_says(self, case):
        schedule = case[1]
        program = lower(schedule)
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
        program = lower(case[1], every=every, width=width)
        maker, starts = made_by(program), program.waves[:-1].tolist()
        assert program.waves[0] == 0
        assert program.waves[-1] == program.num_rows
        assert (np.diff(program.waves) >= 1).all()
        assert width is None or np.diff(program.waves).max() <= width
        assert program.mean_wave_length() == program.num_rows / len(starts)
        for begin, end in zip(program.waves[:-1], program.waves[1:], strict=True):
            made = [maker[version] for version in program.read[begin:end].tolist()]
            assert max(made) < begin
            if end < program.num_rows:
                needs_this_wave = maker[int(program.read[end])] >= begin
                assert needs_this_wave or end in program.pauses or end - begin == width
        assert set(program.pauses[:-1].tolist()) <= set(starts)

    @check
    @given(case=schedules(), every=LIMITS)
    def test_pauses_are_the_first_ends_of_updates_after_each_multiple(self, case, every):
        program = lower(case[1], every=every)
        ends = [row + 1 for row in range(program.num_rows) if program.last[row]]
        wanted = range(every, ends[-1], every) if every else []
        assert program.pauses.tolist() == sorted({min(e for e in ends if e >= k) for k in wanted} | {ends[-1]})

    def test_synchronous_waves_are_updates(self):
        program = lower(protocols.synchronous(np.ones((3, 4))))
        np.testing.assert_array_equal(program.waves, [0, 4, 8, 12])


class TestCapacity:
    @check
    @given(case=schedules(), width=LIMITS)
    def test_is_rounded_up_to_powers_of_two(self, case, width):
        program = lower(case[1], width=width)
        widest, workers = np.diff(program.waves).max(), case[1].num_workers
        lanes = max(widest, min(workers, width or workers))
        *sizes, kept = dataclasses.astuple(program.capacity)
        for size, needed in zip(sizes, (program.num_rows, program.num_slots, lanes), strict=True):
            assert size & (size - 1) == 0
            assert needed <= size < 2 * needed
        assert kept == 0  # one block uses every gradient at once

    def test_makes_room_for_others(self):
        small, large = (lower(with_backups(updates, num_workers=workers)) for updates, workers in ((3, 4), (40, 9)))
        assert small.capacity != large.capacity
        assert lower(with_backups(3, num_workers=4), capacity=large.capacity).capacity == large.capacity
        assert lower(with_backups(40, num_workers=9), capacity=small.capacity).capacity == large.capacity

    def test_union(self):
        assert Capacity(8, 1, 4) | Capacity(2, 4, 4) == Capacity(8, 4, 4, 0)
        assert Capacity(8, 1, 4, 2) | Capacity(2, 4, 4) == Capacity(8, 4, 4, 2)


class TestErrors:
    @pytest.mark.parametrize("name", ["every", "width"])
    @pytest.mark.parametrize("value", [0, -3])
    def test_limits_below_one(self, name, value):
        with pytest.raises(ValueError, match=f"{name}={value} must be at least 1"):
            lower(protocols.synchronous(np.ones((2, 2))), **{name: value})

    @pytest.mark.parametrize("blocks", [1, 2])
    @pytest.mark.parametrize("update", [-1, -2])
    def test_nothing_to_replay(self, update, blocks):
        each = lambda value: [[value] * blocks]
        nothing = Schedule([0], each(0), each(update), [0], each(1), np.zeros((0, blocks)), num_workers=1)
        with pytest.raises(ValueError, match="no gradient that enters an update"):
            lower(nothing)
