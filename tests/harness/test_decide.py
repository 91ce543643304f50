"""Deciding: figures with the most expected decisions in a core-hour come first, and finished runs are kept."""

import json
import time

import pandas as pd
import pytest
from sweep_works import doubled

from experiments import papers
from experiments.harness import Claim, Count, Output, Scale, Session, Sweep, above, board, command, decide


def output(name: str, seeds: int, effect: float) -> Output:
    """A figure whose claim is about the mean of alternating values."""
    runs = Sweep({}, {"value": range(seeds)}, work=doubled).table()
    values = effect + (runs["value"] % 2) * 2.0 - 1.0
    claim = Claim(f"{name} is positive", "here", f"{values.mean():.2f}", above(values))
    return Output(pd.DataFrame({"ours": values, "paper": None}), None, [claim])


def near(*, seeds: Count = 6) -> Output:
    """Is nearly decided.

    Args:
      seeds: values.
    """
    return output("near", seeds, 0.8)


def far(*, seeds: Count = 6) -> Output:
    """Is far from it.

    Args:
      seeds: values.
    """
    return output("far", seeds, 0.05)


def slow(*, seeds: Count = 6) -> Output:
    """Takes its time at the scale decide.

    Args:
      seeds: values.
    """
    if seeds > 6:
        time.sleep(60)
    return output("slow", seeds, 0.7)


def other(*, seeds: Count = 6) -> Output:
    """Cannot be decided.

    Args:
      seeds: values.
    """
    return output("other", seeds, 0.7)


@pytest.fixture(name="known")
def three_figures(declare, stored, tmp_path, monkeypatch):
    del stored
    found = [
        declare(far, decide=Scale("1 min", seeds=60)),
        declare(slow, decide=Scale("1 h", after="gossip.far", seeds=60), numbers="Figure 1"),
        declare(near, decide=Scale("1 min", seeds=60), numbers="Bounds"),
        declare(other, paper=papers.CHEN),  # has no such scale
    ]
    monkeypatch.setattr(decide, "figures", lambda apart: found)
    for made in found[:3]:
        command.produce(made, "laptop", {}, Session(tmp_path, jobs=1))
    return found


def test_the_nearest_decision_for_the_least_time_comes_first(known, tmp_path, capsys):
    found = decide.candidates(known, Session(tmp_path))
    assert [each.made.name for each in found] == ["gossip.near", "gossip.far", "gossip.slow"]
    assert [each.open for each in found] == [1, 1, 1]
    assert found[0].decisions > 0.8 > found[1].decisions
    assert [each.seconds for each in found] == [120.0, 120.0, 7200.0]  # of two cores; shared runs are paid by far
    far, slow = known[:2]
    assert decide._seconds(slow, {made.name: made for made in (far, slow)}, set()) == 7320.0
    assert decide._seconds(slow, {made.name: made for made in (far, slow)}, {far.name}) == 7200.0
    assert decide._seconds(far, {far.name: far}, {far.name}) == 60.0  # its runs were done by another
    capsys.readouterr()
    assert command.answer(["decide", f"--workdir={tmp_path}", "--dry_run"]) == 0
    said = capsys.readouterr().out
    assert said.index("gossip.near") < said.index("gossip.far") < said.index("gossip.slow")
    assert not (tmp_path / "gossip.near" / "decide").exists()


def test_what_is_decided_is_shown_and_not_made_again(known, tmp_path, capsys):
    flags = ["decide", f"--workdir={tmp_path}", "--jobs=1", "--figures=gossip.near"]
    assert command.answer(flags) == 0
    assert "1/1] gossip.near" in capsys.readouterr().out
    facts = json.loads((tmp_path / "gossip.near" / "decide" / "claims.json").read_text())
    assert facts["claims"][0]["verdict"] == "holds"
    assert facts["arguments"] == {"seeds": "60"}
    assert board.find_result(known[2], tmp_path).facts["scale"] == "decide"
    assert command.answer(flags) == 0
    assert "No claim is open that the scale decide of its figure could decide" in capsys.readouterr().out


def test_it_ends_after_its_hours(known, tmp_path, capsys):
    del known
    flags = ["decide", f"--workdir={tmp_path}", "--jobs=1", "--figures=gossip.slow", "--hours=0.0001"]
    assert command.answer(flags) == 0
    assert "The 0.0001 hours are over: finished runs are kept" in capsys.readouterr().out
    assert not (tmp_path / "gossip.slow" / "decide").exists()


def test_an_unknown_figure_is_named(known, tmp_path, capsys):
    del known
    assert command.answer(["decide", f"--workdir={tmp_path}", "--figures=gossip.nothing"]) == 2
    assert "--figures=gossip.nothing must be a table or figure" in capsys.readouterr().err
