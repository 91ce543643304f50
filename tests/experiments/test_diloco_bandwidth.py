"""Bandwidths of DiLoCo: closed forms against the simulator and by hand, what is fitted, and what is said of both."""

import dataclasses
import itertools

import numpy as np
import pytest

from experiments.beyond import bandwidth, diloco_scaling, streaming_diloco
from experiments.beyond.bandwidth import UTILISATIONS, Exchange
from sgdlab import protocols, transports

ALL = [streaming_diloco.streaming_diloco, diloco_scaling.diloco_scaling]
TABLE_4 = list(itertools.chain(*streaming_diloco.TABLE_4.values()))
TABLE_6 = [row for model in diloco_scaling.MODELS.values() for row in model.printed.values()]


@pytest.mark.parametrize("made", ALL, ids=lambda made: made.name)
def test_a_figure_is_of_rows_of_its_paper(made):
    assert set(made.numbers) == set(made.paper.rows)


@pytest.mark.parametrize(("every", "hidden"), [(1, 0.0), (20, 0.0), (1, 1.5), (20, 1.5)])
def test_utilisation_is_that_of_simulated_rounds(every, hidden):
    """Two workers with steps of 2 s; a ring of four buckets, of which three may hide, takes 8 s at 1 Gbit/s."""
    one = Exchange(step=2.0, size=1e9, every=every, hidden=hidden)
    ring = transports.all_reduce(
        num_workers=2, gradient_bytes=1e9, gbits=1.0, latency_ms=0.0, buckets=4, hidden_ms=1e3 * hidden
    )
    schedule = protocols.synchronous(np.full((10, 2), 2.0 * every), transport=ring)
    assert one.utilisation(1.0) == pytest.approx(10 * 2.0 * every / schedule.wall_clock(), rel=1e-12)


def test_fragments_hide_one_by_one():
    """8 s of messages in four parts, of which 1.5 s each pass while 20 steps of 2 s are computed."""
    one = Exchange(step=2.0, size=1e9, every=20, fragments=4, hidden=1.5)
    assert one.utilisation(1.0) == pytest.approx(40 / (40 + 4 * (2 - 1.5)))
    assert one.utilisation(8 / 6) == pytest.approx(1.0)
    assert dataclasses.replace(one, hidden=0.0).needed(0.5) == pytest.approx(0.2)  # 40 s of messages


@pytest.mark.parametrize("share", UTILISATIONS)
@pytest.mark.parametrize("method", streaming_diloco.METHODS)
def test_what_is_needed_suffices_and_no_less(method, share):
    one = streaming_diloco.exchange(method, 10)
    assert one.utilisation(one.needed(share)) == pytest.approx(share)
    assert one.utilisation(0.99 * one.needed(share)) < share


def test_all_printed_thresholds_are_points_of_one_grid():
    places = [bandwidth.printed_on_grid(number) for row in (*TABLE_4, *TABLE_6) for number in row]
    assert len(places) == 150
    assert all(a <= b for row in (*TABLE_4, *TABLE_6) for a, b in itertools.pairwise(row))
    with pytest.raises(ValueError, match=r"gbits=50 must be a number of the papers' grid, such as 49\.4"):
        bandwidth.printed_on_grid(50)


def test_hours_by_hand():
    """2 bytes for each of 10^9 parameters at 1 Gbit/s are 16 s; half a byte in eight fragments, half a second each."""
    found = streaming_diloco.hours()
    steps = 0.67 * 3600 / 0.1
    assert found["data parallel", 25][0] == pytest.approx(steps * (0.1 + 16 - 0.1 * 2 / 3) / 3600)
    assert found["4 bits", 25][0] == pytest.approx(steps * (0.1 + 8 * (0.5 - 0.1 * 5 / 3) / 100) / 3600)
    assert found["4 bits", 250][1] == 8.75


def test_claims_of_streaming_diloco_can_fail():
    rows = {("model", "method"): [{"grid points off": off} for off in (0, 1, -1, 0, 0, 0, 0, 0, 0, 2)]}
    hours = {("data parallel", 25): (105.0, 109.0)}
    assert [claim.mark for claim in streaming_diloco.claims(rows, hours)] == ["✓", "✓", "✓"]
    rows["model", "other"] = [{"grid points off": 2}]
    hours["4 bits", 25] = 0.8, 0.88
    assert [claim.mark for claim in streaming_diloco.claims(rows, hours)] == ["✗", "✓", "✗"]


def test_a_fit_finds_the_bytes_that_made_a_table():
    exchanges = [Exchange(step=0.8, size=5e9, every=every, hidden=0.5) for every in (1, 10)]
    grid = np.append(bandwidth.GRID, np.inf)
    printed = [[grid[bandwidth.on_grid(each.needed(share))] for share in UTILISATIONS] for each in exchanges]
    found = bandwidth.fitted_size([dataclasses.replace(each, size=1.0) for each in exchanges], printed)
    assert found == pytest.approx(5e9, rel=0.1)  # half a point of the grid


def test_fitted_numbers_are_not_among_those_that_are_judged():
    off = {("model", every): [{"grid points off": 9 if every == 1 else 1}] * 5 for every in (1, 10)}
    claim = diloco_scaling.claim(off, fitted=1)
    assert (claim.mark, claim.ours[:7]) == ("✓", "5 of 5 ")
    assert diloco_scaling.claim(off, fitted=10).mark == "✗"


def test_only_one_row_of_a_model_is_fitted(monkeypatch):
    sizes = lambda: diloco_scaling.diloco_scaling(fitted=1).notes[0]
    before = sizes()
    changed = {
        name: dataclasses.replace(model, printed=dict.fromkeys(model.printed, model.printed[1]))
        for name, model in diloco_scaling.MODELS.items()
    }
    monkeypatch.setattr(diloco_scaling, "MODELS", changed)
    said = [[word for word in text.split(";") if "Gbit a synchronisation" in word] for text in (before, sizes())]
    assert [each.split("(")[0] for each in said[0]] == [each.split("(")[0] for each in said[1]]


def test_a_table_has_all_numbers():
    output = streaming_diloco.streaming_diloco(**streaming_diloco.streaming_diloco.values("laptop"))
    assert len(output.table) == 6 + 75
    output = diloco_scaling.diloco_scaling(**diloco_scaling.diloco_scaling.values("laptop"))
    assert (len(output.table), (output.table["is"] == "fitted").sum()) == (75, 15)


def test_rows_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match="billions=7 must be among 1, 10, 100"):
        streaming_diloco.streaming_diloco(billions=[7])
    with pytest.raises(ValueError, match="fitted=7 must be one of 1, 10, 50, 100, 300"):
        diloco_scaling.diloco_scaling(fitted=7)
