"""Test what rules are given of a configuration, those above all that keep gradients of workers, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest

from configs import digits
from sgdlab.errors import UsageError
from sgdlab.runs.methods import methods
from sgdlab.runs.plan import make_plan


def config_of(method, workers=6):
    config = digits.get_config()
    config.method, config.epochs, config.cluster.num_workers = method, 1.0, workers
    return config


def test_they_are_methods():
    known = methods()
    assert (known["malenia"].rule, known["ringleader"].rule) == ("malenia", "ringleader")
    assert {known[name].protocol for name in ("ace", "aced", "rescaled")} == {"asynchronous"}
    assert (known["ca2fl"].protocol, known["ca2fl"].rule) == ("softsync", "ca2fl")
    for name in ("malenia", "ringleader", "ace", "aced", "rescaled", "ca2fl"):
        assert known[name].families == ("Heterogeneous data",)


@pytest.mark.parametrize(
    ("method", "workers_of"), [("ace", lambda rule: rule.wanted), ("rescaled", lambda r: r.workers)]
)
def test_rules_know_how_many_workers_take_part_though_there_is_room_for_more(method, workers_of):
    plan = make_plan(config_of(method))
    settings = plan.rule(plan.rates, 8).update.args[0]
    assert (workers_of(settings), settings.num_workers) == (6, 8)


@pytest.mark.parametrize("room", [6, 8])
def test_delay_adaptive_scales_by_the_true_number_of_workers(room):
    params = jnp.ones(1)
    rule = make_plan(config_of("delay_adaptive")).rule(1.0, room)
    step, _ = rule.update(params, rule.init(params), params, delay=12.0)
    np.testing.assert_allclose(step, [-6 / 12])


@pytest.mark.parametrize("protocol", ["asynchronous", "synchronous"])
def test_a_ringleader_needs_its_rounds(protocol):
    config = config_of("asgd")
    config.protocol.kind, config.rule.kind = protocol, "ringleader"
    with pytest.raises(UsageError, match=r"^--config.rule.kind=ringleader must go with --config.protocol.kind=ringlea"):
        make_plan(config)


def test_another_rule_may_use_its_schedule():
    config = config_of("ringleader")
    config.rule.kind = "asgd"
    schedule = make_plan(config).schedule
    assert 0 < schedule.staleness().max() <= 2 * 6 - 2


def test_no_gradient_of_ringleader_is_dropped_and_all_stale_ones_of_malenia_are():
    schedules = {name: make_plan(config_of(name)).schedule for name in ("ringleader", "malenia")}
    assert not schedules["ringleader"].dropped().any()
    assert schedules["malenia"].dropped().any()
    assert schedules["malenia"].staleness().max() == 0
    for schedule in schedules.values():
        first = schedule.worker[schedule.update[:, 0] == 0]
        assert np.unique(first).size == 6


@pytest.mark.parametrize(("method", "gradients"), [("ringleader", 1), ("malenia", 6), ("ace", 1)])
def test_an_update_counts_as_many_gradients_as_it_has_workers_of_its_own(method, gradients):
    """Not as many as it averages: fast workers, who send more, would make all steps longer."""
    config = config_of(method)
    config.rate.decay, config.rate.warmup_epochs = "constant", 0.0
    plan = make_plan(config)
    np.testing.assert_allclose(plan.rates, gradients * config.optimizer.learning_rate)
    assert method == "ace" or plan.schedule.gradients_per_update() > 1.2 * gradients


def test_a_rule_that_divides_by_the_expected_number_has_the_rate_of_that_number():
    """Else fewer gradients would make steps shorter twice; so they move the parameters as far as they would singly."""
    lengths, gradients = {}, {}
    for method in ("dropcompute", "dropcompute_count", "vecna"):
        config = config_of(method)
        config.rate.decay, config.rate.warmup_epochs = "constant", 0.0
        config.protocol.dropcompute.update(seconds=6.25, interrupt=True)
        plan = make_plan(config)
        lengths[method] = plan.rates / config.optimizer.learning_rate
        gradients[method] = plan.schedule.gradients_per_update()
    assert gradients["dropcompute"] < 20
    np.testing.assert_allclose(lengths["dropcompute"], 6)  # four micro-batches are a batch
    np.testing.assert_allclose(lengths["dropcompute_count"], gradients["dropcompute_count"] / 4)
    np.testing.assert_allclose(lengths["vecna"], 6)
