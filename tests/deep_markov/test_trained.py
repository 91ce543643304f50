"""A trained model on disk: it comes back as it was, and what is no such model, or another one, is refused by name."""

import dataclasses
import functools
import json
import math
import pathlib
import re
import shutil

import jax
import naive_model as naive
import numpy as np
import pytest
from naive_model import LAG, WORKERS
from orbax.checkpoint import v1 as ocp

from sgdlab import files
from sgdlab.deep_markov import DeepMarkov, TrainedModel
from sgdlab.deep_markov.model import WindowModel

HISTORY = (
    {"step": 10.0, "elbo": 0.1 + 0.2, "validation_elbo": -1 / 3},
    {"step": 20.0, "elbo": 1.0, "validation_elbo": 0.5},
)
BOTH = pytest.mark.parametrize("literal", [False, True], ids=["default", "literal"])


@functools.cache
def trained(literal=False) -> TrainedModel:
    """A model as training leaves it: each parameter in its own precision."""
    widths = naive.small(literal=literal)
    initial = WindowModel(WORKERS, widths, seed=3).initial
    return TrainedModel(widths, WORKERS, 2.1, jax.tree.map(np.asarray, initial), HISTORY)


@pytest.fixture
def saved(tmp_path):
    trained().save(tmp_path / "model")
    return tmp_path / "model"


class TestRoundTrip:
    @BOTH
    def test_everything_comes_back_as_it_was(self, literal, tmp_path):
        model = trained(literal)
        model.save(tmp_path)
        loaded = TrainedModel.load(tmp_path)
        for name in ("widths", "num_workers", "divisor", "history"):
            assert getattr(loaded, name) == getattr(model, name), name
        assert jax.tree.structure(loaded.parameters) == jax.tree.structure(model.parameters)
        for before, after in zip(*map(jax.tree.leaves, (model.parameters, loaded.parameters)), strict=True):
            assert isinstance(after, np.ndarray)
            assert after.dtype == before.dtype
            np.testing.assert_array_equal(after, before)

    def test_predicts_the_same(self, saved):
        window = np.random.default_rng(0).uniform(0.5, 2.0, (LAG, WORKERS))
        predictor = DeepMarkov(TrainedModel.load(saved), samples=8)
        loaded = predictor.predict(predictor.start(window, seed=0))
        before = predictor.forecast(trained().parameters, window, trained().divisor, (0, 0), np.nan)
        assert loaded.cutoff == before.cutoff
        np.testing.assert_array_equal(loaded.mean, before.mean)
        np.testing.assert_array_equal(loaded.std, before.std)

    def test_a_later_model_replaces_an_earlier_one(self, saved):
        parameters = jax.tree.map(lambda leaf: leaf + 1, trained().parameters)
        dataclasses.replace(trained(), parameters=parameters, divisor=7.0).save(saved)
        loaded = TrainedModel.load(saved)
        assert loaded.divisor == 7.0
        jax.tree.map(np.testing.assert_array_equal, loaded.parameters, parameters)

    @pytest.mark.parametrize("before", [False, True])
    @pytest.mark.parametrize("moment", ["parameters", "description", "rename"])
    def test_a_save_that_is_killed_leaves_no_half_of_a_model(self, before, moment, tmp_path, monkeypatch):
        """Keep what stood there, and the next save does not mind what the killed one has left."""
        path = tmp_path / "model"
        if before:
            trained().save(path)
        names = {"parameters": (ocp, "save"), "description": (files, "write_text"), "rename": (pathlib.Path, "rename")}
        with monkeypatch.context() as patched:
            patched.setattr(*names[moment], killed)
            with pytest.raises(KeyboardInterrupt):
                dataclasses.replace(trained(), divisor=7.0).save(path)
        assert TrainedModel.exists(path) == before
        if before:
            assert TrainedModel.load(path).divisor == trained().divisor
        dataclasses.replace(trained(), divisor=7.0).save(path)
        assert TrainedModel.load(path).divisor == 7.0
        assert [entry.name for entry in tmp_path.iterdir()] == ["model"]

    def test_a_half_saved_directory_is_no_model_and_is_replaced(self, saved):
        (saved / "model.json").unlink()
        assert not TrainedModel.exists(saved)
        trained().save(saved)
        assert TrainedModel.exists(saved)
        assert TrainedModel.load(saved).divisor == trained().divisor

    def test_what_is_no_model_is_not_replaced(self, tmp_path):
        (tmp_path / "thesis.tex").write_text("chapter 1")
        with pytest.raises(ValueError, match=r"must be a directory of the model's own; it holds thesis\.tex"):
            trained().save(tmp_path)
        assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def killed(*arguments, **options):
    raise KeyboardInterrupt


