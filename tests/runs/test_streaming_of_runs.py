"""Streaming DiLoCo in configurations: what its name means, what is refused, and that other runs stay what they were."""

import numpy as np
import pytest
from lib import tiny

from sgdlab.errors import UsageError
from sgdlab.replay.streaming import Stream
from sgdlab.runs import resolve
from sgdlab.runs.local_steps import state_of_worker
from sgdlab.runs.plan import make_plan


def config(**entries):
    return tiny.config(**{name.replace("local_", "local__", 1): value for name, value in entries.items()})


def test_what_it_means():
    plan = make_plan(config(method="streaming_diloco"))
    local = plan.experiment.local
    assert (local.steps, local.keep_state, local.stream) == (2, True, Stream(4, 1, 0.5))
    assert plan.program.by_worker
    state = state_of_worker(local, {"w": np.ones(4)}, None)
    assert sorted(state) == ["memory", "messages", "optimizer", "params"]
    assert plan.rule(1.0, 4).init.args[0].fragments == 4
    assert plan.experiment.identity["local"]["fragments"] == 4


def test_one_fragment_is_no_other_run_than_before():
    """A run of another method has no entries of fragments, so that what was recorded stays what it was."""
    assert "fragments" not in resolve(config(method="diloco")).identity["local"]
    plain = config(method="streaming_diloco", local_fragments=1, local_overlap=0, local_mix=0.0)
    assert make_plan(plain).experiment.local.stream is None
    assert "fragments" not in resolve(plain).identity["local"]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"local_fragments": 0}, r"--config\.local\.fragments=0"),
        ({"local_overlap": -1}, r"--config\.local\.overlap=-1"),
        ({"local_overlap": 2}, r"--config\.local\.overlap=2 must be below local\.steps=2"),
        ({"local_mix": 1.5}, r"--config\.local\.mix=1\.5"),
        ({"local_keep_state": False}, r"--config\.local\.keep_state=False must be True with local\.fragments=4"),
        ({"local_by_speed": True}, r"--config\.local\.by_speed=True must be False with"),
    ],
)
def test_impossible_entries(entries, words):
    with pytest.raises(UsageError, match=words):
        resolve(config(method="streaming_diloco", **entries))


def test_what_goes_with_no_other_rule():
    with pytest.raises(UsageError, match=r"--config\.local\.fragments=3, .*method=streaming_diloco: the rule nag_asgd"):
        make_plan(config(method="diloco", local_fragments=3))
    with pytest.raises(UsageError, match=r"--config\.rule\.kind=streaming_nesterov must go with .*kind=synchronous"):
        make_plan(config(method="streaming_diloco", protocol__kind="asynchronous"))
