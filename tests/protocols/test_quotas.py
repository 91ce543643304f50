"""Rounds of several trials a worker: what they are by hand, what they must equal, and what they learn."""

import functools
import itertools
import math
import statistics

import numpy as np
import pytest
from comparison import assert_equal
from lib.events import Driver

from sgdlab import DROPPED, policies, protocols
from sgdlab.errors import UsageError
from sgdlab.policies import Begin, Close, Interrupt, Take, Wake, simulate
from sgdlab.registry import PROTOCOLS
from sgdlab.runtimes import with_enough_rows


def made(name, runtimes, **own):
    return PROTOCOLS[name].make(runtimes, **own)


def drawn(rows, workers, seed=0):
    return np.random.default_rng(seed).lognormal(0.0, 0.7, (rows, workers)) * np.linspace(1.0, 2.0, workers)


SYNCHRONOUS = {
    "mindflayer": {"trials": 1, "seconds": math.inf},
    "vecna": {"trials": 1, "seconds": math.inf},
    "dropcompute": {"micro_batches": 1, "seconds": math.inf},
}


class TestIdentities:
    @pytest.mark.parametrize("name", SYNCHRONOUS)
    def test_one_trial_without_a_limit_is_synchronous(self, name):
        runtimes = drawn(6, 4)
        assert_equal(made(name, runtimes, **SYNCHRONOUS[name]), protocols.synchronous(runtimes))

    def test_the_first_rounds_of_dropcompute_are_synchronous_rounds_of_several_micro_batches(self):
        runtimes = drawn(12, 4)
        schedule = made("dropcompute", runtimes, micro_batches=3, window=20)
        sums = runtimes.reshape(4, 3, 4).sum(axis=1)
        np.testing.assert_allclose(schedule.applied, protocols.synchronous(sums).applied)
        np.testing.assert_array_equal(np.bincount(schedule.update[:, 0]), 12)
        np.testing.assert_array_equal(schedule.staleness(), 0)

    def test_balanced_workers_of_one_speed_make_synchronous_rounds(self):
        runtimes = np.full((12, 4), 1.5)
        expected = made("dropcompute", runtimes, micro_batches=3, seconds=math.inf)
        assert_equal(made("lb_bsp", runtimes, gradients=3), expected)
        assert_equal(made("ata", runtimes, gradients_per_update=12, alpha=0.0), expected)
        assert_equal(made("ata", runtimes, gradients_per_update=4), protocols.synchronous(runtimes))

    def test_a_bound_that_time_never_reaches_is_no_bound(self):
        runtimes = drawn(60, 4)
        for interrupt in (False, True):
            common = {"seconds": 4.0, "interrupt": interrupt, "num_gradients": 60, "communication": 0.25}
            assert_equal(made("dropcompute", runtimes, micro_batches=50, **common), made("anytime", runtimes, **common))

    def test_a_round_of_equal_workers_in_g_and_a_half_times_is_one_of_g_micro_batches(self):
        times = np.ones((12, 3))
        anytime = made("anytime", times, seconds=2.5, interrupt=True, num_gradients=12)
        np.testing.assert_array_equal(np.bincount(anytime.update[anytime.used()]), [6, 6])
        np.testing.assert_array_equal(anytime.applied[:, 0], [2.5, 5.0])

    def test_trials_are_those_of_the_paper_one_worker_after_the_other(self):
        """Nobody's trials depend on the others': each worker's round is a sum of min(time, limit)."""
        runtimes, limits, numbers = drawn(40, 3), np.array([1.0, 1.5, 4.0]), np.array([3, 2, 1])
        schedule = made("mindflayer", runtimes, trials=tuple(numbers), seconds=tuple(limits), num_gradients=20)
        now, rows = 0.0, np.zeros(3, int)
        for update in range(schedule.num_updates):
            ends = []
            for worker in range(3):
                times = runtimes[rows[worker] : rows[worker] + numbers[worker], worker]
                rows[worker] += numbers[worker]
                ends.append(now + np.minimum(times, limits[worker]).sum())
                mine = (schedule.worker == worker) & (schedule.update[:, 0] == update)
                assert mine.sum() == (times <= limits[worker]).sum()
            now = max(ends)
            np.testing.assert_allclose(schedule.applied[update, 0], now)
        assert schedule.dropped().any()


