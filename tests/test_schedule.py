"""The Schedule refuses whatever contradicts itself, and says of a small run what can be counted by hand.

The run (3 workers, 7 seconds, updates of two gradients; worker 1's second gradient comes too late, its third is
pending; a dot is waiting):

    second      0   1   2   3   4   5   6   7   8   9
    worker 0    [ 0 ]...[   0   ][   1  ]....            numbers are versions read
    worker 1    [   0   ][     1     ][     2       ]
    worker 2    [     0     ][      1       ]
    update              1       2           3
"""

import dataclasses
import re

import numpy as np
import pytest

from sgdlab import DROPPED, PENDING, Schedule

ARRAYS = {
    "worker": np.int32,
    "read": np.int32,
    "update": np.int32,
    "started": np.float64,
    "arrived": np.float64,
    "applied": np.float64,
}
END = 7


def fields() -> dict:
    rows = [  # worker, read, update, started, arrived
        (0, 0, 0, 0, 1),
        (1, 0, 0, 0, 2),
        (2, 0, 1, 0, 3),
        (0, 1, 1, 2, 4),
        (1, 1, DROPPED, 2, 5),
        (0, 2, 2, 4, 6),
        (2, 1, 2, 3, END),
        (1, 2, PENDING, 5, 9),
    ]
    worker, read, update, started, arrived = (np.array(column) for column in zip(*rows, strict=True))
    return {
        "worker": worker,
        "read": read[:, None],
        "update": update[:, None],
        "started": started.astype(float),
        "arrived": arrived[:, None].astype(float),
        "applied": np.array([[2.0], [4.0], [END]]),
        "num_workers": 3,
    }


def small() -> Schedule:
    return Schedule(**fields())


def two_blocks(**changed) -> Schedule:
    """Two workers, two blocks: block 1 drops what block 0 uses, and has one update less."""
    nan = np.nan
    made = {
        "worker": [0, 1, 0],
        "read": [[0, 0], [0, 0], [1, 0]],
        "update": [[0, DROPPED], [1, 0], [2, PENDING]],
        "started": [0, 0, 1],
        "arrived": [[1, 2], [3, 3], [4, 5]],
        "applied": [[1, 3], [3, nan], [4, nan]],
        "num_workers": 2,
    }
    return Schedule(**made | changed)


def empty() -> Schedule:
    none = np.zeros((0, 1))
    return Schedule([], none, none, [], none, none, num_workers=2)


def assert_equal(left, right) -> None:
    """Compares all fields of two schedules of one kind, and their types."""
    for name in (field.name for field in dataclasses.fields(right)):
        ours, theirs = getattr(left, name), getattr(right, name)
        assert type(ours) is type(theirs), name
        np.testing.assert_array_equal(ours, theirs, strict=True)


def put(name: str, row: int, value: float) -> dict:
    array = fields()[name].copy()
    array.reshape(len(array), -1)[row] = value
    return {name: array}