def change(saved, **entries):
    """Other entries in the description."""
    path = saved / "model.json"
    description = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(description | entries), encoding="utf-8")


class TestRefused:
    def refuses(self, path, *words):
        with pytest.raises(ValueError, match="^" + re.escape(f"path={str(path)!r} ") + ".*".join(words)) as caught:
            TrainedModel.load(path)
        assert type(caught.value) is ValueError

    def test_where_there_is_no_model(self, tmp_path):
        (tmp_path / "file").write_text("{}")
        for name in ("nowhere", "file"):
            self.refuses(tmp_path / name, "must be a directory written by TrainedModel.save")

    @pytest.mark.parametrize("content", [None, b"\xff\xfe", b"", b"{", b"[]", b"null", b"7", b"{}", b'{"widths": {}}'])
    def test_a_description_that_is_missing_or_damaged(self, saved, content):
        (saved / "model.json").unlink()
        if content is not None:
            (saved / "model.json").write_bytes(content)
        self.refuses(saved, "must be a directory written by TrainedModel.save")

    @pytest.mark.parametrize("name", ["widths", "num_workers", "divisor", "history"])
    def test_an_entry_that_is_missing(self, saved, name):
        path = saved / "model.json"
        description = json.loads(path.read_text(encoding="utf-8"))
        del description[name]
        path.write_text(json.dumps(description), encoding="utf-8")
        self.refuses(saved, "must be a directory written by TrainedModel.save", name)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(("num_workers", value) for value in (0, -1, 2.5, "three", None)),
            *(("divisor", value) for value in (0.0, -1.0, math.nan, math.inf, "one", None)),
            *(("history", value) for value in (7, None)),
            *(("widths", value) for value in ([], {"lag": 0}, {"depth": 3}, None)),
        ],
    )
    def test_an_entry_that_makes_no_sense(self, saved, name, value):
        if isinstance(value, dict):
            value = dataclasses.asdict(trained().widths) | value
        change(saved, **{name: value})
        self.refuses(saved, "")

    @pytest.mark.parametrize("name", ["gate", "recurrent", "num_workers"])
    def test_parameters_of_another_shape(self, saved, name):
        widths = dataclasses.asdict(trained().widths)
        other = {"num_workers": WORKERS - 1} if name == "num_workers" else {"widths": widths | {name: widths[name] + 1}}
        change(saved, **other)
        self.refuses(saved, "holds parameters that are not this model's")

    @pytest.mark.parametrize("missing", [True, False])
    def test_parameters_that_are_missing_or_damaged(self, saved, missing):
        for path in (saved / "parameters").rglob("*"):
            if path.is_file():
                path.write_bytes(b"")
        if missing:
            shutil.rmtree(saved / "parameters")
        self.refuses(saved, "holds parameters that are not this model's")


class TestCheck:
    def test_returns_runtimes_of_its_workers(self):
        rows = [[1, 2, 3], [4, 5, 6]]
        array = trained().check(rows)
        assert array.dtype == np.float64
        np.testing.assert_array_equal(array, rows)

    @pytest.mark.parametrize("shape", [(5, WORKERS + 1), (5, WORKERS - 1), (WORKERS,), (5, WORKERS, 1), (WORKERS, 5)])
    def test_refuses_another_number_of_workers_by_name(self, shape):
        expected = f"history of shape {shape} must have {WORKERS} columns: the model was trained on {WORKERS} workers"
        with pytest.raises(ValueError, match="^" + re.escape(expected)):
            trained().check(np.ones(shape), "history")
