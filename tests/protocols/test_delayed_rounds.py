"""Delayed rounds: against workers that are simulated one event at a time, and what they must be."""

import heapq

import numpy as np
import pytest
from comparison import RUNTIMES, assert_equal, check
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab import PENDING, protocols, theory

few = settings(check, max_examples=examples(40))


def by_events(runtimes, communication):
    """(round, worker, started, ended) of all gradients, and when rounds were averaged: workers as the paper's loop.

    Each has a gradient to compute or a mean to wait for; nothing is known of rounds but who has spoken.
    """
    rounds, workers = runtimes.shape
    done, spoken, waiting, averaged = [], [0] * rounds, [], []
    heap = sorted((runtimes[0, worker], worker, 0, 0.0) for worker in range(workers))

    def speak(now, worker, t):
        spoken[t] += 1
        if spoken[t] == workers:
            heapq.heappush(heap, (now + communication, workers, t, now))
        if t + 1 < rounds:
            heapq.heappush(heap, (now + runtimes[t + 1, worker], worker, t + 1, now))

    while heap:
        now, worker, t, started = heapq.heappop(heap)
        if worker == workers:  # an all-reduce is over
            averaged.append(now)
            ready, waiting = waiting, []
            for other, round_of_other in ready:
                speak(now, other, round_of_other)
            continue
        done.append((t, worker, started, now))
        if t == 0 or len(averaged) >= t:
            speak(now, worker, t)
        else:
            waiting.append((worker, t))
    return done, averaged


@few
@given(runtimes=RUNTIMES, communication=st.sampled_from([0.0, 0.5, 3.0]))
def test_as_workers_event_by_event(runtimes, communication):
    schedule = protocols.delayed_rounds(runtimes, communication=communication)
    done, averaged = by_events(runtimes, communication)
    found = np.stack([schedule.update[:, 0], schedule.worker, schedule.started, schedule.arrived[:, 0]], axis=1)
    np.testing.assert_array_equal(found, sorted(done, key=lambda row: (row[0], row[3], row[1])))
    np.testing.assert_array_equal(schedule.applied[:, 0], averaged)
    np.testing.assert_array_equal(schedule.read, np.maximum(schedule.update - 1, 0))


@few
@given(runtimes=RUNTIMES, communication=st.sampled_from([0.0, 2.0]), data=st.data())
def test_a_longer_table_changes_nothing_and_the_next_round_is_pending(runtimes, communication, data):
    updates = data.draw(st.integers(1, len(runtimes)))
    asked = {"num_gradients": updates * runtimes.shape[1], "communication": communication}
    if updates == len(runtimes):
        with pytest.raises(protocols.NotEnoughRuntimes) as caught:
            protocols.delayed_rounds(runtimes, **asked)
        assert caught.value.rows > len(runtimes)
        return
    schedule = protocols.delayed_rounds(runtimes, **asked)
    assert_equal(schedule, protocols.delayed_rounds(runtimes[: updates + 1], **asked))
    whole = protocols.delayed_rounds(runtimes, communication=communication)
    next_round = (whole.update[:, 0] == updates) & (whole.started < schedule.wall_clock())
    pending = schedule.update[:, 0] == PENDING
    np.testing.assert_array_equal(schedule.worker[pending], whole.worker[next_round])
    np.testing.assert_array_equal(schedule.arrived[pending], whole.arrived[next_round])
    np.testing.assert_array_equal(schedule.update[~pending], whole.update[whole.update[:, 0] < updates])


@few
@given(runtimes=RUNTIMES)
def test_never_slower_than_synchronous_and_equal_where_workers_are_equal(runtimes):
    found, synchronous = protocols.delayed_rounds(runtimes), protocols.synchronous(runtimes)
    assert (found.applied <= synchronous.applied).all()
    equal = np.repeat(runtimes[:, :1], 3, axis=1)
    np.testing.assert_array_equal(protocols.delayed_rounds(equal).applied, protocols.synchronous(equal).applied)


@pytest.mark.parametrize(("communication", "period"), [(0.0, 4.0), (3.0, 4.0), (4.0, 4.0), (7.0, 7.0)])
def test_an_all_reduce_hides_behind_a_gradient(communication, period):
    schedule = protocols.delayed_rounds(np.full((9, 3), 4.0), communication=communication)
    np.testing.assert_allclose(np.diff(schedule.applied[:, 0]), period)
    end = 4 + 8 * period + communication
    np.testing.assert_allclose(schedule.idle_share(), 1 - 9 * 4 / end)  # computing counts, waiting does not


def test_its_certificate():
    """The tree has gradients one round from the branch, and all workers are used equally."""
    found = theory.certificate(protocols.delayed_rounds(np.random.default_rng(0).uniform(1, 2, (40, 4))))
    assert (found.largest_staleness, found.effective_workers, found.dropped) == (1, 4, 0)
    rounds = theory.certificate(protocols.synchronous(np.ones((40, 4))))
    assert found.tree_distance == rounds.tree_distance + 4