class TestValidation:
    def test_accepts_the_example(self):
        schedule = small()
        assert (schedule.num_gradients, schedule.num_updates, schedule.num_blocks) == (8, 3, 1)

    @pytest.mark.parametrize("num_workers", [0, -1])
    def test_number_of_workers(self, num_workers):
        with pytest.raises(ValueError, match=rf"num_workers={num_workers} must be at least 1"):
            Schedule(**fields() | {"num_workers": num_workers})

    @pytest.mark.parametrize(
        ("name", "shape", "message"),
        [
            ("worker", (8, 1), "worker must have shape [G] and applied [U, S]; they have (8, 1) and (3, 1)"),
            ("applied", (3, 1, 1), "worker must have shape [G] and applied [U, S]; they have (8,) and (3, 1, 1)"),
            ("applied", (3, 0), "applied of shape (3, 0) has no block; S must be at least 1"),
            *[(name, shape, f"{name} has shape {shape}; worker and applied call for (8, 1)")
              for name in ("read", "update", "arrived") for shape in ((7, 1), (8, 2))],
            *[("started", shape, f"started has shape {shape}; worker and applied call for (8,)")
              for shape in ((7,), (8, 1))],
        ],
    )  # fmt: skip
    def test_shapes(self, name, shape, message):
        with pytest.raises(ValueError, match=re.escape(message)):
            Schedule(**fields() | {name: np.zeros(shape)})

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            (put("worker", 3, -1), "worker=-1 in row 3 must be 0 to 2"),
            (put("worker", 3, 3), "worker=3 in row 3 must be 0 to 2"),
            (put("update", 4, -3), "update=-3 in row 4 must be -2 (pending), -1 (dropped) or 0 to 2"),
            (put("update", 6, 3), "update=3 in row 6 must be -2 (pending), -1 (dropped) or 0 to 2"),
            (put("started", 5, -1), "started=-1.0 in row 5 must be finite, not negative"),
            (put("started", 5, np.nan), "started=nan in row 5 must be finite, not negative"),
            (put("started", 5, np.inf), "started=inf in row 5 must be finite, not negative"),
            (put("arrived", 5, 4), "arrived=4.0 in row 5 must be finite and later than started"),
            (put("arrived", 4, 1), "arrived=1.0 in row 4 must be finite and later than started"),
            (put("arrived", 7, np.nan), "arrived=nan in row 7 must be finite and later than started"),
            (put("update", 3, 0), "update=0 in row 3 must be non-decreasing from 0 without a gap"),
            (put("update", slice(2, 4), 2), "update=2 in row 2 must be non-decreasing from 0 without a gap"),
            (put("update", slice(0, 2), 1), "update=1 in row 0 must be non-decreasing from 0 without a gap"),
            (put("read", 0, -1), "read=-1 in row 0 must be 0 or a version that earlier rows have formed"),
            (put("read", 1, 1), "read=1 in row 1 must be 0 or a version that earlier rows have formed"),
            (put("read", 3, 2), "read=2 in row 3 must be 0 or a version that earlier rows have formed"),
            # What nobody used was computed on something all the same.
            (put("read", 4, 3), "read=3 in row 4 must be 0 or a version that earlier rows have formed"),
            (put("read", 7, 4), "read=4 in row 7 must be 0 or a version that earlier rows have formed"),
            (put("applied", 1, np.nan), "applied must rise over the 3 updates of block 0"),
        ],
    )
    def test_rows_that_contradict_each_other(self, changed, message):
        with pytest.raises(ValueError, match=re.escape(message)):
            Schedule(**fields() | changed)

    def test_a_version_exists_from_the_row_after_the_one_that_completes_it(self):
        Schedule(**fields() | put("read", 2, 1) | put("started", 2, 2))
        Schedule(**fields() | put("read", 4, 2) | put("started", 4, 4))

    def test_every_update_has_a_gradient(self):
        with pytest.raises(ValueError, match="update"):
            Schedule(**fields() | {"applied": np.array([[2.0], [4.0], [END], [8.0]])})

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"read": [[0, 0], [0, 1], [1, 0]]}, "read=1 in row 1"),
            ({"update": [[0, DROPPED], [1, 1], [2, PENDING]]}, "update=1 in row 1"),
            ({"applied": [[1, np.nan], [3, np.nan], [4, np.nan]]}, "applied must rise over the 1 updates of block 1"),
            ({"arrived": [[1, 2], [3, 3], [4, 1]]}, "arrived=1.0 in row 2"),
        ],
    )
    def test_each_block_is_checked(self, changed, message):
        with pytest.raises(ValueError, match=re.escape(message)):
            two_blocks(**changed)


def test_the_axis_of_blocks_can_be_left_out_where_there_is_one():
    columns = fields()
    plain = {name: array.ravel() for name, array in columns.items() if name != "num_workers"}
    given = Schedule(**plain, num_workers=columns["num_workers"])
    for name in plain:
        np.testing.assert_array_equal(getattr(given, name), getattr(Schedule(**columns), name), strict=True)


