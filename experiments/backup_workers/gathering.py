"""How long a server waits for the k-th of 100 gradients: the straggling cluster that Figures 3, 4 and 6 are made of."""

import inspect

import numpy as np

from sgdlab import cluster

MACHINES = 100
"""N + b in Figures 3, 4 and 6."""

CLUSTER = {
    name: parameter.default
    for name, parameter in inspect.signature(cluster.long_tailed).parameters.items()
    if parameter.default is not parameter.empty
}
"""The parameters of `sgdlab.cluster.long_tailed` that stand for the paper's machines: its defaults."""


def collected(num_iterations: int, seed: int) -> np.ndarray:
    """Draws the time to collect each number of gradients when all machines begin together.

    Returns:
      float64[num_iterations, MACHINES], seconds; column k - 1 is the wait for the k-th gradient.
    """
    runtimes = cluster.long_tailed(num_workers=MACHINES, num_gradients=num_iterations, seed=seed)
    return np.sort(runtimes, axis=1)
