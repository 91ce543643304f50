"""The picture that a report opens with: every method is in it, and its names cover nothing."""

import itertools

import made_up
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from sgdlab.results import labels, metric_axis, summary
from sgdlab.results.metric import ACCURACY
from sgdlab.results.overview import NARROW, WIDE, overview


def drawn(groups, layout=WIDE):
    figure = overview(groups, layout)
    FigureCanvasAgg(figure).draw()
    return figure, {c.get_label(): c for axes in figure.axes for c in axes.collections}


def boxes(figure):
    """Rectangles of all names, in pixels."""
    texts = [text for text in figure.texts if text.get_text()]
    texts += [text for axes in figure.axes[1:] for text in axes.texts]
    return {text.get_text(): text.get_window_extent() for text in texts}


@pytest.fixture(scope="module")
def groups():
    return summary.groups([*made_up.comparison(), *(made_up.run("mine", 32, seed, rank=70) for seed in range(2))])


class TestOverview:
    def test_there_is_a_point_for_each_method_and_number_of_workers(self, groups):
        _, points = drawn(groups)
        ours = summary.compared(groups)
        assert set(points) == {f"{group.title}, {group.num_workers}" for group in ours}
        for group in ours:
            speedup, height = points[f"{group.title}, {group.num_workers}"].get_offsets()[0]
            assert speedup == pytest.approx(group.spread("speedup").mean)
            if not group.num_diverged:
                assert height == pytest.approx(100 * group.spread("test_accuracy").mean)

    def test_points_are_within_the_panel(self, groups):
        figure, points = drawn(groups)
        for point in points.values():
            frame = point.axes.get_window_extent()
            (x, y), *_ = point.axes.transData.transform(point.get_offsets())
            assert frame.contains(x, y)
        assert len(figure.axes) == 2

    def test_more_workers_are_larger(self, groups):
        _, points = drawn(groups)
        sizes = [points[f"Gap-Aware, {count}"].get_sizes()[0] for count in (4, 8, 32)]
        assert sizes == sorted(set(sizes))

    @pytest.mark.parametrize("layout", [WIDE, NARROW])
    def test_every_method_is_named_and_no_name_covers_another(self, groups, layout):
        figure, _ = drawn(groups, layout)
        found = boxes(figure)
        for group in summary.largest(groups):
            assert any(text.startswith(group.title) for text in found)
        assert "DANA (1 of 2)" in found
        for one, other in itertools.combinations(found.values(), 2):
            assert not labels.Box(*one.extents).meets(labels.Box(*other.extents))
        page = figure.bbox
        for box in found.values():
            assert labels.Box(*box.extents).within(labels.Box(*page.extents))

    def test_single_workers_are_lines(self, groups):
        figure, _ = drawn(groups)
        dashed = {round(line.get_ydata()[0], 6) for line in figure.axes[0].lines if line.get_linestyle() == "--"}
        alone = summary.single_workers(groups).values()
        assert dashed == {round(100 * group.spread("test_accuracy").mean, 6) for group in alone}

    def test_without_lost_runs_there_is_one_panel(self):
        figure, points = drawn(summary.groups(made_up.comparison(["gap_aware", "synchronous"])))
        assert len(figure.axes) == 1
        assert len(points) == 2 * 3

    @pytest.mark.parametrize("speedups", [(1.4, 1.4), (1.0, 1.4), (5.0, 6.0), (0.3, 0.3), (2.0, 40.0)])
    @pytest.mark.parametrize("layout", [WIDE, NARROW])
    def test_with_one_number_of_workers_the_axis_ends_beside_the_points(self, speedups, layout):
        runs = [made_up.run(m, summary={"speedup": s}) for m, s in zip(("dana", "asgd"), speedups, strict=True)]
        figure, points = drawn(summary.groups(runs), layout)
        axes = figure.axes[0]
        low, high = axes.get_xlim()
        assert high / low >= 1.5
        assert np.log(speedups[0] / low) == pytest.approx(np.log(high / speedups[1]))
        ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
        assert 2 <= len(ticks) <= layout.ticks
        assert len(points) == 2

    def test_all_runs_may_be_lost(self):
        runs = [made_up.run("dana", 4, summary={"diverged": True}), made_up.run("nag_asgd", 1, serial=True)]
        _, points = drawn(summary.groups(runs))
        assert set(points) == {"DANA, 4"}

    def test_long_titles_are_cut(self):
        figure, _ = drawn(summary.groups([made_up.run("mine", title="m" * 200)]), NARROW)
        (text,) = boxes(figure)
        assert len(text) == NARROW.longest_label


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


class TestLabels:
    @pytest.mark.full
    def test_columns_are_the_nearest_that_are_apart(self):
        generator = np.random.default_rng(0)
        for _ in range(20):
            wanted = generator.uniform(0, 30, 4)
            found = labels.apart(wanted, 5.0, 0.0, 30.0)
            order = np.argsort(wanted, kind="stable")
            assert np.diff(found[order]).min() >= 5 - 1e-9
            assert found.min() >= 0
            assert found.max() <= 30
            # No choice on a grid that is apart too is nearer.
            grid = np.arange(0.0, 30.5, 1.0)
            choices = np.array([c for c in itertools.combinations(grid, 4) if np.diff(c).min() >= 5])
            best = ((choices - wanted[order]) ** 2).sum(axis=1).min()
            assert ((found - wanted) ** 2).sum() <= best + 1e-9

    def test_a_column_that_is_too_short_is_left_at_its_end(self):
        np.testing.assert_allclose(labels.apart([3.0, 1.0, 2.0], 10.0, 0.0, 15.0), [20.0, 0.0, 10.0])
        assert labels.apart([], 1.0, 0.0, 1.0).size == 0

    def test_labels_beside_points_cover_nothing(self):
        generator = np.random.default_rng(1)
        points = generator.uniform(0, 200, (30, 2))
        taken = [labels.Box(x - 3, y - 3, x + 3, y + 3) for x, y in points.tolist()]
        area = labels.Box(0, 0, 200, 200)
        found = labels.beside(points, [(40.0, 10.0)] * 30, area=area, taken=taken, away=4.0)
        placed = [box for box in found if box is not None]
        assert 5 < len(placed) < 30
        for one, other in itertools.combinations([*placed], 2):
            assert not one.meets(other)
        for box in placed:
            assert box.within(area)
            assert not any(box.meets(other) for other in taken)