class TestTimes:
    @pytest.mark.parametrize(("row", "read", "applied"), [(3, 1, 2), (4, 1, 2), (5, 2, 4), (6, 1, 2), (7, 2, 4)])
    def test_no_gradient_begins_before_the_version_that_it_reads_was_applied(self, row, read, applied):
        """Used, dropped (row 4) and pending (row 7) ones."""
        Schedule(**fields() | put("started", row, applied))
        message = f"in row {row} must be at least {float(applied)}, when version read={read} was applied"
        for started in (0, np.nextafter(applied, 0)):
            with pytest.raises(ValueError, match=re.escape(f"started={float(started)} {message}")):
                Schedule(**fields() | put("started", row, started))

    def test_a_worker_begins_its_gradients_one_after_the_other(self):
        reads_nothing = {"read": np.zeros((8, 1))}
        Schedule(**fields() | reads_nothing)
        with pytest.raises(
            ValueError, match=r"started=0\.0 in row 3 must differ from that of row 0: worker 0 computes"
        ):
            Schedule(**fields() | reads_nothing | {"started": np.zeros(8)})
        with pytest.raises(
            ValueError, match=r"started=5\.0 in row 7 must differ from that of row 4: worker 1 computes"
        ):
            Schedule(
                **fields() | reads_nothing | put("arrived", 4, 6) | put("started", 4, 5) | {"applied": [[2], [4], [7]]}
            )

    def test_a_message_can_be_in_flight_when_its_worker_begins_the_next_gradient(self):
        schedule = Schedule([0, 0], [[0], [0]], [[0], [1]], [0, 1], [[3], [4]], [[3], [4]], num_workers=1)
        np.testing.assert_array_equal(schedule.ended(), [1, 4])

    def test_a_worker_can_begin_its_gradients_in_another_order_than_they_arrive(self):
        Schedule([0, 0], [[0], [0]], [[0], [1]], [1, 0], [[3], [4]], [[3], [4]], num_workers=1)
        each, times = [[0], [1], [2]], [[3], [4], [5]]
        with pytest.raises(ValueError, match=r"started=1\.0 in row 2 must differ from that of row 0"):
            Schedule([0, 0, 0], np.zeros((3, 1)), each, [1, 0, 1], times, times, num_workers=1)

    def test_layers_can_be_read_after_a_gradient_has_begun_but_not_after_it_has_arrived(self):
        """Row 1 reads block 0 at its beginning, and version 1 of block 1, which is applied at 2."""
        made = {
            "worker": [0, 1],
            "read": [[0, 0], [0, 1]],
            "update": [[0, 0], [1, DROPPED]],
            "started": [0, 1],
            "arrived": [[2, 2], [3, 3]],
            "applied": [[2, 2], [3, np.nan]],
            "num_workers": 2,
        }
        Schedule(**made)
        Schedule(**made | {"arrived": [[2, 2], [3, 2]]})
        message = "arrived=1.5 in row 1 must be at least 2.0, when version read=1 of block 1 was applied"
        with pytest.raises(ValueError, match=re.escape(message)):
            Schedule(**made | {"arrived": [[2, 2], [3, 1.5]]})
        message = "started=1.0 in row 1 must be at least 2.0, when version read=1 of block 0 was applied"
        with pytest.raises(ValueError, match=re.escape(message)):
            Schedule(**made | {"read": [[0, 0], [1, 1]]})

    @pytest.mark.parametrize(
        ("order", "refused"),
        [
            ([1, 0, 2, 3, 4, 5, 6, 7], None),  # within an update any order will do
            ([0, 2, 1, 3, 4, 5, 6, 7], "update=0 in row 2"),
            ([7, 6, 5, 4, 3, 2, 1, 0], "update=2 in row 1"),
            ([4, 0, 1, 2, 3, 5, 6, 7], "read=1 in row 0"),
        ],
    )
    def test_rows_in_another_order_are_to_be_sorted_by_arrival(self, order, refused):
        shuffled = {name: fields()[name][order] for name in ARRAYS if name != "applied"}
        if refused is None:
            Schedule(**fields() | shuffled)
        else:
            with pytest.raises(ValueError, match=rf"^{refused} must be .*; sort the rows by arrival$"):
                Schedule(**fields() | shuffled)
        by_arrival = np.argsort(shuffled["arrived"][:, 0])
        assert_equal(Schedule(**fields() | {name: array[by_arrival] for name, array in shuffled.items()}), small())

    def test_rows_by_arrival_are_not_to_be_sorted(self):
        with pytest.raises(ValueError, match=r"^update=2 in row 2 must be non-decreasing from 0 without a gap$"):
            Schedule(**fields() | put("update", slice(2, 4), 2))


