"""AsGrad's assignments against a second, naive server with a list of jobs for each worker; and what they equal."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from comparison import assert_equal

from sgdlab import policies, protocols, replay, rules
from sgdlab.live.recording import KeptVersions
from sgdlab.live.transport import Nobody
from sgdlab.protocols.assignment import KINDS
from sgdlab.tasks import Task

WORKERS, GRADIENTS, RATE = 4, 48, 0.1

_random = np.random.default_rng(5)
CURVATURE, TARGET = _random.uniform(0.2, 1.0, (GRADIENTS, 3)), _random.normal(size=(GRADIENTS, 3))


def times(seed=0, rows=200, workers=WORKERS):
    return np.random.default_rng(seed).gamma(2.0, size=(rows, workers)) * np.arange(1, workers + 1)


def simulated(runtimes, *, seed=0, num_gradients=GRADIENTS, **own):
    return policies.simulate(
        functools.partial(policies.assignment, seed=seed, **own), runtimes, num_gradients=num_gradients
    )


def naive(runtimes, *, kind, b, seed):
    """The whole method: jobs, clock and parameters. Returns the parameters, and (worker, read, arrived) of each job."""
    workers = runtimes.shape[1]
    points = [np.ones(3)]  # all versions
    jobs = [[0] for _ in range(workers)]  # the first of them is computed now
    done = [0] * workers
    ready = [float(runtimes[0, i]) for i in range(workers)]
    draw, left, batch, came, record = 0, [], [], [], []
    while len(record) < GRADIENTS:
        i = int(np.argmin(ready))  # the first of equals by number
        now, read = ready[i], jobs[i].pop(0)
        done[i] += 1
        ready[i] = now + float(runtimes[done[i], i]) if jobs[i] else np.inf
        batch.append(CURVATURE[len(record)] * (points[read] - TARGET[len(record)]))
        came.append(i)
        record.append((i, read, now))
        if len(batch) < b:
            continue
        points.append(points[-1] - RATE * sum(batch) / b)
        chosen = sorted(came)
        if kind != "pure":
            chosen = []
            for _ in range(b):
                draw += 1
                generator = np.random.default_rng([seed, draw])
                if kind == "random":
                    chosen.append(int(generator.integers(workers)))
                else:
                    left = left or generator.permutation(workers).tolist()
                    chosen.append(left.pop(0))
        for j in chosen:
            if not jobs[j]:
                ready[j] = now + float(runtimes[done[j], j])
            jobs[j].append(len(points) - 1)
        batch, came = [], []
    return points[-1], record


def grad_fn(params, batch):
    curvature, target = batch
    return curvature * (params - target), {}


def batch_fn(row):
    return jnp.asarray(CURVATURE)[row], jnp.asarray(TARGET)[row]


@pytest.mark.parametrize("kind", KINDS)
def test_is_the_naive_one(kind):
    for b, seed in ((1, 0), (3, 7)):
        runtimes = times(seed)
        schedule = simulated(runtimes, kind=kind, gradients_per_update=b, seed=seed)
        params, record = naive(runtimes, kind=kind, b=b, seed=seed)
        used = schedule.used()[:, 0]
        rows = (schedule.worker[used], schedule.read[used, 0], schedule.arrived[used, 0])
        assert list(zip(*(column.tolist() for column in rows), strict=True)) == record
        capacity = replay.Capacity(rows=64, slots=32, width=4)
        program = replay.lower(schedule, capacity=capacity)
        result = replay.run(program, rules.asgd(learning_rate=RATE), Task(grad_fn, jnp.ones(3)), batch_fn, mode="event")
        np.testing.assert_allclose(result.params, params, rtol=1e-12)
    assert (schedule.staleness() > 0).any()


@pytest.mark.parametrize("seed", range(3))
def test_pure_is_asynchronous(seed):
    assert_equal(simulated(times(seed), kind="pure"), protocols.asynchronous(times(seed), num_gradients=GRADIENTS))


@pytest.mark.parametrize("kind", KINDS)
def test_one_worker_is_plain(kind):
    runtimes = times(workers=1)
    schedule = simulated(runtimes, kind=kind)
    assert_equal(schedule, protocols.asynchronous(runtimes, num_gradients=GRADIENTS))
    assert (schedule.staleness() == 0).all()


@pytest.mark.parametrize("kind", ["pure", "shuffled"])
def test_waiting_for_all_is_synchronous(kind):
    schedule = simulated(times(), kind=kind, gradients_per_update=WORKERS)
    assert_equal(schedule, protocols.synchronous(times(), num_gradients=GRADIENTS))


def test_a_permutation_gives_all_workers_equal_shares_whatever_their_speed():
    runtimes = np.tile([1.0, 2.0, 4.0, 16.0], (400, 1))
    shares = {
        kind: np.bincount(schedule.worker[schedule.used()[:, 0]], minlength=WORKERS) / 400
        for kind in KINDS
        for schedule in [simulated(runtimes, kind=kind, num_gradients=400)]
    }
    assert shares["pure"].min() < 0.05
    assert np.abs(shares["shuffled"] - 0.25).max() <= WORKERS / 400  # but for what is on its way
    assert 0.18 < shares["random"].min() < shares["random"].max() < 0.32


def test_the_seed_is_of_the_draws():
    first, second = (simulated(times(), kind="random", seed=seed) for seed in (0, 1))
    assert not np.array_equal(first.worker, second.worker)
    assert_equal(first, simulated(times(), kind="random", seed=0))


def test_what_a_lost_worker_was_to_do_is_assigned_anew():
    policy = policies.assignment(num_workers=3, seed=0, kind="shuffled")
    policy.start([0, 1, 2])
    now, slow = 0.0, 2
    while len(policy.queues[slow]) < 2:  # the fast ones come again and again
        now += 1.0
        policy.arrived(now, min(policy.busy), 0, 1.0)
        if set(policy.busy) == {slow}:
            break
    policy.lost(now, slow)
    assert policy.held() <= {policy.version}  # what was left is on the newest version
    assert len(policy.busy) + sum(map(len, policy.queues.values())) == 2


class Remembering(policies.Softsync):
    """Begins on a version that it has not held since it was the newest."""

    def held(self):
        return {self.version - 1} if self.version == 3 else set()


def test_a_version_is_held_from_when_it_is_the_newest():
    with pytest.raises(ValueError, match=r"^policy=Remembering holds version 2 at .* s, when 3 is the newest"):
        policies.simulate(lambda num_workers: Remembering(), np.ones((9, 2)), num_gradients=9)
    versions = KeptVersions(Nobody(), lambda: "initial")
    versions.hold({0})
    versions.formed(1)
    assert versions.held() == {0: "initial"}
    assert 0 in versions
    versions.hold(())
    assert versions.held() == {}
    with pytest.raises(ValueError, match="it holds version 0, and 1 is the newest"):
        versions.hold({0})