class TestByHand:
    def test_a_trial_that_takes_its_limit_is_in_time(self):
        driver = Driver(policies.mindflayer(num_workers=2, trials=1, seconds=2.0), [0, 1])
        late = math.nextafter(2.0, math.inf)
        assert driver.wakes == [late, late]
        driver.come(0, 2.0)
        assert driver.policy.timer(2.0) == []
        assert driver.ring(late) == [
            Interrupt(1),
            Close(0),
            Begin(0, 1),
            Wake(math.nextafter(late + 2.0, math.inf)),
            Begin(1, 1),
            Wake(math.nextafter(late + 2.0, math.inf)),
        ]

    def test_a_round_without_a_gradient_makes_no_update(self):
        runtimes = np.array([[9.0, 9.0], [1.0, 9.0], [9.0, 1.0]])
        schedule = made("mindflayer", runtimes, trials=1, seconds=2.0, num_gradients=2)
        np.testing.assert_array_equal(schedule.update[:, 0], [DROPPED, DROPPED, 0, DROPPED, 1, DROPPED])
        np.testing.assert_array_equal(schedule.read[:, 0], [0, 0, 0, 0, 1, 1])
        np.testing.assert_allclose(schedule.applied[:, 0], [4.0, 6.0])

    def test_the_crossing_micro_batch_is_kept_or_given_up(self):
        runtimes = np.array([[1.0, 2.0]] * 4)
        kept = made("dropcompute", runtimes, micro_batches=3, seconds=2.5, num_gradients=1)
        np.testing.assert_array_equal(kept.worker, [0, 0, 1, 0, 1])  # worker 1 ends its second after 4 s
        np.testing.assert_array_equal(kept.applied, [[4.0]])
        cut = made("dropcompute", runtimes, micro_batches=3, seconds=2.5, interrupt=True, num_gradients=1)
        np.testing.assert_array_equal(cut.update[:, 0], [0, 0, 0, DROPPED, DROPPED])
        np.testing.assert_array_equal(cut.applied, [[2.5]])

    def test_communication_comes_after_the_last_trial(self):
        runtimes = np.array([[1.0, 2.0]] * 4)
        schedule = made("dropcompute", runtimes, micro_batches=1, seconds=math.inf, communication=0.5)
        np.testing.assert_array_equal(schedule.applied[:, 0], [2.5, 5.0, 7.5, 10.0])
        np.testing.assert_array_equal(schedule.started, [0.0, 0.0, 2.5, 2.5, 5.0, 5.0, 7.5, 7.5])

    def test_who_joins_while_a_round_is_on_its_way_waits_for_the_next(self):
        driver = Driver(policies.dropcompute(num_workers=3, micro_batches=1, seconds=9.0, communication=1.0), [0, 1])
        driver.come(0, 1.0)
        assert driver.come(1, 2.0) == [Take(1, 0), Wake(3.0)]
        assert driver.join(2) == []
        assert driver.ring(3.0) == [Close(0), Begin(0, 1), Begin(1, 1), Begin(2, 1)]

    def test_who_comes_back_makes_the_trials_that_it_has_left(self):
        driver = Driver(policies.mindflayer(num_workers=2, trials=2, seconds=math.inf), [0, 1])
        driver.come(0)
        driver.lose(0)
        assert driver.join(0) == [Begin(0, 0)]
        assert driver.come(0) == [Take(0, 0)]
        driver.lose(0)
        assert driver.join(0) == []
        driver.come(1)
        assert driver.come(1) == [Take(1, 0), Close(0), Begin(0, 1), Begin(1, 1)]


