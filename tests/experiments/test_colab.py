"""The notebooks share their installation and run from top to bottom; a stored notebook equals its source."""

import dataclasses
import importlib.util
import os
import pathlib
import re
import subprocess
from collections.abc import Callable

import jupytext
import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient

import sgdlab
from sgdlab.deep_markov import TrainedModel
from sgdlab.results import summary

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "experiments/colab"
SOURCES = sorted(path for path in FOLDER.glob("*.py") if path.name != "__init__.py")


@dataclasses.dataclass(frozen=True)
class Example:
    """A notebook at toy size.

    Attributes:
      toy: settings.
      pictures: how many it draws.
      check: of what it printed and of its directory.
      after: a cell that stores what the check is about.
    """

    toy: dict
    pictures: int
    check: Callable[[str, pathlib.Path], None]
    after: str = ""


def check_cutoff(printed, work):
    assert [path.name for path in work.iterdir()] == ["cutoff_demo"]
    assert sorted(path.name for path in (work / "cutoff_demo").iterdir()) == ["model", "trace.csv"]
    recording = sgdlab.cluster.recorded(work / "cutoff_demo" / "trace.csv")
    toy = EXAMPLES["cutoff"].toy
    assert recording.complete().runtimes.shape == (toy["STEPS"], toy["NUM_WORKERS"])
    assert TrainedModel.load(work / "cutoff_demo" / "model").num_workers == toy["NUM_WORKERS"]


def check_rule(printed, work):
    assert [path.name for path in work.iterdir()] == ["rule_demo"]
    assert {"metrics", "plots", "report.html", "table.md"} <= {path.name for path in (work / "rule_demo").iterdir()}
    # The steps of single gradients.
    (delays,) = re.findall(r"^delay +(.*)$", printed, re.MULTILINE)
    rows = re.findall(r"^p = (\S+) +(.*)$", printed, re.MULTILINE)
    assert [float(power) for power, _ in rows] == [0.0, 1.0]
    for power, steps in rows:
        expected = [-(float(delay) ** -float(power)) for delay in delays.split()]
        assert [float(step) for step in steps.split()] == pytest.approx(expected, abs=5.1e-4)
    # The ends of the family are rules of the library; a run has the same loss at every evaluation.
    found = [group for group in groups(work / "rule_demo") if not group.serial]
    mine = {group.configs[0]["rule"]["delay_power"]["power"]: group for group in found if group.method == "delay_power"}
    compared = {group.method: group for group in found if group.method != "delay_power"}
    for method, power in {"nag_asgd": 0.0, "staleness_aware": 1.0}.items():
        assert losses(mine[power]) == pytest.approx(losses(compared[method]), rel=1e-4)
        assert losses(mine[power]) != pytest.approx(losses(mine[0.5]), rel=1e-2)
    assert all(group.title in printed for group in (mine[0.5], *compared.values()))


def check_records(printed, work):
    demo = work / "records_demo"
    figures = {f"{name}.{kind}" for name in ("error", "time_to_accuracy") for kind in ("png", "svg")}
    assert {path.name for path in demo.iterdir()} == {"runs", *figures}
    runs = summary.read(demo / "runs")
    assert f"runs: {len(runs)}, evaluations: {sum(len(run) - 2 for run in runs)}\n" in printed
    settings = pd.read_csv(work / "settings.csv", index_col=0)
    assert {"cluster.first_workers"} == set(settings.index)  # the single worker is one of the cluster's
    # The time to an accuracy, run by run.
    seconds = pd.read_csv(work / "seconds.csv", index_col=["name", "seed"])
    assert len(seconds) == len(runs)
    reached = 0
    for run in runs:
        first = run[0]
        name = first["title"] if first["serial"] else f"{first['title']}, {first['num_workers']} workers"
        for goal, value in seconds.loc[name, first["seed"]].items():
            later = [record for record in run[2:-1] if 100 * record["test_accuracy"] >= float(goal) - 1e-4]
            reached += bool(later)
            assert value == pytest.approx(later[0]["seconds"] if later else float("nan"), nan_ok=True)
    assert 0 < reached < seconds.size


