"""The bound of Jin et al. 2016 (supplement, 6.1 and 6.2) against replays of its process, at every tick.

f(x) = sum_i h_i x_i^2 / 2 with h from m to L, and Gaussian noise of variance sigma^2 in all on each gradient. With
exponential run-times, a clock of each node's own gives the recursion of the appendix: step, then average. There the
bound holds where steps are as large as the theorem allows, and fails where they are small: its proof takes D and g for
independent, but both are of the node that ticks. A Poisson clock, average, then step, is Algorithm 3 made
instantaneous; for it the bound holds (see `experiments.gossip.bounds`).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgdlab import cluster, protocols, rules
from sgdlab.replay import Capacity, lower, run
from sgdlab.tasks import Task

M, L = 1.0, 4.0
CURVATURE = np.linspace(M, L, 6)
COPIES, SEEDS = 8, 25  # several copies share partners and differ in noise; seeds are independent
START = np.full(CURVATURE.size, 2.0)
FLAT = np.where(CURVATURE == M, 2.0, 0.0)  # where only the smallest curvature is left


def noisy(params, batch):
    """params: [copies, dimensions]. Its aux: what the theorem bounds, of this node, mean over copies.

    That is the squared distance from the minimum before its step, and after.
    """
    key, sigma, alpha = batch
    noise = sigma / np.sqrt(CURVATURE.size) * jax.random.normal(key, params.shape, params.dtype)
    grads = CURVATURE * params + noise
    squared = lambda x: jnp.mean(jnp.sum(x**2, axis=1))
    return grads, {"before": squared(params), "after": squared(params - alpha * grads)}


def batch_of(seed, sigma, alpha, number):
    return jax.random.fold_in(jax.random.key(seed), number), sigma, alpha


def distances(schedule, *, alpha: float, sigma: float, seed: int, start=START, after: bool = False) -> np.ndarray:
    """float64[ticks + 1]: sum over nodes of the squared distance from the minimum, of what they have in memory.

    A gradient is taken at what its node has in memory from the tick at which it begins to the one at which it ends.
    `after`: of what the latest step of each has made, from its first on.
    """
    nodes = schedule.num_nodes
    room = Capacity(rows=512, slots=64, width=nodes, events=512, edges=1024)
    batch_fn = jax.tree_util.Partial(batch_of, *(jnp.asarray(value) for value in (seed, sigma, alpha)))
    program = lower(schedule, capacity=room)
    rule = rules.asgd(learning_rate=alpha)
    history = run(program, rule, Task(noisy, jnp.tile(start, (COPIES, 1))), batch_fn, mode="event").history
    memory = np.full(nodes, np.sum(start**2))
    totals = [memory.sum()]
    for node, distance in zip(history.worker, history.aux["after" if after else "before"], strict=True):
        memory[node] = distance
        totals.append(memory.sum())
    # A node's first gradient is at what all begin with: no tick has gone before it.
    return np.array(totals)[0 if after else nodes :]


def bound(ticks, *, nodes: int, alpha: float, sigma: float, rounds: bool = False, start=START) -> np.ndarray:
    """As printed."""
    rate = 2 * alpha * M * L / (M + L) / (1 if rounds else nodes)
    noise = nodes * alpha * sigma**2 * (M + L) / (2 * M * L)
    return (1 - rate) ** ticks * nodes * np.sum(start**2) + noise


def test_distances_are_those_of_all_nodes():
    """What aux says of each gradient adds up to what the nodes have at the end."""
    runtimes = cluster.exponential(num_workers=4, num_gradients=24, seed=0)
    schedule = protocols.gossip(runtimes, seed=0)
    options = {"alpha": 0.1, "sigma": 1.0, "seed": 3}
    batch_fn = lambda g: batch_of(3, 1.0, 0.1, g)
    start = jnp.tile(START, (COPIES, 1))
    nodes = run(schedule, rules.asgd(learning_rate=0.1), Task(noisy, start), batch_fn).nodes
    total = np.sum(np.asarray(nodes) ** 2) / COPIES
    np.testing.assert_allclose(distances(schedule, **options, after=True)[-1], total, rtol=1e-12)


@pytest.mark.sample(3)
@pytest.mark.parametrize("clock", ["own", "rounds"])
@pytest.mark.parametrize("nodes", [4, 16])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_holds_for_large_steps(nodes, clock, share):
    alpha, sigma, found = share * 2 / (M + L), 2.0, []
    for seed in range(SEEDS):
        runtimes = cluster.exponential(num_workers=nodes, num_gradients=24, seed=seed)
        schedule = protocols.gossip(runtimes, clock=clock, include_self=True, num_gradients=10 * nodes, seed=seed)
        found.append(distances(schedule, alpha=alpha, sigma=sigma, seed=seed))
    found = np.array(found)
    if clock == "rounds":  # a tick is a round
        found = found[:, ::nodes]
    ticks = np.arange(found.shape[1])
    assert ticks.size == (10 if clock == "rounds" else 9 * nodes + 1)
    limit = bound(ticks, nodes=nodes, alpha=alpha, sigma=sigma, rounds=clock == "rounds")
    error = found.std(axis=0, ddof=1) / np.sqrt(SEEDS)
    np.testing.assert_allclose(found[:, 0], nodes * np.sum(START**2), rtol=1e-12)
    assert (found.mean(axis=0) <= limit + 3 * error).all()
    # The bound says something: most of the way is done, and what is left is noise.
    assert limit[-1] < 0.5 * found[0, 0]
    assert found[:, -1].min() > 0


@pytest.mark.parametrize("clock", ["own", "poisson"])
def test_of_small_steps_needs_the_step_behind_the_averaging(clock):
    """Without noise."""
    nodes, alpha, found = 16, 0.1 * 2 / (M + L), []
    for seed in range(SEEDS):
        runtimes = cluster.exponential(num_workers=nodes, num_gradients=64, seed=seed)
        schedule = protocols.gossip(runtimes, include_self=True, clock=clock, num_gradients=30 * nodes, seed=seed)
        found.append(distances(schedule, alpha=alpha, sigma=0.0, seed=seed, start=FLAT, after=clock == "poisson"))
    found = np.array(found)
    ticks = np.arange(found.shape[1])
    limit = bound(ticks, nodes=nodes, alpha=alpha, sigma=0.0, start=FLAT)
    error = found.std(axis=0, ddof=1) / np.sqrt(SEEDS)
    above = (found.mean(axis=0) - limit)[1:] / np.maximum(error[1:], 1e-12)
    if clock == "poisson":
        assert (above <= 3).all()
    else:
        assert above[-1] > 3
