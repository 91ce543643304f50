"""The files of the pages on custom parts run as they are printed, with the pages' commands, at toy size."""

import dataclasses
import importlib
import pathlib
import random
import re
import shlex
import sys

import jax
import pytest

from sgdlab.commands import launch
from sgdlab.registry import GRAPHS, TRACES
from sgdlab.runs import configuration, methods, plan

OWN = pathlib.Path(__file__).parents[2] / "docs/own"
PAGES = {path.stem: path.read_text("utf-8") for path in OWN.glob("*.md")}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMANDS = [
    (page, line)
    for page, text in sorted(PAGES.items())
    for language, code in BLOCK.findall(text)
    if not language
    for line in code.splitlines()
    if line.startswith("sgdlab ") and "npz" not in line
]
FILES = {
    re.match(r"# (my_\w+\.py)\n", code)[1]: code
    for text in PAGES.values()
    for language, code in BLOCK.findall(text)
    if code.startswith("# my_")
}
TINY = ("--config.epochs=1.0", "--config.batch_size=32", "--config.evaluations=1")
TINY_NETWORK = ("--config.network.kind=mlp", "--config.network.mlp.widths=(8,)")
TRAINED = ("train --parts=my_rule.py", "train --parts=my_data.py,my_network.py", "train --parts=my_task.py")
"""Of the commands that train, those that are run; the others are planned."""

pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)


@pytest.fixture(name="here")
def directory_with_the_files(tmp_path, monkeypatch):
    """A directory in which a person has put the files, and a log."""
    for registry in (*configuration.FAMILIES, GRAPHS, TRACES):
        monkeypatch.setattr(registry, "_parts", dict(registry))
    for known in (methods.OWN, methods._modules):
        for name in list(known):
            monkeypatch.delitem(known, name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    draw = random.Random(0)
    lines = [
        f"step {step} rank {rank} took {80 + 10 * draw.random():.1f} ms" for step in range(60) for rank in range(4)
    ]
    (tmp_path / "run.trainlog").write_text("\n".join(["hello", *lines]))
    rows = [f"{draw.random()},{draw.random()},{row % 3}" for row in range(120)]
    (tmp_path / "wine.csv").write_text("\n".join(["acid,sugar,label", *rows]))
    yield tmp_path
    methods.OWN.clear()
    methods._modules.clear()
    for name in FILES:
        sys.modules.pop(pathlib.Path(name).stem, None)


def answered(line):
    _, name, *arguments = shlex.split(line)
    module, traced = importlib.import_module(f"sgdlab.commands.{name}"), "trainlog" in line
    small = [] if traced else [flag for flag in TINY if flag.split("=")[0] not in line]
    if name in ("compare", "train") and "network.kind" not in line:
        small += TINY_NETWORK
    return module.COMMAND.answer([name, *arguments, *small])


def is_run(line):
    _, name, *_ = line.split()
    return name in ("advise", "certificate", "timeline") or any(line.startswith(f"sgdlab {begin}") for begin in TRAINED)


@pytest.mark.representatives("line8", "line3", "line6", "line0")
@pytest.mark.parametrize(("page", "line"), [found for found in COMMANDS if is_run(found[1])])
def test_a_command_runs(page, line, here, capsys):
    assert answered(line) == 0, capsys.readouterr().err
    assert f"my_{page}.py" in line or page in ("protocol", "data")


@pytest.mark.parametrize("line", [line for _, line in COMMANDS if not is_run(line)])
def test_a_command_that_takes_longer_is_understood(line, here, capsys, monkeypatch):
    seen = []

    def main(argv):
        seen.append(plan.make_plan(launch.CONFIG.value) if line.startswith("sgdlab train") else argv)

    module = importlib.import_module(f"sgdlab.commands.{line.split()[1]}")
    monkeypatch.setattr(module, "COMMAND", dataclasses.replace(module.COMMAND, main=main))
    assert answered(line) == 0, capsys.readouterr().err
    assert seen


def test_every_file_is_in_a_command():
    assert set(FILES) == {name for _, line in COMMANDS for name in re.findall(r"(my_\w+\.py)", line)}


@pytest.mark.parametrize(
    "code", [code for text in PAGES.values() for language, code in BLOCK.findall(text) if "import my_" in code]
)
def test_what_is_tried_by_hand_runs(code, here, capsys):
    jax.config.update("jax_enable_x64", False)
    sys.path.insert(0, str(here))
    exec(compile(code, "page", "exec"), {})
    printed = capsys.readouterr().out
    expected = re.findall(r"print\(.*\)  # (\[.*\])", code)
    assert printed.split("\n")[: len(expected)] == expected or (not expected and "Schedule: " in printed)


def test_the_files_are_short():
    for name, code in FILES.items():
        lines = [line for line in code.splitlines() if line.strip() and not line.startswith("#")]
        assert len(lines) <= 30, name
