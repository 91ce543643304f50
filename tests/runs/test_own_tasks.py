"""Tasks of one's own: a loss and a metric that a file registers, on labels that are real numbers."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from lib import tiny

from sgdlab import data, tasks
from sgdlab.errors import UsageError
from sgdlab.registry import DATASETS, TASKS
from sgdlab.results.metric import Metric
from sgdlab.runs import digests, records
from sgdlab.runs.experiment import resolve
from sgdlab.runs.plan import make_plan
from sgdlab.runs.tasks import task_of
from sgdlab.runs.train import train

ROWS = np.random.default_rng(0).normal(size=(48, 3))
LABELS = ROWS @ [1.0, -2.0, 0.5]


def root(means):
    return {"rmse": jnp.sqrt(means["square"])}


def squares(outputs, labels, *, weight: float = 1.0):
    if weight <= 0:
        raise ValueError(f"weight={weight} must be above 0")
    square = (outputs - labels) ** 2
    return weight * square, {"square": square}


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    for registry in (TASKS, DATASETS):
        monkeypatch.setattr(registry, "_parts", dict(registry))
    TASKS.register("squares", title="Least squares", metric="rmse", finish=root, unit=" kWh", digits=2)(squares)

    @DATASETS.register("plane", title="A plane")
    def plane():
        split = data.MeasuredImages(ROWS, LABELS)
        return data.MeasuredDataset(split, split)


def config(**changed):
    settings = {"data__kind": "plane", "task__kind": "squares", "batch_size": 8, "evaluations": 4, "target": None}
    return tiny.config(**{**settings, **changed})


def test_a_regression_has_records_of_its_metric():
    found = config(epochs=20.0, optimizer__learning_rate=0.02, target=0.9)
    run, *evaluations, summary = train(make_plan(found)).records
    assert (run["metric"], run["higher_is_better"], run["guess"]) == ("rmse", False, None)
    assert run["about"]["task"] == "Least squares (weight 1)"
    assert run["config"]["task"] == {"kind": "squares", "squares": {"weight": 1.0}}
    assert sorted(run["code"]) == ["cluster", "data", "network", "protocol", "rule", "task"]
    assert Metric.of(run).text(0.5) == "0.50 kWh"
    assert Metric.of(run).reach(0.9) == "a test rmse of 0.9 kWh"
    for record in evaluations:
        np.testing.assert_allclose(record["test_rmse"] ** 2, record["test_loss"], rtol=1e-6)
    assert summary["test_rmse"] < 0.9 < evaluations[0]["test_rmse"]
    assert summary["seconds_to_target"] > 0
    assert not summary["diverged"]


def test_the_gradient_is_that_of_the_loss_and_entries_are_data_of_it():
    task = task_of(resolve(config(task__squares__weight=3.0)))
    batch = data.Batch(jnp.asarray(ROWS[:, None, None, :]), jnp.asarray(LABELS[:, None]))
    graph = task_of(resolve(config()))

    def by_hand(params, weight):
        sums = task.sums(params, None, batch)
        return weight * (sums["square"] / sums["count"])

    for made, weight in ((task, 3.0), (graph, 1.0)):
        grads, aux = made.grad_fn(made.params, batch)
        np.testing.assert_allclose(aux["loss"], by_hand(made.params, weight), rtol=1e-6)
        expected = jax.grad(by_hand)(made.params, weight)
        jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6), grads, expected)


def test_equal_tasks_share_a_program(compilations):
    batch = data.Batch(jnp.asarray(ROWS), jnp.asarray(LABELS[:, None]))

    def evaluated(weight):
        task = tasks.make_task("squares", nnx.Linear(3, 1, rngs=nnx.Rngs(0)), {"weight": weight})
        return float(task.evaluate(task.params, None, batch)["loss"])

    once, before = evaluated(1.0), len(compilations)
    assert evaluated(1.0) == once
    assert len(compilations) == before
    assert evaluated(2.0) == 2 * once
    assert len(compilations) > before


@pytest.mark.parametrize(
    ("loss", "facts", "words"),
    [
        (lambda outputs, labels: ((outputs - labels) ** 2).mean(), {}, r"loss for each example, \(8,\), .* a number"),
        (lambda outputs, labels: (outputs[:, 0] - labels) ** 2, {}, r"or for each label, \(8, 1\), .*\(8, 8\)"),
        (lambda outputs, labels: None, {}, "returned None: is `return` missing"),
        (lambda outputs, labels: (outputs - labels, {"error": jnp.float32(1)}), {}, r"error for each loss, \(8, 1\)"),
        (lambda outputs, labels: outputs - labels, {"metric": "absent"}, "metric that it names, absent; it makes loss"),
        (lambda outputs, labels: outputs @ labels, {}, r"must take outputs of shape \(8, 1\) and labels"),
    ],
)
def test_a_loss_that_cannot_be_is_refused_before_the_run(loss, facts, words):
    TASKS.register("wrong", title="Wrong", **facts)(loss)
    with pytest.raises(UsageError, match=f"--config.task.kind=wrong.*{words}"):
        task_of(resolve(config(task__kind="wrong")))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"task__kind": None},
            "--config.data.kind=plane has labels that are real numbers, and .*=classification needs",
        ),
        ({"task__squares__weight": -1.0}, r"--config.task.squares.weight=-1.0 must be above 0"),
        ({"task__kind": "square"}, "--config.task.kind=square must be one of"),
        ({"heterogeneity__alpha": 0.1}, "--config.heterogeneity.alpha=0.1 must be left out"),
        ({"stream": True}, "--config.stream=True must be left out"),
        ({"data__kind": "digits"}, r"--config.task.kind=squares"),  # ten outputs, and one label
    ],
)
def test_settings_that_do_not_go_together_are_refused(changed, words):
    with pytest.raises(UsageError, match=words):
        task_of(make_plan(config(**changed)).experiment)


def test_the_tasks_of_the_package_leave_runs_what_they_were():
    """They are no entry of a run, and have no digest."""
    plain, named = resolve(tiny.config()), resolve(tiny.config(task__kind="classification"))
    assert plain.identity == named.identity
    assert "task" not in plain.identity
    assert "task" not in digests.of_run(plain)
    assert "metric_words" not in records.what_before(plain)
    old = tiny.config()
    with old.unlocked():
        del old.task  # a configuration that was recorded before tasks were components
    assert resolve(old).identity == plain.identity


def test_a_run_without_a_guess_has_diverged_where_it_ends_no_better_than_it_began():
    def lost(*losses):
        return records.diverged([{"test_loss": loss, "train_loss": loss} for loss in losses], None)

    assert not lost(2.0, 1.0, 0.5)
    assert not lost(2.0, 2.01, 2.02)
    assert lost(2.0, 0.5, 2.5)
    assert lost(2.0, 9.0, 2.1)
    assert lost(2.0, np.nan, 0.1)
    assert not lost(-1.0, -2.0, -3.0)
    assert lost(-1.0, -3.0, -0.5)


def test_an_npz_file_may_hold_a_table_with_real_labels(tmp_path):
    np.savez(tmp_path / "t.npz", x_train=ROWS, y_train=LABELS, x_test=ROWS[:9], y_test=LABELS[:9])
    found = data.npz(path=str(tmp_path / "t.npz"))
    assert isinstance(found, data.MeasuredDataset)
    assert found.image_shape == (1, 1, 3)
    assert found.num_classes == 1
    np.testing.assert_array_equal(found.test.labels[:, 0], LABELS[:9].astype(np.float32))


@pytest.mark.parametrize(
    ("rows", "labels", "words"),
    [
        (ROWS, LABELS[:5], r"labels of shape \(5,\) must be real numbers \[n\] or \[n, k\] of n = 48"),
        (ROWS, LABELS.astype(str), "labels of dtype"),
        (ROWS, np.where(LABELS > 1, np.nan, LABELS), r"labels\[\d+\]=nan must be finite"),
        (ROWS[:, 0], LABELS, "pixels of shape"),
        (ROWS.astype(int), LABELS, "pixels of dtype"),
    ],
)
def test_examples_that_are_no_numbers_are_refused(rows, labels, words):
    with pytest.raises(ValueError, match=words):
        data.MeasuredImages(rows, labels)


def test_folds_of_real_labels_divide_all_examples():
    split = data.MeasuredImages(ROWS, LABELS)
    parts = [data.folds.fold(data.MeasuredDataset(split, split), index) for index in range(5)]
    assert all(isinstance(part, data.MeasuredDataset) for part in parts)
    assert sum(len(part.test) for part in parts) == 96


def test_records_are_read_without_the_task():
    run = json.loads(json.dumps(records.what_before(resolve(config()))))
    TASKS.forget("squares")
    assert Metric.of(run).test_label == "test rmse, kWh (lower is better)"
