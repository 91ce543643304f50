"""MindFlayer, Vecna and DropCompute as whole algorithms, worker by worker, in plain NumPy: against their replays.

Nothing of sgdlab is in the twins: they add up times, count trials, and step by the equations of the papers. Workers
have quadratics of their own, f_i(x) = |x - c_i|^2 / 2, whose gradients are given noise by the number of the gradient.
"""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from sgdlab import policies, protocols, replay, rules  # noqa: F401 (policies register themselves)
from sgdlab.registry import PROTOCOLS
from sgdlab.tasks import Task

WORKERS, UPDATES, RATE = 4, 6, 0.2
_random = np.random.default_rng(3)
CENTERS, NOISE = _random.normal(size=(WORKERS, 3)), _random.normal(size=(200, 3))
RUNTIMES = _random.lognormal(0.0, 1.0, (80, WORKERS)) * [1.0, 1.2, 1.5, 2.0]
CAPACITY = replay.Capacity(rows=192, slots=2, width=WORKERS)  # all runs of a rule share a program


def gradient(x, worker, number):
    return x - CENTERS[worker] + NOISE[number]


def replayed(schedule, rule):
    """The parameters after `UPDATES` updates."""
    program = replay.lower(schedule, capacity=CAPACITY)
    workers = np.zeros(CAPACITY.rows, np.int32)
    workers[: program.num_rows] = program.worker[: program.num_rows]

    def grad_fn(params, batch):
        worker, number = batch
        return params - jnp.asarray(CENTERS)[worker] + jnp.asarray(NOISE)[number], {}

    batch_fn = lambda row: (jnp.asarray(workers)[row], row)
    return replay.run(program, rule, Task(grad_fn, jnp.zeros(3)), batch_fn, mode="event").params


def rounds_of_trials(trials, limits):
    """MindFlayer's rounds: of each, its gradients as (when it came, worker), in the order in which they came."""
    now, used = 0.0, [0] * WORKERS
    while True:
        came, ends = [], []
        for worker in range(WORKERS):
            clock = now
            for _ in range(trials[worker]):
                seconds = RUNTIMES[used[worker], worker]
                used[worker] += 1
                if seconds <= limits[worker]:
                    clock += seconds
                    came.append((clock, worker))
                else:
                    clock += limits[worker]
            ends.append(clock)
        now = max(ends)
        yield now, sorted(came)


class Learner:
    """One worker's limit, and its trials: whether one came, and how many seconds it ran."""

    def __init__(self):
        self.trials, self.limit, self.in_vain = [], None, 0

    def patience(self, everybody):
        if self.limit is not None:
            return self.limit
        if not everybody:
            return math.inf
        mine = [seconds for came, seconds in self.trials if came]
        doubled = np.median(everybody[-64:]) * 2.0 ** (len(self.trials) - len(mine))
        return 4 * min([doubled, np.median(mine)] if mine else [doubled])

    def tell(self, came, seconds, window):
        self.in_vain = 0 if came else self.in_vain + 1
        if self.limit is not None:
            if self.in_vain == window:
                self.limit, self.trials = None, []
            return
        self.trials.append((came, seconds))
        mine = [each for came, each in self.trials if came]
        if not mine:
            return
        first = [came for came, _ in self.trials].index(True)
        count = sum(came or place > first or each >= mine[0] for place, (came, each) in enumerate(self.trials))
        if count >= window:
            within = lambda limit: sum(each <= limit for each in mine)
            enough = [limit for limit in mine if within(limit) >= min(math.ceil(count / 2), len(mine))]
            self.limit = max(enough, key=lambda limit: within(limit) / limit)


def rounds_of_learned_trials(times, trials, window):
    """The same where limits are learned, event by event: a limit is told to those that run as the first trial comes."""
    now, used, everybody, learners = 0.0, [0] * WORKERS, [], [Learner() for _ in range(WORKERS)]
    while True:
        came, left, running = [], list(trials), {}

        def begin(worker, now, left=left, running=running):
            if left[worker]:
                left[worker] -= 1
                limit = learners[worker].patience(everybody)
                running[worker] = [now, now + times[used[worker], worker], now + limit]
                used[worker] += 1

        for worker in range(WORKERS):
            begin(worker, now)
        while running:
            worker = min(running, key=lambda worker: min(running[worker][1:]))
            begun, arrives, until = running[worker]
            now = min(arrives, until)
            if arrives <= until:
                learners[worker].tell(True, arrives - begun, window)
                everybody.append(arrives - begun)
                came.append((now, worker))
                if len(everybody) == 1:
                    for other, span in running.items():
                        span[2] = span[0] + learners[other].patience(everybody)
            else:
                limit = learners[worker].patience(everybody)
                if begun + limit > until:
                    running[worker][2] = begun + limit
                    continue
                learners[worker].tell(False, until - begun, window)
            del running[worker]
            begin(worker, now)
        yield now, came


