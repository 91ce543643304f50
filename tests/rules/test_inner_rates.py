"""Warm-up and decay of the learning rate of workers with local steps: against NumPy, and what they must be.

The twin is the whole algorithm: an event loop, AdamW or Nesterov's momentum by the book, and the cosine of DiLoCo,
counted from the version that a worker has read.
"""

import heapq
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lib import tiny

from sgdlab import protocols, replay, rules
from sgdlab.errors import UsageError
from sgdlab.runs import resolve
from sgdlab.runs.configuration import check_used
from sgdlab.runs.local_steps import Local, of_messages, optimizer_of, pseudo_gradient, span_fn, spans, state_of_worker
from sgdlab.runs.plan import make_plan
from sgdlab.runs.rates import InnerRate, RateSchedule
from sgdlab.tasks import Task

WORKERS, MESSAGES, STEPS = 3, 18, np.array([4, 2, 1])
GENERATOR = np.random.default_rng(5)
CURVATURE, TARGET = GENERATOR.uniform(0.3, 1.0, (120, 3)), GENERATOR.normal(size=(120, 3))
SECONDS = np.array([1.0, 2.1, 4.3]) * GENERATOR.uniform(0.8, 1.2, (120, WORKERS))
START, RATE, OUTER = np.array([1.0, -2.0, 0.5]), 0.2, 0.7
PER_UPDATE, LENGTH = 0.8, 11.0  # steps of a worker for each update, and in the run
ENTRIES = RateSchedule(warmup_epochs=0.25, decay="cosine", final=0.1)
close = lambda found, expected: np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@jax.tree_util.Partial
def grad_fn(params, batch):
    curvature, target = batch
    return curvature * (params - target), {}


@jax.tree_util.Partial
def batch_fn(number):
    return jnp.asarray(CURVATURE)[number], jnp.asarray(TARGET)[number]


def inner_rate(*, steps_per_update=PER_UPDATE):
    own = {"steps_per_epoch": LENGTH, "steps_per_update": steps_per_update}
    return InnerRate.of(ENTRIES, num_workers=WORKERS, epochs=1.0, **own)


def factor(step):
    """The third part of the rate at first, all of it after a quarter of the run; a cosine down to a tenth."""
    step = min(step, LENGTH - 1)
    warm = 1 / 3 + 2 / 3 * min(1.0, step / (LENGTH / 4))
    return warm * (0.1 + 0.9 * (1 + math.cos(math.pi * step / LENGTH)) / 2)


class Worker:
    """Keeps its momentum, or its moments, between messages."""

    def __init__(self, adamw):
        self.adamw, self.m, self.v, self.made = adamw, np.zeros(3), np.zeros(3), 0

    def walk(self, read, version, numbers):
        theta = read
        for index, number in enumerate(numbers):
            gradient, self.made = CURVATURE[number] * (theta - TARGET[number]), self.made + 1
            rate = RATE * factor(math.floor(version * PER_UPDATE) + index)
            if self.adamw:
                self.m, self.v = 0.9 * self.m + 0.1 * gradient, 0.999 * self.v + 0.001 * gradient**2
                mean, square = self.m / (1 - 0.9**self.made), self.v / (1 - 0.999**self.made)
                theta = theta - rate * (mean / (np.sqrt(square) + 1e-8) + 0.02 * theta)
            else:
                self.m = 0.6 * self.m + gradient
                theta = theta - rate * (gradient + 0.6 * self.m)
        return theta


def by_hand(adamw):
    """Nobody waits: the server goes a part of the way of each message, and its worker begins on what there is then."""
    theta, version, row, number = START, 0, [0] * WORKERS, 0
    workers, queue = [Worker(adamw) for _ in range(WORKERS)], []
    sent = lambda worker, now: (now + SECONDS[row[worker] : row[worker] + STEPS[worker], worker].sum(), worker)
    for worker in range(WORKERS):
        heapq.heappush(queue, (*sent(worker, 0.0), 0, theta))
    for _ in range(MESSAGES):
        now, worker, read_version, read = heapq.heappop(queue)
        end = workers[worker].walk(read, read_version, range(number, number + STEPS[worker]))
        theta, version, number = theta - OUTER * (read - end), version + 1, number + STEPS[worker]
        row[worker] += STEPS[worker]
        heapq.heappush(queue, (*sent(worker, now), version, theta))
    return theta


