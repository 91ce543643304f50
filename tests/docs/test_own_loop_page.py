"""The examples of "Your own loop" run as scripts, as they are printed; each is short."""

import os
import re
import secrets
import socket
import subprocess
import sys

import pytest
from lib.pages import BLOCK, ROOT

PAGE = (ROOT / "docs/own/loop.md").read_text(encoding="utf-8")
SCRIPTS = {code.split("\n", 1)[0][2:]: code for language, code in BLOCK.findall(PAGE) if language == "python"}

NO_TORCH = "PyTorch is not installed: install its CPU build to run this"


def begun(name, folder, code=None):
    """Return the process of a script, run in a folder."""
    (folder / name).write_text(code or SCRIPTS[name], encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "JAX_PLATFORMS": "cpu"}
    environment.pop("JAX_ENABLE_X64", None)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, name], cwd=folder, env=environment, **pipes)


def printed(process):
    """Return the output of a process, when it has ended."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


def printed_by(name, folder):
    """Return the output of a script, run in a folder."""
    return printed(begun(name, folder))


def test_examples_are_short():
    names = ["jax_loop.py", "numpy_loop.py", "serve.py", "torch_loop.py", "torch_worker.py", "worker.py"]
    assert sorted(SCRIPTS) == names
    assert max(len(code.splitlines()) for code in SCRIPTS.values()) <= 40


@pytest.mark.full
def test_numpy(tmp_path):
    output = printed_by("numpy_loop.py", tmp_path)
    assert "replayed to 0.0" in output
    weights = [float(found) for found in re.search(r"weights \[(.*?)\]", output).group(1).split()]
    assert max(abs(weight - true) for true, weight in enumerate(weights)) < 0.1
    assert (tmp_path / "runs/loop/recording.npz").exists()


@pytest.mark.parametrize(
    "worker",
    [
        pytest.param("worker.py", marks=pytest.mark.long("three scripts, two of which join the third")),
        pytest.param("torch_worker.py", marks=pytest.mark.integrations),
    ],
)
def test_workers_that_connect(worker, tmp_path):
    if worker == "torch_worker.py":
        pytest.importorskip("torch", reason=NO_TORCH)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    (tmp_path / "token").write_text(f"{secrets.token_urlsafe()}\n")
    names = ("serve.py", worker, worker)
    processes = [begun(name, tmp_path, SCRIPTS[name].replace("8476", port)) for name in names]
    output, *workers = map(printed, processes)
    weights = [float(found) for found in re.search(r"weights \[(.*?)\]", output).group(1).split()]
    assert max(abs(weight - true) for true, weight in enumerate(weights)) < 0.1
    assert "lost 0" in output
    assert sorted(line.strip()[-1] for line in workers) == ["0", "1"]
    assert (tmp_path / "runs/joined/recording.npz").exists()


@pytest.mark.full
def test_jax(tmp_path):
    output = printed_by("jax_loop.py", tmp_path)
    adam, sgd = (float(re.search(rf"{title} (\S+)", output).group(1)) for title in ("Adam", "SGD"))
    assert 2 * adam < sgd  # of other seconds in every run: how far it comes varies
    assert float(re.search(r"loss at the end (\S+)", output).group(1)) < 0.3


@pytest.mark.integrations
def test_torch(tmp_path):
    pytest.importorskip("torch", reason=NO_TORCH)
    output = printed_by("torch_loop.py", tmp_path)
    assert "replayed to 0.0" in output
    assert float(re.search(r"loss at the end (\S+)", output).group(1)) < 0.5
