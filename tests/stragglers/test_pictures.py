"""Test what the pictures of `advise` show, read back from their figures."""

import dataclasses
import math

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from sgdlab.results import plots
from sgdlab.stragglers import diagnosis as search
from sgdlab.stragglers import recording
from sgdlab.stragglers.answer.pictures import bars, heat, steps, style
from sgdlab.stragglers.answer.pictures.bars import idle
from sgdlab.stragglers.answer.pictures.heat import heat_map
from sgdlab.stragglers.answer.pictures.steps import histories, step_medians
from sgdlab.stragglers.diagnosis import pauses
from sgdlab.stragglers.diagnosis.causes import ALL_SLOWER, SLOW_NODE, SLOW_WORKER, Cause
from sgdlab.stragglers.diagnosis.history import Episode
from sgdlab.stragglers.what_if import scores
from sgdlab.traces import Recording

STEPS, WORKERS, SLOW, SINCE = 120, 8, 5, 60
LATER = (Episode(SINCE, STEPS - 1, 1.6),)


@pytest.fixture(autouse=True)
def _styled():
    with plots.mpl.rc_context(plots.STYLE):
        yield


def parts(**others):
    """Worker 5 is slow from the middle on, every 20th step pauses; steps are numbered from 1000."""
    times = np.random.default_rng(0).gamma(400, 1 / 400, (STEPS, WORKERS))
    times[SINCE:, SLOW] *= 1.6
    times[10::20] += 6
    names = tuple(f"w{i}" for i in range(WORKERS))
    return recording.split(Recording(times, 1000 + np.arange(STEPS), names, **others), name="made")


def diagnosed(split, *causes):
    found = search.find_causes(split.complete, split.pauses)
    return dataclasses.replace(found, causes=causes)


def slow(workers=(SLOW,), stretches=LATER, node=None, kind=SLOW_WORKER):
    return Cause(kind, workers, node, stretches[0].first, None, 1.6, 0.2, "", stretches)


class TestHeatMap:
    def test_workers_of_one_node_stand_together_and_the_slow_one_is_red(self):
        split = parts(nodes=tuple("abababab"))
        figure = heat_map(split)
        (image,) = figure.axes[0].get_images()
        ratios = np.asarray(image.get_array())
        order = [0, 2, 4, 6, 1, 3, 5, 7]
        np.testing.assert_allclose(ratios, heat.reduced(split.recording.runtimes[:, order]).T)
        later = ratios[:, SINCE:].mean(axis=1)
        assert int(later.argmax()) == order.index(SLOW)
        assert later.max() == pytest.approx(1.6, abs=0.05)

    def test_pauses_are_marked_above_their_steps_and_incomplete_steps_count_too(self):
        split = parts()
        times = np.array(split.recording.runtimes)
        times[3, 2] = np.nan  # the rows of complete steps are no longer those of recorded ones
        split = recording.split(dataclasses.replace(split.recording, runtimes=times))
        (marks,) = [line for line in heat_map(split).axes[0].lines if line.get_gid() == "pauses"]
        assert marks.get_xdata().tolist() == list(range(10, STEPS, 20))

    def test_a_ratio_of_one_fifth_more_has_a_colour_of_its_own(self):
        (image,) = heat_map(parts()).axes[0].get_images()
        shades = image.cmap(image.norm(np.array([1.0, 1.2, 3.0, 30.0])))
        assert np.abs(shades[0] - shades[1]).max() > 0.25
        np.testing.assert_array_equal(shades[2], shades[3])
        levels = np.linspace(0.5, 3, 50)
        np.testing.assert_allclose(image.norm.inverse(image.norm(levels)), levels)


