"""Test what a run is expected to take on each device: on a mesh its share, and in a replicated layout all versions."""

import re

import jax
import numpy as np
import pytest
from lib import tiny

from sgdlab import protocols, replay, rules
from sgdlab.errors import UsageError
from sgdlab.runs import resolve
from sgdlab.runs.train import check_memory

WORKERS, SIZE = 16, 2**16
PARAMS = np.zeros(SIZE, np.float32)
PROGRAM = replay.lower(protocols.asynchronous(np.random.default_rng(0).uniform(1, 3, (8, WORKERS))), width=8)
MIB = 2**20


def expected(devices=None, layout=None):
    """MiB that a run in wave mode is said to take on a device."""
    config = tiny.config(memory=1e-9, mode="wave")
    config.layout = layout
    mesh = None
    if devices:
        auto = (jax.sharding.AxisType.Auto,)
        mesh = jax.make_mesh((devices,), ("device",), devices=jax.devices()[:devices], axis_types=auto)
    with pytest.raises(UsageError, match="would take about") as caught:
        check_memory(resolve(config), PROGRAM, rules.dana(learning_rate=0.1, num_workers=WORKERS), PARAMS, None, mesh)
    return float(re.search(r"about ([\d.]+) MiB", str(caught.value))[1])


def test_a_device_of_a_mesh_holds_its_share():
    copy, slots, lanes = PARAMS.nbytes / MIB, PROGRAM.capacity.slots, PROGRAM.capacity.width
    state = jax.eval_shape(rules.dana(learning_rate=0.1, num_workers=WORKERS).init, PARAMS)
    velocities = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)) / MIB
    assert expected() == pytest.approx(copy * (slots + 4 + 2 * lanes) + velocities, abs=0.1)
    assert expected(4, "sharded") == pytest.approx(copy * (slots / 4 + 4 + 2 * lanes / 4) + velocities / 4, abs=0.1)
    # Each device has the gradients of all lanes, and versions and gradients of its own.
    everything = copy * (slots + 4 + (2 + 3) * lanes / 4) + velocities
    assert expected(4, "replicated") == pytest.approx(everything, abs=0.1)
    assert expected(4) == expected(4, "replicated")  # which is what so few parameters are


def test_lanes_with_points_of_their_own_share_no_version():
    runtimes = np.random.default_rng(0).uniform(1, 3, (8, WORKERS))
    overlapping = replay.lower(protocols.delayed_rounds(runtimes), by_worker=True)
    assert overlapping.uniform
    config, taken = tiny.config(memory=1e-9, mode="wave"), []
    for rule in (rules.dc_s3gd(learning_rate=0.1, num_workers=WORKERS), rules.asgd(learning_rate=0.1)):
        with pytest.raises(UsageError, match="would take about") as caught:
            check_memory(resolve(config), overlapping, rule, PARAMS)
        taken.append(int(re.search(r"(\d+) copies of parameters", str(caught.value))[1]))
    assert taken[0] - taken[1] == WORKERS
