"""The fast paths of gossip and elastic averaging are their policies, field by field; what nodes that are lost owe."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples
from test_peer_protocols import NUMBERS, PERIODS, RUNTIMES, SEEDS, assert_equal, assert_schedule_is, check

from sgdlab import policies, protocols
from sgdlab.policies import Begin, Mix, PeerRecorder, Source, Step

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


@pytest.mark.sample(1)
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


class TestWhoIsLost:
    def test_computes_the_gradient_that_it_owes_when_it_is_back(self):
        policy = policies.gossip(num_workers=2, num_gradients=4)
        assert policy.start([0, 1]) == [alone(0, 0), Begin(0, 1), alone(1, 0), Begin(1, 1)]
        assert policy.lost(0.5, 1) == []
        assert policy.arrived(1.0, 0) == [Step(0), alone(0, 2), Begin(0, 3)]  # nobody is there to average with
        assert policy.held() == {(0, 3), (1, 1), (2, 0)}
        assert policy.joined(1.5, 1) == [Begin(1, 1)]
        assert policy.arrived(2.0, 1) == [Step(1), halves(1, 2, 0, 3), Begin(1, 3)]
        assert policy.arrived(3.0, 0) == [Step(0)]  # the fourth gradient is under way
        assert not policy.finished
        assert policy.arrived(4.0, 1) == [Step(1)]
        assert policy.finished

    def test_has_a_substitute_as_a_partner(self):
        policy = policies.gossip(num_workers=3, seed=0)
        policy.start([0, 1, 2])
        policy.lost(0.5, 1)
        for now in range(1, 9):
            assert policy.arrived(float(now), 0)[1] == halves(0, 2 * now, 2, 1)

    def test_holds_up_no_round(self):
        policy = policies.elastic_averaging(num_workers=3, clock="rounds", beta=0.25)
        policy.start([0, 1, 2])
        assert policy.arrived(1.0, 0) == [Step(0)]
        assert policy.arrived(2.0, 2) == [Step(2)]
        drawn = lambda node, version: Mix(node, (Source(node, version, 0.75), Source(3, 0, 0.25)))
        center = Mix(3, (Source(3, 0, 0.5), Source(0, 2, 0.25), Source(2, 2, 0.25)))
        assert policy.lost(2.5, 1) == [drawn(0, 2), Begin(0, 3), drawn(2, 2), Begin(2, 3), center]
        assert policy.joined(3.0, 1) == [Begin(1, 1)]
        assert policy.arrived(3.5, 0) == [Step(0)]
        assert policy.arrived(4.0, 1) == [Step(1)]
        assert policy.arrived(5.0, 2)[::2][:3] == [
            Step(2), Begin(0, 5), Begin(1, 3),
        ]  # fmt: skip

    def test_does_not_meet_while_it_is_away(self):
        policy = policies.gossip(num_workers=3, clock="rounds", seed=0)
        policy.start([0, 1, 2])
        policy.arrived(1.0, 0)
        policy.lost(1.5, 0)
        policy.arrived(2.0, 1)
        assert policy.arrived(3.0, 2)[1::2] == [halves(1, 2, 2, 2), halves(2, 2, 1, 2)]

    def test_waits_with_the_others_when_it_is_back_from_a_wait(self):
        policy = policies.gossip(num_workers=2, clock="rounds")
        policy.start([0, 1])
        policy.arrived(1.0, 0)
        assert policy.lost(1.5, 0) == []
        assert policy.joined(2.0, 0) == []
        assert policy.arrived(3.0, 1) == [Step(1), halves(0, 2, 1, 2), Begin(0, 3), halves(1, 2, 0, 2), Begin(1, 3)]

    def test_loses_what_was_sent_to_it(self):
        policy = policies.gossip(num_workers=2, kind="push")
        policy.start([0, 1])
        policy.arrived(1.0, 0)
        assert (0, 2) in policy.held()
        policy.lost(1.5, 1)
        assert (0, 2) not in policy.held()
        policy.joined(2.0, 1)
        assert policy.arrived(3.0, 1)[1] == alone(1, 2)

    def test_is_the_same_for_the_same_events(self):
        policy, other = (policies.gossip(num_workers=3, seed=2, kind="push") for _ in range(2))
        for each in (policy, other):
            each.start([0, 1, 2])
            each.arrived(1.0, 2)
            each.lost(1.5, 0)
        assert policy == other
        other.joined(2.0, 0)
        assert policy != other


def test_gradients_can_be_taken_before_the_average():
    policy = policies.gossip(num_workers=2, fresh=False)
    assert policy.start([0, 1])[1] == Begin(0, 0)
    assert policy.arrived(1.0, 0)[1:] == [halves(0, 2, 1, 1), Begin(0, 2)]
    policy.lost(1.5, 0)
    assert {(0, 2), (0, 3), (1, 0), (1, 1)} <= policy.held()
    assert policy.joined(2.0, 0) == [Begin(0, 2)]


class TestRecorder:
    def recorded(self):
        recorder = PeerRecorder()
        assert recorder.began(0, [Source(0, 0, 1.0)], 0.0) == 0
        assert recorder.began(1, [Source(1, 0, 1.0)], 0.0) == 1
        recorder.ended(0, 2.0)
        return recorder

    def test_leaves_out_what_has_not_ended(self):
        schedule, tickets = self.recorded().schedule(2)
        assert (schedule.num_gradients, tickets.tolist()) == (1, [0])

    def test_refuses_an_end_while_others_depend_on_what_has_not_ended(self):
        recorder = self.recorded()
        recorder.began(0, [Source(0, 2, 0.5), Source(1, 1, 0.5)], 2.0)
        recorder.ended(0, 3.0)
        with pytest.raises(ValueError, match=r"^node=1 must finish its gradient: others .* version 1"):
            recorder.schedule(2)
        recorder.ended(1, 4.0)
        schedule, tickets = recorder.schedule(2)
        assert (schedule.finished.tolist(), tickets.tolist()) == ([2.0, 4.0, 3.0], [0, 1, 2])


@pytest.mark.parametrize(
    ("name", "entry", "value"),
    [
        ("gossip", "kind", "both"),
        ("gossip", "clock", "fair"),
        ("gossip", "period", 0),
        ("gossip", "seed", -1),
        ("elastic_averaging", "clock", "poisson"),
        ("elastic_averaging", "beta", 1.5),
        ("elastic_averaging", "period", 1.0),
        ("elastic_averaging", "num_gradients", 0),
    ],
)
def test_impossible_arguments_are_named(name, entry, value):
    with pytest.raises(ValueError, match=rf"^{entry}={value!r} must be "):
        getattr(policies, name)(num_workers=3, **{entry: value})


def test_a_poisson_clock_is_of_schedules_only():
    policy = policies.gossip(num_workers=3, clock="poisson")
    with pytest.raises(ValueError, match=r"^clock='poisson' must be 'own' or 'rounds'"):
        policy.start([0, 1, 2])
