"""Runs that are judged by the perplexity, or by bits per dimension: their words, numbers and direction everywhere."""

import re

import made_up
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sgdlab.commands import train
from sgdlab.report import table as report_table
from sgdlab.results import answer, metric_axis, plots, report, summary, table
from sgdlab.results.metric import ACCURACY, Metric
from sgdlab.results.publish import publish

PERPLEXITY = Metric.of({"metric": "perplexity", "higher_is_better": False})
BITS = Metric.of({"metric": "bits_per_dimension", "higher_is_better": False})
OWN = Metric.of({"metric": "exact_match", "higher_is_better": True})


def ended(value, method="gap_aware", seconds=None, *, target=None, num_workers=32, **entries):
    """A run of which the test perplexity ended at a value."""
    (records,) = made_up.judged_by([made_up.run(method, num_workers, **entries)], "perplexity", float, target=target)
    records[-1] |= {"test_perplexity": value, "train_perplexity": value, "seconds_to_target": seconds, "dropped": 0}
    return records


def single(value=20.0, **entries):
    return ended(value, "nag_asgd", num_workers=1, serial=True, **entries)


def comparison(**changed):
    runs = made_up.comparison(["gap_aware", "nag_asgd", "adam"], counts=(32,))
    return made_up.judged_by(runs, "perplexity", made_up.perplexity, **changed)


def sentences(*runs):
    return answer.sentences(summary.groups(runs))


class TestMetric:
    def test_records_that_name_none_are_of_the_accuracy(self):
        assert Metric.of({"kind": "run"}) == Metric.of({"metric": "accuracy", "higher_is_better": True}) == ACCURACY
        assert ACCURACY.test == "test_accuracy"
        assert ACCURACY.text(0.9641) == f"{96.41:.1f} %"

    @pytest.mark.parametrize(
        ("metric", "value", "text"),
        [
            (PERPLEXITY, 24.2512, "24.25"),
            (PERPLEXITY, 512.34, "512.3"),
            (PERPLEXITY, 1644.76, "1,645"),
            (PERPLEXITY, 3.2e9, "3.2e+09"),
            (PERPLEXITY, float("inf"), "inf"),
            (BITS, 2.92149, "2.921"),
            (OWN, 0.5, "0.500"),
        ],
    )
    def test_numbers_are_to_about_four_digits(self, metric, value, text):
        assert metric.text(value) == text

    def test_a_deviation_has_the_digits_of_its_mean(self):
        assert PERPLEXITY.number(1644.76, 3.21) == "1,645 ± 3"
        assert PERPLEXITY.number(24.25, 123.4) == "24.25 ± 123.40"

    def test_differences_are_relative_unless_of_shares(self):
        assert PERPLEXITY.difference(22.0, 20.0) == pytest.approx(100 * (22 - 20) / 20)
        assert ACCURACY.difference(0.22, 0.20) == pytest.approx(100 * (0.22 - 0.20))
        assert BITS.difference(0.0, 0.0) == 0
        assert BITS.difference(1.0, 0.0) == float("inf")

    def test_metrics_of_ones_own_are_named_by_their_name(self):
        assert OWN.title == "test exact match"
        assert OWN.reach(0.5) == "a test exact match of 0.5"
        assert OWN.best == "highest"

    def test_several_in_one_comparison_are_refused(self):
        with pytest.raises(ValueError, match=r"groups: .*'accuracy', 'perplexity'"):
            summary.metric_of(summary.groups([made_up.run("dana"), ended(20.0)]))


class TestAxis:
    @pytest.mark.parametrize("metric", [PERPLEXITY, BITS, OWN])
    @pytest.mark.parametrize("values", [(24.0,), (24.0, 24.1), (24.0, 60.0), (2.9, 7.5), (20.0, 1600.0), (0.0,), ()])
    def test_it_shows_every_value_and_better_is_higher_up(self, metric, values):
        foot, top = metric_axis.limits(metric, [*values, float("nan")])
        axes = Figure(figsize=(6, 4)).add_subplot()
        metric_axis.set_scale(axes, metric, foot, top)
        heights = [float(axes.transAxes.inverted().transform(axes.transData.transform((0.5, v)))[1]) for v in values]
        assert all(0 < height < 1 for height in heights)
        assert heights == sorted(heights, reverse=not metric.higher_is_better)
        ticks = axes.get_yticks().tolist()
        assert 3 <= len(ticks) <= 10
        assert all(min(foot, top) < tick < max(foot, top) for tick in ticks)

    def test_equal_ratios_of_perplexities_are_equally_far_apart(self):
        axes = Figure().add_subplot()
        metric_axis.set_scale(axes, PERPLEXITY, *metric_axis.limits(PERPLEXITY, [20.0, 80.0]))
        low, middle, high = (float(axes.transData.transform((0.5, v))[1]) for v in (80.0, 40.0, 20.0))
        assert middle - low == pytest.approx(high - middle)


