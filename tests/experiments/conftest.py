"""Share between tests of commands and figures: a command in this process, and a directory of runs."""

import pathlib
import warnings

import pytest

from experiments.harness import Session, within

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(name="call")
def call_in_process(capfd, monkeypatch):
    """Runs a command here, at the root: (exit code, output, errors), what its children say among them."""
    monkeypatch.chdir(ROOT)

    def call(module, *arguments):
        capfd.readouterr()
        line = [module.__name__.rpartition(".")[2], *arguments]
        with warnings.catch_warnings():
            # ml_collections loads a configuration's file by an importer's method that Python is about to drop.
            warnings.filterwarnings("ignore", "the load_module", DeprecationWarning)
            warnings.filterwarnings("ignore", category=DeprecationWarning, module="importlib")
            code = module.COMMAND.answer(line)
        seen = capfd.readouterr()
        return code, seen.out, seen.err

    return call


@pytest.fixture(name="session")
def runs_in_a_directory_of_its_own(tmp_path):
    """Keeps the runs of sweeps, which are done in this process."""
    with within(Session(tmp_path, jobs=1)) as session:
        yield session
