"""Training: the same seed gives the same model, it stops and continues where it should, validation rows stay unseen.

All trainings here have one shape, of one of two runs.
"""

import dataclasses
import functools
import math
import re

import jax
import naive_model as naive
import numpy as np
import pytest
from naive_model import LAG, WORKERS

from sgdlab import cluster
from sgdlab.deep_markov import Architecture, Fitting, TrainedModel, fit

FITTING = Fitting(
    steps=100, batch=4, learning_rate=0.03, annealing=20, validation_share=0.06, every=10, patience=100, clip=10.0
)
EVALUATIONS = FITTING.steps // FITTING.every
ROWS = 51  # 6 percent of 50 are 3, less than a window; those of 51 are rounded up to 4
VALIDATION = slice(ROWS - LAG, None)


@functools.cache
def runtimes():
    return cluster.gamma(num_workers=WORKERS, num_gradients=ROWS, seed=0) * [1.0, 2.0, 3.0]


@functools.cache
def reversed_at_the_end():
    """The slowest worker is the fastest in the validation part: to learn the others is to unlearn these."""
    changed = runtimes().copy()
    changed[VALIDATION] = changed[VALIDATION, ::-1]
    return changed


def trained(rows=None, *, seed=0, widths=None, report=None, checkpoints=None, **changes) -> TrainedModel:
    fitting = dataclasses.replace(FITTING, **changes)
    rows = runtimes() if rows is None else rows
    return fit(rows, widths or naive.small(), fitting, seed=seed, report=report, checkpoints=checkpoints)


uninterrupted = functools.cache(trained)


def assert_same(first, second):
    assert jax.tree.structure(first.parameters) == jax.tree.structure(second.parameters)
    jax.tree.map(np.testing.assert_array_equal, first.parameters, second.parameters)
    assert first.history == second.history
    assert (first.divisor, first.num_workers, first.widths) == (second.divisor, second.num_workers, second.widths)


def column(model, name):
    return np.array([evaluation[name] for evaluation in model.history])


def settled(model):
    """The validation bounds of evaluations after annealing, which changes the bound."""
    return column(model, "validation_elbo")[column(model, "step") > FITTING.annealing]


class TestTraining:
    @pytest.mark.full
    def test_the_same_seed_gives_the_same_model(self):
        assert_same(trained(), uninterrupted())

    @pytest.mark.long("a training")
    def test_the_bound_rises(self):
        model = uninterrupted()
        for name in ("elbo", "validation_elbo"):
            values = column(model, name)
            assert np.isfinite(values).all()
            assert values[-1] > values[0] + 0.1

    def test_every_look_is_reported(self):
        seen = []
        model = trained(report=seen.append)
        assert tuple(seen) == model.history
        assert [evaluation["step"] for evaluation in seen] == [10.0 * (made + 1) for made in range(EVALUATIONS)]
        assert all(evaluation.keys() == {"step", "elbo", "validation_elbo"} for evaluation in seen)

    def test_divides_by_twice_the_mean_of_the_first_window(self):
        assert uninterrupted().divisor == pytest.approx(2 * runtimes()[:LAG].mean(), rel=1e-14)

    def test_leaves_the_run_as_it_was(self):
        rows = runtimes().copy()
        trained(rows)
        np.testing.assert_array_equal(rows, runtimes())


class TestValidation:
    def test_its_rows_are_not_trained_on(self):
        """Other validation data change the evaluations, and nothing of the training."""
        first, second = uninterrupted(), trained(reversed_at_the_end())
        np.testing.assert_allclose(column(first, "elbo"), column(second, "elbo"), rtol=1e-9)
        assert (column(first, "validation_elbo") != column(second, "validation_elbo")).all()

    @pytest.mark.sample(1)
    @pytest.mark.parametrize("patience", [1, 2, 3])
    def test_training_stops_once_patience_is_at_an_end(self, patience):
        model = trained(reversed_at_the_end(), patience=patience)
        bounds = settled(model)
        waited = [evaluation - np.argmax(bounds[: evaluation + 1]) for evaluation in range(len(bounds))]
        assert len(model.history) < EVALUATIONS
        assert waited[-1] == patience
        assert max(waited[:-1]) < patience

    def test_the_best_parameters_are_kept(self):
        """A training that ends soon after its best evaluation returns the same as one that goes on to the end."""
        to_the_end = trained(reversed_at_the_end())
        bounds = settled(to_the_end)
        records = np.flatnonzero(bounds == np.maximum.accumulate(bounds))
        ended = trained(reversed_at_the_end(), patience=int(max(np.diff(records), default=1)))
        assert len(ended.history) < len(to_the_end.history) == EVALUATIONS
        assert_same(ended, dataclasses.replace(to_the_end, history=ended.history))


