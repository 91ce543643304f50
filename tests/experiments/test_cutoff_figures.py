"""The figures of Teng and Wood 2018 at toy size: 8 workers, and a model before training."""

import csv
import dataclasses
import functools
import math
import pathlib
import subprocess
import sys
import types

import compiling
import jax
import numpy as np
import pytest

from configs import cutoff as configurations
from experiments.cutoff import cases, figure2, figure3, figure4, models
from experiments.cutoff.figure2 import CHANGE, CUTOFF, ORACLE, SYNCHRONOUS, UNCENSORED, Line
from sgdlab import cutoff
from sgdlab.commands import launch
from sgdlab.deep_markov import WindowModel
from sgdlab.errors import UsageError
from sgdlab.jobs import plan

ROOT = pathlib.Path(__file__).parents[2]
WORKERS, LAG = 8, 5


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    """Every predictor compiles its own program: without optimisation, and read from a cache if it is the same."""
    with compiling.kept_in(tmp_path_factory.mktemp("xla")):
        yield


@functools.cache
def toy():
    """The configuration of a small cluster, and its model before training."""
    config = configurations.get_config("two_state")
    config.cluster.num_workers, config.cluster.train_steps, config.cluster.test_steps = WORKERS, 60, 40
    config.cluster.regimes.num_nodes = 2
    for name in ("state", "gate", "emission", "scale", "recurrent"):
        config.widths[name] = 4
    config.widths.lag, config.samples = LAG, 8
    widths = cutoff.Architecture(**config.widths)
    parameters = jax.tree.map(np.asarray, WindowModel(WORKERS, widths, seed=0).initial)
    return config, cutoff.TrainedModel(widths, WORKERS, 2 * config.cluster.regimes.mean, parameters)


@functools.cache
def toy_runs():
    config, model = toy()
    runs = [figure2.shown_run(config, 90, seed) for seed in range(2)]
    return runs, figure2.measured(cutoff.DeepMarkov(model, samples=config.samples), runs)