class TestTable:
    def test_headings_numbers_and_definitions_are_of_the_perplexity(self):
        runs = [ended(24.0, seed=0, target=26.0, seconds=70.0), ended(26.0, seed=1, target=26.0, seconds=90.0)]
        groups = summary.groups(runs)
        made = table.table(groups)
        row = dict(zip(made.columns, made.rows[0], strict=True))
        assert row["test perplexity"] == f"25.00 ± {np.std([24, 26], ddof=1):.2f}"
        assert row["test perplexity"].value == 25.0
        assert row["seconds to perplexity 26"].value == 80.0
        assert "lower is better" in made.columns["test perplexity"]
        assert "a test perplexity of 26" in made.columns["seconds to perplexity 26"]

    def test_without_a_target_there_is_no_column_of_it(self):
        groups = summary.groups([single(), ended(24.0)])
        for written in (table.text(groups), table.table(groups).markdown()):
            assert "seconds to" not in written
            assert "epochs to" not in written
            assert "None" not in written

    @pytest.mark.parametrize(("target", "lost"), [(26.0, 9.9e15), (None, 4000.0), (2600.0, None)])
    def test_the_terminals_is_not_too_wide(self, target, lost):
        title = "A method with a title that is rather long"
        runs = [ended(v, title=title, seed=s, target=target, seconds=1e6 + s) for s, v in enumerate((lost, 51234.0))]
        runs[0][-1] |= {"diverged": True, "speedup": 123.4}
        assert max(map(len, table.text(summary.groups(runs)).splitlines())) <= report_table.WIDTH


class TestAnswer:
    @pytest.mark.parametrize(("value", "keeps"), [(15.0, True), (20.0, True), (20.19, True), (20.21, False)])
    def test_it_is_kept_to_within_a_share_of_the_single_workers(self, value, keeps):
        *_, group = groups = summary.groups([single(20.0), ended(value)])
        assert answer.keeps_up(group, summary.single_workers(groups)) is keeps
        assert keeps is (value <= 20 * (1 + answer.TOLERANCE / 100))
        text = answer.sentences(groups)["Perplexity"]
        assert f"the perplexity of the single worker (20.00){',' * keeps} to within {answer.TOLERANCE:g} %" in text

    def test_the_lowest_wins(self):
        runs = [ended(30.0), ended(25.0, "dana"), ended(40.0, "asgd")]
        assert "the lowest is DANA (25.00)" in sentences(single(), *runs)["Perplexity"]
        text = sentences(*runs)["Perplexity"]
        assert "lowest test perplexities" in text
        assert text.index("DANA") < text.index("Gap-Aware") < text.index(" ASGD")

    @pytest.mark.parametrize(("value", "side"), [(25.0, "25.0 % above"), (15.0, "25.0 % below")])
    def test_the_cost_is_relative(self, value, side):
        text = sentences(single(), ended(value, target=26.0, seconds=50.0))["Cost"]
        assert f"{side} the perplexity of the single worker" in text

    def test_without_a_target_speed_is_gradients_per_second(self):
        fast, slow = {"summary": {"speedup": 6.0}}, {"summary": {"speedup": 1.0}}
        runs = [ended(24.0, **fast), ended(23.0, "dana", **fast), ended(22.0, "synchronous", **slow)]
        found = sentences(single(), *runs)
        assert found["Speed"].index("6.00 times") < found["Speed"].index("DANA and Gap-Aware")
        assert "DANA ends 15.0 % above" in found["Cost"]
        assert "6.00 times" in sentences(single(), runs[0])["Speed"]
        assert "Gap-Aware makes the most" in sentences(single(), runs[0], runs[2])["Speed"]
        lost = ended(None, summary={"diverged": True, "speedup": 6.0})
        assert "6.00 times" in sentences(single(), lost)["Speed"]
        for text in found.values():
            assert "None" not in text

    def test_bits_per_dimension_are_named(self):
        runs = made_up.judged_by(
            made_up.comparison(["gap_aware", "adam"], counts=(8,)), "bits_per_dimension", made_up.bits_per_dimension
        )
        first, *_ = sentences(*runs)
        assert first == "Bits per dimension"


