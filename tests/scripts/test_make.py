"""make installs what its target needs, says so before, and does it once."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
RUNS, TOOLS = "--editable '.[experiments]'", "--editable '.[test,lint]'"


def dry(target, environment):
    """The lines that make would run, without those of the target itself."""
    line = ["make", "--dry-run", "--no-print-directory", target, f"VENV={environment}"]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def number_of(lines, words):
    found = [number for number, line in enumerate(lines) if words in line]
    assert len(found) <= 1
    return found[0] if found else None


def test_runs_need_no_tools(tmp_path):
    lines = dry("run", tmp_path / "environment")
    order = ["echo 'Installing sgdlab and what it needs", RUNS, "echo 'Comparing methods", "experiments.compare"]
    numbers = [number_of(lines, words) for words in order]
    assert numbers == sorted(numbers)
    assert number_of(lines, TOOLS) is None


@pytest.mark.parametrize("target", ["test", "lint", "docs", "bench"])
def test_tools_are_installed_when_they_are_asked_for(target, tmp_path):
    lines = dry(target, tmp_path / "environment")
    assert number_of(lines, RUNS) < number_of(lines, "echo 'Installing tools") < number_of(lines, TOOLS)


def test_nothing_is_installed_twice(tmp_path):
    for name in ("installed", "tools"):
        (tmp_path / name).touch()
    for target in ("run", "lint"):
        assert not [line for line in dry(target, tmp_path) if "pip" in line or "Installing" in line]
    (tmp_path / "tools").unlink()
    assert number_of(dry("run", tmp_path), "pip") is None
    lines = dry("lint", tmp_path)
    assert (number_of(lines, RUNS), number_of(lines, TOOLS) is None) == (None, False)
