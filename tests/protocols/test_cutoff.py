"""Cutoff SGD: every field equals messages in a heap, and its record tells of the same run.

Further: waiting for all is `synchronous`.
"""

import heapq

import numpy as np
import pytest
from comparison import RUNTIMES, assert_equal, assert_schedule_is, check
from hypothesis import given
from hypothesis import strategies as st

from sgdlab import DROPPED, cluster, predictors, protocols
from sgdlab.predictors import Prediction
from sgdlab.protocols import cutoff_with_record


class Scripted:
    """Says cutoffs that were written down beforehand."""

    title = "scripted"

    def __init__(self, cutoffs):
        self.cutoffs = list(cutoffs)

    def start(self, window, *, seed):
        return 0, np.full(np.shape(window)[1], np.nan)

    def predict(self, state, *, rate=None):
        return Prediction(self.cutoffs[state[0]], state[1], state[1])

    def observe(self, state, runtimes, cut_at):
        return state[0] + 1, state[1]


def simulate(runtimes: np.ndarray, cutoffs: list[int]) -> dict[str, list]:
    """Messages in a heap, equal times by worker number: the c-th of a version makes its update and stops the others."""
    updates, workers = runtimes.shape
    rows, applied, messages = [], [], []

    def begin(now: float) -> None:
        version = len(applied)
        for worker in range(workers):
            heapq.heappush(messages, (now + float(runtimes[version, worker]), worker, version, now))

    begin(0.0)
    came = 0
    while len(applied) < updates:
        now, worker, version, started = heapq.heappop(messages)
        if version < len(applied):
            continue  # its worker was stopped when that version's update closed
        rows.append((now, worker, version, version, started))
        came += 1
        if came == cutoffs[version]:
            late = {number for _, number, of, _ in messages if of == version}
            rows += [(now, number, version, DROPPED, started) for number in late]
            applied.append(now)
            came = 0
            if len(applied) < updates:
                begin(now)
    rows.sort(key=lambda row: (row[0], row[1]))
    arrived, worker, read, update, started = zip(*rows, strict=True)
    return {
        "worker": worker,
        "read": [[version] for version in read],
        "update": [[number] for number in update],
        "started": started,
        "arrived": [[time] for time in arrived],
        "applied": [[time] for time in applied],
    }


@st.composite
def runs(draw):
    """Compute times, a first window, and the cutoff of every update, the window's among them."""
    runtimes = draw(RUNTIMES)
    updates, workers = runtimes.shape
    window = draw(st.integers(1, updates))
    script = draw(st.lists(st.integers(1, workers), min_size=updates - window, max_size=updates - window))
    return runtimes, window, script, [workers] * window + script


class TestSchedule:
    @check
    @given(runs())
    def test_equals_messages(self, run):
        runtimes, window, script, every = run
        schedule, record = cutoff_with_record(runtimes, predictor=Scripted(script), window=window)
        assert_schedule_is(schedule, simulate(runtimes, every), runtimes.shape[1])
        np.testing.assert_array_equal(record.cutoff, every)

    @check
    @given(runs())
    def test_record_is_of_the_same_run(self, run):
        runtimes, window, script, every = run
        schedule, record = cutoff_with_record(runtimes, predictor=Scripted(script), window=window)
        np.testing.assert_allclose(np.diff(schedule.applied[:, 0], prepend=0), record.seconds, rtol=1e-12, atol=1e-13)
        np.testing.assert_array_equal(np.bincount(schedule.update[schedule.used()]), record.cutoff)
        assert schedule.dropped().sum() == runtimes.size - sum(every)
        assert not schedule.pending().any()
        per_second = record.gradients_per_second(warm_up=True)
        assert schedule.gradients_per_second() == pytest.approx(per_second, rel=1e-12)

    @check
    @given(RUNTIMES)
    def test_waiting_for_all_is_synchronous(self, runtimes):
        for predictor in (predictors.Static(None), predictors.Static(runtimes.shape[1])):
            schedule = protocols.cutoff(runtimes, predictor=predictor, window=1)
            assert_equal(schedule, protocols.synchronous(runtimes))

    def test_by_hand(self):
        # Worker 2 is stopped at 2; at 4 workers 0 and 1 come together, and the lower number counts.
        runtimes = np.array([[1.0, 1.0, 1.0], [2.0, 1.0, 5.0], [2.0, 2.0, 3.0]])
        schedule, record = cutoff_with_record(runtimes, predictor=Scripted([2, 1]), window=1)
        assert_schedule_is(
            schedule,
            {
                "worker": [0, 1, 2, 1, 0, 2, 0, 1, 2],
                "read": [[0], [0], [0], [1], [1], [1], [2], [2], [2]],
                "update": [[0], [0], [0], [1], [1], [DROPPED], [2], [DROPPED], [DROPPED]],
                "started": [0, 0, 0, 1, 1, 1, 3, 3, 3],
                "arrived": [[1], [1], [1], [2], [3], [3], [5], [5], [5]],
                "applied": [[1], [3], [5]],
            },
            3,
        )
        np.testing.assert_array_equal(record.seconds, [1, 2, 2])

    def test_a_real_predictor_sees_only_what_came_in_time(self):
        runtimes = cluster.gamma(num_workers=8, num_gradients=40, heterogeneous=True, seed=0)
        given = {"predictor": predictors.RunningMean(window=10), "objective": "rate", "seed": 2}
        schedule, record = cutoff_with_record(runtimes, **given)
        same = predictors.run_online(runtimes, censored=True, **given)
        np.testing.assert_array_equal(record.cutoff, same.cutoff)
        np.testing.assert_array_equal(record.mean, same.mean)
        hidden = np.where(np.arange(8) < record.cutoff[:, None], 1.0, 1.5) * np.sort(runtimes, axis=1)
        changed = np.take_along_axis(hidden, np.argsort(np.argsort(runtimes, axis=1), axis=1), axis=1)
        again = protocols.cutoff(changed, **given)
        assert (changed != runtimes).any()
        assert_equal(again, schedule)


def test_a_record_ends_with_its_run():
    runtimes = np.random.default_rng(0).uniform(1, 3, (50, 4))
    schedule, record = cutoff_with_record(runtimes, predictor=predictors.RunningMean(), window=2, num_gradients=20)
    for array in (record.cutoff, record.mean, record.std, record.observed, record.seconds):
        assert len(array) == schedule.num_updates
    assert record.cutoff.sum() >= 20 > record.cutoff[:-1].sum()
