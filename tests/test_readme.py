"""The README's examples run as they are printed, the commands beside them too, at toy size."""

import json
import re

import jax
import matplotlib as mpl
import pytest
from lib import readme, undrawn
from lib.readme import COMMANDS, FILES, LIVE, PYTHON, README

from sgdlab.runs import pool

RECORDS = [code for code in PYTHON if "sgdlab.results" in code]
SCRIPTS = [code for code in PYTHON if "__main__" in code]
LIBRARY = [code for code in PYTHON if code not in (*FILES.values(), *RECORDS, *SCRIPTS)]
READ = next(line for line in COMMANDS if "--workdir=runs/mine" in line and "my_parts" in line)  # by the example of it
NEEDS = ("tfds", "advise", "compare --methods=asgd,gap_aware,dana_gap_aware")  # the network, a trace, minutes

pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)


@pytest.fixture(name="here")
def directory_with_the_files(tmp_path):
    with readme.directory_with_the_files(tmp_path) as here:
        yield here


@pytest.mark.parametrize("example", LIBRARY)
@pytest.mark.long("an example as users run it")
def test_an_example_of_the_library_runs(example, capsys):
    jax.config.update("jax_enable_x64", False)
    exec(compile(example, str(README), "exec"), {})
    assert "Schedule: " in capsys.readouterr().out


@pytest.mark.parametrize(
    "line", [line for line in COMMANDS if not any(need in line for need in (*NEEDS, *LIVE)) and line != READ]
)
def test_a_command_runs(line, here, capsys, monkeypatch):
    if " compare " in line:  # whose pictures are drawn where its records are read
        undrawn.leave_undrawn(monkeypatch)
    assert readme.run(line) == 0, capsys.readouterr().err
    (where,) = re.findall(r"--workdir=(\S+)", line)
    assert any((here / where).iterdir())


def test_records_can_be_read_as_it_says(here, capsys, monkeypatch):
    assert readme.run(READ) == 0, capsys.readouterr().err
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
    (named,) = re.findall(r'`"kind": "evaluation"` for each evaluation \((.*?), \.\.\.\)', readme.TEXT, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", named)) <= set(records[1])


@pytest.mark.parametrize("example", SCRIPTS)
@pytest.mark.long("an example as users run it")
def test_a_script_runs(example, here, capsys, monkeypatch):
    # As on a machine of one core: its runs are made here, and not in processes, which would import this test's program.
    monkeypatch.setattr(pool, "cores", lambda: [0])
    undrawn.leave_undrawn(monkeypatch)
    exec(compile(example, str(README), "exec"), {"__name__": "__main__"})
    output = capsys.readouterr().out
    if "sgdlab.compare(" in example:
        assert "Gap-Aware" in output
        assert (here / "runs/script/report.html").exists()
    if "Sweep(" in example:
        assert "test_accuracy" in output
        assert len(list((here / "runs/mine/runs").glob("*.jsonl"))) == 4


def test_examples_are_short():
    for code in (*FILES.values(), *RECORDS):
        assert sum(bool(line.strip()) and not line.startswith("#") for line in code.splitlines()) <= 15, code
