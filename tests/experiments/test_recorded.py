"""The recorded data set: what workers compute, labels that are read back, scores of known tools, and the sample."""

import json
import pathlib

import numpy as np
import pandas as pd
import pytest

from experiments.benchmarks import diagnosis
from experiments.benchmarks.planted.rules import Answer
from experiments.recorded import __main__ as command
from experiments.recorded import episodes, recording, scoring, worker
from experiments.recorded.episodes import KINDS, Episode
from sgdlab import traces
from sgdlab.stragglers import recording as recordings
from sgdlab.stragglers.diagnosis import find_causes

TINY = ("--steps=20", "--workers=3", "--nonamespaces")


def record(folder, *flags):
    return command.COMMAND.answer(["recorded", f"--workdir={folder}", *TINY, *flags])


def test_gradient_is_that_of_differences():
    draw = np.random.default_rng(0)
    parameters, pixels = worker.initial(0).astype(float), draw.random((5, worker.PIXELS))
    labels, way = draw.integers(worker.CLASSES, size=5), draw.standard_normal(worker.MESSAGE - 1)
    slope = worker.gradient(parameters, pixels, labels)[:-1] @ way
    ends = [worker.gradient(parameters + h * way, pixels, labels)[-1] for h in (1e-6, -1e-6)]
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)


def test_episodes_are_drawn_from_their_seed():
    drawn = [episodes.draw(number, seed=3, steps=500, workers=4) for number in range(400)]
    assert drawn == [episodes.draw(number, seed=3, steps=500, workers=4) for number in range(400)]
    faults = [episode.fault for episode in drawn]
    assert {faults.count(kind) for kind in KINDS} == {50}
    assert faults.count(None) == 100
    for episode in drawn:
        if episode.fault:
            assert 100 <= episode.since <= 300
            assert episode.until is None or episode.since + 124 <= episode.until < 500
            assert KINDS[episode.fault].least <= episode.strength <= KINDS[episode.fault].most
    assert {episode.worker for episode in drawn} == {0, 1, 2, 3}


def test_a_worker_has_the_fault_of_its_episode_alone():
    episode = Episode(0, "slow loader", 1, 5, 7, 9)
    assert [episode.strength_of("slow loader", 1, step) for step in (-1, 4, 5, 7, 8)] == [0, 0, 9, 9, 0]
    assert not episode.strength_of("slow loader", 0, 6)
    assert not episode.strength_of("throttled disk", 1, 6)


@pytest.mark.long("three processes each of two jobs")
def test_a_recording_goes_on_where_it_was_and_labels_are_read_back(tmp_path, capsys):
    assert record(tmp_path, "--episodes=1") == 0
    first = (tmp_path / "000-clean.parquet").stat()
    assert record(tmp_path, "--episodes=2") == 0
    assert (tmp_path / "000-clean.parquet").stat().st_mtime_ns == first.st_mtime_ns
    truth = json.loads((tmp_path / "truth.json").read_text())
    drawn = episodes.draw(1, seed=0, steps=20, workers=3)
    clean, slow = diagnosis.stored(tmp_path)
    assert (clean.fault, slow.fault, clean.cost, slow.cost) == (None, "slow gradient", None, None)
    assert (slow.plant.workers, slow.plant.since, slow.plant.until) == ((drawn.worker,), drawn.since, drawn.until)
    known = truth["fleets"][1]
    assert (known["strength"], known["phase"]) == (drawn.strength, "gradient")
    recorded = traces.read(tmp_path / known["file"])
    assert recorded.runtimes.shape == (20, 3)
    assert {*recorded.phases} == {"data", "gradient", "upload", "update"}
    assert {*recorded.communication} == {"receive"}
    assert known["loss"][1] < known["loss"][0]
    assert record(tmp_path, "--episodes=2", "--seed=1") == 2
    assert "'seed': 0, 'namespaces': False}, and not with" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.long("three processes each of six jobs")
