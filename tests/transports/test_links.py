"""Shared links against progressive filling, message by message, in NumPy; and what no link may do."""

import heapq
import math

import numpy as np
import pytest

from sgdlab.transports import TRANSPORTS, Fifo, Flows, ServerCosts, Star, Uplinks, star


def rates(uses: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """Progressive filling: all messages [F] grow alike over their links [F, L]; who crosses a full link stops."""
    rate, growing, left = np.zeros(len(uses)), np.ones(len(uses), bool), capacity.astype(float).copy()
    while growing.any():
        count = uses[growing].sum(axis=0)
        share = np.divide(left, count, out=np.full(left.size, np.inf), where=count > 0)
        step = share.min()
        rate[growing] += step
        left -= step * count
        full = (share <= step * (1 + 1e-12)) & (count > 0)
        growing &= ~uses[:, full].any(axis=1)
    return rate


def naive_ends(sizes: np.ndarray, enter: np.ndarray, uses: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """When each message ends, with rates that change when one enters or ends."""
    left, ends, now, entered = sizes.copy(), np.full(sizes.size, np.nan), 0.0, 0
    active = np.zeros(sizes.size, bool)
    while entered < sizes.size or active.any():
        rows = np.flatnonzero(active)
        speed = rates(uses[rows], capacity) if rows.size else np.empty(0)
        wait = left[rows] / speed
        ending = now + wait.min() if rows.size else math.inf
        entering = enter[entered] if entered < sizes.size else math.inf
        left[rows] -= speed * (min(ending, entering) - now)
        now = min(ending, entering)
        if ending <= entering:
            done = rows[np.argmin(wait)]
            ends[done], active[done] = now, False
        else:
            active[entered], entered = True, entered + 1
    return ends


def ends_of(flows: Flows, sizes: np.ndarray, enter: np.ndarray, groups: np.ndarray) -> np.ndarray:
    events = [(when, 1, number) for number, when in enumerate(enter.tolist())]
    ends, epoch = np.full(sizes.size, np.nan), 0
    while events:
        now, entering, number = heapq.heappop(events)
        if entering:
            following = flows.enter(now, int(groups[number]), float(sizes[number]), number)
        elif number == epoch:
            key, following = flows.leave(now)
            ends[key] = now
        else:
            continue
        epoch += 1
        if following < math.inf:
            heapq.heappush(events, (following, 0, epoch))
    return ends


@pytest.mark.parametrize("uplinks", [[math.inf], [20.0, 20.0, 20.0, 20.0], [math.inf, 5.0, 40.0]])
def test_shared_links_are_max_min_fair(uplinks):
    generator, number = np.random.default_rng(0), 200
    enter = np.sort(generator.uniform(0, 10, number))
    sizes, groups = generator.uniform(1, 5, number), generator.integers(len(uplinks), size=number)
    uses = np.zeros((number, number + len(uplinks) + 1), bool)
    every = np.arange(number)
    uses[every, every] = uses[every, number + groups] = uses[:, -1] = True  # its worker's, its group's, the server's
    capacity = np.concatenate([np.full(number, 3.0), uplinks, [60.0]])
    expected = naive_ends(sizes, enter, uses, capacity)
    found = ends_of(Flows(60.0, 3.0, uplinks), sizes, enter, groups)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_one_after_the_other_none_is_faster_than_its_own_link():
    link = Fifo(size=12.0, rate=12.0, cap=4.0)
    assert [link.carry(when) for when in (0.0, 0.0, 0.0, 0.0, 10.0)] == [3.0, 3.0, 3.0, 4.0, 13.0]


class TestStar:
    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"worker_gbits": 0.0}, "worker_gbits=0.0 must be a finite number above 0"),
            ({"server": ServerCosts(gbits=-1.0)}, "server.gbits=-1.0 must be a finite number above 0"),
            ({"server": ServerCosts(update_ms=-1.0)}, "server.update_ms=-1.0 must be"),
            ({"uplinks": Uplinks(groups=9)}, "uplinks.groups=9 must be"),
            ({"uplinks": Uplinks(gbits=0.0)}, "uplinks.gbits=0.0 must be a finite number above 0"),
            ({"uplinks": Uplinks(ms=-1.0)}, "uplinks.ms=-1.0 must be"),
            ({"overlap": 1.5}, "overlap=1.5 must be"),
            ({"sharing": "none"}, "sharing='none' must be 'fifo' or 'fair'"),
            ({"sharing": "fifo", "uplinks": Uplinks(groups=2, gbits=1.0)}, "sharing='fifo' must be 'fair' where"),
            ({"gradient_bytes": -1.0}, "gradient_bytes=-1.0 must be"),
        ],
    )
    def test_bad_numbers_are_named(self, given, words):
        with pytest.raises(ValueError, match=f"^{words}"):
            star(num_workers=4, **given)

    def test_a_rate_is_positive(self):
        with pytest.raises(ValueError, match=r"^server_rate=0\.0 must be above 0"):
            Star(latency=(0.0,), server_rate=0.0)

    def test_every_part_is_a_star(self):
        for name in TRANSPORTS:
            made = TRANSPORTS.make(name, {}, num_workers=4)
            assert made.num_workers == 4
            assert made.is_free == (name in ("free", "star"))

    def test_a_rate_without_bytes_is_free(self):
        assert star(num_workers=2, worker_gbits=1.0, server=ServerCosts(gbits=1.0)).is_free
        assert not star(num_workers=2, worker_gbits=1.0, gradient_bytes=1.0).is_free
