"""Small recordings with known stragglers."""

import numpy as np

from sgdlab import cluster

STEPS, WORKERS = 60, 5


def toy(seed=0):
    """Run-times of five workers, of which the second takes twice as long: float64[60, 5], seconds."""
    runtimes = cluster.gamma(num_workers=WORKERS, num_gradients=STEPS, seed=seed)
    return runtimes * np.array([1.0, 2.0, 1.0, 1.0, 1.0])


def saved(path, runtimes, steps=None, workers=None):
    steps = np.arange(len(runtimes)) if steps is None else steps
    names = tuple(f"w{i}" for i in range(runtimes.shape[1])) if workers is None else workers
    cluster.Recording(runtimes, steps, names).save(path)
    return path
