"""The deep Markov model as a part of a configuration, and what it refuses: every line names `model` and its value."""

import jax
import naive_model as naive
import numpy as np
import pytest
from naive_model import LAG, WORKERS

import sgdlab.cutoff
from sgdlab import deep_markov, predictors, protocols
from sgdlab.deep_markov import DeepMarkov, TrainedModel, WindowModel
from sgdlab.errors import UsageError
from sgdlab.registry import PREDICTORS, PROTOCOLS

RUNTIMES = np.random.default_rng(0).uniform(1, 3, (LAG + 6, WORKERS))


@pytest.fixture
def saved(tmp_path):
    initial = WindowModel(WORKERS, naive.small(), seed=3).initial
    model = TrainedModel(naive.small(), WORKERS, 2.1, jax.tree.map(np.asarray, initial))
    model.save(tmp_path / "model")
    return str(tmp_path / "model")


def test_predicts_as_the_class_does(saved):
    part = PREDICTORS.make("deep_markov", {"model": saved, "samples": 8, "at_least": 0.0}, runtimes=RUNTIMES)
    same = DeepMarkov(TrainedModel.load(saved), samples=8, at_least=0.0)
    for predictor in (part, same):
        assert isinstance(predictor, DeepMarkov)
    found, expected = (p.predict(p.start(RUNTIMES[:LAG], seed=0)) for p in (part, same))
    assert found.cutoff == expected.cutoff
    np.testing.assert_array_equal(found.mean, expected.mean)


def test_a_protocol_makes_it_from_the_runs_own_runtimes(saved):
    make = lambda runtimes: PREDICTORS.make("deep_markov", {"model": saved, "samples": 8}, runtimes=runtimes)
    schedule = PROTOCOLS.make("cutoff", {"window": LAG}, runtimes=RUNTIMES, predictor=make, seed=1)
    given = DeepMarkov(TrainedModel.load(saved), samples=8)
    expected = protocols.cutoff(RUNTIMES, predictor=given, window=LAG, seed=1)
    np.testing.assert_array_equal(schedule.update, expected.update)


def test_a_model_is_read_once(saved, monkeypatch):
    first = deep_markov.deep_markov(model=saved, runtimes=RUNTIMES)
    monkeypatch.setattr(TrainedModel, "load", None)
    assert deep_markov.deep_markov(model=saved, samples=3, runtimes=RUNTIMES).trained is first.trained


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({}, "model='' must be a directory with a trained model; experiments.cutoff.train makes one"),
        ({"model": "nowhere"}, "model='nowhere' must be a directory with a trained model"),
    ],
)
def test_no_model_is_refused_by_flag(entries, message):
    with pytest.raises(UsageError, match=f"^--config.predictor.deep_markov.{message}"):
        PREDICTORS.make("deep_markov", entries, runtimes=RUNTIMES)


def test_a_model_of_another_cluster_is_refused_by_flag(saved):
    says = f"^--config.predictor.deep_markov.model=.* must be a model of {WORKERS + 1} w"
    with pytest.raises(UsageError, match=says):
        PREDICTORS.make("deep_markov", {"model": saved}, runtimes=np.ones((LAG, WORKERS + 1)))


@pytest.mark.parametrize(("name", "value"), [("samples", 0), ("at_least", 1.5)])
def test_numbers_out_of_range_are_refused_by_flag(saved, name, value):
    with pytest.raises(UsageError, match=f"^--config.predictor.deep_markov.{name}={value} must be"):
        PREDICTORS.make("deep_markov", {"model": saved, name: value}, runtimes=RUNTIMES)


def test_the_old_name_of_all_predictors_works_with_a_warning():
    for home in (deep_markov, predictors):
        for name in ("Architecture", "fit") if home is deep_markov else predictors.__all__:
            with pytest.warns(
                DeprecationWarning, match=f"sgdlab.cutoff.{name} is sgdlab.{home.__name__[7:]}.{name} now"
            ):
                assert getattr(sgdlab.cutoff, name) is getattr(home, name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        sgdlab.cutoff.nothing  # noqa: B018
