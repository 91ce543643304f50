"""All-reduces: a ring step by step, hand computations, and what goes on top of the slowest worker."""

import functools

import numpy as np
import pytest

from sgdlab import policies, protocols
from sgdlab.transports import Racks, all_reduce, halving, hierarchical, ring, star, tree


def ring_from(starts: np.ndarray, size: float, rate: float, latency: float) -> np.ndarray:
    """When each node that comes at `starts` has the mean: 2 (N - 1) steps, each after its own and its neighbour's."""
    now, nodes = starts.astype(float), starts.size
    for _ in range(2 * (nodes - 1)):
        now = np.maximum(now, np.roll(now, 1)) + (size / nodes / rate + latency)
    return now


@pytest.mark.parametrize("nodes", [2, 3, 8, 64, 256])
def test_a_ring_takes_its_steps_after_the_last_has_come(nodes):
    draw = np.random.default_rng(nodes)
    for _ in range(50):
        starts = draw.exponential(1.0, nodes)
        whole = ring_from(starts, 1e8, 1.25e10, 5e-6).max()
        assert whole == pytest.approx(starts.max() + ring(nodes, 1e8, 1.25e10, 5e-6), rel=1e-12)


def test_by_hand():
    assert ring(4, 8.0, 1.0, 0.5) == 6 * (0.5 + 2.0)
    assert tree(5, 8.0, 1.0, 0.5) == 6 * (0.5 + 8.0)
    assert halving(4, 8.0, 1.0, 0.5) == 4 * 0.5 + 12.0
    # Two racks of two: shards of 4 bytes inside, halves of them between, two of which share an uplink of 1 byte/s.
    racks = Racks(size=2, uplink_gbits=8e-9, uplink_ms=1000.0)
    assert hierarchical(4, 8.0, 1.0, 0.5, racks) == pytest.approx(2 * (0.5 + 4.0) + 2 * (0.5 + 1.0 + 2.0 / 0.5))


def test_published_orders_of_magnitude():
    """64 nodes, 100 Gbit/s, 5 us: rings win for large messages, halving for small ones, trees never by much."""
    large, small = ([f(64, size, 1.25e10, 5e-6) for f in (ring, tree, halving)] for size in (1e8, 1e4))
    np.testing.assert_allclose(np.array(large) * 1e3, [16.4, 96.1, 15.8], rtol=0.01)
    assert small[0] > 8 * small[2]


class TestAllReduce:
    def test_every_update_is_later_by_its_seconds(self):
        runtimes = np.random.default_rng(0).gamma(4, 1.0, (50, 8))
        free, seconds = protocols.all_reduce(runtimes), all_reduce(num_workers=8, gradient_bytes=1e9, gbits=1.0)
        costly = protocols.all_reduce(runtimes, transport=seconds)
        rounds = np.arange(1, 51) * seconds.update_seconds
        np.testing.assert_allclose(costly.applied[:, 0], free.applied[:, 0] + rounds, rtol=1e-12)
        same = protocols.synchronous(runtimes, transport=seconds)
        np.testing.assert_array_equal(same.applied, costly.applied)

    def test_delayed_rounds_take_them_as_their_communication(self):
        runtimes, seconds = np.ones((6, 4)), all_reduce(num_workers=4, gradient_bytes=1e9, gbits=10.0, latency_ms=0.0)
        found = protocols.delayed_rounds(runtimes, transport=seconds)
        expected = protocols.delayed_rounds(runtimes, communication=seconds.update_seconds)
        np.testing.assert_array_equal(found.applied, expected.applied)
        with pytest.raises(ValueError, match=r"^transport must be an all-reduce"):
            protocols.delayed_rounds(runtimes, transport=star(num_workers=4))

    def test_each_worker_sends_nearly_twice_the_gradient(self):
        runtimes = np.ones((4, 4))
        found = protocols.synchronous(runtimes, transport=all_reduce(num_workers=4, gradient_bytes=1000.0))
        assert found.worker_bytes() == pytest.approx(4 * 2 * 2 * 0.75 * 1000)  # four rounds, sent and received

    def test_buckets_hide_behind_the_backward_pass_but_for_the_last(self):
        given = {"num_workers": 8, "gradient_bytes": 1e9, "gbits": 10.0, "latency_ms": 0.0}
        whole = all_reduce(**given).update_seconds
        assert all_reduce(**given, hidden_ms=500.0).update_seconds == whole  # in one piece
        assert all_reduce(**given, buckets=4, hidden_ms=500.0).update_seconds == pytest.approx(whole - 0.5)
        assert all_reduce(**given, buckets=4, hidden_ms=9e9).update_seconds == pytest.approx(whole / 4)

    def test_one_worker_averages_with_nobody(self):
        assert all_reduce(num_workers=1, gradient_bytes=1e9).is_free

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"algorithm": "star"}, "algorithm='star' must be"),
            ({"gbits": 0.0}, "gbits=0.0 must be a finite number above 0"),
            (
                {"algorithm": "hierarchical", "racks": Racks(size=3)},
                "racks.size=3 must divide the number of workers, 8",
            ),
            (
                {"algorithm": "hierarchical", "racks": Racks(uplink_gbits=0.0)},
                "racks.uplink_gbits=0.0 must be",
            ),
            ({"algorithm": "hierarchical", "racks": Racks(uplink_ms=-5.0)}, "racks.uplink_ms=-5.0 must be"),
        ],
    )
    def test_bad_numbers_are_named(self, given, words):
        with pytest.raises(ValueError, match=f"^{words}"):
            all_reduce(num_workers=8, gradient_bytes=1.0, **given)

    @pytest.mark.parametrize("name", ["asynchronous", "ringmaster"])
    def test_who_updates_with_single_gradients_has_no_all_reduce(self, name):
        for protocol in (getattr(protocols, name), functools.partial(policies.simulate, getattr(policies, name))):
            with pytest.raises(ValueError, match=f"^transport must be a star, and no all-reduce, with {name}"):
                protocol(np.ones((9, 2)), transport=all_reduce(num_workers=2, gradient_bytes=1.0))
