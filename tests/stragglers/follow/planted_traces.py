"""Compute times with planted causes."""

import numpy as np

from sgdlab.stragglers.follow.monitor import Monitor


def noise(steps, workers, seed, shape=50.0):
    return np.random.default_rng([seed, 11]).gamma(shape, 1 / shape, (steps, workers))


def names(number):
    return [str(worker) for worker in range(number)]


def watched(runtimes, nodes=(), first=0, cuts=()):
    """A monitor, and what it found, in a trace that comes in pieces."""
    monitor = Monitor(names(runtimes.shape[1]), nodes)
    steps = np.arange(first, first + len(runtimes))
    found = []
    for begin, end in zip([0, *cuts], [*cuts, len(runtimes)], strict=True):
        found += monitor.observe(steps[begin:end], runtimes[begin:end])
    return monitor, found


def brief(alarms):
    return [(alarm.event, alarm.kind, alarm.node or alarm.workers) for alarm in alarms]
