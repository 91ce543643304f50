"""Run directories, tables and the report, from records made by hand."""

import csv
import io
import json
import math

import pytest

from sgdlab.results import report, table
from sgdlab.results.directory import OtherConfiguration, RunDirectory
from sgdlab.results.summary import Group, Spread, spread

CONFIG = {"epochs": 2, "cluster": {"heterogeneous": True}, "widths": (1, 2)}


def summary(**changes):
    base = dict.fromkeys(table.CSV_FIELDS, 0.5) | {"diverged": False, "kind": "summary", "epochs": 2.0}
    return base | changes


def group(*summaries, title="Gap-Aware", workers=4):
    return Group("gap_aware", title, workers, False, tuple([{"kind": "run"}, s] for s in summaries))


def test_a_directory_remembers_finished_runs(tmp_path):
    directory = RunDirectory(tmp_path / "runs", CONFIG)
    assert directory.read("one") is None
    directory.write("one", [{"kind": "run"}, {"kind": "summary", "loss": math.nan}])
    again = RunDirectory(tmp_path / "runs", CONFIG)
    assert again.read("one") == [{"kind": "run"}, {"kind": "summary", "loss": None}]
    lines = (tmp_path / "runs/metrics/one.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["run", "summary"]


@pytest.mark.parametrize("text", ["", '{"kind": "run"}\n', '{"kind": "run"}\n{"kind": "summ'])
def test_a_half_written_file_does_not_count(tmp_path, text):
    directory = RunDirectory(tmp_path, CONFIG)
    directory.metrics_path("one").parent.mkdir()
    directory.metrics_path("one").write_text(text)
    assert directory.read("one") is None


def test_another_configuration_is_refused_by_its_first_difference(tmp_path):
    RunDirectory(tmp_path, CONFIG)
    before = (tmp_path / "config.json").read_text()
    other = CONFIG | {"cluster": {"heterogeneous": False}}
    with pytest.raises(OtherConfiguration, match=r"config\.cluster\.heterogeneous=True, not False"):
        RunDirectory(tmp_path, other)
    assert (tmp_path / "config.json").read_text() == before


def test_foreign_directories_and_files_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(OtherConfiguration, match=r"holds files but no config\.json"):
        RunDirectory(tmp_path, CONFIG)
    with pytest.raises(OtherConfiguration, match="is a file"):
        RunDirectory(tmp_path / "thesis.tex", CONFIG)


def test_spread_is_the_mean_and_sample_deviation():
    assert spread([1.0, 2.0, 3.0]) == Spread(2.0, 1.0)
    assert spread([4.0]) == Spread(4.0, 0.0)
    assert spread([1.0, None]) is None


def test_the_table_says_mean_and_deviation_diverged_and_never():
    fine = group(summary(test_accuracy=0.9), summary(test_accuracy=0.92))
    cells = dict(zip(table.COLUMNS, table.rows([fine])[0], strict=True))
    assert cells["test %"] == f"{100 * 0.91:.1f} ± {100 * 0.02 / math.sqrt(2):.1f}"
    lost = group(summary(diverged=True, seconds_to_target=None), summary(seconds_to_target=None))
    cells = dict(zip(table.COLUMNS, table.rows([lost])[0], strict=True))
    assert cells["test %"] == "diverged (1 of 2)"
    assert cells["target at s"] == "never"
    late = group(summary(seconds_to_target=None), summary())
    assert dict(zip(table.COLUMNS, table.rows([late])[0], strict=True))["target at s"] == "1 of 2"


def test_csv_holds_every_number():
    text = table.comma_separated([group(summary(gap=1.0), summary(gap=3.0)), group(summary(gap=None), workers=8)])
    first, second = csv.DictReader(io.StringIO(text))
    assert float(first["gap_mean"]) == 2.0
    assert float(first["gap_std"]) == pytest.approx(math.sqrt(2))
    assert second["gap_mean"] == ""
    assert second["num_workers"] == "8"


def test_the_reading_is_made_from_the_numbers():
    config = {"target_accuracy": 0.9}
    better = group(summary(test_accuracy=0.95, seconds_to_target=7.0, gap=2.0, staleness=31.0), title="Better")
    worse = Group("asgd", "Worse", 4, False, better.runs)
    lost = Group("dana", "Lost", 4, False, ([{}, summary(diverged=True)],))
    text = " ".join(report.reading([better, worse, lost], config))
    assert "Better (95.0 ± 0.0 %)" in text
    assert "Diverged: Lost at 4 (1 of 1 seeds)." in text
    assert "after 7 s" in text
    assert "mean delay is 32.0 updates, but the mean gap only 2.0 under Better" in text