def test_each_fault_is_seen_in_its_phase(tmp_path):
    """Of those that a busy machine does not hide: the others are in the sample."""
    assert record(tmp_path, "--episodes=8", "--steps=60") == 0
    for known in json.loads((tmp_path / "truth.json").read_text())["fleets"]:
        if known["fault"] in ("slow loader", "throttled disk", "limited link"):
            times = traces.read(tmp_path / known["file"]).phases[known["phase"]]
            lasts = np.zeros(60, bool)
            lasts[known["since"] : None if known["until"] is None else known["until"] + 1] = True
            (slow,) = known["workers"]
            assert np.median(times[lasts, slow]) > 2 * np.median(times[~lasts, slow]), known


def test_a_worker_that_ends_is_said_with_its_episode(tmp_path, monkeypatch):
    monkeypatch.setattr(recording.job, "_ENV", {"PYTHONPATH": str(tmp_path)})  # there is no recorder
    monkeypatch.setattr(recording.job, "SECONDS", 3.0)
    with pytest.raises(RuntimeError, match=r"000-clean\.parquet: a worker is gone"):
        recording.record(tmp_path, 1, steps=20, workers=3, seed=0, namespaces=False)
    assert not (tmp_path / "truth.json").exists()


def test_scores_of_a_perfect_and_of_a_blind_tool(monkeypatch):
    drawn = [diagnosis.fleet_of(*one) for one in diagnosis.asked(1, seed=1)]
    found = [fleet._replace(fault=kind) for fleet, kind in zip(drawn, KINDS, strict=False)] + drawn[-5:]
    tools = {
        "perfect": lambda fleet: [Answer(fleet.plant.workers, fleet.plant.since)] * (fleet.fault is not None),
        "blind": lambda fleet: [],
        "late": lambda fleet: [Answer(fleet.plant.workers, (fleet.plant.since or 0) + 20)],
    }
    monkeypatch.setattr(scoring, "OURS", "perfect")
    monkeypatch.setattr(scoring, "RULES", tools)
    monkeypatch.setattr(diagnosis, "named", lambda rule, fleet: rule(fleet))
    rows = [
        {"data": "mine", "trace": fleet.name, "tool": tool, **scoring.judged(tool, fleet)}
        for fleet in found
        for tool in tools
    ]
    table = scoring.table(pd.DataFrame(rows))
    shown = {row["tool"]: row for row in (dict(zip(table.columns, row, strict=True)) for row in table.rows)}
    keys = ("named first", "against sgdlab", "since, off by", "something named", "by fault")
    assert [shown["perfect"][key] for key in keys] == [
        "100.0 % (61.0-100.0)",
        "",
        "0",
        "0 of 5",
        ", ".join(["1/1"] * 6),
    ]
    assert [shown["blind"][key] for key in keys] == [
        "0.0 % (0.0-39.0)",
        "worse: 0 to 6",
        "",
        "0 of 5",
        ", ".join(["0/1"] * 6),
    ]
    assert [shown["late"][key] for key in keys[1:4]] == ["tie: 0 to 0", "20", "5 of 5"]


def test_advise_names_whom_the_sample_says():
    """Files are read, rows are those of labels, and a fault that is plain to see is named."""
    found = diagnosis.stored(scoring.SAMPLE)
    known = {one["file"]: one for one in json.loads((scoring.SAMPLE / diagnosis.TRUTH).read_text())["fleets"]}
    plain = [fleet for fleet in found if fleet.fault and known[fleet.name]["seen"] > 2]
    assert len(plain) >= 5
    for fleet in plain:
        parts = recordings.read(scoring.SAMPLE / fleet.name, train_share=0.5)
        first = find_causes(parts.complete, parts.pauses).causes[0]
        assert first.workers == fleet.plant.workers
        assert known[fleet.name]["phase"] in ("all", *first.stages)
    assert sum(path.stat().st_size for path in scoring.SAMPLE.iterdir()) < 2_000_000


@pytest.mark.parametrize("flags", [("--traces=runs",), ("--score", "--traces=nowhere"), ("--workers=2",)])
def test_mistakes_are_one_line(flags, capsys, monkeypatch):
    monkeypatch.setattr(scoring, "SAMPLE", pathlib.Path("nowhere"))
    assert command.COMMAND.answer(["recorded", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert flags[-1].partition("=")[0] in line
