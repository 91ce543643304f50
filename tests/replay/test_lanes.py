"""Lanes: each gradient of a wave has one of its own, on the device of its worker; how a run chooses its layout."""

import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.replay_cases import heterogeneous, with_backups
from lib.tiers import examples

from sgdlab import protocols
from sgdlab.replay import lower
from sgdlab.replay.lanes import lanes_at, lanes_of, placed, summed_over_lanes
from sgdlab.replay.sharding import WHOLE, MeshLayout, kind_of


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_every_gradient_of_a_wave_has_a_lane_of_its_device(data):
    devices, share = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    width = devices * share
    lengths = data.draw(st.lists(st.integers(1, width), min_size=1, max_size=6))
    waves = np.concatenate([[0], np.cumsum(lengths)])
    home = data.draw(st.none() | st.lists(st.integers(0, devices - 1), min_size=sum(lengths), max_size=sum(lengths)))
    home = None if home is None else np.array(home)
    found, lane = lanes_of(waves, width=width, devices=devices, home=home)
    assert set(waves.tolist()) <= set(found.tolist())  # a wave is cut, never joined with another
    for begin, end in itertools.pairwise(found):
        assert len(set(lane[begin:end].tolist())) == end - begin > 0
        filled = np.bincount(lane[begin:end] // share, minlength=devices)
        if home is None or devices == 1:
            assert filled.max() - filled.min() <= 1
            continue
        np.testing.assert_array_equal(lane[begin:end] // share, home[begin:end])
        if end not in waves:  # cut, since the device of the next gradient has no lane left
            assert filled[home[end]] == share
    if home is None:
        np.testing.assert_array_equal(found, waves)


@pytest.mark.long("counts what each width computes")
@settings(max_examples=examples(50), deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_lanes_compute_the_gradients_of_the_wave_and_no_other(devices, share, data):
    width = devices * share
    length, begin = data.draw(st.integers(1, width)), data.draw(st.integers(0, 3))
    _, lane = lanes_of(
        np.array([0, begin, begin + length]) if begin else np.array([0, length]), width=width, devices=devices
    )
    lanes = lanes_at(jnp.asarray(lane), jnp.asarray(begin), jnp.asarray(begin + length), width)
    used = np.asarray(lanes.used)
    assert sorted(np.asarray(lanes.row)[used].tolist()) == list(range(begin, begin + length))
    np.testing.assert_array_equal(np.asarray(lanes.row)[lane[begin : begin + length]], range(begin, begin + length))
    assert (np.asarray(lanes.row)[~used] == begin + length - 1).all()


def test_workers_stay_on_their_device():
    program = lower(heterogeneous(60, num_workers=6), by_worker=True, width=4)
    cut, device, lane = placed(program, width=4, devices=4, workers=6, stateful=True)
    np.testing.assert_array_equal(device, program.worker // 2)
    np.testing.assert_array_equal(lane, device)
    assert set(program.waves.tolist()) < set(cut.waves.tolist())


@pytest.mark.parametrize("lanes", ["vmap", "map"])
def test_a_sum_over_lanes_is_a_sum(lanes):
    values = jnp.arange(12.0).reshape(4, 3)
    total, others = summed_over_lanes(lanes, lambda row, k: ({"a": row * k}, row[0] + k), values, jnp.arange(4.0))
    np.testing.assert_allclose(total["a"], (values * jnp.arange(4.0)[:, None]).sum(axis=0))
    np.testing.assert_allclose(others, values[:, 0] + jnp.arange(4.0))


def test_synchronous_waves():
    runtimes = np.random.default_rng(0).uniform(1, 3, (5, 4))
    assert lower(protocols.synchronous(runtimes)).synchronous
    assert lower(with_backups(5)).synchronous
    assert not lower(protocols.synchronous(runtimes), width=2).synchronous  # two waves an update
    assert not lower(protocols.synchronous(runtimes[:, :1])).synchronous  # updates of one gradient
    assert not lower(protocols.softsync(runtimes, gradients_per_update=2)).synchronous
    assert not lower(protocols.gossip(runtimes, seed=0)).synchronous


def test_the_layout_that_is_chosen():
    runtimes = np.random.default_rng(0).uniform(1, 3, (5, 4))
    synchronous, stale = (lower(protocol(runtimes)) for protocol in (protocols.synchronous, protocols.asynchronous))
    big, small = (np.broadcast_to(np.float32(0), size) for size in (10**7, 10**6))
    assert kind_of(synchronous, big) == "replicated"
    assert kind_of(stale, big) == "sharded"
    assert kind_of(stale, small) == "replicated"
    many = dataclasses.replace(stale, capacity=dataclasses.replace(stale.capacity, slots=1000))
    assert kind_of(many, small) == "sharded"  # 4 MB each


def test_without_a_mesh_nothing_is_split():
    layout = MeshLayout()
    assert (layout.num_devices, layout.axis((128, 128)), layout.own_devices) == (1, WHOLE, [0])
    assert layout.evaluates
    assert not layout.many_processes
