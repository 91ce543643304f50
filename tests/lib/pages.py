"""The README and the guides: their examples, and their commands, run as they are printed, at toy size."""

import contextlib
import pathlib
import re
import shlex

import numpy as np

from sgdlab.commands import certificate, compare, live, replay, timeline, train

ROOT = pathlib.Path(__file__).parents[2]
GUIDES = ("compare", "library", "messages", "networks", "optax", "reproduce", "sweeps", "theory")
PAGES = ("README.md", *(f"docs/{name}.md" for name in GUIDES))
TEXTS = {page: (ROOT / page).read_text(encoding="utf-8") for page in (*PAGES, "docs/live.md", "docs/speed.md")}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PYTHON = [(page, code) for page in PAGES for language, code in BLOCK.findall(TEXTS[page]) if language == "python"]


def commands(page):
    """The commands of a page that have flags, without their comments."""
    lines = [
        line.split("  #")[0].strip()
        for _, code in BLOCK.findall(TEXTS[page])
        for line in code.replace("\\\n", " ").splitlines()
    ]
    return [line for line in lines if line.startswith("sgdlab ") and "=" in line]


COMMANDS = list(dict.fromkeys(line for page in PAGES for line in commands(page)))
MODULES = {
    "certificate": certificate,
    "compare": compare,
    "live": live,
    "replay": replay,
    "timeline": timeline,
    "train": train,
}
TINY = {
    "certificate": (),
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
def directory_of_a_user(path):
    """A directory to work in, with images of a user's own. (No page here registers a component.)"""
    labels = np.arange(96) % 3
    images = np.random.default_rng(0).integers(0, 256, (96, 8, 8), np.uint8)
    np.savez(path / "mine.npz", x_train=images, y_train=labels, x_test=images[:9], y_test=labels[:9])
    with contextlib.chdir(path):
        yield path


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
