"""Examples of the README and of the guides run as they are printed, the commands beside them too, at toy size."""

import json
import re

import jax
import matplotlib as mpl
import numpy as np
import pytest
from lib import pages, undrawn
from lib.pages import COMMANDS, PYTHON
from sgdlab.configs import digits

from sgdlab.runs import pool
from sgdlab.runs.methods import methods

RECORDS = [code for _, code in PYTHON if "sgdlab.results" in code]
SCRIPTS = [code for _, code in PYTHON if "__main__" in code]
THEORY = [code for _, code in PYTHON if code.startswith("# theory.py")]
OWN = [code for _, code in PYTHON if code.startswith("# my_")]  # run where registries are restored
LIBRARY = [(page, code) for page, code in PYTHON if code not in (*RECORDS, *SCRIPTS, *THEORY, *OWN)]
READ = next(line for line in COMMANDS if "--workdir=runs/mine" in line and "gap_aware" in line)  # by the example of it
KNOWN = len(methods())  # before tests register others
NEEDS = ("tfds", "advise")  # the network, a trace

pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)


@pytest.fixture(name="here")
def directory(tmp_path):
    with pages.directory_of_a_user(tmp_path) as here:
        yield here


@pytest.mark.parametrize(("page", "example"), LIBRARY, ids=[f"{page}-{i}" for i, (page, _) in enumerate(LIBRARY)])
@pytest.mark.long("an example as users run it")
def test_an_example_of_the_library_runs(page, example, capsys):
    jax.config.update("jax_enable_x64", False)
    exec(compile(example, page, "exec"), {})
    printed = capsys.readouterr().out
    assert re.search(r"Schedule: |\d\.\d", printed)
    if page == "docs/optax.md":  # loops of the user's own, to a minimum at 1
        assert np.abs(np.array(re.findall(r"\d\.\d+", printed), float) - 1).max() < 0.02


@pytest.mark.long("an example as users run it")
def test_the_curves_of_a_theory_paper(capsys):
    (example,) = THEORY
    for large, small in (("num_workers=1000", "num_workers=10"), ("epsilon, seconds = 100,", "epsilon, seconds = 10,")):
        assert large in example
        example = example.replace(large, small)
    names = {}
    exec(compile(example, "theory.py", "exec"), names)
    for title, least in (("ASGD", 0.03), ("Ringmaster ASGD", 1e-3), ("Rennala SGD", 3e-3)):
        curve = names["curves"][title]
        assert curve[0]["squared_norm"] == 0.25  # of -1/2, the gradient's only entry at zero
        assert curve[-1]["squared_norm"] < least
    assert names["curves"]["Ringmaster ASGD"][-1]["seconds"] < 300  # there before the end, at 500 s
    assert capsys.readouterr().out.count("Schedule: 10 workers") == 3


@pytest.mark.long("commands of the pages, at toy size")
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=[pytest.mark.full] * ("--tune=24" in line))
        for line in COMMANDS
        if not any(need in line for need in NEEDS) and line != READ
    ],
)
def test_a_command_runs(line, here, capsys, monkeypatch):
    if " compare " in line:  # whose pictures are drawn where its records are read
        undrawn.leave_undrawn(monkeypatch)
    assert pages.run(line) == 0, capsys.readouterr().err
    where = re.findall(r"--workdir=(\S+)", line) or ["runs/certificate"]
    assert any((here / where[0]).iterdir())


def test_records_can_be_read_as_it_says(here, capsys, monkeypatch):
    assert pages.run(READ) == 0, capsys.readouterr().err
    assert "Gap-Aware" in (here / "runs/mine/table.md").read_text()
    drawn = []
    mpl.use("agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    plot = plt.plot
    monkeypatch.setattr(plt, "plot", lambda *curve, label: (drawn.append(label), plot(*curve, label=label)))
    (example,) = RECORDS
    exec(compile(example, "example.py", "exec"), {})
    plt.close("all")
    assert "Gap-Aware, 4 workers" in drawn
    assert len(drawn) == 4
    assert (here / "mine.png").stat().st_size > 0
    # The records hold what the page says of them.
    records = [json.loads(row) for row in next((here / "runs/mine/metrics").glob("*.jsonl")).read_text().splitlines()]
    assert [record["kind"] for record in records] == ["run", *["evaluation"] * (len(records) - 2), "summary"]
    (named,) = re.findall(
        r'`"kind": "evaluation"` for each evaluation \((.*?), \.\.\.\)', pages.TEXTS["docs/compare.md"], re.DOTALL
    )
    assert set(re.findall(r"`(\w+)`", named)) <= set(records[1])


def small(getting=digits.get_config):
    """Return the configuration of the digits with a network that is compiled in no time."""
    config = getting()
    config.network.kind, config.network.mlp.widths = "mlp", (8,)
    return config


@pytest.mark.parametrize("example", SCRIPTS)
@pytest.mark.long("an example as users run it")
def test_a_script_runs(example, here, capsys, monkeypatch):
    # As on a machine of one core: its runs are made here, and not in processes, which would import this test's program.
    monkeypatch.setattr(pool, "cores", lambda: [0])
    undrawn.leave_undrawn(monkeypatch)
    monkeypatch.setattr(digits, "get_config", small)
    exec(compile(example, "example.py", "exec"), {"__name__": "__main__"})
    output = capsys.readouterr().out
    if "sgdlab.compare(" in example:
        assert "Gap-Aware" in output
        assert (here / "runs/script/report.html").exists()
    if "Sweep(" in example:
        assert "test_accuracy" in output
        assert len(list((here / "runs/mine/runs").glob("*.jsonl"))) == 4


def test_the_readme_is_short():
    assert len(pages.TEXTS["README.md"].splitlines()) <= 150


def test_the_papers_draft_has_the_numbers_of_the_stored_results():
    read = lambda page: " ".join((pages.ROOT / page).read_text(encoding="utf-8").split())
    paper, tuned = read("docs/paper/paper.md"), read("experiments/results/tuned/README.md")
    assert re.findall(r"It has (\d+) methods", paper) == [str(KNOWN)]
    (wanted,) = re.findall(r"\*\*gamma-n32\*\* \((\d+) methods\)", tuned)
    for text in (paper, read("README.md")):
        assert set(re.findall(r"(?:Each of |accuracy of |\*)(\d+) methods", text)) == {wanted}
    claims = r"Of \d+ claims, those of \d+ other papers included,"
    words = r"\d+ (?:hold in part|hold|fails?|are inconclusive)\b"
    counts = [re.findall(rf"{claims}|{words}", text) for text in (paper, read("experiments/results/README.md"))]
    assert counts[0] == counts[1][: len(counts[0])]
    assert len(counts[0]) == 5
    (unmet,) = re.findall(r"(\d+) have premises that our runs do not meet", paper)
    assert f"{unmet} are not in our regime" in read("experiments/results/README.md")