class TestLearning:
    def test_a_limit_is_where_most_of_the_first_trials_come_per_second(self):
        runtimes = np.column_stack([[40.0, 1.0, 2.0, 30.0, 9.0, 9.0, 1.0, 1.0], np.ones(8)])
        schedule = made("mindflayer", runtimes, trials=1, window=4, num_gradients=11)
        # Four times the 1 s of the other worker; 1 and 2 s; four times the median of these; twice the limit; 1 s.
        np.testing.assert_allclose(np.diff(schedule.applied[:, 0], prepend=0), [4, 1, 2, 6, 2, 2, 1, 1], atol=1e-9)

    @pytest.mark.parametrize(
        ("times", "share", "limit", "came"),
        [
            ((40.0, 1.0, 2.0, 30.0), 0.5, 2.0, 2),  # 2 in 2 s, 3 in 30 s, 4 in 40 s; 1 in 1 s would be too few
            ((41.0, 1.0, 2.0, 30.0), 0.75, 30.0, 3),
            ((2.0, 1.0, 2.1, 2.2), 0.5, 2.2, 4),
            ((3.0, 3.0, 3.0, 3.0), 0.5, 3.0, 4),
            ((40.0, 1.0, 2.0, 30.0), 1e-9, 1.0, 1),
        ],
    )
    def test_a_limit_by_hand(self, times, share, limit, came):
        policy = policies.mindflayer(num_workers=1, window=4, share=share)
        for seconds in times:
            policy.learn(0, seconds)
        assert (policy.limit(0), policy.came[0], policy.tried[0]) == (limit, came, 4)

    def test_a_first_trial_is_waited_for_and_the_others_with_patience(self):
        policy = policies.mindflayer(num_workers=1, window=4)
        limits = []
        for seconds, came in ((3.0, True), (1.0, True), (8.0, False), (8.0, False)):
            limits.append(policy.limit(0))
            policy.learn(0, seconds, came=came)
        assert limits == [math.inf, 12.0, 8.0, 8.0]
        assert (policy.limit(0), policy.came[0], policy.tried[0]) == (3.0, 2, 4)
        tails = np.random.default_rng(0).pareto(0.5, (200, 4)) + 1.0
        schedule = made("mindflayer", tails, window=8, num_gradients=60)
        assert schedule.wall_clock() < 0.01 * protocols.synchronous(tails, num_gradients=60).wall_clock()

    def test_a_trial_that_is_cut_has_run_longer_than_what_comes_sooner(self):
        """By the seconds that it ran, whatever the limit is when it is cut: others may have come since it began."""
        for ran, kept in ((20.0, 2), (9.0, 1)):
            policy = policies.mindflayer(num_workers=2, window=9)
            policy.learn(1, 5.0)  # worker 0 may take 20 s
            for _ in range(3):
                policy.learn(1, 1.0)  # and now 4 s
            assert policy.limit(0) == 4.0
            policy.learn(0, ran, came=False)
            policy.learn(0, 10.0)
            assert len(policy.seen[0]) == policy.tried[0] == kept
        policy = policies.mindflayer(num_workers=2, window=9)
        policy.start([0, 1])
        policy.arrival(1.0, 1, 0, 1.0)
        policy.timer(4.5)
        assert policy.cut == {0: [4.5], 1: []}

    def test_a_worker_that_only_fails_is_learned_anew(self):
        policy = policies.mindflayer(num_workers=1, window=2)
        for came in (True, True, False, True, False, False):
            policy.learn(0, 1.0, came=came)
        assert (policy.limits, policy.limit(0)) == ({}, 4.0)
        for seconds in (3.0, 5.0):
            policy.learn(0, seconds)
        assert policy.limit(0) == 5.0
        slower = np.concatenate([np.ones((4, 1)), np.full((20, 1), 5.0)])
        schedule = made("mindflayer", slower, trials=1, window=2, num_gradients=12)
        assert schedule.dropped().sum() == 3  # two at its limit of 1 s, and one at four times that

    @pytest.mark.parametrize("name", ["mindflayer", "vecna"])
    def test_a_first_trial_that_never_ends_is_given_up_as_others_have_come(self, name):
        runtimes = np.ones((40, 3))
        runtimes[[0, 9], [2, 1]] = 1e9
        schedule = made(name, runtimes, trials=1, window=4, num_gradients=36)
        np.testing.assert_allclose(np.diff(schedule.applied[:, 0]), 1.0)
        np.testing.assert_allclose(schedule.applied[0, 0], 4.0)
        assert schedule.dropped().sum() == 2
        # Where nobody has come there is no limit: the unit of time is not known.
        with_ends = made(name, np.array([[50.0], [1e9], [1.0]]), trials=1, num_gradients=1)
        np.testing.assert_array_equal(with_ends.applied, [[50.0]])

    def test_trials_that_run_have_a_limit_from_the_first_that_comes_on(self):
        driver = Driver(policies.mindflayer(num_workers=4, trials=1, window=4), [0, 1, 2, 3])
        assert driver.wakes == []
        late = math.nextafter(4.0, math.inf)
        driver.come(3, 1.0, 1.0)
        assert driver.wakes == [late] * 3
        driver.come(0, 3.0, 3.0)
        driver.come(1, 3.5, 3.5)
        longer = math.nextafter(12.0, math.inf)  # four times the median of 1, 3 and 3.5
        assert driver.ring(late) == [Wake(longer)]
        assert driver.ring(longer)[0] == Interrupt(2)
        # One that is begun by then long ago is given up at once, and not in the past.
        driver = Driver(policies.mindflayer(num_workers=2, trials=1, window=4), [0, 1])
        driver.lose(0)
        driver.join(0)
        assert driver.come(0, 70.0, 1.0) == [Take(0, 0), Wake(math.nextafter(70.0, math.inf))]

    def test_a_slow_worker_is_heard_before_it_has_cost_three_times_its_time(self):
        runtimes = np.tile([1.0, 1.0, 100.0], (40, 1))
        schedule = made("mindflayer", runtimes, trials=1, window=4, num_gradients=40)
        np.testing.assert_allclose(np.diff(schedule.applied[:, 0], prepend=0)[:6], [4, 8, 16, 32, 64, 100])
        policy = simulate_and_keep(functools.partial(policies.mindflayer, trials=1, window=4), runtimes)
        # What was given up sooner than it came says nothing of it.
        assert (policy.limit(2), policy.came[2], policy.limit(0)) == (100.0, policy.tried[2], 1.0)

    def test_a_worker_that_never_answers_has_no_trials_in_the_end(self):
        runtimes = np.tile([1.0, 1.0, 1e9], (80, 1))
        policy = simulate_and_keep(functools.partial(policies.mindflayer, window=3, noise=6.0), runtimes)
        assert 2 not in policy.limits
        assert policy.quota(2) == 0
        schedule = made("mindflayer", runtimes, window=3, noise=6.0, num_gradients=60)
        np.testing.assert_allclose(np.diff(schedule.applied[:, 0], prepend=0)[:4], [4 + 8, 16 + 32, 3, 3])

    def test_trials_follow_from_the_noise_once_all_is_known(self):
        runtimes = np.tile([1.0, 1.0, 100.0], (60, 1))
        limits = (2.0, 2.0, 200.0)
        schedule = made("mindflayer", runtimes, seconds=limits, window=2, noise=6.0, num_gradients=18)
        np.testing.assert_array_equal(np.bincount(schedule.update[:, 0]), [6, 6, 6])
        np.testing.assert_array_equal(np.bincount(schedule.worker), [8, 8, 2])  # the slow one has no trial any more

    def test_a_threshold_is_chosen_from_the_first_rounds(self):
        runtimes = drawn(80, 6)
        for interrupt in (False, True):
            own = {"micro_batches": 4, "communication": 0.5, "interrupt": interrupt}
            best = protocols.best_threshold(
                runtimes[:20].reshape(5, 4, 6).swapaxes(1, 2), communication=0.5, interrupt=interrupt
            )
            policy = simulate_and_keep(functools.partial(policies.dropcompute, window=5, **own), runtimes)
            assert policy.threshold == best < math.inf
        policy = simulate_and_keep(functools.partial(policies.anytime, gradients=2, window=3), runtimes)
        assert policy.threshold == pytest.approx(2 * np.mean(runtimes[:6]), rel=1e-11)

    def test_an_incomplete_first_round_of_a_lost_worker_teaches_nothing(self):
        driver = Driver(policies.dropcompute(num_workers=2, micro_batches=2, window=1), [0, 1])
        driver.come(0, 1.0, 1.0)
        driver.come(1, 2.0, 2.0)
        driver.lose(1)
        driver.join(1)
        driver.come(1, 3.0, 1.0)  # the second of its two, but the time of the first is not that of this process
        driver.come(0, 4.0, 3.0)
        assert driver.updates == [[0, 1, 1, 0]]
        assert driver.policy.learned == [[[1.0, 3.0]]]


