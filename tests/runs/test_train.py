"""Whole runs: every method trains on as many gradients, seeds repeat, records say what was run."""

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest
from lib import tiny

from sgdlab.errors import UsageError
from sgdlab.runs import records
from sgdlab.runs.methods import REPRESENTATIVE, methods
from sgdlab.runs.plan import make_plan
from sgdlab.runs.tasks import batches_of, task_of
from sgdlab.runs.train import _check_blocks, train

GRADIENTS = 1437 // 32  # of one epoch


@functools.cache
def trained(method):
    """(plan, run) of the smallest configuration, which several tests look at."""
    plan = make_plan(tiny.config(method=method))
    return plan, train(plan)


@pytest.fixture(autouse=True, scope="module")
def none_kept():
    """The runs go with this module."""
    yield
    trained.cache_clear()


@pytest.mark.representatives(*REPRESENTATIVE)
@pytest.mark.parametrize("method", methods())
def test_every_method_trains_on_the_same_number_of_gradients(method):
    plan, run = trained(method)
    gradients = math.ceil(GRADIENTS / plan.experiment.steps.mean())  # each of several local steps, in some methods
    first, *evaluations, summary = run.records
    assert first["method"] == summary["method"] == method
    assert [record["kind"] for record in run.records] == ["run", *["evaluation"] * len(evaluations), "summary"]
    used = np.count_nonzero(plan.schedule.used().any(axis=1)) if plan.schedule.has_server else gradients
    assert summary["gradients"] == (math.ceil(gradients / 4) * 4 if method == "all_reduce" else used)
    assert evaluations[0]["gradients"] == 0
    assert evaluations[-1]["gradients"] == summary["gradients"]
    assert summary["seconds"] == run.schedule.wall_clock()
    assert evaluations[-1]["test_loss"] < evaluations[0]["test_loss"]


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    def accuracy(seed):
        found = train(make_plan(tiny.config(seed=seed))).records
        return [evaluation["test_loss"] for evaluation in found[1:-1]], found[-1]["seconds"]

    assert accuracy(0) == accuracy(0)
    assert accuracy(0) != accuracy(1)


def test_capacity_does_not_change_the_result():
    plan, run = trained("dana")
    larger = dataclasses.replace(plan.program.capacity, rows=512, slots=32, workers=32)
    alone, roomy = run.result.params, train(plan, capacity=larger).result.params
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(roomy), strict=True):
        np.testing.assert_array_equal(a, b)


def test_runs_of_one_capacity_share_one_program(compilations):
    plans = [make_plan(tiny.config(method="dana", cluster__num_workers=n)) for n in (3, 8)]
    capacity = plans[0].program.capacity | plans[1].program.capacity
    train(plans[1], capacity=capacity)
    before = len(compilations)
    train(plans[0], capacity=capacity)
    assert len(compilations) == before


@pytest.mark.full
def test_batch_norm_and_polyak_average_can_be_trained_and_evaluated():
    config = tiny.config(network__kind="conv", network__conv__channels=(4, 4), network__conv__batch_norm=True)
    plan = make_plan(config)
    run, start = train(plan), task_of(plan.experiment)
    for before, after in zip(jax.tree.leaves(start.stats), jax.tree.leaves(run.result.stats), strict=True):
        assert (np.asarray(before) != np.asarray(after)).all()
    ends = zip(*map(jax.tree.leaves, (start.params, run.result.average, run.result.params)), strict=True)
    assert all((average != first).any() and (average != last).any() for first, average, last in ends)
    assert run.records[-1]["average_accuracy"] != run.records[1]["average_accuracy"]


def test_gap_is_definition_1():
    """Against a loop: distance over eta_max times the mean norm of the gradients before."""
    plan, run = trained("staleness_aware")
    history = run.result.history
    gaps = records.gap(history, plan.rates)
    assert gaps[0] == 1
    for k in range(1, len(gaps)):
        reach = plan.rates.max() * sum(history.norm[:k].tolist()) / k
        np.testing.assert_allclose(gaps[k], history.distance[k] / reach + 1, rtol=1e-6)


