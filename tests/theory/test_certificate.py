"""Certificates: closed forms, a tree that is built and walked, shares, and gradients in flight."""

import json
import math

import numpy as np
import pytest

from sgdlab import PENDING, Schedule, predictors, protocols, theory
from sgdlab.registry import PROTOCOLS

RUNTIMES = np.random.default_rng(0).gamma(2.0, 1.0, (90, 5))
TIED = np.random.default_rng(1).integers(1, 4, (90, 5)).astype(float)
OWN = [name for name, part in PROTOCOLS.items() if not part.is_foreign]


def made(name, runtimes, number=60):
    given = {"gradients_per_epoch": 10.0, "predictor": predictors.RunningMean(window=3), "seed": 0}
    return PROTOCOLS.make(name, {}, runtimes=runtimes, num_gradients=number, **given)


class Tree:
    """Vertices by number, the root being 0; a vertex is its parent and the gradient that leads to it."""

    def __init__(self):
        self.parent, self.found = {0: None}, {}

    def child(self, vertex, gradient):
        key = (vertex, gradient)
        if key not in self.found:
            self.found[key] = len(self.parent)
            self.parent[self.found[key]] = vertex
        return self.found[key]

    def above(self, vertex):
        path = [vertex]
        while self.parent[path[-1]] is not None:
            path.append(self.parent[path[-1]])
        return path

    def distance(self, one, other):
        first, second = self.above(one), self.above(other)
        common = next(vertex for vertex in first if vertex in second)
        return max(first.index(common), second.index(common))


def walked(schedule, steps, block):
    """Largest distance of each used gradient of a block, by walking the tree."""
    tree, found = Tree(), {}
    rows = [row for row in range(schedule.num_gradients) if schedule.update[row, block] >= 0]
    rows.sort(key=lambda row: (schedule.update[row, block], row))
    branch, versions, number = 0, [0], 0
    for row in rows:
        if schedule.update[row, block] > number:
            versions.append(branch)
            number += 1
        points = [versions[schedule.read[row, block]]]
        for step in range(steps[row] - 1):
            points.append(tree.child(points[-1], (row, step)))
        far = 0
        for step, point in enumerate(points):
            far = max(far, tree.distance(branch, point))
            branch = tree.child(branch, (row, step))
        found[row] = far
    return found


@pytest.mark.parametrize("runtimes", [RUNTIMES, TIED], ids=["gamma", "tied"])
@pytest.mark.parametrize("name", OWN)
def test_distances_are_those_of_a_tree_that_is_built_and_walked(name, runtimes):
    schedule = made(name, runtimes)
    if not schedule.has_server:
        assert theory.certificate(schedule).tree_distance is None
        return
    mixed = np.random.default_rng(2).integers(1, 5, schedule.num_gradients)
    for steps in (np.ones_like(mixed), np.full_like(mixed, 3), mixed):
        distances = theory.tree_distances(schedule, steps)
        for block in range(schedule.num_blocks):
            expected = walked(schedule, steps, block)
            rows, here = np.flatnonzero(~distances.mask[:, block]), distances[:, block].compressed()
            assert dict(zip(rows.tolist(), here.tolist(), strict=True)) == expected
        assert theory.certificate(schedule, steps=steps).tree_distance == distances.max()


