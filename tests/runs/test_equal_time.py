"""Runs that end at an instant: their schedules, their rates over the whole of it, and those that end at the target."""

import numpy as np
import pytest
from lib import tiny

from sgdlab import protocols, replay, rules
from sgdlab.errors import UsageError
from sgdlab.results.summary import groups
from sgdlab.runs.methods import REPRESENTATIVE, methods
from sgdlab.runs.plan import make_plan, synchronous_twin
from sgdlab.runs.train import train
from sgdlab.tasks import Task


@pytest.mark.representatives(*REPRESENTATIVE)
@pytest.mark.parametrize("method", methods())
def test_every_method_ends_at_the_instant(method):
    plan = make_plan(tiny.config(method=method, budget=1.5, epochs=2.0))
    twin = synchronous_twin(plan.experiment, make_plan(tiny.config(method=method, epochs=2.0)).num_gradients)
    end = 1.5 * twin.wall_clock()
    assert 0.8 * end < plan.schedule.wall_clock() <= end
    longer = make_plan(tiny.config(method=method, seconds=2 * end))
    assert longer.schedule.until(end).wall_clock() == plan.schedule.wall_clock()
    applied = plan.schedule.num_updates if plan.schedule.has_server else plan.schedule.num_gradients
    if method != "layerwise":  # of which a block may have an update more, at the last rate
        assert plan.rates.size >= applied
    assert plan.experiment.epochs == pytest.approx(plan.num_gradients / plan.gradients_per_epoch)


def test_the_rate_decays_over_the_whole_of_it():
    config = tiny.config(method="asgd", budget=1.5, epochs=2.0)
    config.rate.decay, config.rate.warmup_epochs = "cosine", 0.0
    plan = make_plan(config)
    assert plan.schedule.num_updates == plan.rates.size
    assert plan.rates[0] > 100 * plan.rates[-1] > 0


def test_synchronous_with_a_budget_of_one_is_synchronous():
    by_epochs, by_time = (
        make_plan(tiny.config(method="synchronous")),
        make_plan(tiny.config(method="synchronous", budget=1.0)),
    )
    np.testing.assert_array_equal(by_time.schedule.applied, by_epochs.schedule.applied)
    assert by_time.speedup == by_epochs.speedup == 1.0


def test_both_ends_are_one_too_many():
    with pytest.raises(UsageError, match=r"--config.seconds=9 must be left out with budget=1.5"):
        make_plan(tiny.config(seconds=9.0, budget=1.5))
    with pytest.raises(UsageError, match=r"--config.seconds=0.001 must be late enough for an update"):
        make_plan(tiny.config(method="asgd", seconds=0.001))
    with pytest.raises(UsageError, match=r"--config.until_target=True must go with a target"):
        make_plan(tiny.config(until_target=True, target=None))


@pytest.mark.parametrize("method", ["synchronous", "asgd", "d_psgd"])
def test_a_run_that_ends_at_the_target_is_the_beginning_of_one_that_does_not(method):
    given = {"method": method, "budget": 1.0, "epochs": 8.0, "target": 0.6, "evaluations": 60, "spacing": "geometric"}
    whole, cut = (train(make_plan(tiny.config(**given, until_target=short))) for short in (False, True))
    seconds = [run.records[-1]["seconds_to_target"] for run in (whole, cut)]
    assert seconds[0] is not None
    assert seconds[1] == pytest.approx(seconds[0], rel=1e-12)
    done = cut.records[-1]["gradients"]
    assert seconds[0] < cut.records[-1]["seconds"] < whole.records[-1]["seconds"]
    assert len(cut.result.history.worker) == done < len(whole.result.history.worker)
    own = {"node_accuracy", "worst_accuracy"}  # of nodes, which are evaluated one by one at the end
    plain = [record | dict.fromkeys(own) for record in cut.records[1:-1]]
    assert plain == whole.records[1 : len(cut.records) - 1]
    for name in own:
        assert (cut.records[-1][name] is not None) == (whole.records[-1][name] is not None) == (method == "d_psgd")


def test_a_run_that_diverges_ends():
    given = {"method": "nag_asgd", "budget": 1.0, "epochs": 8.0, "target": 0.9, "evaluations": 60}
    run = train(make_plan(tiny.config(**given, optimizer__learning_rate=1e6, until_target=True)))
    assert run.records[-1]["diverged"]
    assert run.records[-1]["gradients"] < 0.5 * make_plan(tiny.config(**given)).num_gradients


def test_whoever_has_no_evaluations_does_not_ask():
    """As the other processes of a run over many."""
    plan = make_plan(tiny.config())
    ends = lambda evaluations: evaluations[-1]["gradients"] > 0
    watch = replay.Watch(every=plan.program.every, ends=ends)
    task = Task(lambda params, batch: (params, {"loss": params**2}), params=np.zeros([]))
    result = replay.run(plan.program, rules.asgd(learning_rate=0.1), task, lambda g: 1.0, watch=watch)
    assert len(result.history.worker) == plan.program.num_rows


def test_protocols_end_at_an_instant():
    times = np.random.default_rng(0).gamma(2.0, size=(40, 5))
    for name in ("asynchronous", "synchronous", "gossip"):
        given = {"seed": 0} if name == "gossip" else {}
        whole = getattr(protocols, name)(times, num_gradients=60, **given)
        half = whole.wall_clock() / 2
        found = getattr(protocols, name)(times, num_seconds=half, **given)
        assert found.wall_clock() == whole.until(half).wall_clock()
        assert found.num_gradients == whole.until(half).num_gradients


def test_split_rotates_with_the_seed_and_seeds_stay_together():
    plans = [make_plan(tiny.config(split="rotating", seed=seed)) for seed in range(5)]
    tests = [plan.experiment.data.dataset.test.pixels for plan in plans]
    assert not np.array_equal(tests[0], tests[1])
    np.testing.assert_array_equal(tests[0], tests[4])
    tuned = make_plan(tiny.config(split="validation")).experiment.data.dataset.test.pixels
    assert not any(np.array_equal(tuned, test) for test in tests)
    runs = [train(plan).records for plan in plans[:2]]
    assert len(groups(runs)) == 1


def test_five_seeds_are_tested_on_every_example_once_and_the_next_five_otherwise():
    plans = [make_plan(tiny.config(split="drawn", seed=seed)) for seed in range(10)]
    sets = [plan.experiment.data.dataset for plan in plans]
    every = np.concatenate([sets[0].train.pixels, sets[0].test.pixels])
    in_order = lambda pixels: pixels[np.lexsort(pixels.reshape(len(pixels), -1).T)]
    for five in (sets[:5], sets[5:]):
        tested = np.concatenate([dataset.test.pixels for dataset in five])
        np.testing.assert_array_equal(in_order(tested), in_order(every))
    for index, dataset in enumerate(sets):
        assert not any(np.array_equal(dataset.test.pixels, other.test.pixels) for other in sets[:index])