def mindflayer_by_hand(rounds, expected, momentum=0.0):
    """x <- x - gamma / B sum g; B given, or the mean number of gradients in the updates so far."""
    x, velocity, number, numbers, applied = np.zeros(3), np.zeros(3), 0, [], []
    for now, came in rounds:
        if not came:
            continue  # a step of zero
        numbers.append(len(came))
        total = np.zeros(3)
        for _, worker in came:
            total += gradient(x, worker, number)
            number += 1
        velocity = momentum * velocity + total / (expected or np.mean(numbers))
        x = x - RATE * velocity
        applied.append(now)
        if len(applied) == UPDATES:
            return x, applied, number
    return None


def vecna_by_hand(rounds):
    """x <- x - gamma / N sum_i 1 / b_i sum_j g; b_i is i's mean number of gradients in an update, with this one."""
    x, number, received, applied = np.zeros(3), 0, np.zeros(WORKERS), []
    for now, came in rounds:
        if not came:
            continue
        sums, applied = np.zeros((WORKERS, 3)), [*applied, now]
        for _, worker in came:
            received[worker] += 1
            sums[worker] += gradient(x, worker, number)
            number += 1
        b = np.maximum(received, 1) / len(applied)
        x = x - RATE / WORKERS * np.sum(sums / b[:, None], axis=0)
        if len(applied) == UPDATES:
            return x, applied, number
    return None


def dropcompute_by_hand(number_each, threshold, denominator):
    """The sum of the micro-batches that ended before tau, over N M or their number."""
    x, number, used, now, applied = np.zeros(3), 0, [0] * WORKERS, 0.0, []
    while len(applied) < UPDATES:
        came, ends = [], []
        for worker in range(WORKERS):
            elapsed = 0.0
            for _ in range(number_each):
                if elapsed >= threshold:
                    break
                elapsed += RUNTIMES[used[worker], worker]
                used[worker] += 1
                if elapsed < threshold:
                    came.append((elapsed, worker))
            ends.append(min(elapsed, threshold))
        now += max(ends)
        if not came:
            continue
        total = np.zeros(3)
        for _, worker in sorted(came):
            total += gradient(x, worker, number)
            number += 1
        x = x - RATE * total / (denominator or len(came))
        applied.append(now)
    return x, applied, number


def check(schedule, rule, by_hand):
    x, applied, number = by_hand
    assert schedule.num_updates == UPDATES
    assert schedule.used().sum() == number
    np.testing.assert_allclose(schedule.applied[:, 0], applied, rtol=1e-12)
    np.testing.assert_allclose(replayed(schedule, rule), x, rtol=1e-12, atol=1e-14)


def shared_by_hand(shares_of):
    """The mean of a fixed number of gradients, of which each worker computes a share; all have come in the end."""
    x, number, used, now, applied, past = np.zeros(3), 0, [0] * WORKERS, 0.0, [], [[] for _ in range(WORKERS)]
    while len(applied) < UPDATES:
        shares, came, ends = shares_of(past), [], []
        for worker in range(WORKERS):
            times = RUNTIMES[used[worker] : used[worker] + shares[worker], worker]
            used[worker] += shares[worker]
            clock = now
            for seconds in times:
                clock += seconds
                came.append((clock, worker))
            ends.append(clock)
            past[worker].append(times.tolist())
        now = max(ends)
        total = np.zeros(3)
        for _, worker in sorted(came):
            total += gradient(x, worker, number)
            number += 1
        x = x - RATE * total / len(came)
        applied.append(now)
    return x, applied, number


def soonest(total, seconds, least):
    """One after the other, to the worker that would have done it first."""
    shares = [least] * WORKERS
    while sum(shares) < total:
        first = min(range(WORKERS), key=lambda worker: ((shares[worker] + 1) * seconds[worker], worker))
        shares[first] += 1
    return shares


def balanced(past):
    pace = [1.0] * WORKERS
    for worker, rounds in enumerate(past):
        means = [sum(times) / len(times) for times in rounds]
        for place, mean in enumerate(means):
            pace[worker] = mean if place == 0 else (pace[worker] + mean) / 2
    return soonest(3 * WORKERS, pace, least=1)


def allocated(past, alpha=0.002, total=6):
    """Whoever was never tried; else the bounds of the paper, which are above 0 at this alpha."""
    tried = [[seconds for times in rounds for seconds in times] for rounds in past]
    k = len(past[0])
    shares = [int(not times) for times in tried]
    if not k:
        return [2, 2, 1, 1]
    bounds = []
    for times in tried:
        doubt = math.log(2 * k**2) / len(times)
        bounds.append(sum(times) / len(times) - 4 * math.e * alpha * (math.sqrt(doubt) + doubt))
    assert min(bounds) > 0
    assert not any(shares)
    return soonest(total, bounds, least=0)


LIMITS = (1.0, 1.5, 0.8, 2.5)
plain = {"learning_rate": RATE, "momentum": 0.0, "nesterov": False}


@pytest.mark.parametrize(("trials", "expected"), [((3, 2, 4, 1), 5.5), ((3, 2, 4, 1), None), ((1, 1, 1, 1), None)])
def test_mindflayer(trials, expected):
    by_hand = mindflayer_by_hand(rounds_of_trials(trials, LIMITS), expected)
    schedule = PROTOCOLS["mindflayer"].make(RUNTIMES, trials=trials, seconds=LIMITS, num_gradients=by_hand[2])
    assert schedule.dropped().any()
    check(schedule, rules.expected_count(**plain, expected_gradients=expected), by_hand)


