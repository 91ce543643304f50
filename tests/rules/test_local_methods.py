"""Methods of local steps, whole: against algorithms in NumPy with an event loop of their own, and what they must be.

Liu et al. 2024 (Delayed Nesterov, DyLU), Nguyen et al. 2022 (FedBuff), Xie et al. 2019 (FedAsync), Douillard et al.
2023 (DiLoCo), Decoupled DiLoCo 2026, McMahan et al. 2017 (local SGD).
"""

import functools
import heapq
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sgdlab import protocols, replay, rules
from sgdlab.runs.local_steps import Local, of_messages, steps_by_worker
from sgdlab.runs.local_steps import optimizer_of as optimizer_of_local
from sgdlab.tasks import Task

WORKERS, MESSAGES, MOST = 3, 24, 4
GENERATOR = np.random.default_rng(7)
CURVATURE, TARGET = GENERATOR.uniform(0.3, 1.0, (200, 3)), GENERATOR.normal(size=(200, 3))
SECONDS = np.array([1.0, 2.1, 4.3]) * GENERATOR.uniform(0.8, 1.2, (300, WORKERS))
START = np.array([1.0, -2.0, 0.5])


@jax.tree_util.Partial
def grad_fn(params, batch):
    curvature, target = batch
    return curvature * (params - target), {}


@jax.tree_util.Partial
def batch_fn(number):
    return jnp.asarray(CURVATURE)[number], jnp.asarray(TARGET)[number]


class Worker:
    """AdamW, or NAG, by the book; `fresh` begins it anew with each message."""

    def __init__(self, rate, *, adamw, decay=0.0, momentum=0.0, fresh=True):
        self.rate, self.adamw, self.decay, self.momentum, self.fresh = rate, adamw, decay, momentum, fresh
        self.begin()

    def begin(self):
        self.m, self.v, self.k = np.zeros(3), np.zeros(3), 0

    def walk(self, read, numbers):
        if self.fresh:
            self.begin()
        theta = read
        for number in numbers:
            gradient, self.k = CURVATURE[number] * (theta - TARGET[number]), self.k + 1
            if self.adamw:
                self.m, self.v = 0.9 * self.m + 0.1 * gradient, 0.999 * self.v + 0.001 * gradient**2
                step = self.m / (1 - 0.9**self.k) / (np.sqrt(self.v / (1 - 0.999**self.k)) + 1e-8)
                theta = theta - self.rate * (step + self.decay * theta)
            else:
                gradient = gradient + self.decay * theta
                self.m = self.momentum * self.m + gradient
                theta = theta - self.rate * (gradient + self.momentum * self.m)
        return theta


class DelayedNesterovServer:
    """The pseudocode of Delayed Nesterov, with messages Delta = what was read less where the worker is."""

    def __init__(self, theta, *, rate, beta, n, c):
        self.theta, self.rate, self.beta, self.n, self.c = theta, rate, beta, n, c
        self.momentum, self.delta, self.t = np.zeros(3), np.zeros(3), 0

    def take(self, read, theta, staleness):
        g = read - theta
        self.delta = self.delta + g
        if (self.t + 1) % self.n == 0:
            self.momentum = self.beta * self.momentum + self.delta / self.n
            share = 1 - self.c * self.n + self.c
            self.delta = np.zeros(3)
        else:
            share = self.c
        self.theta = self.theta - self.rate * (share * self.beta * self.momentum + g / self.n)
        self.t += 1
        return True


class FedBuffServer:
    """Adds discounted differences to a buffer, and applies their mean when it has K."""

    def __init__(self, theta, *, rate, size):
        self.theta, self.rate, self.size, self.buffer = theta, rate, size, []

    def take(self, read, theta, staleness):
        self.buffer.append((theta - read) / np.sqrt(1 + staleness))
        if len(self.buffer) < self.size:
            return False
        self.theta = self.theta + self.rate * np.mean(self.buffer, axis=0)
        self.buffer = []
        return True


class FadasServer:
    """AMSGrad of the mean difference; where it is stale, with the rate of the paper (capped) or of its code."""

    def __init__(self, theta, *, rate, size, threshold, adaptation):
        self.theta, self.rate, self.size, self.threshold, self.adaptation = theta, rate, size, threshold, adaptation
        self.m, self.v, self.largest, self.buffer, self.late = np.zeros(3), np.zeros(3), np.zeros(3), [], []

    def take(self, read, theta, staleness):
        self.buffer.append(theta - read)
        self.late.append(staleness)
        if len(self.buffer) < self.size:
            return False
        delta, most = np.mean(self.buffer, axis=0), max(self.late)
        self.m, self.v = 0.9 * self.m + 0.1 * delta, 0.99 * self.v + 0.01 * delta**2
        self.largest = np.maximum(self.largest, self.v)
        rate = self.rate
        if most > self.threshold and self.adaptation != "none":
            rate = min(rate, 1 / most) if self.adaptation == "capped" else rate / most
        self.theta = self.theta + rate * self.m / (np.sqrt(self.largest) + 1e-8)
        self.buffer, self.late = [], []
        return True


