"""Test what policies answer where workers are lost and join, by hand; and in storms, in which all stays possible."""

import copy
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.events import Driver
from lib.tiers import examples

from sgdlab import policies, predictors
from sgdlab.policies import Begin, Close, Interrupt, Take, Wake

POLICIES = {
    "asynchronous": policies.asynchronous,
    "softsync": partial(policies.softsync, gradients_per_update=3),
    "rennala": partial(policies.rennala, gradients_per_update=3),
    "ringmaster": partial(policies.ringmaster, max_delay=2),
    "interrupting ringmaster": partial(policies.ringmaster, max_delay=2, interrupt=True),
    "bounded_staleness": partial(policies.bounded_staleness, bound=1),
    "bound of 0": partial(policies.bounded_staleness, bound=0),
    "synchronous": policies.synchronous,
    "backup_workers": policies.backup_workers,
    "timeout": partial(policies.timeout, at_least=0.5, seconds=2.5),
    "interrupting timeout": partial(policies.timeout, at_least=0.5, seconds=2.5, interrupt=True),
    "random assignment": partial(policies.assignment, seed=1, kind="random"),
    "shuffled assignment": partial(policies.assignment, seed=2, gradients_per_update=2),
    "interrupting growing ringmaster": partial(policies.growing_ringmaster, interrupt=True),
    "pure assignment": partial(policies.assignment, seed=0, kind="pure", gradients_per_update=2),
    "dropcompute": partial(policies.dropcompute, window=2),
    "interrupting dropcompute": partial(policies.dropcompute, seconds=3.5, interrupt=True),
    "anytime": partial(policies.anytime, gradients=2),
    "mindflayer": partial(policies.mindflayer, window=2, noise=4.0),
    "lb_bsp": partial(policies.lb_bsp, gradients=2),
    "ata": partial(policies.ata, gradients_per_update=4, alpha=0.01),
    "vecna": partial(policies.vecna, trials=3, seconds=1.5),
    "cutoff": partial(policies.cutoff, predictor=predictors.RunningMean(window=2), window=2, objective="rate"),
}


