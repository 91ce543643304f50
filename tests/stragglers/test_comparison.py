"""The comparison as a whole: pauses do not mislead predictors, rows are added and left out as settings say."""

import types

import numpy as np
import pytest
from toy_traces import split_of

from sgdlab.predictors import run_online
from sgdlab.stragglers import comparison
from sgdlab.stragglers.comparison import learned, tuning
from sgdlab.stragglers.comparison.comparison import ComparisonSettings
from sgdlab.stragglers.diagnosis.causes import SLOW_WORKER, Cause

STEPS, WORKERS = 200, 8


def quiet(seed=0):
    return 0.4 * np.random.default_rng(seed).lognormal(sigma=0.03, size=(STEPS, WORKERS))


def relative(compared):
    base = compared.synchrony.gradients_per_second
    return {row.title: row.result.gradients_per_second / base for row in compared.protocols}


@pytest.fixture(scope="module", name="paused")
def compared_once(tmp_path_factory):
    """A quiet cluster that pauses for 6 s every 40 steps, compared without the learned model, with re-fits."""
    runtimes = quiet()
    runtimes[20::40] += 6.0
    parts = split_of(runtimes, prefix="")
    slow = Cause(SLOW_WORKER, (5,), None, since=0, until=None, factor=1.1, share=0.1, evidence="")
    settings = ComparisonSettings(model="no", refit=60)
    diagnosis = types.SimpleNamespace(causes=(slow,))
    directory = tmp_path_factory.mktemp("comparison")
    return parts, comparison.compare(parts, diagnosis, directory, settings=settings, report=lambda line: None)


@pytest.mark.full
def test_pauses_of_all_do_not_mislead_predictors(paused):
    """Full synchrony is best on a quiet cluster, with and without pauses; predictors must not lose by much."""
    found = relative(paused[1])
    for title in ("Kalman filter", "Elfving", "median + k MAD", "running mean"):
        assert 0.97 < found[title] <= 1.02
        assert 0.97 < found[title + comparison.REFITTED] <= 1.02


def test_without_a_guard_the_same_pauses_do(paused):
    parts = paused[0]
    tuned = tuning.TUNED["Elfving"](parts.train, "throughput")
    record = run_online(parts.test, tuned.predictor, history=tuned.history(parts.train))
    assert record.gradients_per_second() < 0.9 * paused[1].synchrony.gradients_per_second


def test_rows_come_by_role(paused):
    roles = [row.role for row in paused[1].protocols]
    kept = [role for role in roles if role != "hindsight"]
    assert kept == sorted(kept, key=["deployable", "drained", "asynchronous", "ceiling"].index)
    assert [row.title for row in paused[1].by_role("drained")] == ["without worker 5"]
    assert paused[1].protocols[0].backups == 0
    refitted = [row for row in paused[1].protocols if row.title.endswith(comparison.REFITTED)]
    assert len(refitted) == 5
    assert all(row.setting == "every 60 steps" for row in refitted)


def test_what_was_not_run_is_named(paused):
    assert paused[1].record is None
    assert comparison.DEEP_MARKOV not in relative(paused[1])
    assert set(paused[1].left_out) == {comparison.DEEP_MARKOV, comparison.DEEP_MARKOV + comparison.REFITTED}


def test_a_row_holds_the_predictor_that_was_measured(paused):
    parts, compared = paused
    rows = [row for row in compared.by_role("deployable") if row.predictor is not None]
    assert len(rows) == 4
    for row in rows:
        record = run_online(parts.test, row.predictor, history=row.history)
        np.testing.assert_array_equal(record.cutoff, row.result.gradients[:, 0])
        if row.flags:
            assert f"--config.protocol.cutoff.window={row.warm_up}" in row.flags
            said = [flag for flag in row.flags if flag.startswith("--config.predictor.") and ".kind=" not in flag]
            assert [flag.split(".", 3)[3] for flag in said] == [f"{name}={v}" for name, v in row.parameters.items()]


@pytest.mark.parametrize("wide", [False, True])
def test_a_wide_cluster_is_measured_with_one_objective_and_that_is_said(wide, monkeypatch, tmp_path):
    parts, none = split_of(quiet(), prefix=""), types.SimpleNamespace(causes=())
    monkeypatch.setattr(learned, "WIDE", WORKERS if wide else WORKERS + 1)
    monkeypatch.setattr(learned, "trained", lambda train, plan, **given: tuning.fixed(train))
    settings = ComparisonSettings(model="auto")
    monkeypatch.setattr(learned, "ENOUGH", len(parts.train))
    compared = comparison.compare(parts, none, tmp_path, settings=settings, report=lambda line: None)
    assert [row.setting for row in compared.protocols if row.method == comparison.DEEP_MARKOV] == ["fixed"]
    title = f"{comparison.DEEP_MARKOV}, {comparison.BY_RATE}"
    assert compared.left_out == ({title: learned.NOT_BY_RATE} if wide else {})


