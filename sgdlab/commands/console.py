"""The console script `sgdlab`: the first argument is the name of a command, the others are its flags.

sgdlab train --config.method=gap_aware --workdir=runs/one
"""

import ast
import difflib
import importlib
import pathlib
import sys

import sgdlab

COMMANDS = ("advise", "certificate", "compare", "data", "live", "replay", "rollouts", "train", "timeline")
"""Modules of this package, each with a docstring and a `COMMAND`."""


def main() -> int:
    """Runs the command that the first argument names; returns the exit code, 2 where there is no such command."""
    words = sys.argv[1:] or ["--help"]
    name = words[0]
    if name in ("--help", "-help", "-h", "help"):
        print(usage())
        return 0
    if name in ("--version", "-version"):
        print(sgdlab.__version__)
        return 0
    if name not in COMMANDS:
        print(f"error: {correction(name)}", file=sys.stderr)
        return 2
    sys.argv = [f"sgdlab {name}", *words[1:]]
    # The commands import JAX, which takes more than a second: only the one that was asked for is imported.
    importlib.import_module(f"sgdlab.commands.{name}").COMMAND.run()
    return 0


def usage() -> str:
    """The commands, with one line for each."""
    lines = [f"  {name:<13}{summary(name)}" for name in COMMANDS]
    return "\n".join(
        [
            f"sgdlab {sgdlab.__version__}: a simulator and laboratory of distributed SGD with stragglers.",
            "\n    sgdlab COMMAND [--flag=value ...]",
            "\nCommands:",
            *lines,
            "\n`sgdlab COMMAND --help` describes a command and lists its flags.",
        ]
    )


def summary(name: str) -> str:
    """The first line of a command's docstring, read without importing the command.

    Example:
      >>> summary("compare")
      'Compares methods over numbers of workers and seeds, and writes a report.'
    """
    source = pathlib.Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def correction(word: str) -> str:
    """An error message for a first argument that is not a command, with the command that is most like it.

    Example:
      >>> correction("compair")
      "'compair' is not a command; did you mean `sgdlab compare`?"
      >>> correction("--workdir=runs")
      "'--workdir=runs' is not a command; the first argument must be one of advise, certificate, compare, data,
      live, replay, rollouts, train, timeline"
    """
    similar = difflib.get_close_matches(word, COMMANDS, n=1)
    if similar:
        return f"{word!r} is not a command; did you mean `sgdlab {similar[0]}`?"
    return f"{word!r} is not a command; the first argument must be one of {', '.join(COMMANDS)}"
