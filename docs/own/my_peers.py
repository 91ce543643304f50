# my_peers.py
import numpy as np
from sgdlab import PeerSchedule, protocols
from sgdlab.protocols import PROTOCOLS


@PROTOCOLS.register(title="Random pairs", rule="nag_asgd")
def random_pairs(runtimes, *, own: float = 0.5, seed: int = 0, num_gradients: int | None = None):
    """Before every gradient, nodes wait for each other in pairs, drawn anew each time, and average.

    Args:
      own: the weight of a node's own parameters.
    """
    nodes = runtimes.shape[1]
    rounds = len(runtimes) if num_gradients is None else -(-num_gradients // nodes)
    if rounds > len(runtimes):
        raise protocols.NotEnoughRuntimes("too few run-times", rows=rounds)
    generator, ready, started = np.random.default_rng(seed), np.zeros(nodes), np.zeros((rounds, nodes))
    peer = np.tile(np.arange(nodes), (rounds, 1))  # of an odd number, one has itself
    for r in range(rounds):
        pairs = generator.permutation(nodes)[: nodes // 2 * 2].reshape(-1, 2)
        peer[r, pairs] = pairs[:, ::-1]
        started[r] = np.maximum(ready, ready[peer[r]])
        ready = started[r] + runtimes[r]
    node, event = np.tile(np.arange(nodes), rounds), np.repeat(np.arange(rounds * nodes), 2)
    source = np.stack([node, peer.ravel()], axis=1).ravel()
    version = 2 * np.repeat(np.arange(rounds), 2 * nodes)  # what a node has after so many steps
    weight = np.tile([own, 1 - own], rounds * nodes)
    return PeerSchedule(
        node, started.ravel(), (started + runtimes[:rounds]).ravel(), event, source, version, weight, nodes
    )
