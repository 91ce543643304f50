"""What the README holds: its examples, its files, and its commands, run as they are printed, at toy size."""

import contextlib
import pathlib
import re
import shlex
import sys

import numpy as np
import pytest

from sgdlab.commands import compare, live, replay, timeline, train
from sgdlab.runs import configuration

README = pathlib.Path(__file__).parents[2] / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
PYTHON = [code for language, code in BLOCKS if language == "python"]
FILES = {code.splitlines()[0].removeprefix("# "): code for code in PYTHON if re.match(r"# \w+\.py\n", code)}
COMMANDS = [line for _, code in BLOCKS for line in code.splitlines() if line.startswith("sgdlab ") and "=" in line]
LIVE = [line for line in COMMANDS if "runs/live" in line]  # in their order: the first one records
MODULES = {"compare": compare, "live": live, "replay": replay, "timeline": timeline, "train": train}
TINY = {
    "compare": ("--num_workers=4", "--seeds=1", "--processes=1"),
    "live": ("--num_workers=2", "--config.epochs=0.5"),
    "replay": (),
    "timeline": (),
    "train": (),
}
TINY_RUN = (
    "--config.epochs=1.0",
    "--config.batch_size=32",
    "--config.evaluations=2",
    "--config.network.mlp.widths=(8,)",
    "--config.network.kind=mlp",
    "--config.cluster.num_workers=4",
)


@contextlib.contextmanager
def directory_with_the_files(path):
    """A directory in which a person has put the README's files, and images of their own."""
    with pytest.MonkeyPatch.context() as patch:
        for registry in configuration.FAMILIES:
            patch.setattr(registry, "_parts", dict(registry))
        patch.setattr(sys, "path", list(sys.path))
        patch.chdir(path)
        for name, code in FILES.items():
            (path / name).write_text(code)
        labels = np.arange(96) % 3
        images = np.random.default_rng(0).integers(0, 256, (96, 8, 8), np.uint8)
        np.savez("mine.npz", x_train=images, y_train=labels, x_test=images[:9], y_test=labels[:9])
        yield path
        for name in FILES:
            sys.modules.pop(pathlib.Path(name).stem, None)


def run(line):
    """Runs a command here: its exit code."""
    _, name, *arguments = shlex.split(line)
    recorded = "--recording" in line  # which says what was run
    small = [flag for flag in TINY_RUN if flag.split("=")[0] not in line and not recorded]
    if "network.kind" in line:
        small.remove("--config.network.mlp.widths=(8,)")
    if name in ("compare", "live"):
        small.remove("--config.cluster.num_workers=4")
    module = MODULES[name]
    few = ["--methods=asgd"] if name == "compare" and "--methods" not in line else []
    few += ["--tune=3"] if "--tune=" in line else []
    argv = [name, *arguments, *small, *few, *TINY[name]]
    return module.COMMAND.answer(argv)
