"""Asynchronous and synchronous SGD: no gradient is lost or used twice, and errors name the place.

Further: synchronous is backup_workers without backups.
"""

import functools

import numpy as np
import pytest
from comparison import RUNTIMES, assert_equal, assert_schedule_is, check
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab import DROPPED, PENDING, Schedule, cluster, protocols


class TestAsynchronous:
    @check
    @given(runtimes=RUNTIMES)
    def test_every_gradient_is_an_update_or_pending(self, runtimes):
        schedule = protocols.asynchronous(runtimes)
        used = schedule.used()[:, 0]
        np.testing.assert_array_equal(schedule.update[used, 0], np.arange(schedule.num_updates))
        assert not schedule.dropped().any()
        assert schedule.pending().sum() <= runtimes.shape[1] - 1
        assert_rows_are_run_times(schedule, runtimes)

    def test_one_worker_is_serial(self):
        runtimes = cluster.gamma(num_workers=1, num_gradients=20, seed=0)
        schedule = protocols.asynchronous(runtimes)
        np.testing.assert_array_equal(schedule.read[:, 0], np.arange(20))
        np.testing.assert_array_equal(schedule.staleness()[:, 0], np.zeros(20))
        np.testing.assert_array_equal(schedule.applied[:, 0], np.cumsum(runtimes[:, 0]))
        assert_equal(schedule, protocols.synchronous(runtimes))

    def test_pending_rows_began_before_the_end(self):
        # Worker 0 arrives at 2, then worker 1 at 2 ends the run; worker 2 began at 0 and is not there yet.
        schedule = protocols.asynchronous(np.array([[2.0, 2.0, 3.0], [2.0, 2.0, 3.0]]), num_gradients=2)
        assert_schedule_is(
            schedule,
            {
                "worker": [0, 1, 2],
                "read": [[0], [0], [0]],
                "update": [[0], [1], [PENDING]],
                "started": [0, 0, 0],
                "arrived": [[2], [2], [3]],
                "applied": [[2], [2]],
            },
            3,
        )


class TestBackupWorkers:
    @check
    @given(data=st.data(), runtimes=RUNTIMES)
    def test_every_update_has_n_gradients_on_the_newest_version(self, data, runtimes):
        updates, workers = runtimes.shape
        backups = data.draw(st.integers(0, workers - 1))
        schedule = protocols.backup_workers(runtimes, backups=backups)
        used = schedule.used()[:, 0]
        np.testing.assert_array_equal(np.bincount(schedule.update[used, 0]), np.full(updates, workers - backups))
        np.testing.assert_array_equal(schedule.staleness().compressed(), np.zeros(used.sum()))
        assert schedule.used().sum() + schedule.dropped().sum() + schedule.pending().sum() == schedule.num_gradients
        assert_rows_are_run_times(schedule, runtimes)

    def test_straggler_of_a_smaller_number_at_the_instant_of_an_update_reads_before_it(self):
        # At 2, worker 0 (late for update 0) comes before worker 1, which closes update 1: it reads version 1.
        runtimes = np.array([[2.0, 1.0], [3.0, 1.0], [1.0, 1.0]])
        schedule = protocols.backup_workers(runtimes, backups=1)
        rows = schedule.worker == 0
        np.testing.assert_array_equal(schedule.read[rows, 0], [0, 1])
        np.testing.assert_array_equal(schedule.started[rows], [0, 2])
        np.testing.assert_array_equal(schedule.update[rows, 0], [DROPPED, PENDING])

    def test_straggler_of_a_larger_number_at_the_instant_of_an_update_reads_after_it(self):
        runtimes = np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 1.0]])
        schedule = protocols.backup_workers(runtimes, backups=1)
        np.testing.assert_array_equal(schedule.read[schedule.worker == 1, 0], [0, 2])

    @pytest.mark.parametrize("backups", [-1, 3, 4, 1.0, "1", None])
    def test_backups_out_of_range(self, backups):
        with pytest.raises(ValueError, match=rf"backups={backups!r} must be a whole number from 0 to 2.*3 workers"):
            protocols.backup_workers(np.ones((2, 3)), backups=backups)


class TestSynchronous:
    @check
    @given(runtimes=RUNTIMES)
    def test_is_backup_workers_without_backups(self, runtimes):
        schedule = protocols.synchronous(runtimes)
        assert_equal(schedule, protocols.backup_workers(runtimes, backups=0))

    @check
    @given(runtimes=RUNTIMES)
    def test_waits_for_the_slowest(self, runtimes):
        schedule = protocols.synchronous(runtimes)
        np.testing.assert_array_equal(schedule.applied[:, 0], np.cumsum(runtimes.max(axis=1)))
        assert schedule.used().all()
        assert schedule.num_gradients == runtimes.size


def assert_rows_are_run_times(schedule: Schedule, runtimes: np.ndarray) -> None:
    """A worker's rows, in the order it began them, last as long as its run-times, and never overlap."""
    for worker in range(schedule.num_workers):
        rows = np.flatnonzero(schedule.worker == worker)
        rows = rows[np.argsort(schedule.started[rows])]
        started, arrived = schedule.started[rows], schedule.arrived[rows, 0]
        np.testing.assert_array_equal(arrived, started + runtimes[: rows.size, worker])
        assert (started[1:] >= arrived[:-1]).all()


