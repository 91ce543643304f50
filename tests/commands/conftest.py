"""Commands run in this process, in an empty directory."""

import importlib

import pytest


@pytest.fixture(name="call")
def call_in_process(capsys, monkeypatch, tmp_path):
    """Runs a command here, in an empty directory: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)

    def call(name, *arguments):
        capsys.readouterr()
        module = importlib.import_module(f"sgdlab.commands.{name}")
        code = module.COMMAND.answer([name, *arguments])
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return call
