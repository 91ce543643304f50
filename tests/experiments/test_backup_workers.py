"""The table and figures of Chen et al. 2016 at toy size: the files that they write, and their numbers."""

import csv
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats

from experiments.backup_workers import figure2, figures3_4, figures5_6, gathering, options, table1, trained
from sgdlab.errors import UsageError
from sgdlab.jobs.compare import Cell

ROOT = pathlib.Path(__file__).parents[2]


def written(path, name):
    """The rows of a table, parsed from its CSV file; its other files must not be empty."""
    for kind in ("md", "png", "svg"):
        assert (path / f"{name}.{kind}").stat().st_size > 0
    with (path / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def assert_written(path, name, rows):
    assert written(path, name) == [{key: str(value) for key, value in row.items()} for row in rows]


@pytest.mark.parametrize(("workers", "layers"), [(40, 19), (12, 5)])
def test_mean_staleness_of_a_layer_is_the_share_of_the_others_that_its_parameters_are_held(workers, layers):
    found = table1.staleness(workers, layers, 4000, seed=0)
    expected = table1.expected(workers, layers)
    assert found.shape == (4000, layers)
    assert expected[0] == workers - 1
    np.testing.assert_allclose(found.mean(axis=0), expected, atol=0.02 * workers)


def test_other_readings_of_table1():
    workers, layers = 12, 4
    forward = table1.staleness(workers, layers, 4000, seed=0, reads="forward").mean(axis=0)
    np.testing.assert_allclose(forward, (workers - 1) * (1 - np.arange(layers) / layers), atol=0.02 * workers)
    clipped = table1.staleness(workers, layers, 4000, seed=0, pushes="end").mean(axis=0)
    np.testing.assert_allclose(clipped, workers - 1, atol=0.02 * workers)


def test_table1_has_two_rows_for_each_layer_of_the_paper(tmp_path):
    workers, layers, gradients = 4, 19, 50
    rows = table1.make(tmp_path, num_workers=workers, num_layers=layers, num_gradients=gradients, seed=1)
    assert_written(tmp_path, "table1", rows)
    for simulated, paper in zip(rows[::2], rows[1::2], strict=True):
        assert (simulated["from"], paper["from"]) == ("ours", "paper")
        assert simulated["layer"] == paper["layer"]
        assert simulated["count"] == gradients
        assert simulated["min"] <= simulated["median"] <= simulated["max"]
        assert simulated["formula"] == pytest.approx((workers - 1) * (1 - 2 / 3 * simulated["layer"] / layers))
        assert paper["min"] <= paper["median"] <= paper["max"]


def test_the_formula_reproduces_the_papers_bottom_and_top_layer():
    means = table1.expected(40, 19)
    for layer in (0, 18):
        assert means[layer] == pytest.approx(table1.PAPER[layer]["mean"], abs=0.005 * 40)


def test_figures3_4(tmp_path):
    rows = figures3_4.make(tmp_path, num_iterations=50, seed=0)
    assert_written(tmp_path, "figures3_4", rows)
    for column in ("median, s", "mean, s", "longest, s"):
        assert (np.diff([row[column] for row in rows]) >= 0).all()
    assert (np.diff([row["under 2 s, %"] for row in rows]) <= 0).all()


@pytest.mark.parametrize(("k", "share"), [(98, 0.8), (100, 0.3)])
def test_lateness_is_the_inverse_of_under(k, share):
    assert figures3_4.under(k, figures3_4.lateness(k, share)) == pytest.approx(share)


def test_the_default_cluster_lies_between_the_papers_two_shares():
    times = gathering.collected(4000, seed=1)
    late = (times >= figures3_4.LIMIT).mean()
    assert figures3_4.lateness(100, 0.3) < late < figures3_4.lateness(98, 0.8)
    for k in (98, 100):
        share = figures3_4.under(k, late)
        error = scipy.stats.binom.std(len(times), share) / len(times)
        assert (times[:, k - 1] < figures3_4.LIMIT).mean() == pytest.approx(share, abs=4 * error)


def test_the_longest_gradient_is_longer_than_its_median_in_half_of_the_draws():
    seconds = 50.0
    count = round(figures3_4.iterations_until(seconds))
    longest = [gathering.collected(count, seed)[:, -1].max() for seed in range(200)]
    assert np.mean(np.greater(longest, seconds)) == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(200))


def test_figure2_counts_lost_runs_and_continues(tmp_path):
    given = {"staleness": [0, 5], "rates": [0.05, 50.0], "seeds": 1, "epochs": 0.5}
    rows = figure2.make(tmp_path, **given)
    assert_written(tmp_path, "figure2", rows)
    assert [(row["ramp, epochs"], row["staleness"]) for row in rows] == [(0.0, 0), (0.0, 5), (3.0, 0), (3.0, 5)]
    for row in rows:
        assert row["rate 50: lost"] == 1
        assert row["rate 50: average"] == ""
        assert row["best rate"] == 0.05
    stored = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("metrics/*")}
    assert len(stored) == len(given["rates"]) * len(figure2.RAMPS) * len(given["staleness"])
    assert figure2.make(tmp_path, **given) == rows
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("metrics/*")} == stored