def test_mindflayer_with_momentum():
    by_hand = mindflayer_by_hand(rounds_of_trials((3, 2, 4, 1), LIMITS), None, momentum=0.6)
    schedule = PROTOCOLS["mindflayer"].make(RUNTIMES, trials=(3, 2, 4, 1), seconds=LIMITS, num_gradients=by_hand[2])
    check(schedule, rules.expected_count(learning_rate=RATE, momentum=0.6, nesterov=False), by_hand)


@pytest.mark.parametrize("limits", [LIMITS, (0.3, 0.3, 0.3, 0.3)])
def test_vecna(limits):
    by_hand = vecna_by_hand(rounds_of_trials((3, 2, 4, 1), limits))
    schedule = PROTOCOLS["vecna"].make(RUNTIMES, trials=(3, 2, 4, 1), seconds=limits, num_gradients=by_hand[2])
    check(schedule, rules.vecna(**plain, num_workers=WORKERS), by_hand)


HEAVY = RUNTIMES**3
"""Log-normal with a deviation of 3: one trial in ten takes more than forty times the median."""


@pytest.mark.parametrize(("name", "trials", "window"), [("mindflayer", (1, 1, 1, 1), 3), ("vecna", (3, 2, 1, 2), 4)])
def test_learned_limits(name, trials, window):
    rounds = rounds_of_learned_trials(HEAVY, trials, window)
    by_hand = mindflayer_by_hand(rounds, None) if name == "mindflayer" else vecna_by_hand(rounds)
    schedule = PROTOCOLS[name].make(HEAVY, trials=trials, window=window, num_gradients=by_hand[2])
    assert schedule.dropped().any()
    rule = rules.expected_count(**plain) if name == "mindflayer" else rules.vecna(**plain, num_workers=WORKERS)
    check(schedule, rule, by_hand)


def test_learned_limits_far_on():
    """After many rounds, in which some are learned anew."""
    times, trials = np.random.default_rng(0).lognormal(0.0, 2.0, (400, WORKERS)) * [1.0, 1.0, 3.0, 50.0], (2, 1, 3, 2)
    rounds = rounds_of_learned_trials(times, trials, 3)
    schedule = PROTOCOLS["mindflayer"].make(times, trials=trials, window=3, num_gradients=200)
    ends = [now for now, came in (next(rounds) for _ in range(100)) if came]
    np.testing.assert_allclose(schedule.applied[:, 0], ends[: schedule.num_updates], rtol=1e-9)


@pytest.mark.parametrize("counts", [False, True])
def test_dropcompute(counts):
    number_each, threshold = 3, 3.0
    by_hand = dropcompute_by_hand(number_each, threshold, None if counts else WORKERS * number_each)
    schedule = protocols.dropcompute(
        RUNTIMES, micro_batches=number_each, seconds=threshold, interrupt=True, num_gradients=by_hand[2]
    )
    assert schedule.dropped().any()
    rule = rules.asgd(**plain) if counts else rules.expected_count(**plain, expected_gradients=WORKERS * number_each)
    check(schedule, rule, by_hand)


def test_lb_bsp():
    by_hand = shared_by_hand(balanced)
    schedule = PROTOCOLS["lb_bsp"].make(RUNTIMES, gradients=3, num_gradients=by_hand[2])
    check(schedule, rules.asgd(**plain), by_hand)
    assert np.bincount(schedule.worker).max() >= 2 * np.bincount(schedule.worker).min()


def test_ata():
    by_hand = shared_by_hand(allocated)
    schedule = PROTOCOLS["ata"].make(RUNTIMES, gradients_per_update=6, alpha=0.002, num_gradients=by_hand[2])
    check(schedule, rules.asgd(**plain), by_hand)


class TestIdentities:
    """Test that the mean, where every update has the expected number, is the sum over that number."""

    @pytest.mark.parametrize("expected", [None, float(WORKERS)])
    def test_the_expected_number_of_synchronous_rounds_is_momentum_sgd(self, expected):
        schedule = protocols.synchronous(RUNTIMES[:UPDATES])
        own = {"learning_rate": RATE, "momentum": 0.7, "weight_decay": 0.01}
        given = replayed(schedule, rules.expected_count(**own, expected_gradients=expected))
        np.testing.assert_allclose(given, replayed(schedule, rules.nag_asgd(**own)), rtol=1e-12)

    def test_vecna_of_synchronous_rounds_is_momentum_sgd(self):
        schedule = protocols.synchronous(RUNTIMES[:UPDATES])
        own = {"learning_rate": RATE, "momentum": 0.7, "weight_decay": 0.01}
        expected = replayed(schedule, rules.nag_asgd(**own))
        for room in (WORKERS, 2 * WORKERS):  # a state may have room for more workers than there are
            rule = rules.vecna(**own, num_workers=room, workers=WORKERS)
            np.testing.assert_allclose(replayed(schedule, rule), expected, rtol=1e-12)
