"""A small problem for peers: parabolas, one for each gradient, and its replay by the schedule under test."""

import functools

import jax.numpy as jnp
import numpy as np

from sgdlab import rules
from sgdlab.replay import Capacity, lower, run
from sgdlab.tasks import Task

SIZE = 3
_random = np.random.default_rng(7)
CURVATURE, TARGETS = _random.uniform(0.2, 1.5, (256, SIZE)), _random.normal(size=(256, SIZE))
START = np.linspace(-1.0, 1.0, SIZE)
RATE, MOMENTUM = 0.3, 0.5
ROOM = Capacity(rows=64, slots=64, width=8, workers=8, events=256, edges=1024)


def gradient(params, number):
    """Of the parabola of that number."""
    return CURVATURE[number] * (params - TARGETS[number])


def _grad_fn(params, batch):
    curvature, target = batch
    return curvature * (params - target), {"at": params[0]}


def _batch_fn(number):
    return jnp.asarray(CURVATURE)[number], jnp.asarray(TARGETS)[number]


@functools.cache
def _optimizer(momentum):
    return rules.asgd(learning_rate=RATE, momentum=momentum)


def replayed(schedule, *, mode="event", momentum=MOMENTUM):
    """The result of `run`, of one compiled program for all schedules with as much room."""
    program = lower(schedule, capacity=ROOM, width=8)
    return run(program, _optimizer(momentum), Task(_grad_fn, jnp.asarray(START)), _batch_fn, mode=mode)


def numbers_of(schedule):
    """{(node, its k-th gradient): the gradient's number}."""
    nodes = schedule.node[schedule.takes_gradient()].tolist()
    counts, found = {}, {}
    for number, node in enumerate(nodes):
        found[node, counts.get(node, 0)] = number
        counts[node] = counts.get(node, 0) + 1
    return found