PROTOCOLS = {
    "asynchronous": protocols.asynchronous,
    "synchronous": protocols.synchronous,
    "backup_workers": functools.partial(protocols.backup_workers, backups=1),
    "timeout": functools.partial(protocols.timeout, at_least=2, seconds=1.0),
    "softsync": functools.partial(protocols.softsync, gradients_per_update=2),
    "bounded_staleness": functools.partial(protocols.bounded_staleness, bound=1),
    "layers": functools.partial(protocols.layerwise, num_blocks=3, reads="forward"),
    "ringmaster": functools.partial(protocols.ringmaster, max_delay=2),
    "rennala": functools.partial(protocols.rennala, gradients_per_update=2),
    "partial": functools.partial(protocols.partial, num_servers=2, push_at_least=2),
}


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
class TestRuntimes:
    @pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, -np.inf])
    def test_bad_value_is_named_by_its_place(self, protocol, value):
        runtimes = np.ones((4, 3))
        runtimes[2, 1] = runtimes[3, 0] = value
        with pytest.raises(ValueError, match=rf"runtimes\[2, 1\]={value} must be positive and finite"):
            protocol(runtimes)

    @pytest.mark.parametrize("shape", [(3,), (0, 3), (3, 0), (2, 3, 4), ()])
    def test_bad_shape_is_named(self, protocol, shape):
        with pytest.raises(ValueError, match=r"runtimes of shape \(.*\) must have shape \[T, N\]"):
            protocol(np.ones(shape))

    def test_overflow_of_the_sum(self, protocol):
        with pytest.raises(ValueError, match="more seconds than a float64 can hold"):
            protocol(np.full((2, 2), np.finfo(np.float64).max))

    def test_run_times_too_short_to_move_the_clock(self, protocol):
        with pytest.raises(ValueError, match="run-times must be long enough to move the clock"):
            protocol(np.array([[1.0, 1.0], [1e-20, 1e-20], [1.0, 1.0]]))

    @pytest.mark.parametrize("heterogeneous", [False, True])
    def test_same_seed_same_schedule(self, protocol, heterogeneous):
        draw = functools.partial(cluster.gamma, num_workers=6, num_gradients=20, heterogeneous=heterogeneous)
        schedule = protocol(draw(seed=1))
        assert_equal(schedule, protocol(draw(seed=1)))
        assert schedule.wall_clock() != protocol(draw(seed=2)).wall_clock()

    def test_leaves_its_argument_alone(self, protocol):
        runtimes = np.arange(1.0, 13.0).reshape(4, 3)
        protocol(runtimes)
        np.testing.assert_array_equal(runtimes, np.arange(1.0, 13.0).reshape(4, 3))
        assert runtimes.flags.writeable


class TestEnoughRows:
    @pytest.mark.parametrize("num_gradients", [0, -1, 2.0, "3"])
    def test_number_of_gradients_out_of_range(self, num_gradients):
        with pytest.raises(ValueError, match=rf"num_gradients={num_gradients!r} must be a whole number of at least 1"):
            protocols.asynchronous(np.ones((2, 2)), num_gradients=num_gradients)

    def test_error_says_who_runs_out_when_and_what_would_do(self):
        # Worker 1 has used its 3 rows at 3, after worker 0's gradients at 2 and worker 1's at 1, 2 and 3.
        runtimes = np.array([[2.0, 1.0]] * 3)
        with pytest.raises(protocols.NotEnoughRuntimes, match=r"3 rows.*worker 1 runs out after 4 gradients") as caught:
            protocols.asynchronous(runtimes, num_gradients=5)
        assert isinstance(caught.value, ValueError)
        assert caught.value.rows > 3
        assert f"about {caught.value.rows} rows" in str(caught.value)

    @settings(check, max_examples=examples(60))
    @given(
        workers=st.integers(1, 6),
        seed=st.integers(0, 99),
        num_gradients=st.integers(1, 80),
        rows=st.integers(1, 5),
        whole=st.booleans(),
    )
    def test_longer_table_changes_nothing(self, workers, seed, num_gradients, rows, whole):
        def draw(rows):
            asked.append(rows)
            times = cluster.gamma(num_workers=workers, num_gradients=rows, heterogeneous=True, batch_size=3, seed=seed)
            return np.ceil(times) if whole else times

        asked: list[int] = []
        protocol = functools.partial(protocols.asynchronous, num_gradients=num_gradients)
        schedule = protocols.with_enough_rows(protocol, draw, rows=rows)
        assert asked[0] == rows
        assert (np.diff(asked) > 0).all()
        # One worker alone can do at most all of them.
        assert_equal(schedule, protocol(draw(num_gradients + 1)))
        assert schedule.num_updates == num_gradients

    def test_protocols_that_have_enough_draw_once(self):
        asked = []
        draw = lambda rows: asked.append(rows) or np.ones((rows, 2))
        protocols.with_enough_rows(protocols.synchronous, draw, rows=3)
        assert asked == [3]
