"""The tables of what-if: they add up as they are printed, name the workers, and hold in CSV what they show."""

import csv
import io

import numpy as np
import pytest

from sgdlab.stragglers import what_if
from sgdlab.stragglers.diagnosis import pauses
from sgdlab.stragglers.what_if import table as what_if_table
from sgdlab.traces.recording import Recording


@pytest.fixture(scope="module")
def result():
    runtimes = np.random.default_rng(0).gamma(400.0, 1 / 400, (200, 24))
    runtimes[:, 17] *= 1.5
    names = tuple(f"rank{i}" for i in range(24))
    given = Recording(runtimes, np.arange(200), names, tuple(f"host{i // 8}" for i in range(24)), notes=("<noted>",))
    return what_if.try_repairs(given, pauses.find_pauses(given))


def shown(cell):
    return float(cell.removesuffix(" s").replace(",", ""))


def test_the_printed_seconds_add_up(result):
    table = what_if_table.repairs(result).rows
    assert all(len(cells) == len(what_if_table.COLUMNS) for cells in table)
    *seconds, recorded = [shown(cells[4]) for cells in table]
    assert sum(seconds) == pytest.approx(recorded, abs=0.05 * len(seconds))  # each is rounded to a tenth
    assert recorded == pytest.approx(result.recorded, abs=0.05)


def test_the_bars_are_the_seconds_and_follow_one_another(result):
    *repairs, left, recorded = [(float(start), float(width)) for start, width in what_if_table.repairs(result).bars]
    assert recorded == (0.0, 100.0)
    end = 100.0
    for (start, width), line in zip(repairs, result.lines, strict=True):
        assert width == pytest.approx(100 * line.in_turn / result.recorded, abs=0.006)
        assert start + width == pytest.approx(end, abs=0.02)
        end = start
    assert left == (0.0, pytest.approx(end, abs=0.02))


def test_the_slow_worker_is_named_first_in_table_sentences_and_scores(result):
    assert what_if_table.repairs(result).rows[0][0].startswith("rank17")
    assert "rank17" in what_if_table.sentence(result)
    assert "rank17" in what_if_table.drain_sentence(result)
    made = what_if_table.scores(result, most=5)
    table = made.rows
    assert len(table) == 5
    assert table[0][0] == "rank17 on host2"
    assert all(len(cells) == len(made.columns) for cells in table)


def test_workers_that_are_not_shown_are_counted(result):
    assert what_if_table.scores(result, most=24).notes == []
    assert what_if_table.scores(result, most=5).notes[0].startswith("19 more workers")
    assert what_if_table.scores(result, most=23).notes[0].startswith("1 more worker:")


def test_the_csv_adds_up_and_has_every_worker(result):
    *lines, left, recorded = csv.DictReader(io.StringIO(what_if_table.comma_separated(result)))
    assert (left["kind"], recorded["kind"]) == ("left", "recorded")
    saved = sum(float(line["in_turn_seconds"]) for line in lines)
    assert saved + float(left["in_turn_seconds"]) == pytest.approx(float(recorded["in_turn_seconds"]), rel=1e-12)
    assert lines[0]["workers"] == "rank17"
    scores = list(csv.DictReader(io.StringIO(what_if_table.scores_comma_separated(result))))
    assert {line["worker"] for line in scores} == set(result.recording.workers)
    assert float(scores[0]["others_waited_seconds"]) == result.scores.waited[17]


def test_the_page_has_a_bar_for_each_row_which_follow_one_another(result):
    bars = [(float(start), float(width)) for start, width in what_if_table._bars(result)]
    *mended, left, recorded = bars
    assert recorded == (0.0, 100.0)
    end = 100.0
    for start, width in mended:
        assert start + width == pytest.approx(end, abs=0.02)
        end = start
    assert left == (0.0, pytest.approx(end, abs=0.02))
    page = what_if_table.page(result, title="What if: <trace>")
    assert page.count('<td class="bar">') == len(bars)
    assert "&lt;trace&gt;" in page
    assert "&lt;noted&gt;" in page


def test_a_fleet_that_never_waits_has_nothing_to_mend():
    given = Recording(np.ones((20, 4)), np.arange(20), tuple("abcd"))
    result = what_if.try_repairs(given, pauses.find_pauses(given))
    assert result.left == result.recorded == 20.0
    assert "nothing to repair" in what_if_table.sentence(result)
    assert np.isnan(result.slowest_share)
    assert len(what_if_table.text(result).splitlines()) > 10


def test_whom_to_leave_out_is_a_node_where_it_is_one_and_a_worker_where_it_is_alone():
    times = np.random.default_rng(0).gamma(400.0, 1 / 400, (60, 12))
    times[:, 4:8] *= 2.0
    given = Recording(times, np.arange(60), tuple("abcdefghijkl"), tuple(f"node-{i // 4}" for i in range(12)))
    assert "first: node-1 (" in what_if_table.drain_sentence(what_if.try_repairs(given, pauses.find_pauses(given)))
    pair = Recording(times[:, [0, 4]] * [1.0, 1.5], np.arange(60), ("a", "e"))
    said = what_if_table.drain_sentence(what_if.try_repairs(pair, pauses.find_pauses(pair)))
    assert "worker e" in said
    assert "The other worker alone" in said
    assert "M_W" not in what_if_table.facts(what_if.try_repairs(pair, pauses.find_pauses(pair)))
