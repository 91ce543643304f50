"""Asynchronous SGD, softsync, bounded staleness, Ringmaster and Rennala: limits on age and on lead, special cases.

Those that are `asynchronous`, or read what `synchronous` reads.
"""

import numpy as np
import pytest
from comparison import RUNTIMES, assert_equal, assert_rows_are_run_times, check
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab import protocols


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

    def test_error_says_who_runs_out_when_and_what_would_do(self):
        # Worker 1 has used its 3 rows at 3, after worker 0's gradients at 2 and worker 1's at 1, 2 and 3.
        runtimes = np.array([[2.0, 1.0]] * 3)
        with pytest.raises(protocols.NotEnoughRuntimes, match=r"3 rows.*worker 1 runs out after 4 gradients") as caught:
            protocols.asynchronous(runtimes, num_gradients=5)
        assert isinstance(caught.value, ValueError)
        assert caught.value.rows > 3
        assert f"about {caught.value.rows} rows" in str(caught.value)


class TestSoftsync:
    @settings(check, max_examples=examples(50))
    @given(workers=st.integers(1, 6), size=st.integers(1, 6), rows=st.integers(2, 6))
    def test_equal_workers_in_lockstep(self, workers, size, rows):
        # Gradient g begins when g - N + 1 have come and enters update g // n: staleness N / n where n divides N.
        schedule = protocols.softsync(np.ones((size * rows, workers)), gradients_per_update=size)
        g = np.arange(schedule.used().sum())
        np.testing.assert_array_equal(schedule.update[: g.size, 0], g // size)
        np.testing.assert_array_equal(schedule.read[: g.size, 0], np.maximum(g - workers + 1, 0) // size)


class TestRennala:
    @check
    @given(runtimes=RUNTIMES, batch=st.integers(1, 3))
    def test_uses_only_fresh_gradients_in_whole_batches(self, runtimes, batch):
        try:
            schedule = protocols.rennala(runtimes, gradients_per_update=batch)
        except protocols.NotEnoughRuntimes:
            assert runtimes.shape[0] < batch
            return
        used = schedule.used()[:, 0]
        assert (schedule.staleness().compressed() == 0).all()
        np.testing.assert_array_equal(np.bincount(schedule.update[used, 0]), np.full(schedule.num_updates, batch))


class TestRingmaster:
    @pytest.mark.parametrize("interrupt", [False, True])
    @check
    @given(runtimes=RUNTIMES, limit=st.integers(1, 5))
    def test_delays_never_exceed_the_limit(self, interrupt, runtimes, limit):
        schedule = protocols.ringmaster(runtimes, max_delay=limit, interrupt=interrupt)
        assert schedule.delay().compressed().max() <= limit
        np.testing.assert_array_equal(schedule.update[schedule.used()], np.arange(schedule.num_updates))
        # What was ignored came after (without interruptions), or at, the update that made it too old.
        dropped = np.flatnonzero(schedule.dropped()[:, 0])
        too_old = schedule.applied[schedule.read[dropped, 0] + limit - 1, 0]
        assert (schedule.arrived[dropped, 0] >= too_old).all()
        if interrupt:
            np.testing.assert_array_equal(schedule.arrived[dropped, 0], too_old)

    @pytest.mark.parametrize("interrupt", [False, True])
    @check
    @given(runtimes=RUNTIMES)
    def test_without_a_limit_is_asynchronous(self, interrupt, runtimes):
        schedule = protocols.ringmaster(runtimes, max_delay=runtimes.size, interrupt=interrupt)
        assert_equal(schedule, protocols.asynchronous(runtimes))


class TestBoundedStaleness:
    @pytest.mark.parametrize("rows", [1, 4])
    def test_bound_of_0_can_apply_all_gradients_of_its_run_times(self, rows):
        # Nobody could begin another gradient before the last of the last round has come.
        runtimes = np.arange(1.0, 3 * rows + 1).reshape(rows, 3)
        asked = protocols.bounded_staleness(runtimes, bound=0, num_gradients=runtimes.size)
        assert_equal(asked, protocols.bounded_staleness(runtimes, bound=0))

    @check
    @given(runtimes=RUNTIMES, bound=st.integers(0, 5))
    def test_nobody_begins_further_ahead_than_the_bound(self, runtimes, bound):
        schedule = protocols.bounded_staleness(runtimes, bound=bound)
        assert schedule.used().all()
        for worker, read in zip(schedule.worker, schedule.read[:, 0], strict=True):
            # Version v is what the first v rows made: they are all that had come when the gradient was begun.
            done = np.bincount(schedule.worker[:read], minlength=schedule.num_workers)
            assert done[worker] - done.min() <= bound

    @check
    @given(runtimes=RUNTIMES)
    def test_bound_of_0_reads_what_synchronous_reads(self, runtimes):
        workers = runtimes.shape[1]
        schedule, rounds = protocols.bounded_staleness(runtimes, bound=0), protocols.synchronous(runtimes)
        order, others = (np.lexsort((found.started, found.worker)) for found in (schedule, rounds))
        np.testing.assert_array_equal(schedule.worker[order], rounds.worker[others])
        np.testing.assert_array_equal(schedule.started[order], rounds.started[others])
        np.testing.assert_array_equal(schedule.arrived[order], rounds.arrived[others])
        np.testing.assert_array_equal(schedule.read[order], rounds.read[others] * workers)

    @check
    @given(runtimes=RUNTIMES)
    def test_large_bound_is_asynchronous(self, runtimes):
        free = protocols.asynchronous(runtimes)
        schedule = protocols.bounded_staleness(runtimes, bound=len(runtimes), num_gradients=free.num_updates)
        assert_equal(schedule, free)