class TestHistories:
    def test_there_are_none_where_nobody_is_named(self):
        split = parts()
        assert histories(split, diagnosed(split, Cause(ALL_SLOWER, (), None, 3, None, 1.2, 0.1, ""))) is None

    def test_the_stretches_are_shaded(self):
        split = parts()
        stretches = (Episode(3, 9, 1.5), Episode(SINCE, STEPS - 1, 1.6))
        (axes,) = histories(split, diagnosed(split, slow(stretches=stretches))).axes
        shaded = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        spans = sorted((patch.get_x(), patch.get_x() + patch.get_width()) for patch in shaded)
        assert spans == [(2.5, 9.5), (SINCE - 0.5, STEPS - 0.5)]
        line = axes.lines[1].get_ydata()
        assert np.median(line[SINCE:]) == pytest.approx(1.6, abs=0.05)

    def test_a_node_has_one_panel_and_there_are_no_more_than_six(self):
        split = parts()
        node = slow((1, 2, 3), node="n1", kind=SLOW_NODE)
        assert len(histories(split, diagnosed(split, node, slow())).axes) == 2
        every = [slow((worker,)) for worker in range(WORKERS)]
        assert len(histories(split, diagnosed(split, *every)).axes) == steps.MOST


def test_medians_mark_pauses_and_the_change_of_the_whole_cluster():
    split = parts()
    change = Cause(ALL_SLOWER, (), None, 70, 90, 1.2, 0.1, "")
    axes = step_medians(split, diagnosed(split, change)).axes[0]
    marks = next(line for line in axes.lines if line.get_marker() == "^")
    assert marks.get_xdata().tolist() == split.pauses.rows.tolist() == list(range(10, STEPS, 20))
    (span,) = axes.patches
    assert (span.get_x(), span.get_width()) == (69.5, 21)
    usual = np.setdiff1d(np.arange(STEPS), split.pauses.rows)
    longest, middle = (line.get_ydata() for line in axes.lines[:2])
    np.testing.assert_array_equal(middle, np.median(split.complete.runtimes[usual], axis=1))
    np.testing.assert_array_equal(longest, split.complete.runtimes[usual].max(axis=1))
    assert axes.get_ylim()[1] < 4  # so that six seconds of a pause do not flatten the rest


@pytest.mark.parametrize("workers", [WORKERS, 3 * style.LABELLED])
def test_idle_bars_are_shares_of_the_evaluation_steps(workers):
    times = np.random.default_rng(1).gamma(9, 0.1, (40, workers))
    split = recording.split(Recording(times, np.arange(40), tuple(map(str, range(workers)))))
    axes = idle(split, [1]).axes[0]
    busy = 100 * times[20:].sum(axis=0) / times[20:].max(axis=1).sum()
    if workers <= style.LABELLED:
        heights = [bar.get_height() for bar in axes.patches[:workers]]
    else:
        heights = axes.patches[1].get_data().values
    np.testing.assert_allclose(heights, busy)


def test_the_worst_thirty_scores_come_in_their_order():
    times = np.random.default_rng(2).gamma(50, 0.02, (60, 50))
    times[:, 7] *= 2
    found = scores.score_workers(times)
    axes = bars.scores(found, [f"w{i}" for i in range(50)], named=[7]).axes[0]
    worst = np.maximum(found.against_fleet, found.against_itself)
    order = sorted(range(50), key=lambda worker: -worst[worker])[:30]
    assert [label.get_text() for label in axes.get_xticklabels()] == [f"w{i}" for i in order]
    tops = [bar.get_y() + bar.get_height() for bar in axes.patches]
    np.testing.assert_allclose(tops, np.concatenate([found.against_fleet[order], found.against_itself[order]]))


class TestStepLabels:
    @pytest.mark.parametrize(
        "steps", [np.arange(7), np.arange(3, 5000), np.delete(np.arange(900), [200, 500]), np.array([3, 5, 400, 401])]
    )
    def test_each_label_is_the_number_of_its_row(self, steps):
        axes = style_axes()
        style.label_steps(axes, steps)
        rows = axes.get_xticks().astype(int)
        assert 2 <= rows.size <= 15
        assert [label.get_text() for label in axes.get_xticklabels()] == [str(step) for step in steps[rows]]

    def test_they_are_round_where_steps_are_consecutive(self):
        axes = style_axes()
        style.label_steps(axes, np.arange(1234, 3456))
        numbers = [int(label.get_text()) for label in axes.get_xticklabels()]
        assert all(number % 50 == 0 for number in numbers)