class TestServersThatDisagree:
    """Two servers meet gradients 0 and 1 in opposite orders: block 1 takes gradient 1 first."""

    def opposite(self, **changed) -> Schedule:
        made = {
            "worker": [0, 1, 0, 1],
            "read": [[0, 0], [0, 0], [1, 2], [2, 2]],
            "update": [[0, 1], [1, 0], [2, 2], [3, 3]],
            "started": [0, 0, 4, 4],
            "arrived": [[1, 4], [2, 3], [5, 5], [6, 6]],
            "applied": [[1, 3], [2, 4], [5, 5], [6, 6]],
            "num_workers": 2,
        }
        return Schedule(**made | changed)

    def test_is_a_schedule(self):
        np.testing.assert_array_equal(self.opposite().staleness(), [[0, 1], [1, 0], [1, 0], [1, 1]])

    @pytest.mark.parametrize(
        ("read", "message"),
        [
            # Row 1 forms version 1 of block 1, row 0 its version 2, which exists as soon as both have come.
            ([[0, 0], [0, 1], [1, 2], [2, 2]], "read=1 in row 1"),
            ([[0, 1], [0, 0], [1, 2], [2, 2]], "read=1 in row 0"),
            ([[0, 0], [0, 0], [1, 3], [2, 2]], "read=3 in row 2"),
            ([[0, 0], [2, 0], [1, 2], [2, 2]], "read=2 in row 1"),
        ],
    )
    def test_a_version_that_a_later_row_completes_is_refused(self, read, message):
        right = "must be 0 or a version that earlier rows have formed"
        with pytest.raises(ValueError, match=re.escape(f"{message} {right}")):
            self.opposite(read=read)

    def test_a_version_waits_for_the_last_of_its_rows(self):
        # Block 1 makes its first update of rows 0 and 2: no row up to 2 can read version 1 of it, row 3 can.
        halves = {
            "update": [[0, 0], [1, 1], [2, 0], [3, 1]],
            "read": [[0, 0], [0, 0], [1, 0], [2, 1]],
            "arrived": [[1, 4], [2, 6], [5, 5], [6, 6]],
            "applied": [[1, 5], [2, 6], [5, np.nan], [6, np.nan]],
        }
        self.opposite(**halves)
        with pytest.raises(ValueError, match="read=1 in row 2"):
            self.opposite(**halves | {"read": [[0, 0], [0, 0], [1, 1], [2, 1]]})
        with pytest.raises(ValueError, match="read=2 in row 3"):
            self.opposite(**halves | {"read": [[0, 0], [0, 0], [1, 0], [2, 2]]})

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"update": [[0, 1], [1, 2], [2, 3], [3, 3]]}, "update=1 in row 0 must be non-decreasing from 0"),
            ({"update": [[0, 1], [1, 0], [2, 3], [3, 3]]}, "update=3 in row 2 must be non-decreasing from 0"),
            ({"applied": [[1, 3], [2, 3.5], [5, 5], [6, 6]]}, "applied=3.5 in row 0 must be no earlier than"),
            ({"applied": [[1, 4], [2, 3], [5, 5], [6, 6]]}, "applied must rise over the 4 updates of block 1"),
        ],
    )
    def test_gaps_and_times_are_named_by_row(self, changed, message):
        with pytest.raises(ValueError, match=re.escape(message)):
            self.opposite(**changed)


