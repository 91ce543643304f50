"""The notebook equals its source, is stored without outputs, and runs from top to bottom."""

import pathlib
import re

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

import sgdlab
from sgdlab.deep_markov import TrainedModel

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOK = ROOT / "experiments/colab/cutoff.ipynb"
TOY = {
    "NUM_WORKERS": 12,
    "NUM_NODES": 3,
    "STEPS": 150,
    "TRAINING_STEPS": 100,
    "NETWORK_UPDATES": 10,
}
PICTURES = 9


@pytest.fixture
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


def test_equals_its_source(notebook):
    source = jupytext.read(NOTEBOOK.with_suffix(".py"))
    cells, others = ([(c.cell_type, c.metadata, c.source) for c in book.cells] for book in (notebook, source))
    assert len(cells) == len(others)
    for cell, other in zip(cells, others, strict=True):
        assert cell == other, "run: jupytext --update --to ipynb experiments/colab/cutoff.py"


def test_is_stored_without_outputs(notebook):
    nbformat.validate(notebook)
    assert set(notebook.metadata) == {"jupytext", "kernelspec"}
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"tags", "cell_marker"}
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


def test_runs(notebook, tmp_path, monkeypatch):
    set_parameters(notebook, TOY)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # Compiled code need not be fast here, compilation should be.
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
    monkeypatch.delenv("MPLBACKEND", raising=False)  # pictures must be drawn into the notebook
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):  # a kernel's history and its connection
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    work = tmp_path / "work"
    work.mkdir()

    NotebookClient(notebook, kernel_name="python3", timeout=300, resources={"metadata": {"path": str(work)}}).execute()

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == PICTURES
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "Warning" not in printed
    assert [path.name for path in work.iterdir()] == ["cutoff_demo"]
    assert sorted(path.name for path in (work / "cutoff_demo").iterdir()) == ["model", "trace.csv"]
    recording = sgdlab.cluster.recorded(work / "cutoff_demo" / "trace.csv")
    assert recording.complete().runtimes.shape == (TOY["STEPS"], TOY["NUM_WORKERS"])
    assert TrainedModel.load(work / "cutoff_demo" / "model").num_workers == TOY["NUM_WORKERS"]


def set_parameters(notebook, values):
    (cell,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    for name, value in values.items():
        cell.source, count = re.subn(rf"^{name} = .*$", f"{name} = {value!r}", cell.source, flags=re.MULTILINE)
        assert count == 1, name
