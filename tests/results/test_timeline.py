"""The time-line of many workers and of few: which of them are drawn, how far, and with how many shapes."""

import itertools
import math

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from sgdlab import protocols
from sgdlab.failures import FAILURES
from sgdlab.results import timeline
from sgdlab.runs.plan import make_plan


def times(rows, workers):
    return np.random.default_rng(5).gamma(20, 0.05, (rows, workers))


def bars(axes):
    """Left ends, right ends and rows: of the workers' idle time, then of their gradients."""
    corners = np.array([path.vertices[:4] for path in axes.collections[0].get_paths()])
    return corners[:, :, 0].min(axis=1), corners[:, :, 0].max(axis=1), corners[:, :, 1].mean(axis=1).round().astype(int)


def test_of_many_workers_64_are_drawn_in_one_collection():
    count = 100_000
    schedule = protocols.asynchronous(times(2, count))
    (axes,) = timeline.timeline({"Asynchronous": schedule}).axes
    assert axes.get_ylabel() == "64 of 100,000 workers"
    names = [label.get_text() for label in axes.get_yticklabels()]
    ranks = np.array([int(name.replace(",", "")) for name in names])
    assert ranks[0] == 0
    assert ranks[-1] == count - 1
    assert set(np.diff(ranks)) == {count // 63, count // 63 + 1}
    assert len(axes.collections) == 1
    assert len(axes.lines[0].get_xdata()) <= 2001  # 99,999 updates or so in the picture
    left, right, row = bars(axes)
    end = schedule.wall_clock()
    assert axes.get_xlim() == (0, end)
    shown = np.isin(schedule.worker, ranks) & (schedule.started < end)
    assert left.size == 64 + shown.sum() <= 64 * 3
    expected = zip(
        schedule.started[shown], np.minimum(schedule.ended()[shown], end), schedule.worker[shown], strict=True
    )
    drawn = zip(left[64:], right[64:], ranks[row[64:]], strict=True)
    np.testing.assert_allclose(sorted(drawn, key=lambda bar: bar[::-1]), sorted(expected, key=lambda bar: bar[::-1]))


def test_of_many_peers_those_drawn_are_joined_where_they_average():
    schedule = protocols.gossip(times(6, 200), kind="pull", seed=0)
    (axes,) = timeline.timeline({"Pull gossip": schedule}, seconds=4.0).axes
    assert axes.get_ylabel() == "64 of 200 workers"
    shown, to = timeline.evenly(200), schedule.node[schedule.event]
    of_both = np.isin(schedule.source, shown) & np.isin(to, shown) & (schedule.source != to)
    when = schedule.started[schedule.event[of_both]]
    drawn, links = axes.collections
    assert len(drawn.get_paths()) == 64 + (np.isin(schedule.node, shown) & (schedule.started < 4.0)).sum()
    assert len(links.get_paths()) == (when < 4.0).sum() > 0


def test_who_is_down_is_not_drawn_as_idle():
    from configs import digits  # noqa: PLC0415 (the others need no configuration)

    config = digits.get_config()
    config.method, config.cluster.num_workers, config.epochs = "asgd", 3, 1.0
    config.failures.kind, config.failures.independent.server = "independent", True
    config.failures.independent.mean_up_hours, config.failures.independent.repair_minutes = 0.02, 0.5
    plan = make_plan(config)
    figure = timeline.timeline({"ASGD": plan.schedule}, seconds=math.inf, down={"ASGD": plan.down})
    (axes,), dark = figure.axes, to_rgba(timeline.DOWN)
    drawn = np.column_stack(bars(axes))[(axes.collections[0].get_facecolors() == dark).all(axis=1)]
    # What is lost is cut off by an outage, which another call of the same law draws.
    outages = FAILURES.make(
        "independent", config.failures.independent.to_dict(), num_workers=3, seed=plan.experiment.seeds.of("failures")
    )
    end, expected = plan.schedule.wall_clock(), []
    for worker in range(3):
        now = 0.0
        while (interval := outages.away(worker, now))[0] < end:
            expected.append((interval[0], min(interval[1], end), worker))
            now = interval[1]
    assert len(expected) > 5
    np.testing.assert_allclose(sorted(drawn.tolist()), sorted(expected))
    lost = plan.schedule.dropped()[:, 0]
    ends = zip(plan.schedule.ended()[lost].round(6), plan.schedule.worker[lost], strict=True)
    assert set(ends) <= {(round(start, 6), worker) for start, _, worker in expected}

    def key(figure):
        return [text.get_text() for text in figure.legends[0].get_texts()]

    assert key(figure)[-2:] == ["down", "idle"]
    without, shown = (timeline.timeline({"ASGD": plan.schedule}, down=down) for down in ({}, {"ASGD": plan.down}))
    assert key(without) == [label for label in key(shown) if label != "down"]
    assert len(without.axes[0].texts) == len(shown.axes[0].texts) > 0  # an outage has no version
    assert "message under way" in key(figure)  # they wait for the server
    config.failures.independent.server = False
    assert "message under way" not in key(timeline.timeline({"ASGD": make_plan(config).schedule}))


def test_all_of_few_workers_are_drawn():
    made = {"Synchronous": protocols.synchronous(times(5, 64))}
    (axes,) = timeline.timeline(made).axes
    assert axes.get_ylabel() == "worker"
    assert [label.get_text() for label in axes.get_yticklabels()] == [str(rank) for rank in range(64)]
    assert "numbers" not in axes.get_xlabel()  # nor are there any
    (axes,) = timeline.timeline({"Synchronous": protocols.synchronous(times(5, 8))}).axes
    assert "numbers" in axes.get_xlabel()
    assert {text.get_text() for text in axes.texts} >= {"0", "1", "2"}


@pytest.mark.parametrize("seconds", [None, 1000.0])
def test_the_axis_ends_with_the_longest_run_and_bars_with_their_own(seconds):
    runtimes = times(2, 6)
    runtimes[0, 2] = 9.0  # dropped, and ends later than the run of the other five
    made = {"Backup workers": protocols.backup_workers(runtimes, backups=1), "All": protocols.synchronous(runtimes)}
    assert made["Backup workers"].ended().max() > made["Backup workers"].wall_clock()
    figure = timeline.timeline(made, seconds=seconds)
    for axes, schedule in zip(figure.axes, made.values(), strict=True):
        assert axes.get_xlim() == (0, made["All"].wall_clock())
        assert bars(axes)[1].max() == pytest.approx(schedule.wall_clock())


def test_short_bars_are_not_hidden_by_their_edges_and_many_are_dots():
    runtimes = times(1500, 10)
    runtimes[:, 3] *= 1000  # three of its gradients are drawn, and thousands of the others'
    figure = timeline.timeline({"Asynchronous": protocols.asynchronous(runtimes)})
    (axes,) = figure.axes
    drawn, (left, right, _) = axes.collections[0], bars(axes)
    points = (right - left) / axes.get_xlim()[1] * figure.get_figwidth() * 72
    edges = np.array(drawn.get_linewidths())
    assert (edges[10:] <= 0.16 * points[10:]).all()
    assert edges.max() == 0.6
    assert drawn.get_rasterized()
    assert not timeline.timeline({"few": protocols.synchronous(times(5, 8))}).axes[0].collections[0].get_rasterized()


def test_no_worker_is_chosen_twice():
    for count, most in itertools.product((1, 2, 63, 64, 65, 66, 97, 127, 128, 1001), (1, 2, 24, 64)):
        shown = timeline.evenly(count, most)
        assert shown.size == np.unique(shown).size == min(count, most)
        assert shown[0] == 0
        assert shown[-1] == count - 1 or most == 1


def test_schedules_of_fewer_workers_than_are_drawn():
    few, many = (protocols.synchronous(times(4, workers)) for workers in (2, 5))
    figure = timeline.timeline({"few": few, "many": many})
    few, many = (bars(axes)[0] for axes in figure.axes)
    assert len(few) < len(many)
