"""The page on stale rollouts: its commands are parsed, its table is what the first prints, its example runs."""

import dataclasses
import pathlib
import re
import shlex

import pytest

from sgdlab.commands import rollouts
from sgdlab.rollouts import STALENESS_POLICIES

PAGE = (pathlib.Path(__file__).parents[2] / "docs/rollouts.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^sgdlab rollouts.*$", PAGE, re.MULTILINE)
TABLE = re.search(r"^```\n(policy .*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_is_parsed(line, capsys):
    called = []
    code = dataclasses.replace(rollouts.COMMAND, main=called.append).answer(shlex.split(line)[1:])
    assert code == 0, capsys.readouterr().err
    assert len(called) == 1


@pytest.mark.long("the command as users run it")
def test_the_table_is_what_the_command_prints(capsys, tmp_path):
    assert rollouts.COMMAND.answer(["rollouts", f"--workdir={tmp_path}"]) == 0
    assert capsys.readouterr().out.startswith(TABLE)


def test_every_policy_is_named():
    assert all(f"`{name}" in PAGE for name in STALENESS_POLICIES if name != "unbounded")


def test_the_example_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    exec(compile(example, "rollouts.md", "exec"), {})
    assert "RolloutSchedule: 100 steps of 128 rollouts" in capsys.readouterr().out
    assert (tmp_path / "schedule.npz").exists()
