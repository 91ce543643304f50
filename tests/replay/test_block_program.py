"""The lowered program of several blocks, run in NumPy: every reader finds its version, every use its gradient.

In event order a gradient is computed, then the blocks make the uses that it allows; in wave order all gradients of a
wave are computed first. Slots and the buffer are arrays that hold what was last written to each index.
"""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.replay_cases import any_blocks, block_schedules, layers, opposite, seeded
from lib.tiers import examples

from sgdlab import DROPPED, Schedule
from sgdlab.replay import Capacity, ServerProgram, lower

check = settings(derandomize=True, deadline=None, max_examples=examples(120), database=None)
LIMITS = st.one_of(st.none(), st.integers(1, 7))
NOTHING = -1


def uses_of(schedule: Schedule, block: int) -> list[int]:
    """Rows of the schedule in the order in which a block uses them."""
    rows = [row for row in range(schedule.num_gradients) if schedule.update[row, block] >= 0]
    return sorted(rows, key=lambda row: (schedule.update[row, block], row))


class Walk:
    """Hold what is found by executing a program in event order, or in wave order, in which a wave loads before its use.

    Attributes:
      loaded: [R, S], the version of each block that a gradient was computed on.
      reloaded: [K, S], the version that a use reads as the one its gradient was computed on.
      taken: [K, S], the gradient at the index of the buffer that a use reads.
      made: [R + 1, S], versions that there were before each gradient of event order (wave order: before its wave).
    """

    def __init__(self, program: ServerProgram, *, by_wave: bool):
        rows, blocks = program.num_rows, program.num_blocks
        if not program.aligned:
            assert program.kept.max() < program.capacity.kept
        self.slots = np.zeros((program.capacity.slots, blocks), int)
        self.buffer = np.full(program.kept.max() + 1, NOTHING)
        self.loaded, self.made = np.zeros((rows, blocks), int), np.zeros((rows + 1, blocks), int)
        self.reloaded, self.taken = (np.full(program.row.shape, NOTHING) for _ in range(2))
        versions = np.zeros(blocks, int)
        starts = program.waves if by_wave else np.arange(rows + 1)
        for begin, end in itertools.pairwise(starts):
            for row in range(begin, end):
                self.made[row] = versions
                self.loaded[row] = self.slots[program.load[row], range(blocks)]
            for row in range(begin, end):
                self.buffer[program.kept[row]] = row
                for block in range(blocks):
                    for use in range(program.ends[row, block], program.ends[row + 1, block]):
                        self.taken[use, block] = self.buffer[program.kept[program.row[use, block]]]
                        self.reloaded[use, block] = self.slots[program.reload[use, block], block]
                        if program.last[use, block]:
                            versions[block] += 1
                            self.slots[program.store[use, block], block] = versions[block]
        self.made[rows] = versions


def assert_right(program: ServerProgram, schedule: Schedule, *, by_wave: bool) -> None:
    walk = Walk(program, by_wave=by_wave)
    np.testing.assert_array_equal(walk.loaded, schedule.read[program.gradient])
    for block in range(schedule.num_blocks):
        rows = uses_of(schedule, block)
        assert program.ends[-1, block] == len(rows)
        assert program.gradient[walk.taken[: len(rows), block]].tolist() == rows
        np.testing.assert_array_equal(walk.reloaded[: len(rows), block], schedule.read[rows, block])
    np.testing.assert_array_equal(walk.made[-1], np.isfinite(schedule.applied).sum(axis=0))


@check
@given(case=block_schedules(), every=LIMITS, width=LIMITS)
@pytest.mark.parametrize("by_wave", [False, True])
def test_every_reader_finds_its_version_and_every_use_its_gradient(by_wave, case, every, width):
    program = lower(case[1], every=every, width=width)
    assert isinstance(program, ServerProgram)
    assert_right(program, case[1], by_wave=by_wave)