class TestCounted:
    def test_masks(self):
        schedule = small()
        np.testing.assert_array_equal(np.flatnonzero(schedule.used()), [0, 1, 2, 3, 5, 6])
        np.testing.assert_array_equal(np.flatnonzero(schedule.dropped()), [4])
        np.testing.assert_array_equal(np.flatnonzero(schedule.pending()), [7])

    def test_staleness_and_delay_are_masked_where_nothing_was_used(self):
        schedule = small()
        for values, expected in ((schedule.staleness(), [0, 0, 1, 0, 0, 1]), (schedule.delay(), [1, 1, 2, 1, 1, 2])):
            assert values.shape == (8, 1)
            assert values.dtype == np.int32
            np.testing.assert_array_equal(values.compressed(), expected)
            np.testing.assert_array_equal(np.ma.getmaskarray(values), ~schedule.used())

    def test_clock_and_throughput(self):
        schedule = small()
        assert schedule.wall_clock() == END
        assert schedule.gradients_per_second() == 6 / END
        assert schedule.updates_per_second() == 3 / END

    def test_shares_of_the_wall_clock(self):
        schedule = small()
        # Worker 0 waits in [1, 2] and [6, 7]; worker 1's pending gradient counts up to the end.
        np.testing.assert_allclose(schedule.busy_share(), [5 / END, 1, 1], rtol=1e-15)
        np.testing.assert_allclose(schedule.idle_share(), [2 / END, 0, 0], atol=1e-15)
        np.testing.assert_allclose(schedule.wasted_share(), [0, 3 / END, 0], rtol=1e-15)

    def test_dropped_work_counts_up_to_the_end(self):
        late = Schedule(**fields() | put("arrived", 4, 20.0))
        np.testing.assert_allclose(late.wasted_share(), [0, (END - 2) / END, 0], rtol=1e-15)

    def test_a_worker_without_rows_is_idle(self):
        schedule = Schedule(**fields() | {"num_workers": 4})
        assert (schedule.busy_share()[3], schedule.idle_share()[3], schedule.wasted_share()[3]) == (0, 1, 0)

    def test_two_blocks(self):
        schedule = two_blocks()
        assert (schedule.num_gradients, schedule.num_updates, schedule.num_blocks) == (3, 3, 2)
        np.testing.assert_array_equal(schedule.used(), [[True, False], [True, True], [True, False]])
        np.testing.assert_array_equal(schedule.staleness().filled(-9), [[0, -9], [1, 0], [1, -9]])
        assert schedule.wall_clock() == 4
        assert schedule.gradients_per_second() == 3 / 4
        assert schedule.updates_per_second() == 3 / 4
        np.testing.assert_array_equal(schedule.wasted_share(), [0, 0])  # one block used what the other dropped
        # A worker is busy until the last block has its gradient, or the end has come.
        np.testing.assert_array_equal(schedule.busy_share(), [(2 + 3) / 4, 3 / 4])
        assert " of 2 blocks " in str(schedule)

    def test_nothing_happened(self):
        schedule = empty()
        assert schedule.wall_clock() == schedule.gradients_per_second() == schedule.updates_per_second() == 0
        np.testing.assert_array_equal(schedule.busy_share(), [0, 0])
        assert "undefined" in str(schedule)

    def test_its_text_is_one_line_with_the_counts(self):
        numbers = [float(number) for number in re.findall(r"\d+\.?\d*", str(small()))]
        np.testing.assert_allclose(numbers, [3, 3, 6, 1, 1, END, 2 / 6], rtol=1e-3)
        assert "\n" not in str(small())


def test_fractions_are_no_versions():
    with pytest.raises(ValueError, match="read of dtype float64 must hold whole numbers"):
        Schedule(**fields() | {"read": np.asarray(fields()["read"]) + 0.5})
