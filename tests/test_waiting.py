"""Protocols as configurations set them use as many gradients as asked for, and not an update more than that takes."""

import numpy as np
import pytest
import tiny

from sgdlab import protocols, train, waiting
from sgdlab.methods import METHODS
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.plan import make_plan
from sgdlab.validate import ConfigError

GRADIENTS = 40
RUNTIMES = np.random.default_rng(0).uniform(1, 3, (60, 4))


@pytest.mark.parametrize("method", METHODS)
def test_enough_gradients_and_not_an_update_more(method):
    schedule = METHODS[method].protocol(tiny.config(method=method), GRADIENTS)(RUNTIMES)
    if isinstance(schedule, PeerSchedule):
        assert schedule.num_gradients == GRADIENTS
        return
    used = schedule.used().sum(axis=0)
    assert used.min() >= GRADIENTS
    fewest = schedule.update[:, used.argmin()]
    assert used.min() - np.count_nonzero(fewest == fewest.max()) < GRADIENTS


@pytest.mark.parametrize(
    "method", ["synchronous", "timeout", "partial", "bounded_staleness", "softsync", "pull_gossip"]
)
def test_too_few_rows_are_asked_for_again(method):
    config = tiny.config(method=method)
    draw = lambda rows: RUNTIMES[:rows]
    schedule = protocols.with_enough_rows(METHODS[method].protocol(config, GRADIENTS), draw, rows=2)
    assert str(schedule) == str(METHODS[method].protocol(config, GRADIENTS)(RUNTIMES))


def test_settings_reach_the_protocols():
    config = tiny.config(protocol__num_blocks=2, protocol__push_at_least=3.0, protocol__push_timeout=0.0)
    schedule = waiting.partial(config, GRADIENTS)(RUNTIMES)
    assert schedule.num_blocks == 2
    assert set(np.bincount(schedule.update[schedule.used()[:, 0], 0])) == {3}
    config = tiny.config(protocol__average_staleness=2.0, protocol__ramp_epochs=0.0)
    assert waiting.simulated_staleness(config, GRADIENTS)(RUNTIMES).staleness()[2:].mean() == 2
    config = tiny.config(protocol__max_delay=1)
    assert waiting.ringmaster(config, GRADIENTS)(RUNTIMES).staleness().max() == 0


def test_more_servers_than_parameters_can_be_cut_into_are_refused():
    config = tiny.config(method="partial", network__widths=(2,), protocol__num_blocks=1000)
    with pytest.raises(ConfigError, match="num_blocks=1000 must be at most"):
        train.train(make_plan(config))


@pytest.mark.parametrize(
    ("entry", "value", "words"),
    [
        ("protocol__push_at_least", 1.5, "a whole number of at least 1, or a share"),
        ("protocol__pull_at_least", 0.0, "a whole number of at least 1, or a share"),
        ("protocol__push_at_least", 5.0, "at most cluster.num_workers=4"),
        ("protocol__bound", -1, "a whole number of at least 0"),
        ("protocol__num_blocks", 0, "a whole number of at least 1"),
        ("protocol__max_delay", 0, "a whole number of at least 1"),
        ("protocol__reads", "end", "one of start, forward"),
        ("protocol__backward_share", 1.5, "a finite number above 0 and at most 1"),
        ("protocol__push_timeout", -1.0, "a finite number at least 0"),
        ("cluster__delays__late_share", 2.0, "a finite number at least 0 and at most 1"),
        ("protocol__period", 0, "a whole number of at least 1"),
    ],
)
def test_impossible_settings_are_refused_by_flag_and_value(entry, value, words):
    with pytest.raises(ConfigError, match="--config") as error:
        make_plan(tiny.config(method="partial", **{entry: value}))
    assert words in str(error.value)
    assert str(value) in str(error.value)