def replayed(schedule, local, steps, inner, *, rate=OUTER, mode="event"):
    program = replay.lower(schedule, by_worker=local.keep_state)
    place = None if inner is None else inner.place(program.read[:, 0])
    of_rows = span_fn(*spans(steps[program.worker], program.worker.size), place=place)
    walk = pseudo_gradient(local, grad_fn, batch_fn, None if inner is None else inner.factors)
    own, rule = state_of_worker(local, jnp.asarray(START), None), rules.asgd(learning_rate=rate)
    return replay.run(program, rule, Task(walk, jnp.asarray(START), local=own), of_rows, mode=mode).params


@pytest.mark.parametrize("adamw", [False, True])
def test_as_in_numpy(adamw):
    own = {"optimizer": "adamw", "weight_decay": 0.02} if adamw else {"momentum": 0.6}
    local = Local(steps=4, learning_rate=RATE, keep_state=True, **own)
    schedule = protocols.asynchronous(of_messages(SECONDS, STEPS), num_gradients=MESSAGES)
    assert schedule.staleness().max() > 1
    found = replayed(schedule, local, STEPS, inner_rate())
    close(found, by_hand(adamw))
    if not adamw:
        close(replayed(schedule, local, STEPS, inner_rate(), mode="wave"), found)


class TestIdentities:
    def test_factors_of_one_are_a_constant_rate_to_the_bit(self):
        schedule = protocols.asynchronous(of_messages(SECONDS, STEPS), num_gradients=MESSAGES)
        local, ones = Local(steps=4, learning_rate=RATE, momentum=0.6), InnerRate(np.ones(4), PER_UPDATE)
        constant, followed = (replayed(schedule, local, STEPS, inner) for inner in (None, ones))
        np.testing.assert_array_equal(constant, followed)

    def test_one_step_of_a_rate_that_falls_is_sgd_with_that_rate(self):
        """The server goes the whole way of each message."""
        schedule, one = protocols.synchronous(SECONDS[:12]), np.ones(WORKERS, int)
        inner = inner_rate(steps_per_update=1.0)
        found = replayed(schedule, Local(learning_rate=RATE), one, inner, rate=1.0)
        rule = rules.asgd(learning_rate=rules.tabulated(RATE * inner.factors))
        close(found, replay.run(schedule, rule, Task(grad_fn, jnp.asarray(START)), batch_fn, mode="event").params)

    def test_a_span_without_a_place_begins_with_the_first_factor(self):
        """Also of factors that are a list."""
        made, factors = optimizer_of(Local(steps=4, learning_rate=RATE)), [1.0, 0.5, 0.25]
        walk = replay.in_local_steps(grad_fn, made, batch_fn, factors=factors)
        placed = replay.in_local_steps(grad_fn, made, batch_fn, factors=np.array([9.0, *factors]))
        found = walk(jnp.asarray(START), replay.Span(0, 3))
        close(found[0], placed(jnp.asarray(START), replay.Span(0, 3, place=1))[0])

    def test_a_whole_fragment_is_diloco(self):
        """Its workers go on with parameters of their own, which are the server's where that goes the whole way."""
        schedule, steps = protocols.synchronous(np.ones((4, 1))), np.array([4])
        program = replay.lower(schedule, by_worker=True)
        made, factors = optimizer_of(Local(steps=4, learning_rate=RATE, momentum=0.6)), inner_rate().factors
        of_rows = span_fn(*spans(steps[program.worker], 4), place=np.array([0, 3, 6, 9]))
        ways = [
            (replay.in_local_steps(grad_fn, made, batch_fn, keep_state=True, factors=factors), replay.state_of_worker),
            (replay.in_fragments(grad_fn, made, batch_fn, fragments=1, factors=factors), replay.state_of_fragments),
        ]
        found = []
        for walk, state in ways:
            local, params = state(made, jnp.asarray(START)), jnp.asarray(START)
            for row in range(4):
                grads, _, local = walk(params, of_rows(row), local)
                params = params - grads
            found.append(params)
        close(*found)
        theta, worker = START, Worker(adamw=False)
        for row in range(4):  # versions whose messages begin at these places
            theta = worker.walk(theta, 3 * row / PER_UPDATE, range(4 * row, 4 * row + 4))
        close(found[1], theta)

    def test_rounds_count_the_steps_of_each_worker(self):
        """As DiLoCo does: the k-th message of H steps goes from k H on, also where k H / H is not k to the bit."""
        plan = make_plan(tiny.config(method="diloco", local__steps=7, local__follow_rate=True, epochs=3.0))
        rounds = plan.program.read[: plan.program.num_rows, 0]
        np.testing.assert_array_equal(plan.inner.place(plan.program.read[: plan.program.num_rows, 0]), 7 * rounds)
        nearly = InnerRate(np.ones(8192), steps_per_update=math.nextafter(7.0, 0.0))
        np.testing.assert_array_equal(nearly.place(np.arange(1000)), 7 * np.arange(1000))


