"""The notebook: in step with its source, kept without outputs, and it runs from top to bottom."""

import pathlib
import re

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

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


def test_is_its_source(notebook):
    source = jupytext.read(NOTEBOOK.with_suffix(".py"))
    ours, theirs = ([(c.cell_type, c.metadata, c.source) for c in book.cells] for book in (notebook, source))
    assert len(ours) == len(theirs)
    for cell, other in zip(ours, theirs, strict=True):
        assert cell == other, "run: jupytext --update --to ipynb experiments/colab/cutoff.py"


def test_is_kept_without_outputs(notebook):
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
    monkeypatch.delenv("MPLBACKEND", raising=False)  # pictures belong into the notebook
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):  # a kernel's history and its connection
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    work = tmp_path / "work"
    work.mkdir()

    NotebookClient(notebook, kernel_name="python3", timeout=300, resources={"metadata": {"path": str(work)}}).execute()

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == PICTURES
    told = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "Recording: 150 steps x 12 workers" in told
    assert "the model was trained on 12 workers" in told
    assert "Warning" not in told
    assert [path.name for path in work.iterdir()] == ["cutoff_demo"]
    assert sorted(path.name for path in (work / "cutoff_demo").iterdir()) == ["model", "trace.csv"]


def set_parameters(notebook, values):
    (cell,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    for name, value in values.items():
        cell.source, count = re.subn(rf"^{name} = .*$", f"{name} = {value!r}", cell.source, flags=re.MULTILINE)
        assert count == 1, name
