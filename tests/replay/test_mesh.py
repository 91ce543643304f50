"""A run on a mesh is the run on one device, in every layout; and what the devices exchange is what they must."""

import functools

import jax
import pytest
from lib.mesh_cases import CASES, EVERY, SIZE, assert_close, leaves, mesh_of, replayed

from experiments.benchmarks import collectives
from sgdlab.replay import lower

# Over processes every family runs in the other layout, see tests/hosts.
LAYOUTS = {name: ("replicated", "sharded")[i // 2 % 2] for i, name in enumerate(CASES)}


@functools.cache
def on_one_device(name):
    return leaves(replayed(name, mode="wave"))


@pytest.mark.representatives("asgd", "synchronous", "partial", "gossip")
@pytest.mark.parametrize(("name", "layout"), LAYOUTS.items())
def test_a_mesh_is_one_device(name, layout):
    assert_close(leaves(replayed(name, mesh=mesh_of(2, 2), layout=layout)), on_one_device(name), 1e-12)


DEVICES, ENTRY = 4, 8  # bytes of a float64
SPLIT, SMALL = SIZE * SIZE, 3  # parameters that are worth splitting, and the others
AUX = 1 + SIZE  # numbers of a gradient's aux


def sent(name, layout):
    """(kind, bytes) of the collectives of a wave, and those of a gradient."""
    mesh = mesh_of(DEVICES)
    found = collectives.of_run(lambda: replayed(name, mesh=mesh, layout=layout))
    by_depth = [[(c.kind, c.bytes) for c in found if c.depth == depth] for depth in (1, 2)]
    width = lower(CASES[name][0](), every=EVERY, by_worker=True).capacity.width
    return *by_depth, -(-width // DEVICES) * DEVICES


@pytest.fixture(name="optimised")
def as_users_compile():
    """Which collectives there are is for XLA's optimiser to say."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)  # as all else in this folder, see conftest.py


@pytest.mark.full
@pytest.mark.sample(2)
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("name", ["asgd", "dana", "gossip", "streamed"])
def test_a_split_server_exchanges_its_part_of_each_lane(name):
    wave, gradient, lanes = sent(name, "sharded")
    part = ("all-to-all", lanes * SPLIT * ENTRY // DEVICES)
    assert wave == [part, part, ("all-gather", lanes * (SMALL + AUX) * ENTRY)]
    # The norms of a gradient, of its update and of the server's distance: sums of squares, of one leaf each.
    assert all(kind == "all-reduce" and size <= 6 * ENTRY for kind, size in gradient)
    assert len(gradient) == (name != "gossip")


@pytest.mark.sample(1)
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("name", ["asgd", "gap_aware", "gossip"])
def test_a_replicated_server_gathers_the_gradients_once_a_wave(name):
    wave, gradient, lanes = sent(name, "replicated")
    assert wave == [("all-gather", lanes * (SPLIT + SMALL + AUX) * ENTRY)]
    assert gradient == []


@pytest.mark.usefixtures("optimised")
def test_synchronous_devices_exchange_the_mean_alone():
    wave, gradient, lanes = sent("synchronous", "replicated")
    norm = 1
    assert sorted(wave) == [
        ("all-gather", lanes * (AUX + norm) * ENTRY),
        ("all-reduce", (SPLIT + SMALL) * ENTRY),
    ]
    assert gradient == []


@pytest.mark.usefixtures("optimised")
def test_a_split_server_gathers_its_version_for_synchronous_devices():
    wave, gradient, lanes = sent("synchronous", "sharded")
    whole = ("all-gather", SPLIT * ENTRY)
    # The version, and the parameters that `receive` is given; the mean; aux and norms; the norm of the update.
    large = [found for found in wave if found[1] > lanes * (AUX + 1) * ENTRY]
    assert sorted(large) == [whole, whole, ("all-reduce", (SPLIT + SMALL + 1) * ENTRY)]
    assert gradient == []


def test_collectives_are_found_in_a_program():
    text = """
%body (p: f64[8]) -> f64[8] {
  %a = f64[2,4]{1,0} all-gather(%x), dimensions={0}
  %w = (f64[8]) while(%t), condition=%c, body=%inner
}
%inner (p: f64[8]) -> f64[8] {
  %b = (f32[3]{0}, f32[]) all-reduce-start(%x, %y), to_apply=%sum
}
ENTRY %main (p: f64[8]) -> f64[8] {
  %w = (f64[8]) while(%t), condition=%c, body=%body
}
"""
    assert collectives.of_text(text) == [
        collectives.Collective("all-gather", 64, 1),
        collectives.Collective("all-reduce", 16, 2),
    ]