def test_a_worker_clips_its_own_gradient():
    plain = trained("synchronous")[1].result.history
    limit = float(np.median(plain.norm))
    clipped = train(make_plan(tiny.config(method="synchronous", optimizer__clip_norm=limit))).result.history
    first = slice(4)  # on the initial parameters
    np.testing.assert_allclose(clipped.norm[first], np.minimum(plain.norm[first], limit), rtol=1e-6)
    far = train(make_plan(tiny.config(method="synchronous", optimizer__clip_norm=1e9))).result.history
    np.testing.assert_allclose(far.norm, plain.norm, rtol=1e-9)


def test_more_servers_than_parameters_can_be_cut_into_are_refused():
    config = tiny.config(method="partial", data__kind="digits", protocol__partial__num_servers=20)
    plan = make_plan(config)
    few = {"bias": np.zeros(3), "kernel": np.zeros((8, 2))}
    with pytest.raises(UsageError, match=r"--config\.protocol\.kind=partial: num_blocks=20 must be at most 11"):
        _check_blocks(plan, few)


def test_records_say_what_was_run():
    plan = make_plan(tiny.config(method="backup_workers", cluster__kind="regimes"))
    first, *_, summary = train(plan).records
    assert first["config"] == plan.experiment.identity
    assert first["about"]["cluster"] == str(plan.experiment.cluster.law)
    assert first["families"] == ["Synchronous rounds"]
    assert (first["protocol"], first["rule"], first["baseline"]) == ("backup_workers", "nag_asgd", "nag_asgd")
    assert not first["serial"]
    assert summary["speedup"] == plan.speedup
    assert summary["test_examples"] == len(plan.experiment.data.dataset.test.labels)
    assert set(first["made"]) == {"version", "jax", "device", "commit"}
    assert records.what(make_plan(tiny.config(method="adam", cluster__first_workers=1)))["serial"]


def evaluations(*losses):
    return [{"train_loss": loss, "test_loss": loss} for loss in losses]


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_a_run_is_lost_where_it_ends_no_better_than_guessing_after_it_had_blown_up(classes):
    guess = math.log(classes)
    assert not records.diverged(evaluations(1.05 * guess, 0.4 * guess, 0.05 * guess), classes)
    assert not records.diverged(evaluations(1.1 * guess, 1.05 * guess, guess), classes)  # it has only begun
    assert records.diverged(evaluations(1.1 * guess, math.nan, 0.2 * guess), classes)
    assert records.diverged(evaluations(1.1 * guess, 0.4 * guess, guess), classes)
    assert records.diverged(evaluations(1.05 * guess, 0.9 * guess, 1.4 * guess), classes)
    assert records.diverged(evaluations(1.1 * guess, 400 * guess, guess), classes)


def test_a_loss_that_float32_has_rounded_to_nothing_is_none():
    outputs = np.full(10, 1e10, np.float32)  # from which all classes are as likely
    rounded = float(jax.nn.logsumexp(outputs) - outputs[0])
    assert rounded == 0

    def ends(test_loss, train_loss, outcomes=10):
        last = {"test_loss": test_loss, "train_loss": train_loss}
        first = {"test_loss": 2.33, "train_loss": None}
        return records.diverged([first, {"test_loss": 7.9e15, "train_loss": 9e11}, last], outcomes)

    assert ends(rounded, 9e15)
    assert ends(rounded, 9e15, None)
    # Neither a run that is fitted perfectly, nor one that came back, is lost.
    assert not ends(0.0, 1e-9)
    assert not ends(0.0, 1e6)
    assert not ends(0.1, 9e15)
    assert not records.diverged([{"test_loss": 0.0, "train_loss": None}], None)


def test_backup_workers_see_the_same_batches_as_all_others():
    """The k-th used gradient is computed on batch k: with one worker short, whatever was dropped before it."""
    first = [trained(method)[1].result.history.aux["loss"][:3] for method in ("synchronous", "backup_workers")]
    np.testing.assert_allclose(*first, rtol=1e-6)  # all on the initial parameters, batches 0, 1, 2
    plan = make_plan(tiny.config(method="backup_workers", epochs=2.0))
    assert plan.schedule.dropped().any()
    other = make_plan(tiny.config(method="asgd", epochs=2.0))
    ours, theirs = (batches_of(p, p.program.capacity.rows) for p in (plan, other))
    for k in range(80):
        np.testing.assert_array_equal(ours(k).inputs, theirs(k).inputs)