def assert_written(path, name, rows):
    for kind in ("md", "png", "svg"):
        assert (path / f"{name}.{kind}").stat().st_size > 0
    with (path / f"{name}.csv").open(encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == [{key: str(value) for key, value in row.items()} for row in rows]


def test_the_shown_cluster_is_the_training_law_but_for_one_spell():
    config, _ = toy()
    law, shown = cases.law_of(config.cluster), figure2.shown_law(config)
    assert shown.ordinary_mean == pytest.approx(law.ordinary_mean)
    assert shown.noise == pytest.approx(law.noise)
    states = shown.run(LAG + 200, seed=3).states
    assert (states[: LAG + CHANGE, 0] == 1).all()
    assert not states[LAG + CHANGE :].any()
    assert not states[:, 1:].any()
    run = figure2.shown_run(config, 200, seed=3)
    assert run.history.shape == (LAG, WORKERS)
    np.testing.assert_array_equal(np.concatenate([run.history, run.runtimes]), shown.draw(LAG + 200, seed=3))


def test_the_papers_node_has_40_workers():
    law = figure2.shown_law(configurations.get_config("two_state"))
    assert np.bincount(law.node)[0] == 40


def test_lines_are_gradients_over_the_time_of_the_last_of_them():
    config, model = toy()
    runs, lines = toy_runs()
    predictor = cutoff.DeepMarkov(model, samples=config.samples)
    for seed, run in enumerate(runs):
        for t, row in enumerate(run.runtimes):
            ordered = sorted(row)
            rates = [(c + 1) / ordered[c] for c in range(WORKERS)]
            assert lines[ORACLE].throughput[seed, t] == pytest.approx(max(rates))
            assert lines[SYNCHRONOUS].throughput[seed, t] == pytest.approx(WORKERS / max(row))
            for name in (CUTOFF, UNCENSORED):
                c = lines[name].cutoff[seed, t]
                assert lines[name].throughput[seed, t] == pytest.approx(rates[c - 1])
        for name, censored in ((CUTOFF, True), (UNCENSORED, False)):
            record = cutoff.run_online(run.runtimes, predictor, history=run.history, seed=seed, censored=censored)
            np.testing.assert_array_equal(lines[name].cutoff[seed], record.cutoff)
            of_run = Line(lines[name].cutoff[seed : seed + 1], lines[name].seconds[seed : seed + 1])
            assert of_run.gradients_per_second() == pytest.approx(record.gradients_per_second())


def test_the_table_has_a_row_for_each_phase_and_protocol():
    _, lines = toy_runs()
    rows = figure2.table(lines)
    assert [row["iterations"] for row in rows[:: len(lines)]] == ["1 to 61", "62 to 85", "86 to 90"]
    for row in rows:
        line = lines[row["waits"]]
        first, last = (int(number) for number in row["iterations"].split(" to "))
        rates = [
            sum(line.cutoff[:, t].sum() for t in range(first - 1, last))
            / sum(line.seconds[:, t].sum() for t in range(first - 1, last))
            for line in (line, lines[ORACLE])
        ]
        assert row["gradients/s"] == pytest.approx(rates[0])
        assert row["% of oracle"] == pytest.approx(100 * rates[0] / rates[1])
        assert row["gradients used"] == pytest.approx(line.cutoff[:, first - 1 : last].mean())


def test_recovery_is_the_first_iteration_from_which_shares_are_high():
    oracle = Line(np.full((2, 100), 10), np.ones((2, 100)))
    slow = np.ones((2, 100))
    slow[:, CHANGE : CHANGE + 7] = 2.0
    line = dataclasses.replace(oracle, seconds=slow)
    assert figure2.recovers_at(line, oracle, 0.98) == CHANGE + 8
    assert figure2.recovers_at(oracle, oracle, 0.98) == CHANGE + 1
    assert figure2.recovers_at(dataclasses.replace(oracle, seconds=slow + 1), oracle, 0.98) is None


def test_figure2(tmp_path, monkeypatch):
    monkeypatch.setattr(figure2, "PANELS", (1, 50, 90))
    config, model = toy()
    rows = figure2.make(tmp_path, config, model, iterations=90, runs=1)
    assert len(rows) == 4 * len(figure2.phases(90))
    assert_written(tmp_path, "figure2", rows)


def test_figure2_draws_every_iteration_of_the_first_run(monkeypatch):
    monkeypatch.setattr(figure2, "PANELS", (1, 50, 90))
    runs, lines = toy_runs()
    node = figure2.shown_law(toy()[0]).node
    drawn = {axes.get_ylabel(): axes for axes in figure2.draw(lines, runs[0].runtimes, node).axes}
    for label, names, what in (
        ("gradients per second", (ORACLE, CUTOFF, SYNCHRONOUS), "throughput"),
        ("seconds per iteration", (CUTOFF, SYNCHRONOUS), "seconds"),
    ):
        curves = {curve.get_label(): curve for curve in drawn[label].get_lines()}
        for name in names:
            np.testing.assert_array_equal(curves[name].get_xdata(), np.arange(1, 91))
            np.testing.assert_array_equal(curves[name].get_ydata(), getattr(lines[name], what)[0])
    used, cut_off = (len(dots.get_offsets()) for dots in drawn["run-time, s"].collections)
    assert used == lines[CUTOFF].cutoff[0, 0]
    assert used + cut_off == WORKERS


def test_elfvings_formula_gives_the_papers_longest_run_time_and_idle_time():
    regimes = configurations.get_config("two_state").cluster.regimes
    longest = cutoff.elfving(158, mean=regimes.mean, std=regimes.std)[-1]
    rounding = 0.0005 * (1 + (longest - regimes.mean) / regimes.std)  # the paper's mean and std have three decimals
    assert longest == pytest.approx(figure2.PAPER_MAXIMUM, abs=rounding)
    assert longest - regimes.mean == pytest.approx(figure2.PAPER_IDLE, abs=rounding)


def test_a_trained_model_is_loaded_and_that_of_another_configuration_is_refused(tmp_path, monkeypatch):
    config, model = toy()
    config = config.copy_and_resolve_references()
    monkeypatch.setattr(models, "fit", lambda *args, **settings: model)
    models.kept(config, tmp_path / "toy")
    monkeypatch.setattr(models, "fit", lambda *args, **settings: pytest.fail("trained again"))
    again = models.kept(config, tmp_path / "toy")
    assert again.divisor == model.divisor
    jax.tree.map(np.testing.assert_array_equal, again.parameters, model.parameters)
    config.widths.state = 5
    with pytest.raises(UsageError, match=r"config\.widths\.state=4, not 5"):
        models.kept(config, tmp_path / "toy")


def test_errors_of_predicted_order_statistics():
    record = cutoff.CutoffRecord(
        cutoff=np.array([2, 1, 2]),
        mean=np.array([[np.nan, np.nan], [1.0, 2.0], [1.0, 3.0]]),
        std=np.array([[np.nan, np.nan], [0.1, 0.1], [0.3, 0.3]]),
        observed=np.array([[1.0, 9.0], [1.1, 4.0], [1.5, 2.0]]),
        warm_up=1,
    )
    row = figure3.row(2, "toy", record)
    assert row["within, %"] == 50.0  # 0.1 <= 0.2, 2 > 0.2, 0.5 <= 0.6, 1 > 0.6
    assert row["error, s"] == pytest.approx((0.1 + 2 + 0.5 + 1) / 4)
    assert row["error, %"] == pytest.approx(100 * (0.1 / 1.1 + 2 / 4 + 0.5 / 1.5 + 1 / 2) / 4)
    assert row["uncut: within, %"] == pytest.approx(100 * 2 / 3)
    assert row["uncut: error, s"] == pytest.approx((0.1 + 0.5 + 1) / 3)
    assert row["at the cutoff: error, %"] == pytest.approx(100 * (0.1 / 1.1 + 1 / 2) / 2)


def test_iterations_are_chosen_by_their_slow_nodes():
    slow = np.array([9, 0, 1, 2, 2, 7, 1, 1, 0])
    assert figure3.chosen(slow, first=2) == {5: "", 4: "", 6: " (-6)", 8: ""}
    assert figure3.chosen(slow, first=1)[1] == " (-9)"


def test_figure3(tmp_path, monkeypatch):
    monkeypatch.setattr(figure3, "SHOWN", {2: "slow", 63: "not"})
    rows = figure3.make(tmp_path, {"two_state": toy(), "large": toy()})
    assert [row["predictor"] for row in rows[:3]] == [figure3.UNCENSORED, figure3.CENSORED, figure3.INFORMED]
    assert rows[:3] == rows[3:]
    assert_written(tmp_path, "figure3", rows)


def experiment(tmp_path):
    config, model = toy()
    model.save(tmp_path / "model")
    return figure4.Experiment(config.cluster, str(tmp_path / "model"), LAG, updates=12)


@pytest.mark.parametrize("way", figure4.WAYS, ids=lambda way: way.title)
def test_every_update_of_a_method_has_the_same_rate(way, tmp_path):
    shared = experiment(tmp_path)
    made = plan.make_plan(figure4.configuration(figure4.Job(shared, way, 0.5, 0)))
    np.testing.assert_allclose(made.rates, 0.5 / WORKERS if way is figure4.WILD else 0.5)
    used = made.schedule.used()[:, 0]
    assert made.num_gradients == 12 * WORKERS
    assert 0 <= used.sum() - made.num_gradients < WORKERS
    again = plan.make_plan(made.config)  # the configuration that is stored in the run's records
    np.testing.assert_allclose(again.rates, made.rates)
    np.testing.assert_array_equal(again.schedule.applied, made.schedule.applied)


def records_of(*losses, seconds=1.0, diverged=False):
    """The records of a run with an evaluation after each multiple of `seconds`."""
    evaluations = [{"seconds": seconds * t, "gradients": t, "test_loss": loss} for t, loss in enumerate(losses)]
    return [{}, *evaluations, {"diverged": diverged, "seconds": seconds * (len(losses) - 1)}]


def test_the_final_loss_is_the_mean_of_the_last_evaluations():
    assert figure4.final_loss(records_of(*range(20))) == pytest.approx((18 + 19) / 2)
    assert figure4.final_loss(records_of(3.0, 2.0)) == 2.0
    assert figure4.final_loss(records_of(3.0, None)) is None
    assert figure4.mean_final_loss([records_of(3.0, 2.0), records_of(3.0, 4.0)]) == 3.0
    assert figure4.mean_final_loss([records_of(3.0, 2.0), records_of(2.0, 2.3, diverged=True)]) == math.inf


def test_differences_are_taken_seed_by_seed():
    fast = [records_of(1.0, 0.1 + 0.001 * seed, seconds=1 + seed) for seed in range(3)]
    slow = [records_of(1.0, 0.1 + 0.001 * seed, seconds=2 + 1.01 * seed) for seed in range(3)]
    runs = {figure4.CUTOFF: fast, figure4.SYNC: slow, figure4.ORDER: fast, figure4.WILD: fast[::-1]}
    later = figure4.behind(runs, figure4.SYNC, lambda records: records[-1]["seconds"])
    assert later.mean == pytest.approx(1.01)
    assert later.half < 0.1
    same = figure4.behind(runs, figure4.SYNC, figure4.final_loss)
    assert (same.mean, same.half) == (0, 0)
    reordered = figure4.behind(runs, figure4.WILD, figure4.final_loss)
    assert reordered.mean == pytest.approx(0)
    assert reordered.half > 0
    for loss in figure4.TARGETS:  # the first seed falls from 1 to 0.1 in 1 s, or in 2 s
        to_loss = functools.partial(figure4.seconds_to, loss=loss)
        part = [(1 - loss) / (0.9 - 0.001 * seed) for seed in range(3)]
        expected = np.mean([share * (1 + 0.01 * seed) for seed, share in enumerate(part)])
        assert figure4.behind(runs, figure4.SYNC, to_loss).mean == pytest.approx(expected)
        never = {**runs, figure4.ORDER: [records_of(1.0, 0.9)] * 3}
        assert figure4.behind(never, figure4.ORDER, to_loss) is None


def test_a_curve_is_interpolated_between_evaluations():
    np.testing.assert_allclose(
        figure4.curve(records_of(2.0, 1.0, None), "seconds", np.array([0.0, 0.25, 1.0])), [2, 1.75, 1]
    )


def test_figure4_continues(tmp_path, monkeypatch):
    monkeypatch.setattr(figure4, "CHANNELS", (2, 2))
    monkeypatch.setattr(figure4, "LOOKS", 4)
    shared = experiment(tmp_path)
    rows = figure4.make(tmp_path / "runs", shared, rates=[0.05, 0.2], seeds=2, processes=1)
    assert [row["method"] for row in rows] == ["cutoff", "sync", "order", "wild"]
    assert rows[1]["updates"] == 12
    assert rows[1]["rate of an update"] in ("0.05", "0.2")
    assert float(rows[3]["rate of an update"]) == pytest.approx(float(rows[1]["rate of an update"]) / WORKERS)
    assert_written(tmp_path / "runs", "figure4", rows)
    monkeypatch.setattr(figure4, "trained", lambda job: pytest.fail(f"{job.name} trained again"))
    assert figure4.make(tmp_path / "runs", shared, rates=[0.05, 0.2], seeds=2, processes=1) == rows
    with pytest.raises(UsageError, match=r"config\.updates=12, not 13"):
        figure4.make(tmp_path / "runs", dataclasses.replace(shared, updates=13), rates=[0.2], seeds=1)


@pytest.mark.parametrize(
    ("module", "given", "flag"),
    [
        (figure2, {"iterations": 199, "runs": 1}, "--iterations=199"),
        (figure2, {"iterations": 200, "runs": 0}, "--runs=0"),
        (figure3, {"clusters": ["two_state", "memory"]}, "--clusters=two_state,memory"),
        (figure3, {"clusters": []}, "--clusters="),
        (figure4, {"rates": ["0.1", "fast"], "updates": 300, "seeds": 3}, "--rates=0.1,fast"),
        (figure4, {"rates": ["0.1"], "updates": 20, "seeds": 3}, "--updates=20"),
        (figure4, {"rates": ["0.1"], "updates": 300, "seeds": 0}, "--seeds=0"),
    ],
)
def test_impossible_flags_are_refused(module, given, flag, monkeypatch, capsys):
    monkeypatch.setattr(module.flags, "FLAGS", types.SimpleNamespace(**given))
    with pytest.raises(SystemExit) as ended:
        launch._guarded(module.main, [module.__name__])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {flag} must be ")


def test_a_mistake_on_the_command_line_is_one_line(tmp_path):
    answer = subprocess.run(
        [sys.executable, "-m", "experiments.cutoff.figure3", "--clusters=small", f"--workdir={tmp_path / 'runs'}"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: --clusters=small must be ")
    assert answer.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()