EXAMPLES = {
    "cutoff": Example(
        toy={"NUM_WORKERS": 12, "NUM_NODES": 3, "STEPS": 150, "TRAINING_STEPS": 100, "NETWORK_UPDATES": 10},
        pictures=9,
        check=check_cutoff,
    ),
    "rule": Example(
        toy={
            "NUM_WORKERS": 4,
            "EPOCHS": 1.0,
            "SEEDS": 1,
            "NETWORK": "mlp",
            "OTHERS": "nag_asgd, staleness_aware",
            "POWERS": "0, 1",
        },
        pictures=4,
        check=check_rule,
    ),
    "records": Example(
        # One method besides the single worker of the same name: all runs are one process's.
        toy={"METHODS": "nag_asgd", "NUM_WORKERS": 4, "SEEDS": 2, "EPOCHS": 1.0, "NETWORK": "mlp"},
        pictures=3,
        check=check_records,
        after="seconds.to_csv('seconds.csv')\ntable.drop(columns='seed').drop_duplicates().T.to_csv('settings.csv')",
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_runs(source, tmp_path, monkeypatch):
    example = EXAMPLES[source.stem]
    notebook = jupytext.read(source)
    set_parameters(notebook, example.toy)
    if example.after:
        notebook.cells.append(nbformat.v4.new_code_cell(example.after))
    nbformat.validate(notebook)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # Compiled code need not be fast here, compilation should be; and there is one device.
    quickly = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    quickly += ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
    monkeypatch.setenv("XLA_FLAGS", " ".join(quickly))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # pictures must be drawn into the notebook
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):  # a kernel's history and its connection
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    work = tmp_path / "work"
    work.mkdir()

    NotebookClient(notebook, kernel_name="python3", timeout=300, resources={"metadata": {"path": str(work)}}).execute()

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == example.pictures
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "Warning" not in printed
    red = [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    assert red == []  # progress is not in the colour of errors
    example.check(printed, work)


def test_all_notebooks_install_alike():
    cells = {source.stem: cell_with("@title Installation", source).source for source in SOURCES}
    assert set(cells) == set(EXAMPLES)
    assert len(set(cells.values())) == 1


def test_installation(monkeypatch):
    """It does nothing where sgdlab is there; else pip installs it, by its name or from another source."""
    cell, commands = cell_with("@title Installation", SOURCES[0]).source, []
    monkeypatch.setattr(subprocess, "run", lambda command, *, check: commands.append((command, check)))
    exec(cell, {})
    assert commands == []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    exec(cell, {})
    exec(cell.replace('SOURCE = "sgdlab"', 'SOURCE = "sgdlab-1.whl"'), {})
    assert [command[-1] for command, _ in commands] == ["sgdlab", "sgdlab-1.whl"]
    assert all(command[1:3] == ["-m", "pip"] and check for command, check in commands)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_source_is_a_notebook_that_colab_reads(source):
    notebook = jupytext.reads(jupytext.writes(jupytext.read(source), fmt="ipynb"), fmt="ipynb")
    nbformat.validate(notebook)
    assert set(notebook.metadata) == {"jupytext", "kernelspec"}
    assert [cell.source for cell in notebook.cells] == [cell.source for cell in jupytext.read(source).cells]


def cell_with(text, source):
    (cell,) = (cell for cell in jupytext.read(source).cells if text in cell.source)
    return cell


def set_parameters(notebook, values):
    (cell,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    for name, value in values.items():
        cell.source, count = re.subn(rf"^{name} = .*$", f"{name} = {value!r}", cell.source, flags=re.MULTILINE)
        assert count == 1, name


def groups(directory):
    return summary.groups(summary.read(directory))


def losses(group):
    return [record["test_loss"] for run in group.runs for record in run[1:-1]]
