"""The time to the target with its least time, and the certificates of the runs: numbers, picture, page and CSV."""

import csv
import io
import math
import re

import made_up
import pytest

from sgdlab.results import certificates, floor, plots, publish, report, summary, table, target

CERTIFIED = {
    "tree_distance": 7, "staleness": 2.5, "largest_staleness": 9, "in_flight": 4.25, "most_in_flight": 8,
    "effective_workers": 5.5, "least_share": 0.25,
}  # fmt: skip


def single(seed=0, method="nag_asgd", **entries):
    numbers = {"epochs_to_target": 5.0, "epochs": 20.0, "steps": 800, "test_accuracy": 0.97} | entries
    return made_up.run(method, 1, seed, serial=True, summary=numbers)


def several(method="dana", num_workers=8, seed=0, **entries):
    numbers = {"capacity": 4.0, "seconds_to_target": 80.0, "test_accuracy": 0.96, **CERTIFIED} | entries
    return made_up.run(method, num_workers, seed, summary=numbers)


def grouped(*runs):
    return summary.groups(runs)


class TestLeastTime:
    def test_is_the_single_workers_gradients_over_the_pace_of_all(self):
        # 5 of 20 epochs of 800 gradients are 200; all workers compute 4 a second.
        assert floor.seconds(grouped(single(), several())) == {("nag_asgd", 8): 50.0}

    def test_of_several_seeds_it_is_a_mean(self):
        runs = [single(0), single(1, epochs_to_target=15.0), several(), several(seed=1, capacity=8.0)]
        expected = (400 / 4 + 400 / 8) / 2
        assert floor.seconds(grouped(*runs))["nag_asgd", 8] == pytest.approx(expected, rel=1e-15)

    @pytest.mark.parametrize("entries", [{"epochs_to_target": None}, {"epochs": None}, {"steps": 0}])
    def test_is_unknown_where_a_single_worker_does_not_arrive(self, entries):
        assert floor.seconds(grouped(single(**entries), several())) == {}

    def test_is_unknown_of_runs_that_do_not_say_how_fast_the_workers_are(self):
        assert floor.seconds(grouped(single(), several(capacity=None))) == {}
        old = several()
        del old[-1]["capacity"]
        assert floor.seconds(grouped(single(), old)) == {}

    def test_a_note_below_the_table_says_it(self):
        found = table.notes(grouped(single(), several()))
        assert any(
            re.search(r"8 workers would compute as many gradients as .* 95 % test accuracy in 50 s", n) for n in found
        )
        assert not any("If they never waited" in note for note in table.notes(grouped(several())))


class TestPicture:
    def drawn(self, *runs):
        return target.seconds_to_target(grouped(*runs))

    def test_methods_and_the_least_time_against_the_number_of_workers(self):
        runs = [single()]
        for count, seconds, capacity in ((4, 120.0, 2.0), (16, 40.0, 8.0)):
            runs += [several(num_workers=count, seconds_to_target=seconds, capacity=capacity)]
        (axes,) = self.drawn(*runs).axes
        lines = {line.get_label(): line for line in axes.lines}
        assert lines["DANA"].get_ydata().tolist() == [120.0, 40.0]
        assert list(lines[target.FLOOR].get_xdata()) == [4, 16]
        assert list(lines[target.FLOOR].get_ydata()) == [100.0, 25.0]

    def test_a_cross_at_the_top_where_some_seed_does_not_reach_it(self):
        runs = [several(), several(seed=1, seconds_to_target=None), several("gap_aware"), several("gap_aware", seed=1)]
        figure = self.drawn(*runs)
        (axes,) = figure.axes
        crosses = [line for line in axes.lines if line.get_marker() == "x"]
        assert [line.get_ydata() for line in crosses] == [[0.98]]
        assert math.isnan(next(line for line in axes.lines if line.get_label() == "DANA").get_ydata()[0])
        assert "not reached by every run" in figure.get_suptitle()

    def test_its_title_is_not_cut_off(self):
        seeds = [several(num_workers=count, seed=seed) for count in (8, 16) for seed in (0, 1)]
        seeds[-1][-1]["seconds_to_target"] = None
        figure = self.drawn(single(), *seeds, several("gap_aware"))
        figure.draw_without_rendering()
        box = figure.texts[0].get_window_extent()
        assert figure.get_suptitle().count("\n") == 2
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width

    def test_each_single_worker_has_a_line_of_its_own(self):
        runs = [single(), single(method="adam", epochs_to_target=10.0), several(), several("adam")]
        labels = [line.get_label() for line in self.drawn(*runs).axes[0].lines]
        assert f"{target.FLOOR}, NAG-ASGD" in labels
        assert f"{target.FLOOR}, Adam" in labels

    def test_there_is_none_where_no_method_reaches_the_target(self):
        assert self.drawn(single(), several(seconds_to_target=None)) is None
        assert self.drawn(single(), made_up.run("dana", 8, target=None)) is None

    @pytest.mark.filterwarnings("error")
    def test_of_many_methods_it_has_a_panel_for_each_family(self, tmp_path):
        runs = made_up.comparison(counts=(4, 8), seeds=1)
        for records in runs:
            records[-1] |= {"epochs": 20.0, "steps": 880, "capacity": 0.03 * records[0]["num_workers"]}
            records[-1] |= {"epochs_to_target": 18.0, "seconds_to_target": 1e4}
        figure = target.seconds_to_target(summary.groups(runs))
        assert len(figure.axes) == 7
        plots.save(figure, tmp_path / "target")


class TestCertificates:
    def test_a_row_is_a_mean_over_seeds_or_the_largest(self):
        runs = [single(), several(), several(seed=1, tree_distance=5, largest_staleness=11, effective_workers=6.5)]
        (row,) = certificates.table(grouped(*runs)).rows
        assert row == ["DANA", "8", "7", "2.5", "11", "4.2", "8", "6.0", "0.25"]
        assert len(certificates.COLUMNS) == len(row)

    def test_without_a_server_there_is_no_distance(self):
        (row,) = certificates.table(grouped(several(tree_distance=None, staleness=None, largest_staleness=None))).rows
        assert row[2:5] == ["-", "-", "-"]

    def test_in_full_precision(self):
        (row,) = csv.DictReader(io.StringIO(certificates.comma_separated(grouped(several(in_flight=1 / 3)))))
        assert (row["method"], float(row["in_flight"]), row["tree_distance"]) == ("dana", 1 / 3, "7")

    def test_the_page_has_them_folded_and_old_runs_have_none(self):
        page = report.page(grouped(single(), several()), {})
        assert 'class="certificates"' in page
        assert "computation tree" in page
        assert 'class="certificates"' not in report.page(grouped(made_up.run("dana", 8)), {})
        assert certificates.table(grouped(made_up.run("dana", 8))).rows == []

    def test_published(self, tmp_path):
        runs = made_up.comparison(("dana",), counts=(4, 8), seeds=1)
        for records in runs:
            records[-1] |= {"epochs": 20.0, "steps": 880, "capacity": 0.25, **CERTIFIED}
        publish.publish(tmp_path, summary.groups(runs), {})
        assert (tmp_path / "certificates.csv").read_text().count("\n") == 3
        assert (tmp_path / "plots/target.svg").is_file()
        assert "Tyurin and Richtarik" in (tmp_path / "report.html").read_text()
