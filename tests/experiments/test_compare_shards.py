"""`compare --shard`: tasks of an array share one directory, and together do what one command does."""

import pathlib
import subprocess
import sys

import pytest

from sgdlab.commands import compare
from sgdlab.results import publish

ROOT = pathlib.Path(__file__).parents[2]
ARGUMENTS = (
    "--config.epochs=1.0", "--config.batch_size=32", "--config.optimizer.learning_rate=0.05", "--config.evaluations=2",
    "--config.network.kind=mlp", "--config.network.mlp.widths=(8,)", "--methods=asgd,gap_aware", "--num_workers=2",
    "--seeds=1", "--processes=1",
)  # fmt: skip
RUNS = ("asgd-n2-seed0", "gap_aware-n2-seed0", "nag_asgd-n1-seed0")


WITHOUT_PICTURES = """
import sys
from sgdlab import files
from sgdlab.commands import compare, launch
from sgdlab.results import publish
def publish_quickly(path, groups, *others):
    files.write_text(path / "report.html", f"{len(groups)} groups")
    return path / "report.html"
publish.publish = publish_quickly
sys.argv[0] = "compare"
compare.COMMAND.run()
"""


@pytest.mark.full
def test_two_tasks_at_once_do_what_one_command_does(call, monkeypatch, tmp_path):
    """Three runs of three methods: a task has one or two of them. Numbers from 0, as of `--array=0-1`."""
    both = tmp_path / "both"
    command = [sys.executable, "-c", WITHOUT_PICTURES, *ARGUMENTS, f"--workdir={both}"]
    tasks = [
        subprocess.Popen([*command, f"--shard={index}/2"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for index in (0, 1)
    ]
    outputs = [task.communicate(timeout=300)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], outputs
    done = [[name for name in RUNS if f"] {name.split('-')[0]}, " in output] for output in outputs]
    assert sorted(done[0] + done[1]) == sorted(RUNS), outputs
    assert sorted(map(len, done)) == [1, 2]
    assert any(f"Report: {both / 'report.html'}" in output for output in outputs)
    assert (both / "report.html").read_text() == "3 groups"
    assert sorted(file.stem.rpartition("-")[0] for file in both.glob("metrics/*.jsonl")) == list(RUNS)
    assert not list(both.glob("metrics/*/*"))  # nothing under way, and nothing was done twice
    monkeypatch.setattr(publish, "publish", lambda *arguments: "not drawn here")
    again = call(compare, *ARGUMENTS, f"--workdir={both}")[1]  # by one command, without a share
    assert "Nothing to do: 3 runs and their report are up to date" in again


def test_a_task_says_what_is_left_and_the_same_task_again_does_nothing(call, tmp_path):
    runs = tmp_path / "runs"
    code, output, errors = call(compare, *ARGUMENTS, f"--workdir={runs}", "--shard=1/3")
    assert code == 0, errors
    assert "1 run to do, 2 left to other shards" in output
    assert "2 of 3 runs are left to other shards. The last to finish writes the report" in output
    assert not (runs / "report.html").exists()
    (file,) = runs.glob("metrics/*.jsonl")
    before = file.stat().st_mtime_ns
    code, output, _ = call(compare, *ARGUMENTS, f"--workdir={runs}", "--shard=1/3")
    assert code == 0
    assert "2 of 3 runs are left to other shards" in output
    assert file.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--shard=3/2",), "--shard='3/2' must be like 2/8"),
        (("--shard=/",), "--shard='/' must be like 2/8"),  # variables of a scheduler that are not set
        (("--shard=1/2", "--rerun=asgd"), "--rerun=asgd must be left out with --shard"),
    ],
)
def test_a_task_that_cannot_be_is_one_line(call, arguments, words, tmp_path):
    code, _, errors = call(compare, *ARGUMENTS, *arguments, f"--workdir={tmp_path / 'runs'}")
    assert code == 2
    (line,) = errors.splitlines()
    assert words in line
    assert not (tmp_path / "runs").exists()