class TestClosedForms:
    """R as the paper says it is, and as it follows from the definition."""

    @pytest.mark.parametrize("workers", [1, 2, 7])
    def test_full_synchrony(self, workers):
        assert theory.certificate(protocols.synchronous(np.ones((3, workers)))).tree_distance == workers - 1

    @pytest.mark.parametrize("name", OWN)
    def test_a_single_worker_is_vanilla_sgd(self, name):
        per_update = {"softsync": "gradients_per_update", "rennala": "gradients_per_update"}.get(name)
        entries = {per_update: 1} if per_update else {}
        given = {"gradients_per_epoch": 10.0, "predictor": predictors.RunningMean(window=3), "seed": 0}
        try:
            schedule = PROTOCOLS.make(name, entries, runtimes=RUNTIMES[:, :1], num_gradients=20, **given)
        except ValueError:
            pytest.skip("needs several workers")
        if schedule.has_server and schedule.gradients_per_update() == 1 and not schedule.staleness().any():
            assert theory.certificate(schedule).tree_distance == 0

    @pytest.mark.parametrize("size", [1, 4, 9])
    def test_rennala(self, size):
        assert theory.certificate(protocols.rennala(RUNTIMES, gradients_per_update=size)).tree_distance == size - 1

    @pytest.mark.parametrize("bound", [1, 2, 4])
    def test_ringmaster(self, bound):
        assert theory.certificate(protocols.ringmaster(RUNTIMES, max_delay=bound)).tree_distance == bound - 1

    def test_asynchrony_is_the_largest_staleness(self):
        schedule = protocols.asynchronous(RUNTIMES, num_gradients=100)
        found = theory.certificate(schedule)
        assert found.tree_distance == found.largest_staleness == schedule.staleness().max()
        np.testing.assert_array_equal(theory.tree_distances(schedule), schedule.staleness())

    def test_local_steps_of_full_synchrony_are_the_steps_of_a_round_less_one(self):
        """Local SGD: B - 1 of B steps in a round; of a single worker, whose branch is the main branch, 0."""
        steps = np.tile([1, 2, 3, 4, 5], 20)
        schedule = protocols.synchronous(np.ones((20, 5)))
        assert theory.certificate(schedule, steps=steps).tree_distance == 14
        assert theory.certificate(protocols.synchronous(np.ones((20, 1))), steps=8).tree_distance == 0


def test_theorem():
    problem = theory.Problem(smoothness=3.0, descent=2.0, variance=5.0, accuracy=0.5)
    for far in (0, 1, 6):
        # 4 (R + 1) L Delta / eps + 8 sigma^2 L Delta / eps^2 with these numbers.
        assert theory.iterations(far, problem) == 4 * (far + 1) * 12 + 8 * 120
        assert theory.step_size(far, problem) == min(1 / 6, 1 / (6 * max(far, 1)), 0.5 / 60)
        # What the sum of all steps must be for the descent lemma: at least 2 Delta / epsilon over gamma.
        assert theory.iterations(far, problem) >= 2 * 2.0 / (theory.step_size(far, problem) * 0.5)


def test_the_seconds_are_those_of_as_many_gradients_at_the_pace_of_the_schedule():
    schedule = protocols.synchronous(np.tile([1.0, 2.0], (5, 1)))
    found, problem = theory.certificate(schedule), theory.Problem(variance=0.0)
    assert found.iterations(problem) == 8
    assert found.seconds_to(problem) == 8.0  # two gradients in two seconds


@pytest.mark.parametrize("name", OWN)
def test_gradients_in_flight_are_those_of_every_instant(name):
    schedule = made(name, TIED)
    if schedule.has_server:
        began, ended = schedule.started, schedule.arrived.max(axis=1)
    else:
        of_nodes = schedule.takes_gradient()
        began, ended = schedule.started[of_nodes], schedule.finished[of_nodes]
    end, found = schedule.wall_clock(), theory.certificate(schedule)
    instants = np.unique(np.concatenate([began, ended, [0.0, end]]))
    instants = instants[instants <= end]
    middle, seconds = (instants[1:] + instants[:-1]) / 2, np.diff(instants)
    there = ((began[:, None] < middle) & (ended[:, None] > middle)).sum(axis=0)
    assert found.most_in_flight == there.max()
    assert found.mean_in_flight == pytest.approx((there * seconds).sum() / end, rel=1e-12)


@pytest.mark.parametrize("name", OWN)
def test_shares_are_of_the_gradients_that_were_used(name):
    schedule = made(name, RUNTIMES)
    workers = schedule.num_workers
    count = np.zeros(workers)
    if schedule.has_server:
        for worker, used in zip(schedule.worker, schedule.used().any(axis=1), strict=True):
            count[worker] += used
    else:
        rows = schedule.node[schedule.takes_gradient()]
        count += [np.count_nonzero(rows == node) for node in range(workers)]
    found = theory.certificate(schedule)
    assert found.gradients == count.sum()
    np.testing.assert_allclose(found.shares, count / count.sum(), rtol=1e-12)
    assert found.effective_workers == pytest.approx(count.sum() ** 2 / (count**2).sum())
    assert found.shares[found.least_used] == found.shares.min()
    assert found.least_share == pytest.approx(workers * found.shares.min())