class TestWhoIsLost:
    def test_takes_part_no_more_where_nobody_waits(self):
        for name in ("asynchronous", "softsync", "rennala", "ringmaster"):
            driver = Driver(POLICIES[name](num_workers=3), [0, 1, 2])
            assert driver.lose(1) == []
            assert driver.busy == {0: 0, 2: 0}

    def test_leaves_its_gradient_in_the_open_update(self):
        driver = Driver(POLICIES["softsync"](num_workers=3), [0, 1, 2])
        driver.come(1)
        driver.lose(1)
        driver.come(0)
        assert driver.come(0) == [Take(0, 0), Close(0), Begin(0, 1)]
        assert driver.updates == [[1, 0, 0]]

    def test_closes_a_round_of_those_alive(self):
        driver = Driver(policies.synchronous(num_workers=3), [0, 1, 2])
        driver.come(0)
        driver.come(2)
        assert driver.lose(1) == [Close(0), Begin(0, 1), Begin(2, 1)]
        driver.come(2)
        assert driver.come(0) == [Take(0, 1), Close(1), Begin(0, 2), Begin(2, 2)]

    def test_does_not_begin_again_with_the_round_that_has_its_gradient(self):
        driver = Driver(policies.synchronous(num_workers=3), [0, 1, 2])
        driver.come(0)
        assert driver.lose(0) == []
        driver.come(1)
        # The gradient that had come counts: two have, and one is to come.
        assert driver.come(2) == [Take(2, 0), Close(0), Begin(1, 1), Begin(2, 1)]
        assert driver.updates == [[0, 1, 2]]

    def test_leaves_a_round_of_backup_workers_as_long_as_enough_can_come(self):
        driver = Driver(policies.backup_workers(num_workers=4), [0, 1, 2, 3])
        driver.come(0)
        assert driver.lose(3) == []
        driver.come(1)
        assert driver.open == [0, 1]
        assert driver.lose(2) == [Close(0), Begin(0, 1), Begin(1, 1)]

    def test_ends_the_wait_of_a_time_out_if_it_was_the_last_to_come(self):
        driver = Driver(policies.timeout(num_workers=3, at_least=2, seconds=5.0), [0, 1, 2])
        driver.come(0, now=1.0)
        assert driver.come(1, now=2.0) == [Take(1, 0), Wake(7.0)]
        assert driver.lose(2) == [Close(0), Begin(0, 1), Begin(1, 1)]
        assert driver.ring(7.0) == []  # the update that asked for it is closed

    def test_releases_those_that_waited_for_it(self):
        driver = Driver(policies.bounded_staleness(num_workers=3, bound=0), [0, 1, 2])
        assert driver.come(0) == [Take(0, 0), Close(0)]
        assert driver.come(2) == [Take(2, 1), Close(1)]
        assert driver.lose(1) == [Begin(0, 2), Begin(2, 2)]

    def test_releases_nobody_while_another_is_as_slow(self):
        driver = Driver(policies.bounded_staleness(num_workers=3, bound=0), [0, 1, 2])
        driver.come(0)
        assert driver.lose(1) == []
        assert driver.come(2) == [Take(2, 1), Close(1), Begin(0, 2), Begin(2, 2)]

    def test_is_lost_while_it_waits(self):
        driver = Driver(policies.bounded_staleness(num_workers=2, bound=0), [0, 1])
        driver.come(0)
        assert driver.lose(0) == []
        assert driver.come(1) == [Take(1, 1), Close(1), Begin(1, 2)]

    def test_twice_changes_nothing(self):
        for make in POLICIES.values():
            driver = Driver(make(num_workers=3), [0, 1, 2])
            driver.lose(1)
            assert driver.lose(1) == []

    @pytest.mark.parametrize("name", POLICIES)
    def test_all_of_them_and_one_comes_back(self, name):
        driver = Driver(POLICIES[name](num_workers=2), [0, 1])
        driver.come(1)
        driver.lose(1)
        driver.lose(0)
        version = len(driver.updates)
        assert [action for action in driver.join(1) if not isinstance(action, Wake)] == [Begin(1, version)]
        for _ in range(4):
            driver.come(1)
        assert len(driver.updates) > version
        assert 1 in driver.busy


class TestWhoJoins:
    def test_begins_at_once_on_the_newest_version(self):
        for name in ("asynchronous", "ringmaster", "rennala", "backup_workers", "timeout", "bounded_staleness"):
            driver = Driver(POLICIES[name](num_workers=3), [0, 1])
            while not driver.updates:
                driver.come(min(driver.busy))
            assert driver.join(2) == [Begin(2, 1)]

    def test_is_as_far_as_the_slowest(self):
        driver = Driver(policies.bounded_staleness(num_workers=3, bound=1), [0, 1])
        for worker in (0, 1, 0, 1, 0):
            driver.come(worker)
        driver.join(2)  # as worker 1, which has done 2; worker 0 has done 3
        assert driver.come(0) == [Take(0, 5), Close(5)]
        assert driver.come(1) == [Take(1, 6), Close(6), Begin(1, 7)]
        assert driver.come(2) == [Take(2, 7), Close(7), Begin(0, 8), Begin(2, 8)]

    def test_waits_for_the_next_round_if_it_has_a_gradient_in_this_one(self):
        driver = Driver(policies.synchronous(num_workers=2), [0, 1])
        driver.come(0)
        driver.lose(0)
        assert driver.join(0) == []
        assert driver.come(1) == [Take(1, 0), Close(0), Begin(0, 1), Begin(1, 1)]

    def test_is_waited_for_in_its_first_round(self):
        driver = Driver(policies.synchronous(num_workers=3), [0, 1])
        driver.come(0)
        driver.join(2)
        driver.come(1)
        assert driver.updates == []
        assert driver.come(2) == [Take(2, 0), Close(0), Begin(0, 1), Begin(1, 1), Begin(2, 1)]

    def test_of_a_cutoff_waits_for_the_next_round_and_holds_up_nobody(self):
        driver = Driver(POLICIES["cutoff"](num_workers=3), [0, 1, 2])
        driver.come(0)
        driver.lose(2)
        assert driver.join(2) == []
        assert driver.come(1) == [Take(1, 0), Close(0), Begin(0, 1), Begin(1, 1), Begin(2, 1)]

    def test_of_a_cutoff_begins_a_round_that_has_no_gradient(self):
        driver = Driver(POLICIES["cutoff"](num_workers=3), [0, 1, 2])
        for worker in (0, 1, 2):
            driver.lose(worker)
        for worker in (2, 0, 1):  # the server was started again
            assert driver.join(worker) == [Begin(worker, 0)]
        driver.come(2)
        driver.come(1)
        assert driver.come(0) == [Take(0, 0), Close(0), Begin(0, 1), Begin(1, 1), Begin(2, 1)]


