# my_protocol.py
import numpy as np
from sgdlab import Schedule, protocols
from sgdlab.protocols import PROTOCOLS


@PROTOCOLS.register(title="First k", rule="linear_scaling")  # the rule that it is usually used with
def first_k(runtimes, *, k: int = 4, num_gradients: int | None = None):
    """Waits for the first k gradients of every round and interrupts the other workers."""
    k = min(k, runtimes.shape[1])
    rounds = len(runtimes) if num_gradients is None else -(-num_gradients // k)
    if rounds > len(runtimes):
        raise protocols.NotEnoughRuntimes("too few run-times", rows=rounds)  # it is called again with so many
    order = np.argsort(runtimes[:rounds], axis=1, kind="stable")[:, :k]  # the first k workers of each round
    times = np.take_along_axis(runtimes[:rounds], order, axis=1)
    applied = np.cumsum(times[:, -1])  # when each update is made
    started, version = np.repeat(np.insert(applied[:-1], 0, 0.0), k), np.repeat(np.arange(rounds), k)
    return Schedule(order.ravel(), version, version, started, started + times.ravel(), applied, runtimes.shape[1])