def used(*counts):
    """A schedule of one worker after the other, each with so many gradients."""
    worker = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(worker.size)
    times = {"started": number + 0.0, "arrived": number + 1.0, "applied": number + 1.0}
    return Schedule(worker=worker, read=number, update=number, num_workers=len(counts), **times)


@pytest.mark.parametrize(
    ("counts", "effective"), [((3, 3, 3), 3), ((5, 0, 0, 0), 1), ((1, 3), 16 / 10), ((2, 2, 0), 2), ((7,), 1)]
)
def test_effective_workers_by_hand(counts, effective):
    assert theory.certificate(used(*counts)).figures()["effective_workers"] == pytest.approx(effective, rel=1e-12)


def test_equal_nodes_are_all_effective():
    schedule = protocols.d_psgd(RUNTIMES, graph="ring", num_gradients=40)
    assert theory.certificate(schedule).effective_workers == pytest.approx(5, rel=1e-12)


def test_asynchrony_of_unequal_workers_under_uses_the_slow_ones():
    found = theory.certificate(protocols.asynchronous(np.tile([1.0, 1.0, 1.0, 9.0], (40, 1)), num_gradients=80))
    assert found.under_used.tolist() == [3]
    assert found.least_used == 3
    assert 3.0 < found.effective_workers < 3.3
    assert theory.certificate(protocols.synchronous(RUNTIMES)).under_used.size == 0


def test_updates_of_unequal_size_are_said():
    assert theory.certificate(protocols.synchronous(RUNTIMES)).equal_updates
    assert not theory.certificate(protocols.timeout(RUNTIMES, at_least=1, seconds=1.0)).equal_updates


def test_blocks_have_a_distance_each_and_a_note():
    schedule = made("layerwise", RUNTIMES)
    found = theory.certificate(schedule)
    assert len(found.block_distances) == schedule.num_blocks > 1
    assert max(found.block_distances) == found.tree_distance
    assert "block" in found.note


@pytest.mark.parametrize("name", OWN)
def test_it_is_plain_json(name):
    found = theory.certificate(made(name, RUNTIMES))
    entries = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert entries["tree_distance"] == found.tree_distance
    assert json.dumps(found.figures(), allow_nan=False)
    assert str(found).startswith("Certificate: R ")


def test_a_schedule_without_updates():
    nothing = Schedule(
        worker=[0], read=[0], update=[PENDING], started=[0.0], arrived=[1.0], applied=np.zeros((0, 1)), num_workers=2
    )
    found = theory.certificate(nothing)
    assert (found.tree_distance, found.gradients, found.effective_workers, found.most_in_flight) == (0, 0, 0.0, 0)
    assert math.isnan(found.seconds_per_update)
    assert theory.seconds_per_gradient(nothing).tolist() == [math.inf, math.inf]
    assert str(found)


class TestBadArguments:
    @pytest.mark.parametrize("name", ["smoothness", "descent", "accuracy"])
    def test_of_problems(self, name):
        with pytest.raises(ValueError, match=f"{name}=0.0 must be a finite number above 0"):
            theory.Problem(**{name: 0.0})

    def test_of_the_variance(self):
        with pytest.raises(ValueError, match=r"variance=-1.0 must be a finite number at least 0"):
            theory.Problem(variance=-1.0)

    @pytest.mark.parametrize(
        ("steps", "message"),
        [
            (0, "steps=0 must be a whole number of at least 1"),
            (np.ones(3, int), r"steps of shape \(3,\), int64 must be a whole number, or int\[4\]"),
            (np.ones(4), r"steps of shape \(4,\), float64 must be"),
            (np.array([1, 1, 0, 1]), "steps=0 in row 2 must be at least 1"),
        ],
    )
    def test_of_steps(self, steps, message):
        with pytest.raises(ValueError, match=message):
            theory.certificate(protocols.synchronous(np.ones((2, 2))), steps=steps)

    def test_of_distances(self):
        with pytest.raises(ValueError, match="distance=-1 must be a whole number of at least 0"):
            theory.iterations(-1, theory.Problem())