def drawn(figure):
    FigureCanvasAgg(figure).draw()
    return figure


class TestAccuracyAxis:
    def test_it_is_logarithmic_in_the_error(self):
        np.testing.assert_allclose(metric_axis.height([0.0, 90.0, 99.0]), [-2.0, -1.0, 0.0])
        low, high = metric_axis.limits(ACCURACY, [100.0])
        assert low < 100 < high + 0.005

    @pytest.mark.parametrize("ends", [(0, 99), (96, 97), (10, 99.95), (89.7, 97.5), (50, 60)])
    def test_ticks_are_between_the_ends_and_apart(self, ends):
        found = metric_axis.accuracy_ticks(*ends, 10)
        assert 3 <= len(found) <= 11
        assert ends[0] <= found[0] < found[-1] <= ends[1]
        steps = np.diff(metric_axis.height(found))
        assert steps.min() >= 0.99 * float(np.diff(metric_axis.height(ends))[0]) / 10


@pytest.fixture(scope="module")
def groups():
    return summary.groups(comparison())


class TestPictures:
    def test_means_and_single_workers_are_those_of_the_records(self, groups):
        (axes,) = plots.metric_by_workers(groups).axes
        lines = {line.get_label(): line for line in axes.lines}
        (group,) = [group for group in groups if group.method == "gap_aware"]
        assert lines["Gap-Aware"].get_ydata()[0] == pytest.approx(group.test.mean)
        assert lines["Single worker (Adam)"].get_ydata()[0] == pytest.approx(groups[1].test.mean)
        assert "perplexity" in axes.get_ylabel()

    def test_one_run_is_drawn_with_its_metric(self):
        (records,) = made_up.judged_by([made_up.run(curve=[(0, {}), (1, {})])], "perplexity", made_up.perplexity)
        _, axes = plots.training(records).axes
        assert axes.get_ylabel() == "perplexity"
        assert list(axes.lines[0].get_ydata()) == [made_up.perplexity(0.5)] * 2

    def test_losses_of_many_outcomes_are_not_cut_off(self):
        curve = [(0, {"test_loss": 12.0, "train_loss": None}), (1, {"train_loss": 11.9}), (2, {"train_loss": 4.0})]
        (records,) = made_up.judged_by([made_up.run(curve=curve)], "perplexity", made_up.perplexity)
        (axes,) = plots.loss_by_time(summary.groups([records])).axes
        assert axes.get_ylim()[1] > 11.9


@pytest.mark.parametrize("target", [26.0, None])
def test_the_page_and_its_pictures_never_speak_of_accuracy(target, tmp_path):
    groups = summary.groups(comparison(target=target))
    if target is None:  # the pictures are the same
        texts = {"report.html": report.page(groups, {}), "table.md": table.table(groups).markdown()}
    else:
        publish(tmp_path, groups, {})
        # An SVG has its texts as comments.
        texts = {path.name: path.read_text() for path in tmp_path.rglob("*") if path.suffix not in (".png", "")}
        for name in ("standing.svg", "report.html"):
            assert "perplexity" in texts[name]
    for name, text in texts.items():
        assert not re.search("accura", re.sub(r"data:image/[^\"]*", "", text), re.IGNORECASE), name
    assert 'data-first="ascending">test perplexity<' in texts["report.html"]


def test_the_command_says_the_metric(capsys):
    train.show(ended(24.25)[-1])
    assert "test perplexity 24.25" in capsys.readouterr().out
    train.show(made_up.run(summary={"test_accuracy": 0.964, "seconds": 0.012345})[-1])
    seen = capsys.readouterr().out
    assert "test accuracy 96.4 %" in seen
    assert " 0.0123 s of virtual time" in seen