class TestOfRuns:
    def test_it_is_the_rate_of_updates_where_a_message_is_a_gradient(self):
        rate = {"rate__decay": "cosine", "rate__warmup_epochs": 0.25, "rate__of": "update", "epochs": 2.0}
        entries = {"method": "synchronous", "optimizer__learning_rate": 0.3, **rate}
        plain, followed = (make_plan(tiny.config(**entries, local__follow_rate=follow)) for follow in (None, True))
        assert plain.inner is None
        close(followed.experiment.local.learning_rate * followed.inner.factors[: plain.rates.size], plain.rates)
        np.testing.assert_array_equal(followed.rates, 1.0)  # of the server, which is not said twice
        read = followed.program.read[: followed.program.num_rows, 0]
        np.testing.assert_array_equal(followed.inner.place(read), read)

    def test_all_workers_end_with_the_run(self):
        """Of all speeds, and whatever an update waits for."""
        for method in ("async_diloco", "fedbuff"):
            plan = make_plan(tiny.config(method=method, local__follow_rate=True, epochs=30.0))
            length = plan.experiment.epochs * 44 / plan.schedule.num_workers
            last = plan.inner.steps_per_update * plan.schedule.num_updates
            assert last == pytest.approx(length, rel=0.05)

    @pytest.mark.parametrize("method", ["diloco", "streaming_diloco", "async_diloco"])
    def test_workers_of_diloco_anneal_and_keep_their_state(self, method):
        config = tiny.config(method=method, rate__decay="cosine", rate__warmup_epochs=0.0, epochs=4.0)
        plan = make_plan(config)
        assert plan.experiment.local.keep_state
        half = 4.0 * plan.experiment.data.batches_per_epoch / plan.schedule.num_workers / 2  # steps of a worker
        close(plan.inner.factors[: int(half)], 0.5 + 0.5 * np.cos(np.pi * np.arange(int(half)) / (2 * half)))

    def test_what_is_constant_has_no_entry(self):
        before = resolve(tiny.config(method="fedbuff")).identity
        assert "follow_rate" not in before["local"]
        assert resolve(tiny.config(method="fedbuff", local__follow_rate=False)).identity == before
        asked = resolve(tiny.config(method="fedbuff", local__follow_rate=True)).identity
        assert asked["local"] == before["local"] | {"follow_rate": True}
        check_used(["local.follow_rate"], [asked])

    def test_without_a_server_there_are_no_local_steps(self):
        """Name what the configuration itself says of them, and nothing else."""
        for entry, value in (("follow_rate", True), ("learning_rate", 0.5), ("steps", 2)):
            message = rf"--config\.local\.{entry}={value} must be left out, which protocol d_psgd cannot have"
            with pytest.raises(UsageError, match=message):
                make_plan(tiny.config(method="d_psgd", **{f"local__{entry}": value}))
        with pytest.raises(UsageError, match=r"^--config.method=fadas makes local steps, which protocol d_psgd cannot"):
            make_plan(tiny.config(method="fadas", protocol__kind="d_psgd"))