def test_a_row_by_rate_is_the_same_with_cutoffs_of_its_own(tmp_path):
    generator = np.random.default_rng(0)
    swings = np.repeat(generator.choice([1.0, 3.0], 12), 10)[:, None]  # of all workers, in which a second is worth more
    parts = split_of(generator.gamma(4.0, 0.25, (120, WORKERS)) * swings, prefix="")
    settings, none = ComparisonSettings(model="no"), types.SimpleNamespace(causes=())
    compared = comparison.compare(parts, none, tmp_path, settings=settings, report=lambda line: None)
    rows = [row for row in compared.protocols if row.by_rate is not None]
    assert {row.role for row in rows} == {"deployable", "ceiling"}
    for row in rows:
        by_rate, cutoffs = row.by_rate, row.by_rate.result.gradients[:, 0]
        assert (by_rate.method, by_rate.role, by_rate.objective) == (row.method, row.role, "rate")
        if row.predictor is not None:
            record = run_online(parts.test, by_rate.predictor, objective="rate", history=by_rate.history)
            np.testing.assert_array_equal(record.cutoff, cutoffs)
            assert (cutoffs != row.result.gradients[:, 0]).any()
            assert by_rate.flags == () or by_rate.flags[-1] == "--config.protocol.cutoff.objective=rate"


@pytest.mark.parametrize(("entry", "value"), [("model", "maybe"), ("most_steps", 0), ("refit", 0), ("seed", -1)])
def test_impossible_settings_are_refused(entry, value):
    with pytest.raises(ValueError, match=f"^{entry}={value!r}"):
        ComparisonSettings(**{entry: value})


def test_of_long_recordings_predictors_are_tuned_on_evenly_spaced_blocks(monkeypatch):
    train = np.arange(1.0, 901.0)[:, None] * np.ones(3)
    ((history, rows),) = tuning._blocks(train)
    np.testing.assert_array_equal(np.concatenate([history, rows]), train)
    assert len(history) == tuning.HISTORY
    monkeypatch.setattr(tuning, "_MOST_STEPS", 200)
    blocks = tuning._blocks(train)
    assert sum(len(rows) for _, rows in blocks) <= 200 == tuning.predicted_steps(900, 3)
    firsts = [int(rows[0, 0]) for _, rows in blocks]
    assert np.ptp(np.diff(firsts)) <= 1
    assert blocks[-1][1][-1, 0] == 900
    for history, rows in blocks:  # what comes before a block is its history
        assert len(history) >= max(tuning.WINDOWS)
        assert np.ptp(np.diff(np.concatenate([history, rows])[:, 0])) == 0
    monkeypatch.setattr(tuning, "_MOST_RUNTIMES", 120)  # 40 steps of three workers
    assert sum(len(rows) for _, rows in tuning._blocks(train)) <= 40


@pytest.mark.parametrize("most_steps", [1, 3000])
@pytest.mark.parametrize("steps", [4, 5, 11, 12, 22, 60, 100, 499, 500])
def test_windows_fit_the_tuning_steps(steps, most_steps):
    plan = learned.plan(steps, most_steps)
    held_out = int(np.ceil(plan.fitting.validation_share * steps))
    assert steps - held_out >= plan.widths.lag
    assert held_out == 0 or held_out >= plan.widths.lag
    assert plan.widths.lag <= tuning.HISTORY
    assert plan.fitting.steps <= most_steps
    assert bool(plan.note) == (steps < learned.ENOUGH)


@pytest.mark.parametrize("model", ["auto", "yes"])
@pytest.mark.parametrize("workers", [511, 512, 1000, 4000])
def test_a_wide_cluster_is_trained_on_for_fewer_steps_unless_in_full(workers, model):
    found = learned.plan(5000, 3000, workers=workers, model=model)
    if model == "auto" and workers >= 512:
        assert found.fitting.steps == 500
        assert found.samples < 64
        assert found.objectives == ("throughput",)
        assert str(found.fitting.steps) in found.note
    else:
        assert found == learned.plan(5000, 3000)
    assert learned.plan(5000, 300, workers=workers, model=model).fitting.steps <= 500


@pytest.mark.parametrize(
    ("train", "test", "workers", "model", "left_out"),
    [
        (5000, 5000, 1000, "auto", False),
        (5000, 5000, 8000, "auto", True),
        (5000, 5000, 8000, "yes", False),
        (500, 500, 2, "no", True),
        (500, 500, 2, "auto", False),
        (499, 500, 2, "auto", True),
        (10, 10, 2, "yes", False),
    ],
)
def test_the_model_is_left_out_by_size_and_by_choice(train, test, workers, model, left_out):
    assert bool(learned.why_not(train, test, workers, model)) == left_out
