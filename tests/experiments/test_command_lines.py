"""The command lines: help, whole runs, continuing after a kill, and mistakes in one line with exit code 2."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TINY = (
    "--config.epochs=1.0",
    "--config.evaluations=2",
    "--config.network.kind=mlp",
    "--config.network.widths=(8,)",
    "--config.target_accuracy=0.2",
)


def command(module, *args):
    return [sys.executable, "-m", f"experiments.{module}", *args]


def call(module, *args):
    return subprocess.run(command(module, *args), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def one_line(answer):
    assert answer.returncode == 2, answer.stderr
    (line,) = answer.stderr.strip().splitlines()
    return line


@pytest.mark.parametrize("module", ["main", "compare", "timeline"])
def test_help_helps(module):
    answer = call(module, "--help")
    assert answer.returncode == 0
    assert f"python -m experiments.{module}" in answer.stdout
    assert "--config.cluster.num_workers=8" in answer.stdout
    assert "dana_gap_aware" in answer.stdout
    assert "--workdir" in answer.stdout


@pytest.mark.parametrize(
    ("module", "flag", "words"),
    [
        ("main", "--config.method=sgd", "--config.method=sgd must be one of synchronous"),
        ("main", "--config.cluster.num_workers=0", "--config.cluster.num_workers=0 must be"),
        ("main", "--config.optimizer.learning_rate=nan", "--config.optimizer.learning_rate=nan must be"),
        ("main", "--config.batch_size=5000", "--config.batch_size=5000 must be at most 1437"),
        ("main", "--config.clutser.num_workers=3", "--config.clutser.num_workers=3 must be an entry"),
        ("main", "--config.batch_size=many", "--config.batch_size=many: must be a whole number"),
        ("main", "--config.schedule.steps=(3.0,1.0)", "--config.schedule.steps=(3.0, 1.0) must be rising"),
        ("main", "--config.foo=1", "--config.foo=1 must be an entry of the configuration"),
        ("compare", "--config.seed=3", "--config.seed=3 must be left out: compare sets it by --seeds"),
        ("compare", "--seeds=x", "seeds"),
        ("main", "--config=configs/nothing.py", "configs/nothing.py"),
        ("compare", "--methods=gap_aware,sgd", "--methods=sgd must be one of"),
        ("compare", "--num_workers=4,none", "--num_workers=none must be"),
        ("compare", "--seeds=0", "--seeds=0 must be"),
        ("compare", "--config.cluster.backups=4", "--config.cluster.backups=4 must be below"),
        ("compare", "--sedes=3", "sedes"),
        ("main", "--config.protocol.bound=-1", "--config.protocol.bound=-1 must be"),
        ("compare", "--config.protocol.pull_at_least=1.1", "--config.protocol.pull_at_least=1.1 must be"),
        ("timeline", "--seconds=-1", "--seconds=-1.0 must be a finite number above 0"),
        ("timeline", "--schedule=nothing.npz", "--schedule=nothing.npz must be a file"),
        ("timeline", "--schedule=README.md", "--schedule=README.md must be a schedule"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(module, flag, words, tmp_path):
    line = one_line(call(module, flag, f"--workdir={tmp_path / 'run'}"))
    assert words in line
    assert not (tmp_path / "run").exists()


def test_a_schedule_is_drawn_exported_and_drawn_again(tmp_path):
    for method, kind in (("partial", "Schedule: 8 workers"), ("push_gossip", "PeerSchedule: 8 nodes")):
        where = tmp_path / method
        drawn = call("timeline", *TINY, f"--config.method={method}", f"--workdir={where}")
        assert drawn.returncode == 0, drawn.stderr
        assert kind in drawn.stdout
        for name in ("timeline.png", "timeline.svg", "schedule.npz"):
            assert (where / name).stat().st_size > 0
        assert json.loads((where / "trace.json").read_text())["traceEvents"]
        again = call("timeline", f"--schedule={where / 'schedule.npz'}", f"--workdir={where / 'again'}")
        assert again.stdout.splitlines()[0] == drawn.stdout.splitlines()[0]
        assert (where / "again/trace.json").read_text() == (where / "trace.json").read_text()


def test_one_run_and_the_same_again(tmp_path):
    where = f"--workdir={tmp_path / 'one'}"
    first = call("main", *TINY, where)
    assert first.returncode == 0, first.stderr
    assert "Gap-Aware, 8 workers: test accuracy" in first.stdout
    for name in ("config.json", "metrics/run.jsonl", "parameters.npz", "schedule.npz", "plots/training.png"):
        assert (tmp_path / "one" / name).stat().st_size > 0
    written = (tmp_path / "one/metrics/run.jsonl").read_text()
    again = call("main", *TINY, where)
    assert "holds this run already" in again.stdout
    other = one_line(call("main", *TINY, where, "--config.seed=1"))
    assert "config.seed=0, not 1" in other
    assert (tmp_path / "one/metrics/run.jsonl").read_text() == written


def test_a_killed_comparison_continues_where_it_stopped(tmp_path):
    runs = tmp_path / "runs"
    arguments = (*TINY, "--methods=asgd,gap_aware", "--num_workers=2,4", "--seeds=6", f"--workdir={runs}")
    process = subprocess.Popen(
        command("compare", *arguments), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 200
    while len(list(runs.glob("metrics/*.jsonl"))) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    time.sleep(1.5)  # its helpers notice within a second
    before = {path: path.stat().st_mtime_ns for path in runs.glob("metrics/*.jsonl")}
    total = 6 + 2 * 2 * 6  # six single workers; more runs than its helpers finish before they notice
    assert 0 < len(before) < total
    (runs / "metrics/gap_aware-n4-seed1.jsonl").unlink(missing_ok=True)
    (runs / "metrics/gap_aware-n4-seed1.jsonl").write_text('{"kind": "run"}\n')
    answer = call("compare", *arguments)
    assert answer.returncode == 0, answer.stderr
    assert len(list(runs.glob("metrics/*.jsonl"))) == total
    for path, modified in before.items():
        if path.name != "gap_aware-n4-seed1.jsonl":
            assert path.stat().st_mtime_ns == modified
    assert "finished runs found" in answer.stdout
    for name in ("table.md", "table.csv", "report.html"):
        assert (runs / name).stat().st_size > 0
    for name in ("accuracy", "loss", "staleness", "timeline"):
        for kind in ("png", "svg"):
            assert (runs / f"plots/{name}.{kind}").stat().st_size > 0
    page = (runs / "report.html").read_text()
    assert "Gap-Aware" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert 'src="data:image/svg+xml' in page
    assert "Single worker (NAG)" in answer.stdout
    config = json.loads((runs / "config.json").read_text())
    assert "method" not in config
    assert os.listdir(runs).count("config.json") == 1


def test_an_interrupted_comparison_stops_and_says_so(tmp_path):
    arguments = (*TINY[1:], "--config.epochs=200.0", "--methods=asgd,gap_aware", "--num_workers=2", "--seeds=1")
    # Where the tests run in the background, the signal is ignored, and a new process would inherit that.
    heed = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", heed, *command("compare", *arguments, f"--workdir={tmp_path / 'runs'}")],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (tmp_path / "runs/config.json").exists() and process.poll() is None:
        time.sleep(0.05)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "the same command continues where it stopped" in errors


def test_nothing_beside_the_baseline_is_refused(tmp_path):
    line = one_line(call("compare", "--methods=nag_asgd", "--num_workers=1", f"--workdir={tmp_path / 'runs'}"))
    assert line == "error: --num_workers=1 must be more for nag_asgd: that is the baseline"


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    assert "must be a directory that can be written" in one_line(call("main", f"--workdir={tmp_path / 'file' / 'x'}"))
