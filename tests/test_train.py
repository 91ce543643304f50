"""From a configuration to a run: every method trains, equal work is compared, and impossible values are refused."""

import dataclasses
import math

import jax
import numpy as np
import pytest
import tiny

from sgdlab import train, validate
from sgdlab.methods import METHODS
from sgdlab.plan import make_plan
from sgdlab.results import metrics

GRADIENTS = 1437 // 32  # of one epoch


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_on_the_same_number_of_gradients(method):
    run = train.train(make_plan(tiny.config(method=method)))
    first, *looks, summary = run.records
    assert first["method"] == summary["method"] == method
    assert [record["kind"] for record in run.records] == ["run", *["evaluation"] * len(looks), "summary"]
    per_update = {"softsync": 4, "rennala": 4, "synchronous": 4, "all_reduce": 4, "backup_workers": 3}.get(method, 1)
    if method in ("timeout", "partial", "layerwise"):  # updates of 3 or 4; blocks do not all use the same gradients
        assert GRADIENTS <= summary["gradients"] <= GRADIENTS + 12
    else:
        assert summary["gradients"] == math.ceil(GRADIENTS / per_update) * per_update
    assert looks[0]["gradients"] == 0
    assert looks[-1]["gradients"] == summary["gradients"]
    assert summary["seconds"] == run.schedule.wall_clock()
    assert looks[-1]["test_loss"] < looks[0]["test_loss"]


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    def accuracy(seed):
        records = train.train(make_plan(tiny.config(seed=seed))).records
        return [look["test_loss"] for look in records[1:-1]], records[-1]["seconds"]

    assert accuracy(0) == accuracy(0)
    assert accuracy(0) != accuracy(1)


def test_capacity_does_not_change_the_result():
    plan = make_plan(tiny.config(method="dana"))
    larger = dataclasses.replace(plan.program.capacity, rows=512, slots=32)
    alone, roomy = (train.train(plan, capacity=capacity).result.params for capacity in (None, larger))
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(roomy), strict=True):
        np.testing.assert_array_equal(a, b)


def test_synchronous_rates_grow_with_the_gradients_they_average():
    config = tiny.config()
    eta = config.optimizer.learning_rate
    config.schedule.decay, config.method = "constant", "synchronous"
    np.testing.assert_allclose(make_plan(config).rates.max(), 4 * eta)
    np.testing.assert_allclose(make_plan(config).rates[0], eta)
    config.method = "backup_workers"
    np.testing.assert_allclose(make_plan(config).rates.max(), 3 * eta)
    config.method = "adam"
    np.testing.assert_allclose(make_plan(config).rates.max(), config.optimizer.adam_learning_rate)


def test_batch_norm_and_polyak_average_can_be_trained_and_evaluated():
    run = train.train(make_plan(tiny.config(network__kind="conv", network__widths=(4, 4), network__batch_norm=True)))
    config = tiny.config(network__kind="conv", network__widths=(4, 4), network__batch_norm=True)
    start = train.classifier(config)
    for before, after in zip(jax.tree.leaves(start.stats), jax.tree.leaves(run.result.stats), strict=True):
        assert (np.asarray(before) != np.asarray(after)).all()
    ends = zip(*map(jax.tree.leaves, (start.params, run.result.average, run.result.params)), strict=True)
    assert all((average != first).any() and (average != last).any() for first, average, last in ends)
    assert run.records[-1]["average_accuracy"] != run.records[1]["average_accuracy"]


def test_gap_is_definition_1():
    """Against a loop: distance over eta_max times the root mean square of the earlier steps per unit of rate."""
    plan = make_plan(tiny.config(method="nag_asgd"))
    history = train.train(plan).result.history
    gaps = metrics.gap(history, plan.rates)
    assert gaps[0] == 1
    for k in range(1, len(gaps)):
        squares = [(history.step[j] / plan.rates[j]) ** 2 for j in range(k)]
        reach = plan.rates.max() * math.sqrt(sum(squares) / k)
        np.testing.assert_allclose(gaps[k], history.distance[k] / reach + 1, rtol=1e-6)


def test_speedup_compares_gradients_per_second_on_one_cluster():
    config = tiny.config(method="synchronous")
    assert make_plan(config).speedup == 1
    config.method = "asgd"
    assert make_plan(config).speedup > 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("method", "sgd"),
        ("dataset", "mnist"),
        ("mode", "batch"),
        ("seed", -1),
        ("batch_size", 0),
        ("batch_size", 1438),
        ("epochs", 0.0),
        ("epochs", math.nan),
        ("evaluations", 0),
        ("target_accuracy", 1.5),
        ("average_decay", 1.0),
        ("cluster.num_workers", 0),
        ("optimizer.learning_rate", math.nan),
        ("optimizer.adam_learning_rate", math.inf),
        ("optimizer.momentum", 1.0),
        ("optimizer.b1", 1.0),
        ("optimizer.weight_decay", -0.1),
        ("optimizer.granularity", "row"),
        ("network.kind", "transformer"),
        ("network.widths", (0,)),
        ("schedule.decay", "sudden"),
        ("schedule.warmup_epochs", -1.0),
        ("schedule.factor", 0.0),
        ("schedule.period", 0.0),
    ],
)
def test_impossible_entries_are_refused_by_name(name, value):
    config = tiny.config(**{name.replace(".", "__"): value})
    with pytest.raises(validate.ConfigError) as error:
        make_plan(config)
    assert str(error.value).startswith(f"--config.{name}={value} must be ")


def test_more_backups_than_workers_are_refused_where_they_matter():
    config = tiny.config(method="backup_workers", cluster__backups=4)
    with pytest.raises(validate.ConfigError, match=r"--config.cluster.backups=4 must be below cluster.num_workers=4"):
        make_plan(config)
    config.method = "asgd"
    make_plan(config)


def looks(*losses):
    return [{"train_loss": loss, "test_loss": loss} for loss in losses]


def test_a_run_is_lost_where_it_ends_no_better_than_guessing_after_it_had_blown_up():
    guess = math.log(10)
    assert not metrics.diverged(looks(2.4, 1.0, 0.1))
    assert not metrics.diverged(looks(2.5, 2.4, guess))  # it has only begun
    assert metrics.diverged(looks(2.5, math.nan, 0.5))
    assert metrics.diverged(looks(2.5, 1.0, guess))
    assert metrics.diverged(looks(2.4, 3.2))
    assert metrics.diverged(looks(2.5, 900.0, guess))


def test_backup_workers_see_the_same_batches_as_all_others():
    """The k-th used gradient is computed on batch k: with one worker short, whatever was dropped before it."""
    first = [
        train.train(make_plan(tiny.config(method=method, cluster__backups=1))).result.history.aux["loss"][:3]
        for method in ("synchronous", "backup_workers")
    ]
    np.testing.assert_allclose(*first, rtol=1e-6)  # all on the initial parameters, batches 0, 1, 2
    plan = make_plan(tiny.config(method="backup_workers", epochs=2.0))
    assert plan.schedule.dropped().any()
    fn = train._batches(plan, train.dataset("digits")[0], plan.program.capacity)
    other = make_plan(tiny.config(method="asgd", epochs=2.0))
    fn_other = train._batches(other, train.dataset("digits")[0], other.program.capacity)
    for k in range(80):
        ours, theirs = fn(plan.program.gradient[k]), fn_other(other.program.gradient[k])
        np.testing.assert_array_equal(ours.images, theirs.images)
