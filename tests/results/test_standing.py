"""The picture of who is first: rows in order, medians with intervals, and what is missed or lost."""

import itertools
import math

import made_up
import numpy as np
import pytest
import scipy.stats
from matplotlib.backends.backend_agg import FigureCanvasAgg

from sgdlab.results import panels, plots, ranking, standing, summary


def runs(method, num_workers=32, *, times, levels=None, lost=()):
    """A run for each seed; times of None are misses."""
    levels = [0.96] * len(times) if levels is None else levels
    return [
        made_up.run(method, num_workers, seed, summary={
            "seconds_to_target": time, "test_accuracy": level, "diverged": seed in lost, "seconds": 400.0,
            "test_examples": 360, "capacity": 4.0,
        })
        for seed, (time, level) in enumerate(zip(times, levels, strict=True))
    ]  # fmt: skip


def drawn(*found):
    figure = standing.standing(summary.groups([records for each in found for records in each]))
    FigureCanvasAgg(figure).draw()
    return figure


def names(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def marks(axes):
    """Row -> x, marker and whether it is filled, of each mark."""
    found = {}
    for line in axes.lines:
        if line.get_marker() != "None":
            found[int(line.get_ydata()[0])] = line
    return [found[row] for row in sorted(found)]


NOISE = np.random.default_rng(0).normal(0, 0.05, (3, 10))
THREE = (
    runs("asgd", times=(90 * np.exp(NOISE[0])).tolist()),
    runs("dana", times=(30 * np.exp(NOISE[1])).tolist()),
    runs("gap_aware", times=(30 * np.exp(NOISE[2])).tolist()),
)


class TestInterval:
    @pytest.mark.parametrize("count", [*range(1, 40), 100])
    def test_it_is_the_narrowest_that_holds_the_median_with_95_per_cent(self, count):
        """A median lies below the k-th of n values with the probability that fewer than k of n coins are heads."""
        low, high = standing.interval(range(count))
        assert low + high == count - 1
        outside = lambda k: 2 * scipy.stats.binom.cdf(k, count, 0.5)  # beyond the values with index k and n - 1 - k
        assert outside(low) <= 0.05 or low == 0
        assert outside(low + 1) > 0.05

    def test_values_need_no_order_and_may_be_infinite(self):
        assert standing.interval([math.inf, 1.0, 5.0]) == (1.0, math.inf)


class TestStanding:
    def test_rows_are_in_the_order_of_their_median_times(self):
        figure = drawn(*THREE)
        times, levels = figure.axes
        medians = {"DANA": np.median(30 * np.exp(NOISE[1])), "Gap-Aware": np.median(30 * np.exp(NOISE[2]))}
        assert names(times) == [*sorted(medians, key=medians.get), "ASGD"]
        assert [line.get_xdata()[0] for line in marks(times)][:2] == pytest.approx(sorted(medians.values()))
        assert [line.get_xdata()[0] for line in marks(levels)] == [96.0] * 3

    def test_the_first_set_is_bold_and_filled(self):
        times = drawn(*THREE).axes[0]
        assert [label.get_fontweight() for label in times.get_yticklabels()] == ["bold", "bold", "normal"]
        assert [line.get_markerfacecolor() != "white" for line in marks(times)] == [True, True, False]
        two = [each[:2] for each in THREE]
        assert {label.get_fontweight() for label in drawn(*two).axes[0].get_yticklabels()} == {"normal"}

    def test_misses_are_crosses_at_the_edge_and_come_last(self):
        figure = drawn(runs("dana", times=[None, None, 5.0]), runs("asgd", times=[80.0, 90.0, None]))
        times = figure.axes[0]
        assert names(times) == ["ASGD", "DANA"]
        reached, missed = marks(times)
        assert (reached.get_xdata()[0], missed.get_marker()) == (90.0, "x")
        assert 90.0 < missed.get_xdata()[0] < times.get_xlim()[1]
        assert "x at the edge" in figure.get_suptitle()
        assert "x at the edge" not in drawn(*THREE).get_suptitle()

    def test_a_target_that_is_met_at_once_is_drawn(self):
        figure = drawn(runs("dana", times=[0.0, 2.0, 5.0]), runs("asgd", times=[80.0, 90.0, 70.0]))
        assert names(figure.axes[0]) == ["DANA", "ASGD"]

    def test_diverged_runs_are_bars(self):
        lost = runs("dana", times=[5.0, 6.0, None, None], levels=[0.96, 0.96, 0.1, 0.1], lost=(2, 3))
        figure = drawn(lost, runs("asgd", times=[5.0] * 4))
        _, levels, bars = figure.axes
        assert [bar.get_width() for bar in bars.patches if bar.get_height() < 0.5] == [0.0, 50.0]
        assert levels.get_xlim()[0] > 90  # the lost runs do not squeeze the others
        assert len(drawn(*THREE).axes) == 2

    def test_speeds_are_bars_in_the_order_of_the_rows(self):
        none = made_up.run("asgd", 8, summary={"speedup": None})
        groups = summary.groups([*made_up.comparison(("synchronous", "dana"), counts=(8,)), none])
        first, _, speeds = standing.standing(groups, speeds=True).axes
        bars = [bar.get_width() for bar in speeds.patches if bar.get_height() < 0.5]
        assert dict(zip(names(first), bars, strict=True)) == {"Synchronous SGD": 1.0, "DANA": 1.4, "ASGD": 0.0}
        assert len(standing.standing(groups).axes) == 2

    def test_long_titles_are_cut(self):
        title = "A title that is longer than any other, with still more behind it"
        (text,) = names(drawn([made_up.run("mine", 8, title=title)]).axes[0])
        assert (len(text), text[-1]) == (34, "…")
        assert title.startswith(text[:-1])

    def test_an_interval_of_accuracies_is_not_narrower_than_a_test_example(self):
        _, levels = drawn(*THREE).axes
        widths = [np.ptp(line.get_xdata()) for line in levels.lines if len(line.get_xdata()) == 2]
        assert widths[:3] == pytest.approx([100 / 360] * 3)

    def test_methods_look_as_in_all_pictures(self):
        groups = summary.groups([records for each in THREE for records in each])
        known = {group.title: panels.styles(groups)[group.method] for group in groups}
        times = drawn(*THREE).axes[0]
        for name, line in zip(names(times), marks(times), strict=True):
            assert (line.get_color(), line.get_marker()) == known[name]

    def test_without_a_target_rows_are_in_the_order_of_the_metric(self):
        found = [made_up.run(m, 8, s, summary={"test_accuracy": a}, target=None)
                 for m, a in (("dana", 0.9), ("asgd", 0.95)) for s in range(3)]  # fmt: skip
        (axes,) = drawn(found).axes
        assert names(axes) == ["ASGD", "DANA"]

    @pytest.mark.parametrize("metric", [made_up.perplexity, made_up.bits_per_dimension])
    def test_better_is_to_the_right(self, metric):
        runs = made_up.judged_by(made_up.comparison(counts=(8,)), metric.__name__, metric)
        (axes,) = standing.standing(summary.groups(runs)).axes
        left, right = axes.get_xlim()
        assert left > right

    def test_each_number_of_workers_has_a_half(self):
        more = [runs(m, 8, times=[100.0, 110.0, 120.0]) for m in ("dana", "asgd")]
        figure = drawn(*more, *(each[:3] for each in THREE))
        assert [half.get_suptitle() for half in figure.subfigs] == ["8 workers", "32 workers"]
        assert len(figure.axes) == 4

    def test_several_single_workers_are_named_and_told_apart(self):
        alone = {
            name: [made_up.run(name, 1, serial=True, summary={"seconds_to_target": t, "test_accuracy": level})]
            for name, t, level in (("nag_asgd", 90.0, 0.9), ("adam", None, 0.8))
        }
        both = drawn(*THREE, runs("adam_gap_aware", times=[50.0]), *alone.values())
        times, levels = both.axes[:2]
        dashes = {
            round(line.get_xdata()[0], 6): line.get_linestyle()
            for line in levels.lines
            if len(set(line.get_xdata())) == 1
        }
        assert (dashes[90.0], dashes[80.0]) == ("--", "-.")
        assert [line.get_xdata()[0] for line in times.lines if line.get_linestyle() == "--"] == [90.0]
        assert not [line for line in times.lines if line.get_linestyle() == "-."]  # which has no time
        assert "dashed, dash-dotted: the single workers NAG-ASGD, Adam" in both.texts[0].get_text()
        assert "(dashed: the single worker" in drawn(*THREE, alone["nag_asgd"]).texts[0].get_text()

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("count", [1, 4, 64])
    def test_names_do_not_cover_one_another(self, count, tmp_path):
        found = [
            made_up.run(f"m{index}", 8, seed, rank=index, summary={"seconds_to_target": 10.0 + index + seed})
            for index in range(count)
            for seed in range(2)
        ]
        single = made_up.run("nag_asgd", 1, serial=True, summary={"seconds_to_target": 90.0})
        figure = drawn(found, [single])
        plots.save(figure, tmp_path / "standing")
        boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
        assert len(boxes) == count
        assert all(above.y0 >= below.y1 - 1 for above, below in itertools.pairwise(boxes))
        title = figure.texts[0].get_window_extent()
        assert 0 <= title.x0 <= title.x1 <= figure.bbox.width


def test_a_miss_is_twice_the_longest_run_with_its_seed():
    """Seeds have clusters of their own, and so runs of their own length."""
    lengths = (100.0, 1000.0, 400.0)
    one, other = ([
        made_up.run(name, 32, seed, summary={"seconds_to_target": time, "diverged": False, "seconds": length})
        for seed, (time, length) in enumerate(zip(times, lengths, strict=True))
    ] for name, times in (("asgd", (None, 500.0, 200.0)), ("dana", (50.0, None, 200.0))))  # fmt: skip
    ranked = ranking.by_time(summary.groups([*one, *other]))
    found = {group.method: values for group, values in zip(ranked.groups, ranked.values, strict=True)}
    np.testing.assert_allclose(np.exp(found["asgd"]), [200.0, 500.0, 200.0])
    np.testing.assert_allclose(np.exp(found["dana"]), [50.0, 2000.0, 200.0])