def test_names_of_any_kind_are_drawn_as_they_are(tmp_path):
    times = np.random.default_rng(0).gamma(400, 1 / 400, (30, 3))
    names = (r"$\broken{$", "a$b", "host-0123456789.zone-a.cloud.internal/rank7")
    split = recording.split(Recording(times, np.arange(30), names, ("$n$", "$n$", "m")))
    found = diagnosed(split, slow((0,), (Episode(0, 29, 1.6),)), slow((1, 2), (Episode(0, 29, 1.6),)))
    for figure in (heat_map(split), histories(split, found), idle(split, [0, 1, 2])):
        plots.save(figure, tmp_path / "picture")  # a formula that cannot be parsed is a ValueError
    labels = [label.get_text() for label in idle(split, [0, 1, 2]).axes[0].get_xticklabels()]
    assert labels[1] == r"a\$b"
    assert all(len(label) <= 24 for label in labels)


def style_axes():
    figure = plots.mpl.figure.Figure()
    return figure.add_subplot()


def test_pictures_of_many_steps_and_workers_are_small_files(tmp_path):
    times = np.random.default_rng(0).gamma(50, 0.02, (3000, 200))
    times[1000:, 17] *= 1.6
    whole = Recording(times, np.arange(3000), tuple(map(str, range(200))))
    split = recording.SplitRecording("made", whole, whole, pauses.find_pauses(whole), 1500)
    found = diagnosed(split, slow((17,), (Episode(1000, 2999, 1.6),)))
    for name, figure in {"heat": heat_map(split), "histories": histories(split, found)}.items():
        plots.save(figure, tmp_path / name)
        assert (tmp_path / f"{name}.png").stat().st_size < 1_000_000
        assert (tmp_path / f"{name}.svg").stat().st_size < 1_000_000


def naive(runtimes, most_steps, most_workers):
    """The same by loops over cells, workers and steps."""
    edges = [
        np.linspace(0, size, min(size, most) + 1).astype(int)
        for size, most in zip(runtimes.shape, (most_steps, most_workers), strict=True)
    ]
    result = np.full([edge.size - 1 for edge in edges], np.nan)
    for i, (first, last) in enumerate(zip(edges[0][:-1], edges[0][1:], strict=True)):
        for j, (left, right) in enumerate(zip(edges[1][:-1], edges[1][1:], strict=True)):
            means = []
            for worker in range(left, right):
                ratios = []
                for step in range(first, last):
                    known = [time for time in runtimes[step] if not math.isnan(time)]
                    if not math.isnan(runtimes[step, worker]):
                        ratios.append(min(runtimes[step, worker] / np.median(known), heat.LIMIT))
                if ratios:
                    means.append(np.mean(ratios))
            if means:
                result[i, j] = max(means)
    return result


@pytest.mark.parametrize(("most_steps", "most_workers"), [(600, 250), (4, 3), (5, 7), (1, 1)])
def test_cells_equal_loops_over_steps_and_workers(most_steps, most_workers):
    random = np.random.default_rng(0)
    runtimes = random.gamma(4, 0.25, (11, 7))
    runtimes[random.random(runtimes.shape) < 0.2] = np.nan
    runtimes[:6, 2:4] = np.nan  # whole cells
    runtimes[8] = np.nan  # a whole step
    found = heat.reduced(runtimes, most_steps=most_steps, most_workers=most_workers)
    np.testing.assert_allclose(found, naive(runtimes, most_steps, most_workers), rtol=1e-12)


def test_one_slow_worker_of_a_thousand_stays_visible_since_its_first_slow_step():
    runtimes = np.random.default_rng(0).gamma(900, 1 / 900, (2000, 1000))
    runtimes[1200:, 637] *= 1.5
    found = heat.reduced(runtimes)
    column = int(np.searchsorted(style.cells(1000, 250), 637, side="right")) - 1
    since = int(np.searchsorted(style.cells(2000, 600), 1200))
    assert found.shape == (600, 250)
    others = np.delete(found, column, axis=1)
    assert found[since:, column].min() > 1.1 * others.max()
    assert found[: since - 1, column].max() < 1.2


def test_a_step_that_is_slow_for_all_shows_nothing_and_a_ratio_is_clipped():
    runtimes = np.ones((4, 5))
    runtimes[2] *= 50
    runtimes[3, 1] = 9.0
    found = heat.reduced(runtimes)
    assert (found[:3] == 1).all()
    assert found[3].tolist() == [1, heat.LIMIT, 1, 1, 1]