class FedAsyncServer:
    """x <- (1 - alpha s) x + alpha s x_new."""

    def __init__(self, theta, *, alpha, s):
        self.theta, self.alpha, self.s = theta, alpha, s

    def take(self, read, theta, staleness):
        share = self.alpha * self.s(staleness)
        self.theta = (1 - share) * self.theta + share * theta
        return True


def naive(server, workers, steps, messages=MESSAGES):
    """Workers that never wait: the next that is ready sends, and begins on what the server has then."""
    row, number, version = [0] * WORKERS, 0, 0
    queue = []

    def begin(worker, now):
        seconds = SECONDS[row[worker] : row[worker] + steps[worker], worker]
        row[worker] += steps[worker]
        heapq.heappush(queue, (now + seconds.sum(), worker, version, server.theta))

    for worker in range(WORKERS):
        begin(worker, 0.0)
    for _ in range(messages):
        now, worker, read_version, read = heapq.heappop(queue)
        theta = workers[worker].walk(read, range(number, number + steps[worker]))
        number += steps[worker]
        version += server.take(read, theta, version - read_version)
        begin(worker, now)
    return server.theta


def optimizer_of(worker):
    if worker.adamw:
        return jax.tree_util.Partial(optax.adamw, learning_rate=worker.rate, weight_decay=worker.decay)
    return optimizer_of_local(
        Local(steps=2, learning_rate=worker.rate, momentum=worker.momentum, weight_decay=worker.decay)
    )


def replayed(schedule, rule, worker, steps):
    program = replay.lower(schedule, by_worker=not worker.fresh)
    each = steps[program.worker]
    first = np.cumsum(each) - each
    spans = lambda row: replay.Span(jnp.asarray(first)[row], jnp.asarray(each)[row])
    optimizer = optimizer_of(worker)
    walk = replay.in_local_steps(grad_fn, optimizer, batch_fn, keep_state=not worker.fresh)
    local = None if worker.fresh else replay.state_of_worker(optimizer, jnp.asarray(START))
    return np.asarray(
        replay.run(program, rule, Task(walk, jnp.asarray(START), local=local), spans, mode="event").params
    )


def steps_and_times(*, by_speed):
    steps = steps_by_worker(Local(steps=MOST, by_speed=by_speed), SECONDS)
    return steps, of_messages(SECONDS, steps)


ADAMW, NAG = {"adamw": True, "decay": 0.02}, {"adamw": False, "momentum": 0.6, "decay": 0.01}
close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("c", "period"), [(0.0, None), (1 / 3, None), (0.2, 4), (0.4, 1)])
def test_asynchronous_diloco(c, period):
    steps, times = steps_and_times(by_speed=True)
    assert len(set(steps.tolist())) > 1
    server = DelayedNesterovServer(START, rate=0.7, beta=0.9, n=period or WORKERS, c=c)
    expected = naive(server, [Worker(0.1, **ADAMW) for _ in range(WORKERS)], steps)
    rule = rules.delayed_nesterov(learning_rate=0.7, num_workers=8, workers=WORKERS, period=period, activation=c)
    schedule = protocols.asynchronous(times, num_gradients=MESSAGES)
    assert schedule.staleness().max() > 1
    close(replayed(schedule, rule, Worker(0.1, **ADAMW), steps), expected)


def test_fedbuff():
    steps, times = steps_and_times(by_speed=False)
    expected = naive(FedBuffServer(START, rate=0.8, size=2), [Worker(0.1, **NAG) for _ in range(WORKERS)], steps)
    schedule = protocols.softsync(times, gradients_per_update=2, num_gradients=MESSAGES)
    assert schedule.staleness().max() > 0
    close(replayed(schedule, rules.fedbuff(learning_rate=0.8), Worker(0.1, **NAG), steps), expected)


WEIGHTS = {
    "constant": lambda u: 1.0,
    "polynomial": lambda u: (u + 1) ** -0.7,
    "hinge": lambda u: 1.0 if u <= 1.5 else 1 / (0.7 * (u - 1.5) + 1),
}