class Listening:
    """A predictor that writes down what it is told, and says 2."""

    title = "listening"

    def __init__(self):
        self.told = []

    def start(self, window, *, seed):
        self.told.append(("start", window.tolist(), seed))
        return 0

    def predict(self, state, *, rate=None):
        self.told.append(("predict", rate))
        return predictors.Prediction(2, np.full(3, np.nan), np.full(3, np.nan))

    def observe(self, state, runtimes, cut_at):
        self.told.append(("observe", runtimes.tolist(), cut_at))
        return state + 1


class TestCutoff:
    def drive(self, **own):
        predictor = Listening()
        return Driver(
            policies.cutoff(**{"num_workers": 3, "predictor": predictor, "window": 1, "seed": 5} | own), [0, 1, 2]
        ), predictor

    def come_all(self, driver, seconds=1.0):
        for worker in (0, 1, 2):
            driver.come(worker, seconds=seconds)

    def test_predicts_ahead_from_what_came_in_time(self):
        driver, predictor = self.drive(objective="rate")
        for worker, seconds in ((1, 1.0), (0, 2.0), (2, 4.0)):
            driver.come(worker, seconds=seconds)
        assert predictor.told == []  # the server has better things to do than to wait for a prediction
        driver.policy.prepare()
        assert predictor.told == [("start", [[2.0, 1.0, 4.0]], 5), ("predict", 3 / 4.0)]
        driver.policy.prepare()
        assert len(predictor.told) == 2
        driver.come(2, seconds=1.5)
        assert driver.come(1, seconds=3.0) == [
            Take(1, 1), Interrupt(0), Close(1), Begin(0, 2), Begin(1, 2), Begin(2, 2)
        ]  # fmt: skip
        driver.policy.prepare()
        kind, times, cut_at = predictor.told[2]
        np.testing.assert_array_equal(times, [np.nan, 3.0, 1.5])
        assert (kind, cut_at) == ("observe", 3.0)
        assert predictor.told[3] == ("predict", 5 / 7.0)

    def test_in_the_first_window_who_is_not_there_is_as_slow_as_the_slowest(self):
        driver, predictor = self.drive(window=2, objective="rate")
        driver.come(0, seconds=1.0)
        driver.lose(1)
        driver.come(2, seconds=2.0)
        driver.come(2, seconds=4.0)
        driver.come(0, seconds=3.0)
        driver.policy.prepare()
        # Four gradients in 2 s + 4 s, though a row has three times.
        assert predictor.told == [("start", [[1.0, 2.0, 2.0], [3.0, 4.0, 4.0]], 5), ("predict", 4 / 6.0)]

    def test_a_worker_that_never_came_does_not_put_the_prediction_off(self):
        predictor = Listening()
        driver = Driver(policies.cutoff(num_workers=3, predictor=predictor, window=1), [0, 2])
        driver.come(2, seconds=1.0)
        driver.come(0, seconds=2.0)
        driver.policy.prepare()
        assert predictor.told[0] == ("start", [[2.0, 2.0, 1.0]], 0)

    def test_a_round_that_a_worker_joined_too_late_is_no_window(self):
        driver, predictor = self.drive()
        driver.lose(1)
        driver.come(0, seconds=1.0)
        driver.join(1)
        driver.come(2, seconds=2.0)
        driver.policy.prepare()
        assert predictor.told == []
        self.come_all(driver, 3.0)
        driver.policy.prepare()
        assert predictor.told[0] == ("start", [[3.0, 3.0, 3.0]], 5)
        assert driver.policy.used == 3

    @pytest.mark.parametrize("joins", ["before the first gradient", "after it"])
    def test_who_joined_during_a_round_was_not_cut_off(self, joins):
        driver, predictor = self.drive(objective="rate")
        self.come_all(driver)
        driver.lose(2)
        if joins == "before the first gradient":
            assert driver.join(2) == [Begin(2, 1)]
            driver.come(0, seconds=4.0)
        else:
            driver.come(0, seconds=4.0)
            assert driver.join(2) == []
        assert Close(1) in driver.come(1, seconds=5.0)
        driver.policy.prepare()
        assert [told[0] for told in predictor.told] == ["start", "predict"]
        assert (driver.policy.used, driver.policy.total) == (3, 1.0)
        driver.come(1, seconds=2.0)  # the next round is an ordinary one
        driver.come(2, seconds=3.0)
        driver.policy.prepare()
        np.testing.assert_array_equal(predictor.told[2][1], [np.nan, 2.0, 3.0])
        assert predictor.told[3] == ("predict", 5 / 4.0)

    def test_who_joined_during_a_round_and_came_in_time_is_known(self):
        driver, predictor = self.drive()
        self.come_all(driver)
        driver.lose(2)
        driver.join(2)
        driver.come(2, seconds=0.5)
        driver.come(1, seconds=5.0)
        driver.policy.prepare()
        np.testing.assert_array_equal(predictor.told[2][1], [np.nan, 5.0, 0.5])

    def test_who_begins_a_round_first_can_be_cut_off_by_those_who_join_it(self):
        driver, predictor = self.drive()
        self.come_all(driver)
        for worker in (0, 1, 2):
            driver.lose(worker)
        for worker in (0, 1, 2):
            driver.join(worker)
        driver.come(1, seconds=2.0)
        driver.come(2, seconds=3.0)
        driver.policy.prepare()
        np.testing.assert_array_equal(predictor.told[2][1], [np.nan, 2.0, 3.0])

    @pytest.mark.parametrize("objective", ["throughput", "rate"])
    def test_what_is_compiled_ahead_changes_nothing(self, objective):
        driver, predictor = self.drive(objective=objective)
        policy = copy.deepcopy(driver.policy)
        driver.policy.warm()
        assert [told[0] for told in predictor.told] == ["start", "predict", "observe", "predict"]
        assert np.shape(predictor.told[0][1]) == (1, 3)
        assert np.isnan(predictor.told[2][1]).tolist() == [False, True, True]
        assert isinstance(predictor.told[1][1], float) == (objective == "rate")
        assert driver.policy == policy
        assert driver.policy.prediction is None
        predictor.told.clear()
        self.come_all(driver, 2.0)
        driver.policy.prepare()
        assert predictor.told[0] == ("start", [[2.0, 2.0, 2.0]], 5)

    def test_a_lost_worker_is_one_that_was_cut_off(self):
        driver, predictor = self.drive()
        self.come_all(driver)
        driver.lose(0)
        driver.come(1, seconds=2.0)
        assert driver.lose(2) == [Close(1), Begin(1, 2)]
        driver.policy.prepare()
        np.testing.assert_array_equal(predictor.told[2][1], [np.nan, 2.0, np.nan])

    def test_learns_of_a_round_that_ends_before_its_prediction_was_asked_for(self):
        driver, predictor = self.drive()
        self.come_all(driver)
        driver.lose(0)
        driver.lose(2)
        driver.come(1, seconds=2.0)  # nobody is left to wait for, whatever the prediction
        assert [told[0] for told in predictor.told] == ["start", "predict"]
        driver.policy.prepare()
        assert [told[0] for told in predictor.told] == ["start", "predict", "observe", "predict"]
        np.testing.assert_array_equal(predictor.told[2][1], [np.nan, 2.0, np.nan])

    def test_an_impossible_prediction_is_refused_by_the_predictors_name(self):
        predictor = predictors.Static(3)
        driver = Driver(policies.Cutoff(num_workers=2, predictor=predictor, window=1), [0, 1])
        driver.come(0)
        driver.come(1)
        with pytest.raises(ValueError, match=r"^cutoff=3 must be a whole number from 1 to 2: "):
            driver.policy.prepare()


