"""The README's examples run as they are printed, the commands beside them too, at toy size."""

import json
import pathlib
import re
import shlex
import sys

import jax
import matplotlib as mpl
import numpy as np
import pytest

from sgdlab.commands import compare, launch, live, replay, timeline, train
from sgdlab.jobs import configuration

README = pathlib.Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
PYTHON = [code for language, code in BLOCKS if language == "python"]
FILES = {code.splitlines()[0].removeprefix("# "): code for code in PYTHON if re.match(r"# \w+\.py\n", code)}
RECORDS = [code for code in PYTHON if "sgdlab.results" in code]
SCRIPTS = [code for code in PYTHON if "__main__" in code]
LIBRARY = [code for code in PYTHON if code not in (*FILES.values(), *RECORDS, *SCRIPTS)]
COMMANDS = [line for _, code in BLOCKS for line in code.splitlines() if line.startswith("sgdlab ") and "=" in line]
LIVE = [line for line in COMMANDS if "runs/live" in line]  # in their order: the first one records
MODULES = {"compare": compare, "live": live, "replay": replay, "timeline": timeline, "train": train}
TINY = {
    "compare": ("--num_workers=4", "--seeds=1", "--processes=1"),
    "live": ("--config.epochs=0.5",),
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
NEEDS = ("tfds", "advise", "compare --methods=asgd,gap_aware,dana_gap_aware")  # the network, a trace, minutes

pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)


@pytest.fixture(name="here")
def directory_with_the_files(tmp_path, monkeypatch):
    """A directory in which a person has put the README's files, and images of their own."""
    for registry in configuration.FAMILIES:
        monkeypatch.setattr(registry, "_parts", dict(registry))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    labels = np.arange(96) % 3
    images = np.random.default_rng(0).integers(0, 256, (96, 8, 8), np.uint8)
    np.savez("mine.npz", x_train=images, y_train=labels, x_test=images[:9], y_test=labels[:9])
    yield tmp_path
    for name in FILES:
        sys.modules.pop(pathlib.Path(name).stem, None)


def command(line):
    _, name, *arguments = shlex.split(line)
    recorded = "--recording" in line  # which says what was run
    small = [flag for flag in TINY_RUN if flag.split("=")[0] not in line and not recorded]
    if "network.kind" in line:
        small.remove("--config.network.mlp.widths=(8,)")
    if name in ("compare", "live"):
        small.remove("--config.cluster.num_workers=4")
    own, define = getattr(MODULES[name], "OWN_ENTRIES", {}), MODULES[name].define_flags
    few = ["--methods=asgd"] if name == "compare" and "--methods" not in line else []
    argv = [name, *arguments, *small, *few, *TINY[name]]
    configured = launch.configured_by(MODULES[name])
    return launch.answer(
        MODULES[name].main, MODULES[name].__doc__, argv, configured=configured, own_entries=own, define=define
    )


@pytest.mark.parametrize("example", LIBRARY)
def test_an_example_of_the_library_runs(example, capsys):
    jax.config.update("jax_enable_x64", False)
    exec(compile(example, str(README), "exec"), {})
    assert "Schedule: " in capsys.readouterr().out


@pytest.mark.parametrize("line", [line for line in COMMANDS if not any(need in line for need in (*NEEDS, *LIVE))])
def test_a_command_runs(line, here, capsys):
    assert command(line) == 0, capsys.readouterr().err
    (where,) = re.findall(r"--workdir=(\S+)", line)
    assert any((here / where).iterdir())


def test_what_was_recorded_can_be_replayed_as_it_says(here, capsys):
    assert [line.split()[1] for line in LIVE] == ["live", "replay", "replay", "timeline", "advise"]
    for line in LIVE[:-1]:  # advise takes minutes
        assert command(line) == 0, capsys.readouterr().err
        (where,) = re.findall(r"--workdir=(\S+)", line)
        assert any((here / where).iterdir())
    assert "largest difference from the parameters of the live run: 0.0" in capsys.readouterr().out


def test_records_can_be_read_as_it_says(here, capsys, monkeypatch):
    line = next(line for line in COMMANDS if "--workdir=runs/mine" in line and "my_parts" in line)
    assert command(line) == 0, capsys.readouterr().err
    assert "Root delay" in (here / "runs/mine/table.md").read_text()
    drawn = []
    mpl.use("agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    plot = plt.plot
    monkeypatch.setattr(plt, "plot", lambda *curve, label: (drawn.append(label), plot(*curve, label=label)))
    (example,) = RECORDS
    exec(compile(example, str(README), "exec"), {})
    plt.close("all")
    assert "Root delay, 4 workers" in drawn
    assert len(drawn) == 4
    assert (here / "mine.png").stat().st_size > 0
    # The records hold what the README says of them.
    records = [json.loads(row) for row in next((here / "runs/mine/metrics").glob("*.jsonl")).read_text().splitlines()]
    assert [record["kind"] for record in records] == ["run", *["evaluation"] * (len(records) - 2), "summary"]
    (named,) = re.findall(r'`"kind": "evaluation"` for each evaluation \((.*?), \.\.\.\)', TEXT, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", named)) <= set(records[1])


@pytest.mark.parametrize("example", SCRIPTS)
def test_a_script_runs(example, here, capsys):
    exec(compile(example, str(README), "exec"), {"__name__": "__main__"})
    output = capsys.readouterr().out
    if "jobs.compare" in example:
        assert "Gap-Aware" in output
        assert (here / "runs/script/report.html").exists()
    if "Sweep(" in example:
        assert "test_accuracy" in output
        assert len(list((here / "runs/mine/runs").glob("*.jsonl"))) == 4


def test_examples_are_short():
    for code in (*FILES.values(), *RECORDS):
        assert sum(bool(line.strip()) and not line.startswith("#") for line in code.splitlines()) <= 15, code