@pytest.mark.parametrize("weight", WEIGHTS)
def test_fedasync(weight):
    steps, times = steps_and_times(by_speed=False)
    server = FedAsyncServer(START, alpha=0.6, s=WEIGHTS[weight])
    expected = naive(server, [Worker(0.1, **NAG) for _ in range(WORKERS)], steps)
    rule = rules.fedasync(learning_rate=0.6, weight=weight, a=0.7, b=1.5)
    schedule = protocols.asynchronous(times, num_gradients=MESSAGES)
    close(replayed(schedule, rule, Worker(0.1, **NAG), steps), expected)


@pytest.mark.parametrize("adaptation", ["divided", "capped", "none"])
def test_fadas(adaptation):
    steps, times = steps_and_times(by_speed=False)
    own = {"rate": 0.6, "threshold": 1}  # one half is less than this rate, at a staleness of 2
    server = FadasServer(START, size=2, adaptation=adaptation, **own)
    expected = naive(server, [Worker(0.1, **NAG) for _ in range(WORKERS)], steps)
    schedule = protocols.softsync(times, gradients_per_update=2, num_gradients=MESSAGES)
    largest = [schedule.staleness()[schedule.update == update].max() for update in range(schedule.num_updates)]
    assert min(largest) <= 1 < max(largest)
    rule = rules.fadas(learning_rate=0.6, adaptation=adaptation, threshold=1.0)
    close(replayed(schedule, rule, Worker(0.1, **NAG), steps), expected)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_diloco(momentum):
    """Without an outer momentum, and with a rate of 1, it is local SGD: the mean of the workers."""
    workers = [Worker(0.1, fresh=False, **ADAMW) for _ in range(WORKERS)]
    rate = 0.7 if momentum else 1.0
    theta, velocity, number = START, np.zeros(3), 0
    for _ in range(MESSAGES // WORKERS):
        ends = []
        for worker in workers:
            ends.append(worker.walk(theta, range(number, number + MOST)))
            number += MOST
        delta = np.mean([theta - end for end in ends], axis=0)
        velocity = momentum * velocity + delta
        theta = theta - rate * (delta + momentum * velocity)
    # Of equal times: the gradients of a round come, and have their batches, in the order of the workers.
    schedule = protocols.synchronous(np.ones((MESSAGES // WORKERS, WORKERS)))
    rule = rules.asgd(learning_rate=rate, momentum=momentum, nesterov=True)
    close(replayed(schedule, rule, Worker(0.1, fresh=False, **ADAMW), np.full(WORKERS, MOST)), theta)


def decoupled(workers, steps, updates, *, quorum, grace, waits, merge):
    """Merge what a quorum and a grace window bring, whatever its age; return the parameters, and who was in each."""
    theta, velocity, number, opened = START, np.zeros(3), 0, 0.0
    row, merged, computing = [0] * WORKERS, [], {}

    def begin(worker, now):
        seconds = SECONDS[row[worker] : row[worker] + steps[worker], worker].sum()
        row[worker] += steps[worker]
        computing[worker] = now + seconds, theta

    for worker in range(WORKERS):
        begin(worker, 0.0)
    for _ in range(updates):
        came, deadline = [], np.inf
        while computing and min(end for end, _ in computing.values()) < deadline:
            worker = min(computing, key=lambda each: computing[each][0])
            now, read = computing.pop(worker)
            difference = read - workers[worker].walk(read, range(number, number + steps[worker]))
            number += steps[worker]
            came.append((worker, steps[worker], difference))
            present = {each for each, *_ in came}
            if len(present) == quorum and deadline == np.inf:
                deadline = now + grace * (now - opened)
            if len(present) == WORKERS:
                deadline = now
            if not waits and now < deadline:
                begin(worker, now)
        opened = deadline
        weights = np.array([weight for _, weight, _ in came]) / sum(weight for _, weight, _ in came)
        messages = np.array([difference for *_, difference in came])
        if merge == "radial":
            lengths = np.linalg.norm(messages, axis=1)
            mean = weights @ (messages / lengths[:, None])
            delta = weights @ lengths * mean / np.linalg.norm(mean)
        else:
            delta = weights @ messages
        velocity = 0.9 * velocity + delta
        theta = theta - 0.7 * (0.9 * velocity + delta)
        merged.append([worker for worker, *_ in came])
        for worker in range(WORKERS):
            if worker not in computing:
                begin(worker, opened)
    return theta, merged


@pytest.mark.parametrize("merge", ["mean", "radial"])
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("grace", [0.0, 0.3])
def test_decoupled_diloco(merge, waits, grace):
    steps, updates = np.array([2, 4, 3]), 12
    times = of_messages(SECONDS, steps)
    workers = [Worker(0.1, fresh=False, **ADAMW) for _ in range(WORKERS)]
    expected, merged = decoupled(workers, steps, updates, quorum=2, grace=grace, waits=waits, merge=merge)
    schedule = protocols.quorum(times, at_least=2, grace=grace, waits=waits, num_gradients=sum(map(len, merged)))
    assert [schedule.worker[schedule.update[:, 0] == update].tolist() for update in range(updates)] == merged
    assert schedule.staleness().max() > 0
    assert not schedule.dropped().any()
    assert any(len(set(each)) < len(each) for each in merged) != waits
    rule = rules.token_weighted(learning_rate=0.7, num_workers=WORKERS, steps=steps, merge=merge)
    close(replayed(schedule, rule, Worker(0.1, fresh=False, **ADAMW), steps), expected)


class TestIdentities:
    """Test what the methods are where their parts are switched off."""

    plain = Worker(1.0, adamw=False)
    one = np.ones(WORKERS, int)

    def schedule(self):
        return protocols.asynchronous(SECONDS, num_gradients=MESSAGES)

    def by_gradients(self, rule, schedule):
        """Without local steps at all."""
        return replay.run(schedule, rule, Task(grad_fn, jnp.asarray(START)), batch_fn, mode="event").params

    def test_one_local_step_of_rate_one_is_plain(self):
        for rule in (rules.nag_asgd(learning_rate=0.1), rules.fedbuff(learning_rate=0.1)):
            found = replayed(self.schedule(), rule, self.plain, self.one)
            close(found, self.by_gradients(rule, self.schedule()), rtol=1e-11)

    def test_one_worker_with_local_steps_is_serial_sgd(self):
        worker, theta = Worker(0.1, adamw=False, momentum=0.6, fresh=False), START
        for number in range(0, 40, 4):
            theta = worker.walk(theta, range(number, number + 4))
        schedule = protocols.synchronous(np.ones((10, 1)))
        local = Worker(0.1, adamw=False, momentum=0.6, fresh=False)
        close(replayed(schedule, rules.asgd(learning_rate=1.0), local, np.array([4])), theta)
        # So does FedAsync, which then takes the worker's parameters.
        close(replayed(schedule, rules.fedasync(learning_rate=1.0), local, np.array([4])), theta)

    def test_fedbuff_without_its_weights_is_asgd(self):
        schedule = protocols.softsync(SECONDS, gradients_per_update=2, num_gradients=MESSAGES)
        asgd = self.by_gradients(rules.asgd(learning_rate=0.1), schedule)
        close(self.by_gradients(rules.fedbuff(learning_rate=0.1, exponent=0.0), schedule), asgd)
        assert not np.allclose(self.by_gradients(rules.fedbuff(learning_rate=0.1), schedule), asgd, rtol=1e-3)

    def test_equal_steps_are_nesterov(self):
        schedule = protocols.quorum(SECONDS, num_gradients=MESSAGES)
        nesterov = self.by_gradients(rules.asgd(learning_rate=0.1, momentum=0.9, nesterov=True), schedule)
        ones = self.by_gradients(rules.token_weighted(learning_rate=0.1, num_workers=WORKERS), schedule)
        close(ones, nesterov)
        threes = rules.token_weighted(learning_rate=0.1, num_workers=WORKERS, steps=[3] * WORKERS)
        np.testing.assert_array_equal(self.by_gradients(threes, schedule), ones)  # to the bit

    def test_merges_of_one_message_are_the_message(self):
        schedule = protocols.asynchronous(SECONDS, num_gradients=MESSAGES)
        own = {"learning_rate": 0.1, "num_workers": WORKERS, "steps": [1, 2, 3]}
        merged = [self.by_gradients(rules.token_weighted(merge=merge, **own), schedule) for merge in ("mean", "radial")]
        close(merged[0], merged[1])


def test_slower_workers_make_fewer_steps():
    assert steps_by_worker(Local(steps=10), np.ones((3, 4))).tolist() == [10] * 4
    assert steps_by_worker(Local(steps=10, by_speed=True), np.ones((3, 4))).tolist() == [10] * 4
    assert steps_by_worker(Local(steps=10, by_speed=True), np.array([[2.0, 3.0, 4.0, 50.0]])).tolist() == [10, 6, 5, 1]
    times, steps = np.random.default_rng(0).gamma(2.0, size=(24, 4)), np.array([3, 1, 2, 3])
    found = of_messages(times, steps)
    assert found.shape == (8, 4)
    for worker, each in enumerate(steps):
        ends = list(itertools.accumulate(times[: 8 * each, worker]))
        close(np.cumsum(found[:, worker]), np.array(ends)[each - 1 :: each])
    close(of_messages(times[:12], steps), found[:4], rtol=0, atol=0)  # more rows change none before
