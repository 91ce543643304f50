"""Cutoff SGD: every field equals messages in a heap, and its record tells of the same run.

Further: it is a time-out of no seconds with interruption, waiting for all is `synchronous`, and training on it averages
the c gradients of every update.
"""

import heapq

import jax.numpy as jnp
import numpy as np
import pytest
from comparison import RUNTIMES, assert_equal, assert_schedule_is, check
from hypothesis import given
from hypothesis import strategies as st

from sgdlab import DROPPED, cluster, predictors, protocols, replay, rules
from sgdlab.predictors import Prediction
from sgdlab.protocols import cutoff_with_record
from sgdlab.tasks import Task


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
    """Run-times, a first window, and the cutoff of every update, the window's among them."""
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
    @given(runs())
    def test_dropped_work_was_interrupted_at_its_update(self, run):
        runtimes, window, script, _ = run
        schedule = protocols.cutoff(runtimes, predictor=Scripted(script), window=window)
        dropped = schedule.dropped()[:, 0]
        np.testing.assert_array_equal(schedule.arrived[dropped, 0], schedule.applied[schedule.read[dropped, 0], 0])
        begins = np.concatenate([[0.0], schedule.applied[:-1, 0]])
        np.testing.assert_array_equal(schedule.started, begins[schedule.read[:, 0]])  # all begin together
        assert (schedule.staleness().compressed() == 0).all()

    @check
    @given(data=st.data(), runtimes=RUNTIMES)
    def test_a_static_cutoff_is_a_time_out_of_no_seconds_with_interruption(self, data, runtimes):
        count = data.draw(st.integers(1, runtimes.shape[1]))
        # A first update that all workers end together takes no longer, however many it waits for.
        runtimes = np.concatenate([np.ones_like(runtimes[:1]), runtimes])
        schedule = protocols.cutoff(runtimes, predictor=predictors.Static(count), window=1)
        expected = protocols.timeout(runtimes, at_least=count, seconds=0, interrupt=True)
        later = schedule.read[:, 0] > 0
        for name in ("worker", "read", "update", "started", "arrived"):
            np.testing.assert_array_equal(getattr(schedule, name)[later], getattr(expected, name)[later])
        np.testing.assert_array_equal(schedule.applied, expected.applied)

    @check
    @given(RUNTIMES)
    def test_waiting_for_all_is_synchronous(self, runtimes):
        for predictor in (predictors.Static(None), predictors.Static(runtimes.shape[1])):
            schedule = protocols.cutoff(runtimes, predictor=predictor, window=1)
            assert_equal(schedule, protocols.synchronous(runtimes))

    @check
    @given(RUNTIMES)
    def test_a_window_as_long_as_the_run_is_synchronous(self, runtimes):
        schedule, record = cutoff_with_record(runtimes, predictor=predictors.Static(1), window=len(runtimes))
        assert_equal(schedule, protocols.synchronous(runtimes))
        assert record.warm_up == len(runtimes)

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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"runtimes": np.array([[1.0, -1.0]])}, r"^runtimes\[0, 1\]=-1\.0 must be positive and finite"),
        ({"window": 0}, "^window=0 must be a whole number of at least 1"),
        ({"objective": "speed"}, "^objective='speed' must be one of throughput, rate"),
        ({"predictor": predictors.Static(3)}, "^cutoff=3 must be a whole number from 1 to 2: there are 2 workers"),
    ],
)
def test_errors_name_the_argument_and_its_value(changed, message):
    with pytest.raises(ValueError, match=message):
        protocols.cutoff(**{"runtimes": np.ones((3, 2)), "predictor": predictors.Static(None)} | changed)


# A parabola with a minimum of its own for each gradient.
def parabola(params, target):
    return params - target, {}


def target(number):
    return jnp.arange(3.0) + number


RULE = rules.asgd(learning_rate=0.25)


def trained(schedule) -> np.ndarray:
    return np.asarray(replay.run(schedule, RULE, Task(parabola, jnp.ones(3)), target).params)


class TestReplay:
    def test_an_update_averages_the_gradients_that_came(self):
        runtimes = np.random.default_rng(0).uniform(0.5, 2.0, (6, 4))
        schedule = protocols.cutoff(runtimes, predictor=Scripted([3, 1, 2, 4]), window=2)
        params = np.ones(3)
        used = schedule.update[schedule.used()[:, 0], 0]
        for update in range(6):
            rows = np.flatnonzero(used == update)
            assert rows.size == [4, 4, 3, 1, 2, 4][update]
            params = params - 0.25 * np.mean([params - (np.arange(3.0) + row) for row in rows], axis=0)
        np.testing.assert_allclose(trained(schedule), params, rtol=1e-12)

    def test_waiting_for_all_is_synchronous_sgd(self):
        runtimes = np.random.default_rng(1).uniform(0.5, 2.0, (6, 4))
        schedule = protocols.cutoff(runtimes, predictor=predictors.Static(4), window=2)
        np.testing.assert_array_equal(trained(schedule), trained(protocols.synchronous(runtimes)))

    def test_one_worker_is_plain_sgd(self):
        schedule = protocols.cutoff(np.full((6, 1), 2.0), predictor=predictors.RunningMean(window=3), window=2)
        params = np.ones(3)
        for step in range(6):
            params = params - 0.25 * (params - (np.arange(3.0) + step))
        np.testing.assert_allclose(trained(schedule), params, rtol=1e-12)
