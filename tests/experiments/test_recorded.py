"""The recorded data set: what workers compute, labels that are read back, scores of known tools, and the sample."""

import json

import numpy as np
import pandas as pd
import pytest

from experiments.benchmarks import diagnosis
from experiments.benchmarks.planted.rules import Answer
from experiments.recorded import __main__ as command
from experiments.recorded import episodes, recording, scoring, worker
from experiments.recorded.episodes import KINDS, Episode
from sgdlab import traces
from sgdlab.commands.advise import COMMAND as ADVISE
from sgdlab.traces import Recording

TINY = ("--steps=20", "--workers=3", "--namespaces=no")


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
    given = worker.Worker(1, ("", 0), "", "", 20, 0, Episode(0, "slow loader", 1, 5, 7, 9), paced=False)
    assert [given.strength("slow loader", step) for step in (-1, 4, 5, 7, 8)] == [0, 0, 9, 9, 0]
    assert not given._replace(rank=0).strength("slow loader", 6)
    assert not given.strength("throttled disk", 6)


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
    assert "--seed=1 must be 0, with which" in capsys.readouterr().err


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
    monkeypatch.setattr(recording.job.hub, "SECONDS", 3.0)
    with pytest.raises(RuntimeError, match=r"000-clean\.parquet: a worker is gone"):
        recording.record(tmp_path, 1, steps=20, workers=3, seed=0, namespaces=False)
    assert not (tmp_path / "truth.json").exists()


def fleets(count=12):
    """Fleets of which every third is clean; the worker that is slow is named by the number."""
    times = np.random.default_rng(0).gamma(400, 1 / 400, (count, 60, 4))
    recordings = [Recording(each, np.arange(60), tuple("0123")) for each in times]
    return [
        diagnosis.recorded(str(number), None, each)
        if number % 3 == 0
        else diagnosis.recorded(str(number), [*KINDS][number % 6], each, workers=(number % 4,), since=20)
        for number, each in enumerate(recordings)
    ]


def perfect(fleet):
    return [Answer(fleet.plant.workers, fleet.plant.since)] if fleet.fault else []


def test_scores_of_a_perfect_and_of_a_blind_tool(monkeypatch):
    found = {fleet.name: fleet for fleet in fleets()}
    tools = {"perfect": perfect, "blind": lambda _: [], "hasty": lambda _: [Answer((0,), 0)]}
    monkeypatch.setattr(scoring, "OURS", "perfect")
    monkeypatch.setattr(scoring, "RULES", tools)
    monkeypatch.setattr(diagnosis, "named", lambda rule, fleet: rule(fleet))
    rows = [
        {"data": "mine", "trace": name, "tool": tool, **scoring.judged(tool, fleet)}
        for name, fleet in found.items()
        for tool in tools
    ]
    table = scoring.table(pd.DataFrame(rows))
    shown = {row["tool"]: row for row in (dict(zip(table.columns, row, strict=True)) for row in table.rows)}
    keys = ("named first", "against sgdlab", "since, off by", "something named")
    assert [shown["perfect"][key] for key in keys] == ["100.0 % (67.6-100.0)", "", "0", "0 of 4"]
    assert [shown["blind"][key] for key in keys] == ["0.0 % (0.0-32.4)", "worse: 0 to 8", "", "0 of 4"]
    assert shown["hasty"]["something named"] == "4 of 4"
    assert shown["hasty"]["since, off by"] == "20"
    assert shown["blind"]["by fault"] == ", ".join(["0/2"] * 4)
