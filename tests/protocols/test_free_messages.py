"""Messages that cost nothing, and workers that never fail, leave every schedule as it is, to the bit."""

import numpy as np
import pytest
from comparison import assert_equal
from lib.server_policies import SERVER_POLICIES

from sgdlab import cluster, policies
from sgdlab.failures import Outages
from sgdlab.protocols import PROTOCOLS
from sgdlab.transports import star

LAWS = {
    "gamma": cluster.gamma(num_workers=8, num_gradients=60, heterogeneous=True, seed=1),
    "fixed": cluster.Fixed(num_workers=8).draw(60, seed=0),  # with ties
    "whole seconds": np.random.default_rng(0).integers(1, 5, (60, 8)).astype(float),  # with ties
    "long_tailed": cluster.LongTailed(num_workers=8).draw(60, seed=0),
}
ENDS = {"gradients": {"num_gradients": 100}, "updates": {"num_updates": 9}, "times": {}}


def test_every_policy_with_a_server_is_there():
    with_server = {name for name, part in PROTOCOLS.items() if part.facts.policy and not part.facts.peers}
    assert with_server == {name.partition(",")[0].partition(" ")[0] for name in SERVER_POLICIES}


@pytest.mark.covering
@pytest.mark.parametrize("name", SERVER_POLICIES)
@pytest.mark.parametrize("law", LAWS)
def test_free_messages_change_nothing(name, law):
    """Outages that never come are given, since without them a free network is none."""
    for sharing in ("fifo", "fair"):
        for ends in ENDS.values():
            outcomes = []
            for given in ({}, {"transport": star(num_workers=8, sharing=sharing), "outages": Outages([iter(())] * 8)}):
                try:
                    outcomes.append(policies.simulate(SERVER_POLICIES[name], LAWS[law], **ends, **given))
                except ValueError as error:  # the same refusal
                    outcomes.append(str(error))
            free, costed = outcomes
            if isinstance(free, str):
                assert costed == free
            else:
                assert_equal(costed, free)
                np.testing.assert_array_equal(costed.asked, free.started)
                np.testing.assert_array_equal(costed.sent, free.arrived)