@pytest.mark.parametrize("by_wave", [False, True])
@pytest.mark.parametrize("name", ["load", "reload", "store", "row", "ends", "kept"])
def test_corruption_is_noticed(name, by_wave):
    """The check can fail: one number that is off by one, at an index that matters, is detected."""
    schedule = opposite(12, 2, seed=1)
    program = lower(schedule)
    assert program.capacity.slots > 2
    array = getattr(program, name)
    noticed = 0
    for index in np.ndindex(array.shape):
        slip = array.copy()
        sizes = {"row": len(array), "ends": len(array), "kept": program.capacity.kept}
        slip[index] = (slip[index] + 1) % sizes.get(name, program.capacity.slots)
        try:
            assert_right(dataclasses.replace(program, **{name: slip}), schedule, by_wave=by_wave)
        except (AssertionError, IndexError):
            noticed += 1
    assert noticed >= array.size / 4


class TestUses:
    @check
    @given(case=block_schedules())
    def test_say_what_the_schedule_says(self, case):
        schedule = case[1]
        program = lower(schedule)
        rows = [row for row in range(schedule.num_gradients) if max(schedule.update[row]) >= 0]
        for name, values in {
            "gradient": rows,
            "worker": schedule.worker[rows],
            "read": schedule.read[rows],
            "update": schedule.update[rows],
            "arrived": schedule.arrived[rows],
        }.items():
            np.testing.assert_array_equal(getattr(program, name), values, err_msg=name)
        for block in range(schedule.num_blocks):
            used = uses_of(schedule, block)
            updates = schedule.update[used, block].tolist()
            delays = [update - schedule.read[row, block] + 1 for row, update in zip(used, updates, strict=True)]
            groups = {update: [i for i, u in enumerate(updates) if u == update] for update in updates}
            for name, values in {
                "row": [rows.index(row) for row in used],
                "first": [i == groups[u][0] for i, u in enumerate(updates)],
                "last": [i == groups[u][-1] for i, u in enumerate(updates)],
                "delay": delays,
                "count": [len(groups[u]) for u in updates],
            }.items():
                column = getattr(program, name)[:, block]
                np.testing.assert_array_equal(column[: len(used)], values, err_msg=name)
                assert (column[len(used) :] == 0).all(), name
            means = [np.mean([delays[i] for i in groups[u]]) for u in updates]
            np.testing.assert_allclose(program.mean_delay[: len(used), block], means, rtol=1e-14)
            for row, schedule_row in enumerate(rows):
                update = schedule.update[schedule_row, block]
                wanted = schedule.applied[update, block] if update >= 0 else np.nan
                np.testing.assert_equal(program.applied[row, block], wanted)
        assert program.num_workers == schedule.num_workers
        sizes = [np.sum(schedule.update[:, b] == u) for b, u in np.argwhere(np.isfinite(schedule.applied).T)]
        assert program.single == (set(sizes) == {1})

    @check
    @given(case=block_schedules())
    def test_come_as_soon_as_all_uses_before_them_can(self, case):
        """A block has made, before each gradient, the longest run of its uses whose gradients are there."""
        program = lower(case[1])
        for block in range(program.num_blocks):
            order = [program.gradient.tolist().index(row) for row in uses_of(case[1], block)]
            for row in range(program.num_rows + 1):
                runs = [k for k in range(len(order) + 1) if all(used < row for used in order[:k])]
                assert program.ends[row, block] == max(runs)

    def test_dropped_everywhere_is_not_computed(self):
        update = [[0, 0], [DROPPED, DROPPED], [DROPPED, 1]]
        times = [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
        applied = [[1.0, 1.0], [np.nan, 3.0]]
        program = lower(Schedule([0, 1, 0], np.zeros((3, 2)), update, [0, 0, 1], times, applied, num_workers=2))
        assert program.gradient.tolist() == [0, 2]
        assert program.ends.tolist() == [[0, 0], [1, 1], [1, 2]]


class TestAligned:
    @check
    @given(case=block_schedules())
    def test_is_where_every_block_uses_every_gradient_in_the_order_of_rows(self, case):
        schedule = case[1]
        program = lower(schedule)
        same = all(uses_of(schedule, block) == program.gradient.tolist() for block in range(schedule.num_blocks))
        assert program.aligned == same

    @pytest.mark.parametrize(("pushes", "aligned"), [("end", True), ("backward", False)])
    def test_layers(self, pushes, aligned):
        assert lower(layers(30, "forward", pushes)).aligned == aligned


class TestWaves:
    @check
    @given(case=block_schedules(), every=LIMITS, width=LIMITS)
    def test_read_nothing_made_inside_and_could_not_be_longer(self, case, every, width):
        program = lower(case[1], every=every, width=width)
        assert program.waves[0] == 0
        assert program.waves[-1] == program.num_rows
        assert (np.diff(program.waves) >= 1).all()
        limit = width or program.capacity.width
        assert np.diff(program.waves).max() <= limit
        assert program.mean_wave_length() == program.num_rows / (len(program.waves) - 1)
        # By event order, there is before a gradient what it needs; in a wave it has to be there before the wave.
        made = Walk(program, by_wave=False).made
        for begin, end in itertools.pairwise(program.waves):
            assert (program.read[begin:end] <= made[begin]).all()
            if end < program.num_rows:
                needs_this_wave = (program.read[end] > made[begin]).any()
                assert needs_this_wave or end in program.pauses or end - begin == limit
        assert set(program.pauses[:-1].tolist()) <= set(program.waves.tolist())

    @check
    @given(case=block_schedules(), every=LIMITS)
    def test_pauses(self, case, every):
        program = lower(case[1], every=every)
        rows = program.num_rows
        # Where blocks use all gradients in one order, at the first end of an update of every block.
        ends = [row + 1 for row in range(rows) if not program.aligned or program.last[row].all()]
        wanted = [*(range(every, rows, every) if every else ()), rows]
        assert program.pauses.tolist() == sorted({min(end for end in ends if end >= number) for number in wanted})
        assert program.every == every


class TestKept:
    @check
    @given(case=block_schedules())
    def test_are_as_few_as_can_be(self, case):
        """Most gradients at once that have been computed and that some block has yet to use."""
        program = lower(case[1])
        last_use = np.zeros(program.num_rows, int)
        for block in range(program.num_blocks):
            for use in range(program.ends[-1, block]):
                there = int(np.flatnonzero(program.ends[1:, block] > use)[0])
                last_use[program.row[use, block]] = max(last_use[program.row[use, block]], there)
        needed = [sum(last_use[: row + 1] >= row) for row in range(program.num_rows)]
        assert program.kept.max() + 1 == max(needed)
        if program.aligned:
            assert max(needed) == 1

    def test_opposite_orders_keep_all_between(self):
        program = lower(opposite(12, 2, size=4))
        assert program.kept.max() + 1 == 4
        assert not program.aligned


class TestCapacity:
    @check
    @given(case=block_schedules())
    def test_is_rounded_up_to_powers_of_two(self, case):
        program = lower(case[1])
        capacity, slots = program.capacity, max(program.load.max(), program.reload.max(), program.store.max()) + 1
        assert slots == program.num_slots
        needed = [(capacity.rows, program.num_rows), (capacity.slots, slots), (capacity.workers, case[1].num_workers)]
        if program.aligned:
            assert capacity.kept == 0
        else:
            needed.append((capacity.kept, program.kept.max() + 1))
        for size, least in needed:
            assert size & (size - 1) == 0
            assert least <= size < 2 * least

    def test_makes_room_for_others(self):
        small, large = (any_blocks(seeded(0), size, 4, 3) for size in (6, 40))
        roomy = lower(large, width=2).capacity
        assert lower(small, width=2).capacity != roomy
        assert lower(small, width=2, capacity=roomy).capacity == roomy
        assert lower(small, capacity=Capacity(1, 1, 1, kept=64)).capacity.kept == 64


class TestUniform:
    @check
    @given(case=block_schedules(), width=LIMITS)
    def test_is_where_every_wave_reads_one_version_of_each_block(self, case, width):
        program = lower(case[1], width=width)
        parts = np.split(program.read, program.waves[1:-1])
        assert program.uniform == all((part == part[0]).all() for part in parts)
