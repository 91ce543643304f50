"""The bound of Jin et al. 2016 (supplement, 6.1 and 6.2) holds for replays of its process, at every tick.

f(x) = sum_i h_i x_i^2 / 2 with h from m to L, and Gaussian noise of variance sigma^2 in all on each gradient.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgdlab import cluster, protocols, rules
from sgdlab.replay import PeerCapacity, lower_peers, run_peers

M, L, SIGMA = 1.0, 4.0, 2.0
CURVATURE = np.linspace(M, L, 6)
COPIES, SEEDS, ROWS = 8, 25, 24  # several copies share partners and differ in noise; seeds are independent
START = 2.0


def noisy(params, key):
    """params: [copies, dimensions]. Its aux: what the theorem bounds, of this node, the mean over copies."""
    noise = SIGMA / np.sqrt(CURVATURE.size) * jax.random.normal(key, params.shape, params.dtype)
    return CURVATURE * params + noise, {"distance": jnp.mean(jnp.sum(params**2, axis=1))}


def key_of(seed, number):
    return jax.random.fold_in(jax.random.key(seed), number)


def distances(schedule, alpha: float, seed: int) -> np.ndarray:
    """float64[ticks + 1]: sum over nodes of the squared distance from the minimum, of what they have in memory.

    A gradient is taken at what its node has in memory from the tick at which it begins to the one at which it ends.
    """
    nodes = schedule.num_nodes
    room = PeerCapacity(rows=512, events=512, edges=1024, slots=64, width=nodes)
    start = jnp.full((COPIES, CURVATURE.size), START)
    batch_fn = jax.tree_util.Partial(key_of, jnp.asarray(seed))
    program = lower_peers(schedule, capacity=room)
    result = run_peers(program, rules.asgd(learning_rate=alpha), noisy, start, batch_fn, mode="event")
    memory, totals = np.full(nodes, np.nan), []
    for node, distance in zip(result.history.node, result.history.aux["distance"], strict=True):
        memory[node] = distance
        totals.append(memory.sum())
    return np.array(totals)[nodes - 1 :]  # from when everybody has begun, at 0


@pytest.mark.parametrize("synchronous", [False, True])
@pytest.mark.parametrize("nodes", [4, 16])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_sum_of_squares_stays_under_the_bound(nodes, synchronous, share):
    alpha = share * 2 / (M + L)
    found = []
    for seed in range(SEEDS):
        runtimes = cluster.exponential(num_workers=nodes, num_gradients=ROWS, seed=seed)
        schedule = protocols.gossip(
            runtimes, synchronous=synchronous, include_self=True, num_gradients=10 * nodes, seed=seed
        )
        found.append(distances(schedule, alpha, seed))
    found = np.array(found)
    if synchronous:  # a tick is a round
        found = found[:, ::nodes]
    ticks = np.arange(found.shape[1])
    assert ticks.size == (10 if synchronous else 9 * nodes + 1)
    first = nodes * CURVATURE.size * START**2
    rate = 2 * alpha * M * L / (M + L) / (1 if synchronous else nodes)
    bound = (1 - rate) ** ticks * first + nodes * alpha * SIGMA**2 * (M + L) / (2 * M * L)
    error = found.std(axis=0, ddof=1) / np.sqrt(SEEDS)
    np.testing.assert_allclose(found[:, 0], first, rtol=1e-12)
    assert (found.mean(axis=0) <= bound + 3 * error).all()
    # The bound says something: most of the way is done, and what is left is noise.
    assert bound[-1] < 0.5 * first
    assert found[:, -1].min() > 0
