"""Small recordings with known stragglers."""

import numpy as np

from sgdlab import cluster
from sgdlab.stragglers import recording
from sgdlab.traces import Recording

STEPS, WORKERS = 60, 5


def toy(seed=0):
    """Compute times of five workers, of which the second takes twice as long: float64[60, 5], seconds."""
    runtimes = cluster.gamma(num_workers=WORKERS, num_gradients=STEPS, seed=seed)
    return runtimes * np.array([1.0, 2.0, 1.0, 1.0, 1.0])


def saved(path, runtimes, steps=None, workers=None):
    steps = np.arange(len(runtimes)) if steps is None else steps
    names = tuple(f"w{i}" for i in range(runtimes.shape[1])) if workers is None else workers
    cluster.Recording(runtimes, steps, names).save(path)
    return path


def noise(steps, workers, seed=0):
    """Compute times of equal workers, of 1 s and 7 %: float64[steps, workers]."""
    return np.random.default_rng(seed).gamma(200.0, 1 / 200, (steps, workers))


def recording_of(times, steps=None, prefix="", **others):
    """A recording of workers whose names are their numbers, after a prefix."""
    names = tuple(f"{prefix}{worker}" for worker in range(times.shape[1]))
    return Recording(times, np.arange(len(times)) if steps is None else steps, names, **others)


def split_of(times, steps=None, prefix="w"):
    """The same, half of it for tuning."""
    return recording.split(recording_of(times, steps, prefix), train_share=0.5)
