"""The recorded data set: what workers compute, labels that are read back, scores of known tools, and the sample."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import psutil
import pytest

from experiments.benchmarks import diagnosis
from experiments.benchmarks.planted.rules import Answer
from experiments.recorded import __main__ as command
from experiments.recorded import episodes, recording, scoring, worker
from experiments.recorded.episodes import KINDS, Episode
from sgdlab import traces
from sgdlab.errors import UsageError
from sgdlab.stragglers import recording as recordings
from sgdlab.stragglers.diagnosis import find_causes
from sgdlab.traces import Recording

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
    drawn, again = ([episodes.draw(number, seed=3, steps=500, workers=4) for number in range(80)] for _ in range(2))
    assert drawn == again
    for episode in (each for each in drawn if each.fault):
        assert 100 <= episode.since <= 300
        assert episode.until is None or episode.since + 124 <= episode.until < 500
        assert KINDS[episode.fault].least <= episode.strength <= KINDS[episode.fault].most
    assert {episode.worker for episode in drawn} == {0, 1, 2, 3}


def test_a_worker_has_the_fault_of_its_episode_alone():
    episode = Episode(0, "slow loader", 1, 5, 7, 9)
    assert [episode.strength_of("slow loader", 1, step) for step in (-1, 4, 5, 7, 8)] == [0, 0, 9, 9, 0]
    assert not episode.strength_of("slow loader", 0, 6)
    assert not episode.strength_of("throttled disk", 1, 6)


@pytest.mark.full
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
    assert known["loss"][1] < 2 < known["loss"][0] < 2.6  # of ten classes, log 10 before the first step
    assert record(tmp_path, "--episodes=2", "--seed=1") == 2
    assert "'seed': 0, 'namespaces': False}, and not with" in capsys.readouterr().err
    (tmp_path / known["file"]).unlink()
    assert record(tmp_path, "--episodes=2") == 0
    assert [fleet.name for fleet in diagnosis.stored(tmp_path)] == ["000-clean.parquet", known["file"]]
    (tmp_path / "truth.json").write_text("[]")
    assert record(tmp_path, "--episodes=2") == 2
    assert "truth.json must be what an earlier call has left" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.long("three processes each of eight jobs")
def test_faults_are_seen_in_their_phases_from_the_first_step_on(tmp_path):
    """Of those that a busy machine does not hide; of six steps at the beginnings one may be slow or fast by chance."""
    assert record(tmp_path, "--episodes=8", "--steps=60") == 0
    begins = []
    for known in json.loads((tmp_path / "truth.json").read_text())["fleets"]:
        if known["fault"] in ("slow loader", "throttled disk", "limited link"):
            slow = traces.read(tmp_path / known["file"]).phases[known["phase"]][:, known["workers"][0]]
            limit = 2 * np.median(slow[: known["since"]])
            assert np.median(slow[known["since"] : (known["until"] or 60) + 1]) > limit, known
            begins += [slow[known["since"] - 1] < limit, slow[known["since"]] > limit]
    assert sum(begins) >= 5


def test_a_process_is_stopped_and_kept_beside_others_until_the_end():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child, contextlib.ExitStack() as last:
        last.callback(child.kill)
        process = psutil.Process(child.pid)
        with contextlib.ExitStack() as stack:
            episodes.begin(stack, Episode(0, "frozen worker", since=0, strength=50), child.pid, None, "", 0)
            assert wait_for(lambda: process.status() == psutil.STATUS_STOPPED)
            assert wait_for(lambda: process.status() != psutil.STATUS_STOPPED)
        before = psutil.Process().children()  # others may be of tests before this one
        with contextlib.ExitStack() as stack:
            episodes.begin(stack, Episode(0, "busy neighbour", since=0, strength=2), child.pid, None, "", 0)
            (core,) = process.cpu_affinity()
            beside = [other for other in psutil.Process().children() if other not in before]
            assert [other.cpu_affinity() for other in beside] == [[core]] * 2
        assert process.status() != psutil.STATUS_STOPPED
        assert len(process.cpu_affinity()) > 1
        assert not any(other.is_running() for other in beside)


def test_a_neighbour_ends_with_its_recorder_however_that_ends():
    spin = episodes._SPIN.format(core=min(os.sched_getaffinity(0)))
    begin = "import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', sys.argv[1]]).wait()"
    with subprocess.Popen([sys.executable, "-c", begin, spin], stdout=subprocess.PIPE, text=True) as recorder:
        assert recorder.stdout.readline() == "spins\n"
        (beside,) = psutil.Process(recorder.pid).children()
        assert beside.is_running()
        recorder.kill()
    assert wait_for(lambda: not beside.is_running() or beside.status() == psutil.STATUS_ZOMBIE)


def wait_for(seen):
    ends = time.monotonic() + 20
    while not (found := seen()) and time.monotonic() < ends:
        time.sleep(0.002)
    return found


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


def test_faults_that_others_have_named_have_their_place():
    rows = [
        {
            "data": "mine",
            "trace": trace,
            "tool": scoring.OURS,
            "fault": fault,
            "named": True,
            "right": right,
            "since": 0,
        }
        for trace, (fault, right) in enumerate([("hot GPU", True), ("slow loader", True), ("hot GPU", False)])
    ]
    table = scoring.table(pd.DataFrame(rows))
    assert dict(zip(table.columns, table.rows[0], strict=True))["by fault"] == "1/1, 1/2"
    assert table.notes == ["Faults in order: slow loader, hot GPU."]


def test_a_folder_without_traces_is_refused_before_any_is_scored(tmp_path, monkeypatch):
    monkeypatch.setattr(scoring, "predicted", None)
    for wrong in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(UsageError, match=f"--traces={wrong}"):
            scoring.main([scoring.SAMPLE, wrong], store=False)


def test_shares_of_the_oracle_are_those_by_hand():
    times = np.random.default_rng(0).gamma(25, 0.04, (60, 4))
    parts = recordings.split(Recording(times, np.arange(60), tuple("0123")))
    test = np.sort(times[30:], axis=1)
    best = (np.arange(1, 5) / test).argmax(axis=1)
    share = 100 * (4 / test[:, 3].mean()) / ((best + 1).mean() / test[np.arange(30), best].mean())
    found = dict(scoring.predicted(parts))
    assert found["full synchrony"]["share"] == pytest.approx(share)
    rows = [
        {"data": "mine", "trace": trace, "tool": tool, "share": share + gain, "inside": None}
        for tool, gains in ((scoring.FIXED, (0, 0, 0)), ("mine", (1.0, 2.0, 3.0)))
        for trace, (gain, share) in enumerate(zip(gains, (80, 90, 70), strict=True))
    ]
    assert [row[4] for row in scoring.table(pd.DataFrame(rows)).rows] == ["", "tie: 2.0 ± 2.5"]


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
