"""The fast paths of gossip and elastic averaging are their policies, field by field."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples
from test_peer_protocols import NUMBERS, PERIODS, RUNTIMES, SEEDS, assert_equal, assert_schedule_is, check

from sgdlab import policies, protocols
from sgdlab.policies import Begin, Mix, Source

CLOCKS = st.sampled_from(["own", "rounds"])
OWN = {
    "gossip": {
        "kind": st.sampled_from(["pull", "push"]),
        "include_self": st.booleans(),
        "fresh": st.booleans(),
        "seed": SEEDS,
    },
    "elastic_averaging": {"beta": st.sampled_from([None, 0.0, 0.125])},
}


@pytest.mark.parametrize("name", OWN)
@settings(check, max_examples=examples(500))
@given(data=st.data(), runtimes=RUNTIMES, clock=CLOCKS, period=PERIODS, number=NUMBERS)
def test_equals_its_protocol(name, data, runtimes, clock, period, number):
    own = data.draw(st.fixed_dictionaries(OWN[name])) | {"clock": clock, "period": period}
    protocol = functools.partial(getattr(protocols, name), runtimes, num_gradients=number, **own)
    limit = runtimes.size if number is None and clock == "rounds" else number
    try:
        expected = policies.simulate_peers(
            functools.partial(getattr(policies, name), **own), runtimes, num_gradients=limit
        )
    except protocols.NotEnoughRuntimes:
        with pytest.raises(protocols.NotEnoughRuntimes):
            protocol()
    else:
        assert_equal(protocol(), expected)


def test_push_by_hand():
    # With two nodes each is the other's partner. Node 0 averages at 1 and 2 and sends its versions 2 and 4, which node
    # 1 finds at 2.5; node 1's version 2 reaches node 0 at 3.
    runtimes = np.array([[1.0, 2.5]] * 4)
    expected = {
        "node": [0, 1, 0, 0, 1, 0],
        "started": [0, 0, 1, 2, 2.5, 3],
        "finished": [1, 2.5, 2, 3, 5, 4],
        "event": [0, 1, 2, 3, 4, 4, 4, 5, 5],
        "source": [0, 1, 0, 0, 1, 0, 0, 0, 1],
        "source_version": [0, 0, 2, 4, 2, 2, 4, 6, 2],
        "weight": [1, 1, 1, 1, 1 / 3, 1 / 3, 1 / 3, 1 / 2, 1 / 2],
    }
    own = {"kind": "push", "seed": 3}
    assert_schedule_is(protocols.gossip(runtimes, num_gradients=6, **own), expected, 2)
    simulated = policies.simulate_peers(functools.partial(policies.gossip, **own), runtimes, num_gradients=6)
    assert_schedule_is(simulated, expected, 2)


def alone(node, version):
    return Mix(node, (Source(node, version, 1.0),))


def halves(node, version, other, its):
    return Mix(node, (Source(node, version, 0.5), Source(other, its, 0.5)))


def test_the_same_events_make_the_same_policy():
    policy, other = (policies.gossip(num_workers=3, seed=2, kind="push") for _ in range(2))
    for each in (policy, other):
        each.start([0, 1, 2])
        each.arrived(1.0, 2)
    assert policy == other
    other.arrived(2.0, 0)
    assert policy != other


def test_gradients_can_be_taken_before_the_average():
    policy = policies.gossip(num_workers=2, fresh=False)
    assert policy.start([0, 1])[1] == Begin(0, 0)
    assert policy.arrived(1.0, 0)[1:] == [halves(0, 2, 1, 1), Begin(0, 2)]


def test_a_poisson_clock_is_of_schedules_only():
    policy = policies.gossip(num_workers=3, clock="poisson")
    with pytest.raises(ValueError, match=r"^clock='poisson' must be 'own' or 'rounds'"):
        policy.start([0, 1, 2])