def storm(make, seed, *, workers=5, events=120, prepares=0.5):
    """The driver after random events, each possible at its time; `prepare` is called with some probability."""
    generator = np.random.default_rng(seed)
    driver = Driver(make(num_workers=workers), sorted(generator.choice(workers, 3, replace=False).tolist()))
    for _ in range(events):
        choices = ["come"] * 6 * bool(driver.busy) + ["lose"] * bool(driver.alive)
        choices += ["join"] * (len(driver.alive) < workers) + ["ring"] * any(at > driver.now for at in driver.wakes)
        what = choices[generator.integers(len(choices))]
        if what == "come":
            driver.come(int(generator.choice(sorted(driver.busy))), seconds=float(generator.uniform(1, 2)))
        elif what == "lose":
            driver.lose(int(generator.choice(sorted(driver.alive))))
        elif what == "join":
            driver.join(int(generator.choice(sorted(set(range(workers)) - driver.alive))))
        else:
            driver.ring(min(at for at in driver.wakes if at > driver.now))
        if generator.random() < prepares:
            driver.policy.prepare()
        # Nobody waits for nobody.
        assert bool(driver.busy) == bool(driver.alive)
        assert driver.busy == driver.policy.busy
    return driver


@pytest.mark.parametrize("name", POLICIES)
class TestStorms:
    @pytest.mark.sample(12)
    @settings(derandomize=True, deadline=None, max_examples=examples(30), database=None)
    @given(seed=st.integers(0, 10**6))
    def test_all_stays_possible_and_goes_on(self, name, seed):
        driver = storm(POLICIES[name], seed)
        assert sum(map(len, driver.updates)) + len(driver.open) + len(driver.dropped) > 20
        assert driver.policy.version == len(driver.updates)

    def test_the_same_events_make_the_same_policy(self, name):
        driver = storm(POLICIES[name], 7)
        assert driver.policy == storm(POLICIES[name], 7).policy
        assert driver.policy == storm(POLICIES[name], 7, prepares=0.0).policy  # what is computed ahead changes nothing
        other = copy.deepcopy(driver.policy)
        other.lost(1e6, min(other.busy))
        assert driver.policy != other


