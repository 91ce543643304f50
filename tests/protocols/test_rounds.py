"""Rounds: who enters an update can be seen, ties with the deadline included; special cases, and deadlines by hand."""

import numpy as np
import pytest
from comparison import RUNTIMES, assert_equal, assert_rows_are_run_times, assert_schedule_is, check
from hypothesis import given
from hypothesis import strategies as st
from lib.events import Driver

from sgdlab import DROPPED, PENDING, policies, protocols

SECONDS = st.sampled_from([0.0, 1.0, 2.0, 0.5, 3.0])  # deadlines at the instants of arrivals


@pytest.mark.parametrize("interrupt", [False, True])
class TestRounds:
    @check
    @given(data=st.data(), runtimes=RUNTIMES, seconds=SECONDS)
    def test_updates_take_from_c_to_n_fresh_gradients(self, interrupt, data, runtimes, seconds):
        updates, workers = runtimes.shape
        at_least = data.draw(st.integers(1, workers))
        schedule = protocols.timeout(runtimes, at_least=at_least, seconds=seconds, interrupt=interrupt)
        used = schedule.used()[:, 0]
        sizes = np.bincount(schedule.update[used, 0])
        assert sizes.size == updates
        assert ((sizes >= at_least) & (sizes <= workers)).all()
        assert seconds or (sizes == at_least).all()
        assert (schedule.staleness().compressed() == 0).all()
        if not interrupt:
            assert_rows_are_run_times(schedule, runtimes)
        else:  # everybody begins every round, and nothing outlives it
            np.testing.assert_array_equal(schedule.read[:, 0], np.repeat(np.arange(updates), workers))
            assert not schedule.pending().any()

    @check
    @given(runtimes=RUNTIMES, data=st.data())
    def test_very_many_seconds_are_synchronous(self, interrupt, runtimes, data):
        at_least = data.draw(st.integers(1, runtimes.shape[1]))
        schedule = protocols.timeout(runtimes, at_least=at_least, seconds=1e9, interrupt=interrupt)
        assert_equal(schedule, protocols.synchronous(runtimes))

    @check
    @given(runtimes=RUNTIMES, seconds=SECONDS)
    def test_waiting_for_all_needs_no_timer(self, interrupt, runtimes, seconds):
        schedule = protocols.timeout(runtimes, at_least=1.0, seconds=seconds, interrupt=interrupt)
        assert_equal(schedule, protocols.synchronous(runtimes))


@check
@given(runtimes=RUNTIMES)
def test_synchronous_waits_for_the_slowest(runtimes):
    schedule = protocols.synchronous(runtimes)
    np.testing.assert_array_equal(schedule.applied[:, 0], np.cumsum(runtimes.max(axis=1)))
    assert schedule.used().all()
    assert schedule.num_gradients == runtimes.size


@check
@given(runtimes=RUNTIMES, data=st.data())
def test_a_quorum_of_all_who_wait_is_synchronous(runtimes, data):
    at_least, grace = data.draw(st.sampled_from([(1.0, 0.0), (1.0, 0.5), (1, 1e9)]))
    found = protocols.quorum(runtimes, at_least=at_least, grace=grace, waits=True, num_gradients=runtimes.size)
    assert_equal(found, protocols.synchronous(runtimes))


@check
@given(runtimes=RUNTIMES)
def test_a_quorum_of_one_is_asynchronous(runtimes):
    assert_equal(protocols.quorum(runtimes, at_least=1, grace=0.0), protocols.asynchronous(runtimes))


