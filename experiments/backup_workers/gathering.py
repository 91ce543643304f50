"""Draws how long a server waits for the k-th of 100 gradients on the cluster with stragglers of Figures 3, 4 and 6."""

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
"""The parameters of `sgdlab.cluster.long_tailed` that model the paper's machines, which are its defaults."""


def collected(num_iterations: int, seed: int) -> np.ndarray:
    """Draws the time to collect each number of gradients when all machines start at the same time.

    Args:
      num_iterations: T, iterations to draw.
      seed: seed of the run-times.

    Returns:
      float64[T, MACHINES], seconds; column k - 1 is the time until the k-th gradient arrives.
    """
    runtimes = cluster.long_tailed(num_workers=MACHINES, num_gradients=num_iterations, seed=seed)
    return np.sort(runtimes, axis=1)