class Interrupted(Exception):
    pass


def interrupting(after):
    """A report that ends the training at an evaluation."""

    def report(evaluation):
        if evaluation["step"] == after * FITTING.every:
            raise Interrupted

    return report


@functools.cache
def stopped():
    """A training that patience ends."""
    return trained(reversed_at_the_end(), patience=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("finished")


@pytest.fixture
def finished(folder):
    """The checkpoints of such a training that has come to its end."""
    if not any(folder.iterdir()):
        assert_same(trained(reversed_at_the_end(), patience=2, checkpoints=folder), stopped())
    return folder


class TestCheckpoints:
    """Of a training that patience ends: how long it has waited must be saved as well."""

    @pytest.mark.full
    @pytest.mark.parametrize("before_the_end", [1, 4])
    def test_an_interrupted_training_ends_as_an_uninterrupted_one(self, tmp_path, before_the_end):
        evaluations = len(stopped().history)
        after = evaluations - before_the_end
        train = functools.partial(trained, reversed_at_the_end(), patience=2, checkpoints=tmp_path)
        with pytest.raises(Interrupted):
            train(report=interrupting(after))
        later = []
        assert_same(train(report=later.append), stopped())
        assert tuple(later) == stopped().history[after:]

    def test_a_finished_training_returns_at_once(self, finished):
        evaluations = []
        again = trained(reversed_at_the_end(), patience=2, checkpoints=finished, report=evaluations.append)
        assert_same(again, stopped())
        assert not evaluations

    @pytest.mark.parametrize(
        "changes",
        [
            {"seed": 1},
            {"widths": Architecture(**(naive.WIDTHS | {"state": 3}))},
            {"widths": naive.small(literal=True)},
            {"learning_rate": 0.02},
            {"steps": FITTING.steps + FITTING.every},
            {"batch": 5},
            {"rows": lambda: 2 * reversed_at_the_end()},
            {"rows": runtimes},
        ],
        ids=["seed", "width", "literal", "learning rate", "steps", "batch", "seconds", "run"],
    )
    def test_those_of_another_training_are_refused(self, finished, changes):
        rows = changes.get("rows", reversed_at_the_end)()
        others = {name: value for name, value in changes.items() if name != "rows"}
        with pytest.raises(ValueError, match="checkpoints="):
            trained(rows, patience=2, checkpoints=finished, **others)


class TestErrors:
    @pytest.mark.parametrize(
        ("lag", "share"), [(LAG, FITTING.validation_share), (LAG, 0.15), (LAG, 0.5), (LAG, 0.8), (7, 0.3), (LAG, 0.0)]
    )
    def test_a_run_that_is_too_short_is_told_how_long_it_must_be(self, lag, share):
        enough = next(
            rows
            for rows in range(1, 999)
            if rows - math.ceil(share * rows) >= lag <= math.ceil(share * rows) or (share == 0 and rows == lag)
        )
        widths, fitting = (
            dataclasses.replace(naive.small(), lag=lag),
            dataclasses.replace(FITTING, validation_share=share),
        )
        for rows in (1, enough - 1):
            with pytest.raises(ValueError, match=f"runtimes of {rows} steps must have at least {enough}"):
                fit(np.ones((rows, WORKERS)), widths, fitting, seed=0)

    def test_runtimes_that_are_none_are_refused(self):
        rows = runtimes().copy()
        rows[3, 1] = math.nan
        with pytest.raises(ValueError, match=re.escape("runtimes[3, 1]=nan must be positive and finite")):
            trained(rows)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *((name, value) for name in ("steps", "batch", "every", "patience") for value in (0, -1, 1.5, "4", None)),
            *(("annealing", value) for value in (-1, 1.5)),
            *((name, value) for name in ("learning_rate", "clip") for value in (0, -1.0, math.nan, math.inf, "1")),
            *(("validation_share", value) for value in (-0.1, 0.95, math.nan)),
            *(("blind_share", value) for value in (-0.1, 1.1, math.nan)),
        ],
    )
    def test_numbers_out_of_range_are_refused_by_name(self, name, value):
        with pytest.raises(ValueError, match=f"^{name}={re.escape(repr(value))} must be "):
            Fitting(**{name: value})
