"""Commands that the page on many hosts and the scripts' own comments name: they are there, and have such flags."""

import dataclasses
import re
import shlex

import pytest
from fakes import SCRIPTS

from sgdlab.commands import compare, train

ROOT = SCRIPTS.parent
FILES = [
    ROOT / "docs/many_hosts.md",
    *(path for path in sorted(SCRIPTS.rglob("*")) if path.is_file() and path.suffix != ".pyc"),
]
MODULES = {"train": train, "compare": compare}
# ml_collections loads a configuration's file by an importer's method that Python is about to drop.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)


def text(path):
    """A file without comment signs, and with lines that continue put together."""
    lines = re.sub(r"^# ?", "", path.read_text(), flags=re.MULTILINE)
    return re.sub(r" *\\\n *", " ", lines)


def commands():
    """Every `sgdlab train ...` and `sgdlab compare ...`, up to a comment or two spaces."""
    found = (re.findall(r"sgdlab (?:train|compare)(?: (?!#)[^\s`]+)*", text(path)) for path in FILES)
    return sorted({command.removesuffix(" ...") for several in found for command in several})


def test_commands_are_found():
    assert len(commands()) >= 5


@pytest.mark.parametrize("command", commands())
def test_a_command_is_parsed(command, monkeypatch, capsys):
    """It is not executed: all flags and entries of the configuration are checked before."""
    monkeypatch.chdir(ROOT)
    _, name, *arguments = shlex.split(command)
    module, called = MODULES[name], []
    code = dataclasses.replace(module.COMMAND, main=called.append).answer([name, *arguments])
    assert code == 0, capsys.readouterr().err
    assert len(called) == 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_that_are_named_are_there(path):
    for name in re.findall(r"(?:scripts|configs|docs)/[\w/]+(?:\.\w+)?", text(path)):
        assert (ROOT / name).exists(), name
