"""Swept entries: every value in the table, the best of each method elsewhere, and lines through what was trained."""

import csv
import io

import matplotlib.pyplot as plt
import numpy as np
import pytest
from made_up import run

from sgdlab.results import publish, summary
from sgdlab.results.swept import Swept

RATES = [0.01, 0.1]
ACCURACY = {("asgd", 4): [0.7, 0.9], ("asgd", 8): [0.8, 0.6], ("nag_asgd", 1): [0.95, 0.97]}


def trained(method, workers, value, seed, accuracy, **summary_):
    """A run with a value of the learning rate; None: of a method that does not use it."""
    entries = {"test_accuracy": accuracy} | summary_
    records = run(method, workers, seed, serial=workers == 1, summary=entries, curve=[(0.0, {}), (20.0, {})])
    records[0]["config"] |= {"optimizer": {} if value is None else {"learning_rate": value}}
    return records


@pytest.fixture(name="swept")
def comparison_over_rates():
    runs = [
        trained(method, workers, rate, seed, accuracy + 0.01 * seed, test_loss=1 - accuracy)
        for (method, workers), found in ACCURACY.items()
        for rate, accuracy in zip(RATES, found, strict=True)
        for seed in (0, 1)
    ]
    runs += [trained("synchronous", workers, None, seed, 0.5) for workers in (4, 8) for seed in (0, 1)]
    return Swept(summary.groups(runs), {"optimizer.learning_rate": RATES})


def test_every_value_has_a_row_and_the_best_a_mark(swept):
    assert list(swept.table().columns) == [
        "method",
        "workers",
        "learning rate",
        "test accuracy, %",
        "test loss",
        "diverged",
    ]
    rows = {(row[0], row[1], row[2]): row[3] for row in swept.table().rows}
    assert rows["ASGD", "4", "0.01"] == "70.5 ± 0.7"
    assert rows["ASGD", "4", "0.1"] == "90.5 ± 0.7 *"
    assert rows["ASGD", "8", "0.01"] == "80.5 ± 0.7 *"
    assert rows["Synchronous SGD", "4", "-"] == "50.0 ± 0.0 *"
    assert len(rows) == 8
    assert "the learning rate of its best test accuracy" in " ".join(swept.table().text().split())


def test_numbers_are_whole_in_the_csv(swept):
    rows = list(csv.DictReader(io.StringIO(swept.comma_separated())))
    found = {(row["method"], row["num_workers"], row["optimizer.learning_rate"]): row for row in rows}
    assert float(found["asgd", "4", "0.1"]["test_accuracy_mean"]) == pytest.approx(0.905)
    assert found["synchronous", "8", ""]["seeds"] == "2"
    assert found["nag_asgd", "1", "0.01"]["serial"] == "1"


def test_a_value_at_which_runs_diverged_is_not_the_best():
    runs = [
        trained("asgd", 4, rate, 0, accuracy, diverged=accuracy > 0.8)
        for rate, accuracy in zip(RATES, (0.7, 0.9), strict=True)
    ]
    (best,) = Swept(summary.groups(runs), {"optimizer.learning_rate": RATES}).best()
    assert best.configs[0]["optimizer"]["learning_rate"] == 0.01


def test_lines_go_through_the_means_of_what_was_trained(swept):
    figure = swept.figure("optimizer.learning_rate")
    scores, losses = figure.axes[:2]
    assert [axes.get_title() for axes in figure.axes] == ["4 workers", "", "8 workers", ""]
    lines = {container.get_label(): container for container in scores.containers}
    assert set(lines) == {"ASGD", "Synchronous SGD", "Single worker (NAG-ASGD)"}
    x, y = lines["ASGD"].lines[0].get_data()
    assert list(x) == RATES
    np.testing.assert_allclose(y, [70.5, 90.5])
    assert list(lines["Synchronous SGD"].lines[0].get_ydata()) == [50.0, 50.0]  # it does not use the entry
    assert lines["Synchronous SGD"].lines[0].get_marker() == ""
    assert lines["Single worker (NAG-ASGD)"].lines[0].get_linestyle() == "--"
    of_loss = {container.get_label(): container.lines[0].get_ydata() for container in losses.containers}
    np.testing.assert_allclose(of_loss["ASGD"], [0.3, 0.1])
    assert [axes.get_xscale() for axes in figure.axes] == ["log"] * 4
    plt.close("all")


def test_each_line_of_any_panel_is_in_the_legend_and_told_from_the_others():
    runs = [trained("asgd", workers, rate, 0, 0.5 + rate) for workers in (2, 4) for rate in RATES]
    runs += [trained("adam", 4, rate, 0, 0.6 + rate) for rate in RATES]  # in the second panel alone
    for method in ("nag_asgd", "adam"):
        runs += [trained(method, 1, rate, 0, 0.7 + rate) for rate in RATES]
    figure = Swept(summary.groups(runs), {"optimizer.learning_rate": RATES}).figure("optimizer.learning_rate")
    [legend] = figure.legends
    alone = ["Single worker (NAG-ASGD)", "Single worker (Adam)"]
    assert sorted(text.get_text() for text in legend.get_texts()) == sorted(["ASGD", "Adam", *alone])
    drawn = {line.get_label(): line.lines[0] for line in figure.axes[2].containers}
    assert len({drawn[title].get_linestyle() for title in alone}) == 2
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        line = handle.lines[0] if hasattr(handle, "lines") else handle
        assert line.get_linestyle() == drawn[text.get_text()].get_linestyle()
    plt.close("all")


def test_values_of_other_entries_and_words_have_panels_and_places():
    over = {"optimizer.learning_rate": RATES, "network.kind": ["mlp", "conv"]}
    runs = []
    for kind in over["network.kind"]:
        for rate in RATES:
            records = trained("asgd", 4, rate, 0, 0.5 + (kind == "conv") / 4 + rate)
            records[0]["config"] |= {"network": {"kind": kind}}
            runs.append(records)
    swept = Swept(summary.groups(runs), over)
    by_rate, by_kind = swept.figure("optimizer.learning_rate"), swept.figure("network.kind")
    assert [axes.get_title() for axes in by_rate.axes[::2]] == ["4 workers, network mlp", "4 workers, network conv"]
    line = by_kind.axes[2].containers[0].lines[0]
    assert (list(line.get_xdata()), line.get_ydata().tolist()) == ([0.0, 1.0], pytest.approx([60.0, 85.0]))
    assert [text.get_text() for text in by_kind.axes[2].get_xticklabels()] == ["mlp", "conv"]
    # One seed has no interval.
    assert by_kind.axes[2].containers[0].lines[1] == ()


def test_the_report_has_the_table_the_pictures_and_the_best(swept, tmp_path):
    page = publish.publish(tmp_path, swept.groups, {}, swept.over).read_text()
    for name in ("sweep.csv", "plots/sweep_optimizer_learning_rate.png", "plots/sweep_optimizer_learning_rate.svg"):
        assert (tmp_path / name).stat().st_size > 0
    assert page.index('<h2 id="swept">By optimizer.learning_rate</h2>') < page.index('<h2 id="table">')
    assert "<td>90.5 ± 0.7 *</td>" in page
    assert (tmp_path / "table.md").read_text().count("| ASGD") == 2  # the best at 4 and at 8 workers
