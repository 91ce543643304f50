"""The benchmark of diagnosis: rules on fleets that anyone can judge, scores of known answers, files for other tools."""

import json

import numpy as np
import pandas as pd
import pytest

from experiments.benchmarks import diagnosis
from experiments.benchmarks.planted import rules
from experiments.benchmarks.planted.rules import Answer
from experiments.benchmarks.planted.trials import NOTHING
from sgdlab.traces import Recording


def fleet(steps=600, workers=8, noise=0.02, seed=0):
    return np.random.default_rng(seed).gamma(1 / noise**2, noise**2, (steps, workers))


@pytest.mark.parametrize("name", rules.RULES)
def test_a_worker_of_twice_the_time_since_a_step(name):
    """All name it; nobody says anything of the same fleet without it, but for the deadline in few workers."""
    runtimes = fleet()
    clean = rules.RULES[name](runtimes, ())
    assert not clean or name.startswith("median")
    runtimes[300:, 5] *= 2
    first = rules.RULES[name](runtimes, ())[0]
    assert first.workers == (5,)
    assert abs(first.since - 300) <= 1


@pytest.mark.parametrize(("factor", "named"), [(1.30, False), (1.40, True)])
def test_the_threshold_of_nvrx(factor, named):
    """A score below 0.75 is a factor above 1.33."""
    runtimes = fleet(noise=0.005)
    runtimes[:, 2] *= factor
    assert bool(rules.nvrx(runtimes, ())) == named


@pytest.mark.parametrize(("factor", "named"), [(1.09, False), (1.15, True)])
def test_the_threshold_of_traceml(factor, named):
    """The others wait a tenth of the slow step from 1 / 0.9 on."""
    runtimes = fleet(noise=0.002)
    runtimes[:, 2] *= factor
    assert bool(rules.traceml(runtimes, ())) == named


def test_change_points_of_a_series_without_any():
    """In at most one of twenty; the rule drops those at which the mean hardly changes besides."""
    found = [rules.change_points(np.random.default_rng(seed).normal(1, 0.05, 600)) for seed in range(20)]
    assert sum(map(bool, found)) <= 1


def test_scores_of_perfect_and_of_wrong_answers():
    fleets = [diagnosis.fleet_of(*one) for one in diagnosis.asked(2, seed=1)]
    perfect = [[Answer(found.plant.workers, found.plant.since, found.cost)] if found.fault else [] for found in fleets]
    score = diagnosis.scored(fleets, perfect)
    assert set(score.first.values()) == {(2, 2)}
    assert (score.alarms, set(score.since), set(score.cost)) == (0, {0}, {0.0})
    wrong = [[Answer((0, 1, 2), 5, 0.5)] for _ in fleets]
    score = diagnosis.scored(fleets, wrong)
    assert sum(hits for _, hits in score.first.values()) <= 1  # of a node of three workers, by chance
    assert score.alarms == 2 * diagnosis.CLEAN
    steps = [max(step) for fleet in fleets if not fleet.fault for step in fleet.plant.fleet.runtimes]
    assert score.hours == pytest.approx(sum(steps) / 3600)
    assert all(0.005 < found.cost < 0.6 for found in fleets if found.fault)


def test_fleets_for_other_tools_and_their_answers(tmp_path, capsys):
    folder = tmp_path / "fleets"
    assert diagnosis.main([f"--write={folder}", "--draws=1"]) == 0
    truth = json.loads((folder / "truth.json").read_text())
    assert len(truth["fleets"]) == len(list(folder.glob("*.csv"))) == len(diagnosis.FAULTS) + diagnosis.CLEAN
    found = diagnosis.fleet_of("one slow worker since a step", 0, 0)
    written = pd.read_csv(folder / found.name, index_col="step").to_numpy()
    np.testing.assert_allclose(written, found.plant.fleet.runtimes, rtol=1e-5)
    (known,) = [one for one in truth["fleets"] if one["file"] == found.name]
    assert (tuple(known["workers"]), known["since"]) == (found.plant.workers, found.plant.since)
    answers = {
        one["file"]: [{"workers": one["workers"], "since": one["since"], "cost": one["cost"]}]
        for one in truth["fleets"]
        if one["fault"]
    }
    (tmp_path / "mine.json").write_text(json.dumps(answers))
    capsys.readouterr()
    assert diagnosis.main([f"--answers={tmp_path / 'mine.json'}", "--draws=1"]) == 0
    assert "100.0 %" in capsys.readouterr().out
    truth["fleets"] = [one for one in truth["fleets"] if one["fault"]][:2]  # others are clean, and there are many
    (folder / "truth.json").write_text(json.dumps(truth))
    (tmp_path / "mine.json").write_text(json.dumps({one["file"]: answers[one["file"]] for one in truth["fleets"][:1]}))
    assert diagnosis.main([f"--answers={tmp_path / 'mine.json'}", f"--fleets={folder}"]) == 0
    assert "50.0 % (9.5-90.5)" in capsys.readouterr().out
    assert [one.cost for one in diagnosis.stored(folder)] == [one["cost"] for one in truth["fleets"]]
    del truth["fleets"][0]["nodes"]
    (folder / "truth.json").write_text(json.dumps(truth))
    assert diagnosis.main([f"--fleets={folder}"]) == 2
    assert "must say of each fleet what --write does: KeyError('nodes')" in capsys.readouterr().err
    for text, message in (("[1]", "must hold"), ('{"other.csv": []}', "which is no fleet of these draws")):
        (tmp_path / "mine.json").write_text(text)
        assert diagnosis.main([f"--answers={tmp_path / 'mine.json'}", "--draws=1"]) == 2
        assert message in capsys.readouterr().err


def test_workers_of_a_truth_are_numbers_of_its_file(tmp_path):
    Recording(fleet(20, 3), np.arange(20), ("a", "b", "c")).save(tmp_path / "one.parquet")
    known = {"file": "one.parquet", "nodes": [], "law": "recorded", "fault": "hot", "since": 5, "until": None}
    for workers in (["a"], [3], [-1]):
        (tmp_path / diagnosis.TRUTH).write_text(json.dumps({"fleets": [{**known, "workers": workers}]}))
        with pytest.raises(ValueError, match=r"of one\.parquet must be numbers from 0 on"):
            diagnosis.stored(tmp_path)
    (tmp_path / diagnosis.TRUTH).write_text(json.dumps({"fleets": [{**known, "workers": [2]}]}))
    assert diagnosis.stored(tmp_path)[0].plant.workers == (2,)


def test_scores_of_files_are_not_stored_as_those_of_draws(capsys):
    with pytest.raises(SystemExit) as end:
        diagnosis.main(["--fleets=recorded", "--store"])
    assert end.value.code == 2
    assert "--store keeps the scores of drawn fleets" in capsys.readouterr().err


def test_clean_fleets_have_every_law():
    drawn = {diagnosis.fleet_of(NOTHING, draw, 0).plant.fleet.law for draw in range(16)}
    assert drawn >= {law for law in diagnosis.LAWS if law}