def test_simulated_staleness_is_that_of_one_worker_less(tmp_path):
    (records,) = trained.finished(figure2.config(0.0, 0.05, 1.0), [Cell("simulated_staleness", 4, 0)], tmp_path / "a")
    gradients = records[-1]["gradients"]
    assert records[-1]["staleness"] == pytest.approx(3 - (3 + 2 + 1) / gradients)


def test_best_rate_loses_fewest_then_errs_least():
    points = {
        (0.0, 0.1, 5): figure2.Point((1.0,), (1.0,), lost=1),
        (0.0, 0.2, 5): figure2.Point((3.0, 4.0), (3.0, 4.0), lost=0),
        (0.0, 0.3, 5): figure2.Point((2.0, 3.0), (2.0, 3.0), lost=0),
    }
    assert figure2.best_rate(points, 0.0, 5, [0.1, 0.2, 0.3]) == 0.3


def test_figures5_6(tmp_path):
    rows = figures5_6.make(tmp_path, gradients=[4, 8], rates=[0.01], seeds=2, epochs=1.0, target=0.2, num_iterations=20)
    assert_written(tmp_path, "figures5_6", rows)
    assert {row["N"] for row in rows} == {4, 8}
    for row in rows:
        assert row["b"] == gathering.MACHINES - row["N"]
        assert row["r = 0.01: time, s"] == pytest.approx(row["r = 0.01: updates"] * row["s per update"])


def test_a_target_that_is_never_reached_leaves_blanks(tmp_path):
    rows = figures5_6.make(
        tmp_path, gradients=[90, 100], rates=[1e-6], seeds=1, epochs=1.0, target=1.0, num_iterations=20
    )
    for row in written(tmp_path, "figures5_6"):
        assert row["r = 1e-06: updates"] == row["r = 1e-06: time, s"] == ""
        assert float(row["time, h"]) > 0
    assert [row["N"] for row in rows] == list(range(90, 101))


def test_papers_iterations_go_through_the_two_that_are_printed():
    counts = np.array(list(figures5_6.PAPER_ITERATIONS))
    found = figures5_6.paper_iterations(counts)
    np.testing.assert_allclose(found, list(figures5_6.PAPER_ITERATIONS.values()))
    at_50, at_100, serial = figures5_6.paper_iterations(np.array([50, 100, np.inf]))
    assert at_100 - serial == pytest.approx(at_50 - at_100)  # b / 100 = b / 50 - b / 100


def test_fastest_and_how_flat_it_is():
    counts = np.array([1, 2, 3, 4])
    seconds = np.array([2.0, 1.0 + figures5_6.CLOSE / 2, 1.0, 1.5])
    assert figures5_6.fastest(counts, seconds) == (3, 2, 3)


def test_resampling_seeds_that_agree_moves_nothing():
    counts, seconds = np.arange(10, 21), np.ones(11)
    updates = {10: [20, 20], 20: [10, 10]}
    assert figures5_6.resampled(counts, seconds, updates, times=10) == (20, 20)


def test_updates_to_the_target_are_those_of_the_first_evaluation_that_reaches_it():
    accuracies = ((0, 0.1), (3, 0.6), (5, 0.5))
    evaluations = [{"kind": "evaluation", "updates": u, "test_accuracy": a} for u, a in accuracies]
    records = [{"kind": "run"}, *evaluations, {"kind": "summary", "test_accuracy": 1.0}]
    assert figures5_6.updates_to(0.5, records) == 3
    assert figures5_6.updates_to(0.9, records) is None


@pytest.mark.parametrize(
    ("check", "flag"),
    [
        (lambda: options.whole("seeds", 0), "--seeds=0"),
        (lambda: options.wholes("gradients", ["50", "x"]), "--gradients=50,x"),
        (lambda: options.wholes("gradients", []), "--gradients="),
        (lambda: options.positive("target", 1.5, most=1.0), "--target=1.5"),
        (lambda: options.positive("epochs", float("nan")), "--epochs=nan"),
        (lambda: options.rates("rates", ["0.1", "-1"]), "--rates=0.1,-1"),
        (lambda: options.rates("rates", ["fast"]), "--rates=fast"),
    ],
)
def test_mistakes_name_the_flag_and_its_value(check, flag):
    with pytest.raises(UsageError) as error:
        check()
    assert str(error.value).startswith(f"{flag} must be ")


def test_runs_of_other_flags_are_refused(tmp_path):
    cells = [Cell("synchronous", 2, 0)]
    trained.finished(figures5_6.config(0.01, 0.1, 2), cells, tmp_path / "runs")
    with pytest.raises(UsageError, match=r"config\.epochs=0\.1, not 0\.2; name another --workdir$"):
        trained.finished(figures5_6.config(0.01, 0.2, 2), cells, tmp_path / "runs")


def test_as_a_command(tmp_path):
    def call(*args):
        command = [sys.executable, "-m", "experiments.backup_workers.table1", *args]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    helped = call("--help")
    assert helped.returncode == 0, helped.stderr
    for flag in ("workdir", "workers", "layers", "gradients", "seed"):
        assert f"\n  --{flag}: " in helped.stdout
    mistaken = call("--workers=0", f"--workdir={tmp_path / 'none'}")
    assert mistaken.returncode == 2
    assert mistaken.stderr.startswith("error: --workers=0 must be ")
    assert mistaken.stderr.count("\n") == 1
    assert not (tmp_path / "none").exists()
