"""Asynchronous and synchronous SGD: no gradient is lost or used twice, and errors name the place.

Further: synchronous is backup_workers without backups.
"""

import numpy as np
import pytest
from comparison import RUNTIMES, check
from hypothesis import given
from hypothesis import strategies as st

from sgdlab import DROPPED, PENDING, Schedule, protocols


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


class TestSynchronous:
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


class TestEnoughRows:
    def test_error_says_who_runs_out_when_and_what_would_do(self):
        # Worker 1 has used its 3 rows at 3, after worker 0's gradients at 2 and worker 1's at 1, 2 and 3.
        runtimes = np.array([[2.0, 1.0]] * 3)
        with pytest.raises(protocols.NotEnoughRuntimes, match=r"3 rows.*worker 1 runs out after 4 gradients") as caught:
            protocols.asynchronous(runtimes, num_gradients=5)
        assert isinstance(caught.value, ValueError)
        assert caught.value.rows > 3
        assert f"about {caught.value.rows} rows" in str(caught.value)
