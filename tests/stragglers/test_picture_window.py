"""The time-line of typical steps: which steps, which workers, and what each protocol does in them."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from toy_traces import split_of

from sgdlab import protocols
from sgdlab.results import timeline
from sgdlab.schedule import DROPPED
from sgdlab.stragglers.answer.pictures import window
from sgdlab.stragglers.answer.pictures.window import schedule_window, typical_steps
from sgdlab.stragglers.comparison import measured
from sgdlab.stragglers.comparison.protocol import DEPLOYABLE, DRAINED, Protocol
from sgdlab.stragglers.comparison.sweeps import FINISHING, INTERRUPTED

WORKERS = 5


def runtimes(steps=80, workers=WORKERS):
    return np.random.default_rng(3).gamma(20, 0.05, (steps, workers))


def parts(times):
    return split_of(times, 100 + np.arange(len(times)))


def cutoffs(times, counts):
    return Protocol("running mean", "window 2", DEPLOYABLE, measured.interrupted(times, counts))


def test_the_typical_window_is_the_one_of_all_whose_gain_is_nearest():
    times = runtimes()
    counts = np.random.default_rng(4).integers(2, WORKERS + 1, len(times))
    protocol, synchrony = measured.interrupted(times, counts), measured.interrupted(times, WORKERS)
    paused = np.zeros(len(times), bool)
    overall = protocol.gradients_per_second / synchrony.gradients_per_second
    ordered = np.sort(times, axis=1)
    seconds = ordered[np.arange(len(times)), counts - 1]
    gains = [
        counts[t : t + 7].sum() / seconds[t : t + 7].sum() / (7 * WORKERS / ordered[t : t + 7, -1].sum())
        for t in range(len(times) - 6)
    ]
    best = int(np.argmin(np.abs(np.log(np.array(gains) / overall))))
    first, gain = window.typical(protocol, synchrony, paused, 7)
    assert (first, gain) == (best, pytest.approx(gains[best]))
    # Steps that all workers paused in are avoided, and so are windows that would begin too late.
    paused[best + 3] = True
    first, _ = window.typical(protocol, synchrony, paused, 7)
    assert not best - 3 <= first <= best + 3
    assert window.typical(protocol, synchrony, np.zeros(len(times), bool), 7, last=2)[0] <= 2
    assert window.typical(protocol, synchrony, np.ones(len(times), bool), 7)[0] == best


def test_each_kind_of_protocol_does_with_some_steps_what_it_was_measured_with():
    times = runtimes(30)
    counts = np.random.default_rng(4).integers(2, WORKERS + 1, len(times))
    made = window.schedule(cutoffs(times, counts), times, counts[:, None].astype(float))
    used = made.update[:, 0] >= 0
    np.testing.assert_array_equal(np.bincount(made.update[used, 0]), counts)
    np.testing.assert_allclose(made.applied[:, 0], np.cumsum(np.sort(times)[np.arange(30), counts - 1]))

    result = measured.finishing(times, [2])[2]
    finishing = Protocol(FINISHING, "b = 2", DEPLOYABLE, result, backups=2)
    made = window.schedule(finishing, times, result.gradients)
    expected = protocols.backup_workers(times, backups=2)
    np.testing.assert_array_equal(made.update, expected.update)
    np.testing.assert_array_equal(made.applied, expected.applied)

    others = times[:, [0, 2, 3]]
    left = Protocol("w1 and w4", "", DRAINED, measured.interrupted(others, 3), without=(1, 4))
    made = window.schedule(left, times, left.result.gradients)
    assert set(made.worker.tolist()) == {0, 2, 3}
    assert made.num_workers == WORKERS
    np.testing.assert_allclose(made.applied[:, 0], np.cumsum(others.max(axis=1)))


def test_those_that_are_named_are_shown_and_the_others_evenly():
    for workers, named in ((4, []), (100, [99, 3]), (1000, [17]), (1000, list(range(500, 540)))):
        shown = window.workers_shown(workers, named)
        assert shown == sorted(set(shown))
        assert len(shown) == min(workers, window.MOST_WORKERS)
        assert set(named[: window.MOST_WORKERS]) <= set(shown)
    gaps = np.diff(window.workers_shown(1000, []))
    assert gaps.max() - gaps.min() <= 1


def test_nothing_is_drawn_of_full_synchrony_alone():
    whole = parts(runtimes())
    full = Protocol("full synchrony", "", DEPLOYABLE, measured.interrupted(whole.test, WORKERS), backups=0)
    assert schedule_window(whole, full) is None
    others = measured.interrupted(whole.test[:, 1:], WORKERS - 1)
    drained = Protocol("w0", "", DRAINED, others, without=(0,))
    assert len(schedule_window(whole, full, besides=drained).axes) == 2


def test_the_steps_that_a_command_may_draw_are_those_of_the_picture():
    whole = parts(runtimes(200))
    counts = np.random.default_rng(4).integers(2, WORKERS + 1, len(whole.test))
    first, steps = typical_steps(whole, cutoffs(whole.test, counts))
    row = first - 200  # steps are numbered from 100, and the second half is evaluated
    figure = schedule_window(whole, cutoffs(whole.test, counts))
    assert steps == window.STEPS
    assert figure.axes[0].get_xlim()[1] == pytest.approx(whole.test[row : row + steps].max(axis=1).sum())


def test_full_synchrony_may_have_no_update_in_the_time_that_is_drawn():
    times = runtimes()
    times[:, 3] *= 300.0
    whole = parts(times)
    interrupted = Protocol(INTERRUPTED, "b = 1", DEPLOYABLE, measured.interrupted(whole.test, 4), backups=1)
    titles = [axes.get_title(loc="left") + axes.get_title() for axes in schedule_window(whole, interrupted).axes]
    assert sum("no update in this time" in title for title in titles) == 1


@pytest.mark.parametrize("steps", [8, 12, 80])
def test_every_protocol_lasts_as_long_as_the_picture(steps):
    whole = parts(runtimes(steps))
    counts = np.full(len(whole.test), 2)
    interrupted = Protocol(INTERRUPTED, "b = 3", DEPLOYABLE, measured.interrupted(whole.test, counts), backups=3)
    figure = schedule_window(whole, interrupted, named=[1])
    _, end = figure.axes[0].get_xlim()
    for axes in figure.axes:
        last = max(x for bars in axes.collections for path in bars.get_paths() for x in path.vertices[:, 0])
        assert last == pytest.approx(end)
    # Full synchrony is drawn to the end of a step: the other one was not short of recorded steps.
    sums = np.concatenate([[0], np.cumsum(whole.test.max(axis=1))])
    assert np.isclose(end, sums[:, None] - sums[None, :]).any()


def colours(axes):
    """Colour -> the left ends and the row of every bar."""
    found = {}
    for colour, bar in bars_of(axes):
        left, row = bar[:, 0].min(), bar[:4, 1].mean()
        found.setdefault(colour, set()).add((round(float(left), 9), round(float(row))))
    return found


def bars_of(axes):
    """Colour and corners of every bar."""
    bars = axes.collections[0]
    for colour, path in zip(bars.get_facecolor(), bars.get_paths(), strict=True):
        yield to_hex(colour), path.vertices


def test_whom_all_waited_for_is_the_last_gradient_of_each_update():
    times = runtimes(6)
    made = protocols.backup_workers(times, backups=1)
    rows = timeline.WorkerRows(range(WORKERS), list("abcde"), [2])
    figure = timeline.window({"made": made}, seconds=made.wall_clock(), rows=rows)
    found = colours(figure.axes[0])
    expected = set()
    for update, when in enumerate(made.applied[:, 0]):
        (row,) = np.flatnonzero((made.update[:, 0] == update) & (made.arrived[:, 0] == when))
        expected.add((round(float(made.started[row]), 9), int(made.worker[row])))
    assert found[timeline.LAST] == expected
    lost = made.update[:, 0] == DROPPED
    starts = zip(made.started[lost], made.worker[lost], strict=True)
    assert found[timeline.LOST] == {(round(float(start), 9), int(worker)) for start, worker in starts}


def test_a_row_is_a_worker_that_was_chosen():
    made = protocols.synchronous(runtimes(6))
    figure = timeline.window({"made": made}, seconds=made.wall_clock(), rows=timeline.WorkerRows([1, 4], ["b", "e"]))
    drawn = colours(figure.axes[0])
    bars = drawn[timeline.USED] | drawn.get(timeline.LAST, set())
    of_both = np.isin(made.worker, [1, 4])
    assert {start for start, _ in bars} == {round(float(start), 9) for start in made.started[of_both]}
    assert {row for _, row in bars} == {0, 1}
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["b", "e"]


def test_a_panel_can_begin_later_than_its_schedule():
    made = protocols.synchronous(runtimes(9))
    start = float(made.applied[3, 0])
    figure = timeline.timeline({"made": made}, seconds=made.wall_clock() - start, starts={"made": start})
    starts = sorted({at for at, _ in colours(figure.axes[0])[timeline.USED]})
    np.testing.assert_allclose(starts, made.applied[3:8, 0] - start, atol=1e-8)
    ends = sorted(bar[:, 0].max() for colour, bar in bars_of(figure.axes[0]) if colour == timeline.USED)
    np.testing.assert_allclose(ends, np.sort(made.arrived[made.started >= start, 0] - start))