class Naive(policies.Base):
    """Bounded staleness, with a look at all workers at every event."""

    def __init__(self, bound):
        super().__init__()
        self.bound, self.done = bound, {}

    def start(self, workers):
        self.done = dict.fromkeys(workers, 0)
        return super().start(workers)

    def arrival(self, now, worker, version, seconds):
        self.done[worker] += 1
        return [Take(worker, self.version), self.close(), *self.after_loss(now)]

    def after_loss(self, now):
        least = min((self.done[worker] for worker in self.alive), default=0)
        idle = sorted(self.alive - self.busy.keys())
        return self.begin([worker for worker in idle if self.done[worker] - least <= self.bound])

    def joined(self, now, worker):
        self.done[worker] = min((self.done[other] for other in self.alive), default=0)
        return super().joined(now, worker)


@pytest.mark.parametrize("bound", [0, 1, 3])
@settings(derandomize=True, deadline=None, max_examples=examples(60), database=None)
@given(seed=st.integers(0, 10**6))
def test_bounded_staleness_is_the_naive_one(bound, seed):
    make = lambda num_workers: policies.bounded_staleness(num_workers=num_workers, bound=bound)
    driver, naive = storm(make, seed), storm(lambda num_workers: Naive(bound), seed)
    assert driver.updates == naive.updates
    assert driver.busy == naive.busy
