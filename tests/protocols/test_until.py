"""`until`: a schedule that ends at an instant is the one that the protocol makes where the run ends there."""

import dataclasses

import numpy as np
import pytest

from sgdlab import protocols
from sgdlab.schedule import DROPPED, PENDING, Schedule

RUNTIMES = np.random.default_rng(0).gamma(2.0, size=(40, 5))
SERVERS = {
    "synchronous": {},
    "backup_workers": {"backups": 2},
    "timeout": {"at_least": 2, "seconds": 0.5},
    "asynchronous": {},
    "softsync": {"gradients_per_update": 3},
    "bounded_staleness": {"bound": 2},
    "ringmaster": {"max_delay": 3},
    "rennala": {"gradients_per_update": 3},
    "anytime": {},
}
PEERS = {
    "gossip": {"kind": "pull", "seed": 0},
    "ad_psgd": {"seed": 0},
    "elastic_averaging": {},
    "d_psgd": {},
    "sgp": {},
}


def assert_same(found, expected):
    for field in dataclasses.fields(expected):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name), err_msg=field.name)


@pytest.mark.parametrize("name", SERVERS)
def test_is_the_run_that_the_update_ends(name):
    make = getattr(protocols, name)
    whole = make(RUNTIMES, num_gradients=60, **SERVERS[name])
    for update in (0, 3, whole.num_updates - 2):
        used = int(((whole.update[:, 0] >= 0) & (whole.update[:, 0] <= update)).sum())
        middle = whole.applied[update : update + 2, 0].mean()
        assert_same(whole.until(middle), make(RUNTIMES, num_gradients=used, **SERVERS[name]))


@pytest.mark.parametrize("name", [*SERVERS, *PEERS])
def test_all_of_it(name):
    whole = getattr(protocols, name)(RUNTIMES, num_gradients=60, **(SERVERS | PEERS)[name])
    cut = whole.until(whole.wall_clock())
    assert cut.num_gradients == whole.num_gradients
    assert cut.wall_clock() == whole.wall_clock()
    if isinstance(whole, Schedule):
        assert_same(cut, whole)


@pytest.mark.parametrize("name", PEERS)
def test_nodes_have_the_steps_that_they_have_done(name):
    whole = getattr(protocols, name)(RUNTIMES, num_gradients=60, **PEERS[name])
    for instant in (4.0, 9.5):
        cut = whole.until(instant)
        done = (whole.finished <= instant) & whole.takes_gradient()
        assert cut.num_gradients == done.sum() > 0
        np.testing.assert_array_equal(cut.node[cut.takes_gradient()], whole.node[done])
        np.testing.assert_array_equal(cut.finished[cut.takes_gradient()], whole.finished[done])
        assert cut.wall_clock() <= instant


def test_steps_keep_their_scale():
    whole = protocols.gossip(RUNTIMES, num_gradients=60, seed=0)
    whole = dataclasses.replace(whole, scale=np.arange(whole.node.size))
    cut = whole.until(9.5)
    np.testing.assert_array_equal(cut.scale, np.flatnonzero(whole.started < 9.5))


def test_of_several_blocks_each_keeps_its_own_updates():
    """Two servers at 1, 2, 3 and at 1.5, 3.5: until 3.2 the first has three updates, the second one."""
    schedule = Schedule(
        worker=np.zeros(3),
        read=[[0, 0], [1, 1], [2, 1]],
        update=[[0, 0], [1, DROPPED], [2, 1]],
        started=[0.0, 1.5, 2.0],
        arrived=[[1.0, 1.5], [2.0, 2.5], [3.0, 3.5]],
        applied=[[1.0, 1.5], [2.0, 3.5], [3.0, np.nan]],
        num_workers=1,
    )
    cut = schedule.until(3.2)
    np.testing.assert_array_equal(cut.applied, [[1.0, 1.5], [2.0, np.nan], [3.0, np.nan]])
    np.testing.assert_array_equal(cut.update, [[0, 0], [1, DROPPED], [2, PENDING]])


def test_an_instant_before_all_updates_is_named():
    schedule = protocols.synchronous(np.full((3, 2), 2.0))
    with pytest.raises(ValueError, match=r"seconds=1 must be late enough for an update of the schedule: .* at 2 s"):
        schedule.until(1.0)
    with pytest.raises(ValueError, match="seconds=nan must be a finite number"):
        schedule.until(float("nan"))
    with pytest.raises(ValueError, match=r"seconds=0.5 must be late enough for a gradient"):
        protocols.gossip(np.ones((3, 2)), seed=0).until(0.5)


@pytest.mark.parametrize("make", [protocols.asynchronous, protocols.gossip, protocols.a2cid2])
def test_what_is_no_end_is_named_as_it_was_given(make):
    for bad in (0, float("nan"), float("inf"), "x"):
        with pytest.raises(ValueError, match=rf"^num_seconds={bad!r} must be a finite number above 0$"):
            make(RUNTIMES, num_seconds=bad)
    with pytest.raises(ValueError, match=r"^num_seconds=1e-06 must be late enough for "):
        make(RUNTIMES, num_seconds=1e-6)
    with pytest.raises(ValueError, match=r"^seconds=-1 must be"):  # its own
        protocols.timeout(RUNTIMES, at_least=1, seconds=-1, num_seconds=2.0)


def test_a_layer_that_was_read_after_the_end_is_not():
    """The second layer of a gradient in flight at 1.5 s was read at version 1, which is made at 2 s."""
    schedule = Schedule(
        worker=[0, 1],
        read=[[0, 0], [0, 1]],
        update=[[0, 0], [1, 1]],
        started=[0.0, 0.5],
        arrived=[[1.0, 2.0], [4.0, 5.0]],
        applied=[[1.0, 2.0], [4.0, 5.0]],
        num_workers=2,
    )
    cut = schedule.until(1.5)
    np.testing.assert_array_equal(cut.read, [[0, 0], [0, 0]])
    np.testing.assert_array_equal(cut.update, [[0, PENDING], [PENDING, PENDING]])