def simulate_and_keep(make, runtimes):
    """The policy at the end of its run."""
    kept = []

    def keep(num_workers):
        kept.append(make(num_workers=num_workers))
        return kept[-1]

    simulate(keep, runtimes, num_gradients=runtimes.size // 2)
    return kept[-1]


class TestEffectiveSpeedup:
    @pytest.mark.parametrize("interrupt", [False, True])
    def test_is_that_of_simulated_rounds(self, interrupt):
        rounds, workers, number, communication = 30, 5, 4, 0.7
        runtimes = drawn(rounds * number, workers)
        times = runtimes.reshape(rounds, number, workers).swapaxes(1, 2)
        for threshold in (2.0, 5.0, 9.0):
            ratios = []
            for round_ in times:
                own = {"micro_batches": number, "communication": communication, "interrupt": interrupt}
                whole = made("dropcompute", round_.T, seconds=math.inf, **own)
                cut = made("dropcompute", round_.T, seconds=threshold, num_gradients=1, **own)
                ratios.append(cut.used().sum() / whole.used().sum() * whole.wall_clock() / cut.wall_clock())
            given = protocols.effective_speedup(
                times, np.array([threshold]), communication=communication, interrupt=interrupt
            )
            np.testing.assert_allclose(given, np.mean(ratios), rtol=1e-12)

    @pytest.mark.parametrize("interrupt", [False, True])
    def test_of_the_best_threshold_is_the_largest_of_the_candidates(self, interrupt):
        times = np.random.default_rng(1).lognormal(0.0, 1.0, (10, 6, 4))
        speedup = functools.partial(protocols.effective_speedup, times, communication=0.5, interrupt=interrupt)
        best = protocols.best_threshold(times, communication=0.5, interrupt=interrupt)
        ends = times.cumsum(axis=-1)
        candidates = np.linspace(ends.min(), ends.max(), 200)
        assert speedup(np.array([best]))[0] == max(speedup(np.array([tau]))[0] for tau in candidates) > 1
        assert speedup(np.array([1e9]))[0] == pytest.approx(1.0)

    def test_in_closed_form_is_about_the_simulated_one(self):
        """Normal times, 100 workers, 12 micro-batches: within 2 %."""
        workers, number, mean, deviation = 100, 12, 1.0, 0.3
        times = np.random.default_rng(0).normal(mean, deviation, (400, workers, number))
        for threshold in (11.5, 12.5, 13.5):
            simulated = protocols.effective_speedup(
                times, np.array([threshold]), communication=0.5, interrupt=True
            ).item()
            closed = protocols.expected_speedup(
                threshold, num_workers=workers, micro_batches=number, mean=mean, deviation=deviation, communication=0.5
            )
            assert closed == pytest.approx(simulated, rel=0.02)

    def test_a_micro_batch_that_ends_at_the_threshold_is_late_or_kept(self):
        times, two = np.array([[[1.0, 1.0], [1.0, 3.0]]]), np.array([2.0])
        np.testing.assert_allclose(protocols.effective_speedup(times, two, interrupt=True), 2 / 4 * 4 / 2)
        np.testing.assert_allclose(protocols.effective_speedup(times, np.array([1.0])), 4 / 4 * 4 / 4)

    def test_where_all_is_kept_nothing_is_gained(self):
        own = {"num_workers": 50, "micro_batches": 4, "mean": 1.0, "deviation": 0.1}
        assert protocols.expected_speedup(100.0, **own) == pytest.approx(1.0)
        assert statistics.NormalDist().cdf(0.0) == 0.5
        assert protocols.best_threshold(np.ones((3, 4, 2))) == math.inf


class TestAllotments:
    def test_no_division_ends_sooner(self):
        generator = np.random.default_rng(0)
        for _ in range(30):
            workers, total = int(generator.integers(1, 5)), int(generator.integers(1, 8))
            seconds = generator.lognormal(0.0, 1.0, workers)
            numbers = policies.allotted(total, dict(enumerate(seconds)))
            divisions = (d for d in itertools.product(range(total + 1), repeat=workers) if sum(d) == total)
            assert sum(numbers.values()) == total
            np.testing.assert_allclose(
                max(numbers[w] * seconds[w] for w in range(workers)), min(max(d * seconds) for d in divisions)
            )

    def test_all_have_the_least_where_there_are_enough(self):
        seconds = {3: 1.0, 5: 100.0}
        assert policies.allotted(5, seconds) == {3: 5, 5: 0}
        assert policies.allotted(5, seconds, least=1) == {3: 4, 5: 1}
        assert policies.allotted(1, seconds, least=1) == {3: 1, 5: 0}
        assert policies.allotted(4, {1: 1.0, 0: 1.0, 2: 1.0}) == {1: 2, 0: 1, 2: 1}  # the first is served first

    def test_fast_workers_get_more_and_all_end_together(self):
        runtimes = np.tile([1.0, 2.0, 4.0], (80, 1))
        for own in ({"name": "lb_bsp", "gradients": 7}, {"name": "ata", "gradients_per_update": 21, "alpha": 0.0}):
            schedule = made(**own, runtimes=runtimes, num_gradients=21 * 3)
            last = schedule.worker[schedule.update[:, 0] == 2]
            np.testing.assert_array_equal(np.bincount(last), [12, 6, 3])
            np.testing.assert_allclose(schedule.applied[2] - schedule.applied[1], 12.0)

    def test_no_gradient_of_ata_is_for_nothing(self):
        """Rennala's workers compute until the update is full, and what they compute then is thrown away."""
        runtimes = np.tile([1.0, 1.1, 30.0, 40.0], (400, 1))
        own = {"gradients_per_update": 4, "num_gradients": 480}
        ata, rennala = made("ata", runtimes, alpha=0.0, **own), protocols.rennala(runtimes, **own)
        assert not ata.dropped().any()
        assert ata.busy_share().sum() * ata.wall_clock() < 0.6 * rennala.busy_share().sum() * rennala.wall_clock()

    def test_uncertain_workers_share_the_round(self):
        policy = policies.ata(num_workers=3, gradients_per_update=7, relative_alpha=2.0)
        driver = Driver(policy, [0, 1, 2])
        assert policy.chosen == {0: 3, 1: 2, 2: 2}  # one each, then the rest equally
        for worker in (0, 0, 0, 1, 1, 2, 2):
            driver.come(worker, seconds=1.0)
        assert policy.chosen == {1: 3, 2: 2, 0: 2}  # those first that have the fewest
        assert policy.bound(0) == 0.0

    def test_speeds_are_told_apart_within_hundreds_of_gradients(self):
        """At the paper's factor it is a strict round robin for much longer than that."""
        runtimes = np.random.default_rng(0).uniform(0.9, 1.1, (800, 8)) * np.arange(1.0, 9.0)
        counts = {}
        for factor in (None, 2.0):
            own = {} if factor is None else {"relative_alpha": factor}
            schedule = made("ata", runtimes, num_gradients=800, **own)
            counts[factor] = np.bincount(schedule.worker[400:], minlength=8)
        np.testing.assert_array_equal(counts[2.0], 50)
        assert counts[None][:2].sum() > 2 / 3 * counts[None].sum()
        np.testing.assert_array_equal(np.argsort(-counts[None]), np.arange(8))

    def test_a_bound_by_hand(self):
        policy = policies.ata(num_workers=1, gradients_per_update=1, alpha=0.01)
        driver = Driver(policy, [0])
        for _ in range(50):
            driver.come(0, seconds=2.0)
        doubt = math.log(2 * 51**2) / 50
        assert policy.bound(0) == pytest.approx(2.0 - 4 * math.e * 0.01 * (math.sqrt(doubt) + doubt), rel=1e-12)

    def test_who_is_lost_leaves_its_share_to_the_others(self):
        driver = Driver(policies.lb_bsp(num_workers=2, gradients=2), [0, 1])
        for worker in (0, 0, 1):
            driver.come(worker)
        driver.lose(1)
        assert driver.updates == [[0, 0, 1]]
        assert driver.policy.chosen == {0: 4}
        assert driver.join(1) == []  # until the next round
        for _ in range(4):
            driver.come(0)
        assert driver.busy == {0: 2, 1: 2}


class TestOptimalTrials:
    def by_hand(self, seconds, chances, noise):
        """The shortest time in which some of the workers, the fastest, expect so many gradients."""
        order = sorted(range(len(seconds)), key=lambda worker: seconds[worker])
        times = []
        for number in range(1, len(order) + 1):
            inside = order[:number]
            if total := sum(chances[w] / seconds[w] for w in inside):
                times.append((noise + sum(chances[w] for w in inside)) / total)
        return [max(math.ceil(min(times) / t) - 1, 0) for t in seconds]

    def test_by_hand(self):
        generator = np.random.default_rng(0)
        for _ in range(30):
            number = int(generator.integers(1, 7))
            seconds, chances = generator.lognormal(0, 1.5, number), generator.uniform(0.05, 1.0, number)
            noise = float(generator.uniform(1.0, 50.0))
            given = policies.optimal_trials(seconds, chances, noise=noise)
            np.testing.assert_array_equal(given, self.by_hand(seconds, chances, noise))
            assert chances @ given >= noise - 1e-9

    def test_equal_workers_share_the_gradients(self):
        np.testing.assert_array_equal(policies.optimal_trials(np.ones(4), np.ones(4), noise=8.0), [2, 2, 2, 2])

    @pytest.mark.parametrize("seconds", [7.1, 3.3, 0.7, 2.5])
    def test_so_they_do_whatever_their_limit_is(self, seconds):
        """The time of the round is three limits, but for rounding: two trials, and not three."""
        given = policies.optimal_trials(np.full(8, seconds), np.ones(8), noise=16.0)
        np.testing.assert_array_equal(given, 2)


@pytest.mark.parametrize(
    ("function", "own", "words"),
    [
        (policies.optimal_trials, {"seconds": [1.0], "probabilities": [1.0], "noise": 0.0}, "noise=0.0 must be"),
        (policies.optimal_trials, {"seconds": [0.0], "probabilities": [1.0], "noise": 1.0}, r"seconds=\[0.0\] must"),
        (policies.optimal_trials, {"seconds": [1.0], "probabilities": [0.0], "noise": 1.0}, r"probabilities=\[0.0\]"),
        (policies.optimal_trials, {"seconds": [1.0], "probabilities": [1.0, 1.0], "noise": 1.0}, "probabilities="),
        (policies.allotted, {"total": 0, "seconds": {0: 1.0}}, "total=0 must be a whole number of at least 1"),
        (policies.allotted, {"total": 1, "seconds": {}}, r"seconds={} must have at least one worker"),
        (protocols.best_threshold, {"times": []}, r"times=\[\] must have at least one round"),
        (protocols.effective_speedup, {"times": [], "thresholds": [1.0]}, r"times=\[\] must have"),
    ],
)
def test_bad_arguments_of_functions_are_named(function, own, words):
    with pytest.raises(ValueError, match=f"^{words}"):
        function(**own)


def test_one_number_for_all_may_come_as_a_tuple_of_one():
    """As a flag's does."""
    runtimes = drawn(30, 3)
    for name in ("mindflayer", "vecna"):
        plain = made(name, runtimes, trials=3, seconds=2.0, num_gradients=15)
        assert_equal(made(name, runtimes, trials=(3,), seconds=(2.0,), num_gradients=15), plain)
    assert_equal(made("vecna", runtimes, seconds=2.0), made("vecna", runtimes, trials=2, seconds=2.0))


ENDLESS = [
    ("anytime", {"seconds": 0.25}, "seconds=0.25"),
    ("dropcompute", {"seconds": 0.25, "interrupt": True}, "seconds=0.25"),
    ("mindflayer", {"seconds": 0.25}, "seconds=0.25"),
    ("vecna", {"seconds": (0.25, 0.3)}, r"seconds=\(0.25, 0.3\)"),
]


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize(("name", "own", "words"), ENDLESS)
def test_a_limit_shorter_than_every_gradient_is_refused(name, own, words, before):
    """At once, or when gradients have come before; but before compute times fill the memory."""
    asked = []

    def draw(rows):
        asked.append(rows)
        times = np.tile([0.5, 0.75], (rows, 1))
        times[:before] = 0.1
        return times

    with pytest.raises(ValueError, match=rf"^{words} must be longer than a gradient takes: .* shortest takes 0.5 s$"):
        with_enough_rows(lambda times: made(name, times, num_gradients=20_000, **own), draw, rows=20)
    assert max(asked) < 300_000


def test_a_protocol_that_never_uses_a_gradient_is_given_up():
    def protocol(times):
        raise protocols.NotEnoughRuntimes.after(10**6, rows=len(times), done=0)

    with pytest.raises(UsageError, match=r"^the protocol uses no gradient in \d+ rows of compute times, .* of 1 s"):
        with_enough_rows(protocol, lambda rows: np.ones((rows, 3)), rows=10)


@pytest.mark.parametrize("more", [lambda rows: rows + 1, lambda rows: 2 * rows], ids=["one", "twice"])
@pytest.mark.parametrize("done", [None, 5])
def test_a_protocol_that_always_asks_for_more_is_given_up(more, done):
    asked = []

    def protocol(times):
        asked.append(len(times))
        raise protocols.NotEnoughRuntimes("too few", rows=more(len(times)), done=done)

    with pytest.raises(UsageError, match=r"^mine asks for \d+ rows of compute times, where it has \d+ and has begun w"):
        with_enough_rows(protocol, lambda rows: np.ones((rows, 3)), rows=10, name="mine")
    assert len(asked) < 30
    assert asked[-1] < 50_000


@pytest.mark.parametrize(("wanted", "ask"), [(5000, lambda rows: rows + 1), (50_000, lambda rows: 50_000)])
def test_a_protocol_may_ask_for_one_row_more_each_time_or_at_once_for_many(wanted, ask):
    def protocol(times):
        if len(times) < wanted:
            raise protocols.NotEnoughRuntimes("too few", rows=ask(len(times)))
        return len(times)

    assert wanted <= with_enough_rows(protocol, lambda rows: np.ones((rows, 3)), rows=10) < 2 * wanted


def test_one_worker_with_one_trial_makes_single_updates():
    makers = [
        functools.partial(policies.mindflayer, trials=1),
        functools.partial(policies.vecna, trials=1),
        functools.partial(policies.dropcompute, micro_batches=1),
    ]
    for make, workers in itertools.product(makers, (1, 2)):
        assert make(num_workers=workers).single == (workers == 1)
    assert not policies.anytime(num_workers=1).single