class TestByHand:
    def test_a_grace_window_is_a_share_of_the_time_until_the_quorum(self):
        """A quorum at 4 s waits until 6 s, for worker 2 and not for worker 3, at 7 s the second update's first.

        Its second comes at 10 s, 4 s after it began, so that the third is in time at 11 s, and the last too late.
        """
        runtimes = np.array([[2.0, 4.0, 5.0, 7.0], [4.0, 5.0, 8.0, 1.0]])
        schedule = protocols.quorum(runtimes, at_least=2, grace=0.5, waits=True, num_gradients=6)
        np.testing.assert_array_equal(schedule.applied[:, 0], [6.0, 12.0])
        np.testing.assert_array_equal(schedule.worker, [0, 1, 2, 3, 0, 1, 2])
        np.testing.assert_array_equal(schedule.update[:, 0], [0, 0, 0, 1, 1, 1, PENDING])
        assert schedule.staleness()[3, 0] == 1

    def test_a_grace_window_ends_when_all_have_come_though_they_have_begun_again(self):
        """The quorum is there at 4 s, and would wait until 8; the last worker comes at 5."""
        runtimes = np.array([[2.0, 4.0, 5.0], [9.0, 9.0, 9.0]])
        schedule = protocols.quorum(runtimes, at_least=2, grace=1.0, num_gradients=3)
        np.testing.assert_array_equal(schedule.applied[:, 0], [5.0])
        np.testing.assert_array_equal(schedule.update[:, 0], [0, 0, 0, PENDING, PENDING])
        np.testing.assert_array_equal(schedule.started[3:], [2.0, 4.0])

    @pytest.mark.parametrize("waits", [False, True])
    def test_who_is_lost_and_joins_begins_unless_it_waits_for_the_update_with_its_message(self, waits):
        driver = Driver(policies.quorum(num_workers=3, at_least=3, waits=waits), range(3))
        driver.come(0)
        driver.lose(0)
        driver.join(0)
        assert (0 in driver.busy) == (not waits)

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

    def test_the_very_deadline_is_late(self):
        # Worker 0 comes at 1; the deadline is 3, when worker 1 comes; it is dropped, and reads version 1 at 3.
        schedule = protocols.timeout(np.array([[1.0, 3.0], [1.0, 1.0]]), at_least=1, seconds=2.0)
        assert_schedule_is(
            schedule,
            {
                "worker": [0, 1, 0, 1],
                "read": [[0], [0], [1], [1]],
                "update": [[0], [DROPPED], [1], [1]],
                "started": [0, 0, 3, 3],
                "arrived": [[1], [3], [4], [4]],
                "applied": [[3], [4]],
            },
            2,
        )

    def test_interrupted_work_ends_at_the_update(self):
        schedule = protocols.timeout(np.array([[1.0, 9.0], [1.0, 9.0]]), at_least=1, seconds=1.0, interrupt=True)
        assert_schedule_is(
            schedule,
            {
                "worker": [0, 1, 0, 1],
                "read": [[0], [0], [1], [1]],
                "update": [[0], [DROPPED], [1], [DROPPED]],
                "started": [0, 0, 2, 2],
                "arrived": [[1], [2], [3], [4]],
                "applied": [[2], [4]],
            },
            2,
        )

    def test_uninterrupted_work_outlives_several_updates(self):
        # Worker 1 ends its first gradient at 5, when update 2 is 1 second old, and has not ended its second at 6.
        schedule = protocols.timeout(np.array([[1.0, 5.0]] * 3), at_least=1, seconds=1.0)
        rows = schedule.worker == 1
        np.testing.assert_array_equal(schedule.applied[:, 0], [2, 4, 6])
        np.testing.assert_array_equal(schedule.read[rows, 0], [0, 2])
        np.testing.assert_array_equal(schedule.update[rows, 0], [DROPPED, PENDING])
        np.testing.assert_array_equal(schedule.started[rows], [0, 5])

    def test_a_share_of_the_workers_is_rounded_up(self):
        runtimes = np.arange(1.0, 31.0).reshape(1, 30)
        by_share = {share: protocols.timeout(runtimes, at_least=share, seconds=0).used().sum() for share in (0.1, 0.11)}
        assert by_share == {0.1: 3, 0.11: 4}
        assert protocols.timeout(runtimes, at_least=1, seconds=0).used().sum() == 1
        assert protocols.timeout(runtimes, at_least=1.0, seconds=0).used().sum() == 30
