"""The command for an accelerator at toy size on a CPU: its file, its page, and what it does about what fails."""

import json
import re
import threading

import numpy as np
import pytest
from lib import pages

from experiments.benchmarks.accelerator import checks, command, page
from experiments.benchmarks.accelerator.bench import Limit
from experiments.benchmarks.accelerator.problems import Outcome
from experiments.benchmarks.accelerator.record import JSON, PAGE, Cell, Record, Row, Section

FINE = Row("fine", 0.25, "", "<= 1", True)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    """The command sets this variable, for its workers."""
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@pytest.fixture(name="call")
def call_in_process(tmp_path, capsys):
    """Runs the command: (exit code, what it printed, its record, its page)."""

    def call(*flags):
        code = command.main(["--toy", f"--output={tmp_path}", *flags])
        return code, capsys.readouterr().out, *read(tmp_path)

    return call


def read(folder):
    return json.loads((folder / JSON).read_text()), (folder / PAGE).read_text()


def made_of(monkeypatch, **measured):
    """Lets the command have these sections: name -> functions that return rows, one a cell."""

    def cells(bench, functions):
        return [
            Cell(f"cell {index}", lambda function=function: function(bench)) for index, function in enumerate(functions)
        ]

    own = {
        name: Section(name, f"About {name}", "", 1.0, lambda bench, functions=functions: cells(bench, functions))
        for name, functions in measured.items()
    }
    monkeypatch.setattr(command, "sections", lambda: own)


def raising(bench):
    yield FINE
    raise MemoryError("RESOURCE_EXHAUSTED: out of memory\nand more")


@pytest.mark.full
def test_what_a_cpu_and_a_cpu_compute_is_the_same(call):
    code, printed, record, text = call("--sections=devices")
    assert code == 0
    (section,) = record["sections"]
    assert section["status"] == "done"
    found = [row for row in section["rows"] if row["goal"]]
    assert {row["facts"]["dtype"] for row in found} == {"float32", "float64"}
    assert {row["facts"]["mode"] for row in found} == {"event", "wave"}
    for row in found:
        assert row["met"] is True
        assert row["value"] <= checks.TOLERANCES[row["facts"]["dtype"]]
        assert row["name"] in printed
        assert row["name"] in text
    assert record["complete"] is True
    assert record["machine"]["is_cpu"] is True
    assert {"jax", "flax", "python", "device"} <= record["machine"]["versions"].keys()
    assert record["settings"]["scale"] == "toy"
    assert "No accelerator was found: this is a CPU" in text
    assert f"All {len(found)} checks passed." in text


@pytest.mark.full
@pytest.mark.long("every program of the command")
def test_the_whole_command(call, tmp_path, capsys):
    code, printed, record, text = call("--minutes=60")  # at the end of its time the process would end
    assert code == 0, printed
    assert [section["name"] for section in record["sections"]] == list(command.sections())
    rows = {}
    for section in record["sections"]:
        name = section["name"]
        assert (section["status"], section["errors"], section["left_out"]) == ("done", [], []), name
        title = section["title"].replace("'", "&#39;")
        assert f'<h2 id="{name}">{title}</h2>' in text
        rows[name] = section["rows"]
    for name in ("modes", "mesh", "devices", "checkpoint", "live"):
        assert {row["met"] for row in rows[name]} <= {True, None}
        assert sum(row["met"] is True for row in rows[name]) >= 3
    assert {row["facts"].get("lanes") for row in rows["modes"]} >= {"vmap", "map"}
    assert {row["facts"]["devices"] for row in rows["mesh"]} == {1, 4}
    assert all(0 < row["facts"]["gradients"] < record["settings"]["checked_gradients"] for row in rows["checkpoint"])
    assert [row["value"] for row in rows["live"] if row["goal"] == "0"] == [0.0]
    sizes = record["settings"]
    firsts = [row["facts"] for row in rows["memory"] if row["facts"]["what"] == "compiling"]
    assert [facts["mode"] for facts in firsts] == ["serial", "event", "event", "wave", "wave"]
    memory = [row for row in rows["memory"] if row["facts"]["what"] == "memory"]
    assert len(memory) == len(firsts)
    assert all(row["value"] is None and "does not count" in row["detail"] for row in memory)
    for dtype in ("float32", "bfloat16"):
        timed = [row["facts"] for row in rows[dtype] if "per_second" in row["facts"]]
        assert [(facts["mode"], facts["workers"]) for facts in timed] == [
            (mode, workers) for workers in sizes["workers"] for mode in ("serial", "event", "wave")
        ]
        for facts in timed:
            assert facts["per_second"] == pytest.approx(sizes["gradients"] / np.median(facts["seconds"]))
    seeds = [row["facts"] for row in rows["seeds"] if "runs" in row["facts"]]
    assert [(facts["runs"], facts["lanes"]) for facts in seeds] == [(1, "vmap"), (2, "vmap"), (2, "map")]
    shares = [row for row in rows["rules"] if "rule" in row["facts"]]
    assert [(row["facts"]["mode"], row["facts"]["rule"]) for row in shares] == [
        (mode, rule) for mode in ("event", "wave") for rule in ("asgd", "gap_aware")
    ]
    for row in shares:
        without, with_rule = (row["facts"][name] for name in ("seconds_without", "seconds"))
        share = 100 * (1 - np.median(np.divide(without, with_rule)))
        assert row["value"] == pytest.approx(share)
    # The table of docs/speed.md is made of the file alone.
    table = re.search(r"^\| dtype .*?\n\n", printed, re.MULTILINE | re.DOTALL)[0].strip()
    assert len(table.splitlines()) == 2 + 2 * len(sizes["workers"])
    assert command.main([f"--table={tmp_path / JSON}"]) == 0
    assert table in capsys.readouterr().out
    assert (
        table.splitlines()[:2]
        == re.findall(r"^\| dtype .*\n.*$", pages.TEXTS["docs/speed.md"], re.MULTILINE)[0].splitlines()
    )


def test_what_fails_is_recorded_and_the_rest_goes_on(call, monkeypatch):
    made_of(
        monkeypatch,
        broken=[raising, lambda bench: [FINE]],
        wrong=[lambda bench: [Row("too far", 2.0, "", "<= 1", False), Row("lost", float("inf"), "", "<= 1", False)]],
        last=[lambda bench: [FINE]],
    )
    code, printed, record, text = call("--sections=broken,wrong,last")
    assert code == 1
    broken, wrong, _ = record["sections"]
    assert [section["status"] for section in record["sections"]] == ["failed", "done", "done"]
    (error,) = broken["errors"]
    assert (error["cell"], error["error"]) == ("cell 0", "MemoryError: RESOURCE_EXHAUSTED: out of memory")
    assert "raising" in error["traceback"]
    assert [len(section["rows"]) for section in record["sections"]] == [2, 2, 1]
    assert wrong["rows"][1]["value"] == "inf"
    said = "2 of 5 checks failed. 1 measurement ended with an error."
    assert said in printed
    for words in (said, "About broken", "About wrong", "About last", error["error"], "too far", "FAILED"):
        assert words in text


@pytest.mark.parametrize("fails", ["error", "check"])
def test_either_failure_is_the_exit_code(call, monkeypatch, fails):
    made_of(monkeypatch, one=[raising if fails == "error" else lambda bench: [Row("far", 2.0, "", "<= 1", False)]])
    assert call()[0] == 1


def test_what_was_measured_before_is_not_lost(call, monkeypatch, tmp_path):
    made_of(monkeypatch, one=[lambda bench: [FINE]])
    before = call()[2:]
    call()
    assert read(tmp_path.with_name(f"{tmp_path.name}.1")) == before


def test_cells_for_which_there_is_no_time_are_named(call, monkeypatch):
    def takes_all(bench):
        yield FINE
        bench.until = 0.0

    made_of(monkeypatch, long=[takes_all, raising, raising], after=[lambda bench: [FINE]])
    code, _, record, text = call()
    long, after = record["sections"]
    assert code == 0
    assert (long["status"], long["left_out"], len(long["rows"])) == ("out of time", ["cell 1", "cell 2"], 1)
    assert after["status"] == "done"
    assert "Not or not wholly measured: About long." in text
    assert "cell 1; cell 2" in text


def test_a_section_has_its_share_of_what_is_left(call, monkeypatch):
    found = []
    made_of(
        monkeypatch, **{name: [lambda bench: found.append(bench.left) or [FINE]] for name in ("one", "two", "three")}
    )
    assert call("--minutes=1")[0] == 0
    assert np.all(np.array([10, 20, 40]) < found)  # a third, a half of the rest, and the rest
    assert np.all(found < np.array([20, 30, 60]))


def test_a_run_that_hangs_is_cut_off_with_what_it_had_measured(tmp_path):
    section = Section("hangs", "About hangs", "", 1.0, lambda bench: [])
    record = Record(tmp_path, [section], {"minutes": 1.0}, page.render)
    with record.changing() as data:
        data["sections"][0]["status"] = "under way"
    record.add("hangs", FINE)
    left, codes = threading.Event(), []
    with Limit(record, 0.01, lambda code: (codes.append(code), left.set())):
        assert left.wait(30)
    assert codes == [1]
    record.add("hangs", FINE)  # the process would have ended
    stored, text = read(tmp_path)
    assert stored["complete"] is False
    assert stored["sections"][0]["status"] == "cut off"
    assert len(stored["sections"][0]["rows"]) == 1
    assert "Not or not wholly measured: About hangs." in text


def test_a_run_that_ends_in_time_is_not_cut_off(tmp_path):
    codes = []
    record = Record(tmp_path, [], {"minutes": 1.0}, page.render)
    with Limit(record, 60.0, codes.append) as limit:
        pass
    limit._timer.join(30)
    assert codes == []


def test_how_far_outcomes_are_apart():
    start = {"w": np.array([1.0, 1.0])}
    of = lambda params, **more: Outcome.of({"w": np.array(params)}, more.get("stats"), more.get("loss"))
    one = of([3.0, 1.0])
    assert one.apart(one, start) == 0
    assert of([3.0, 1.5]).apart(one, start) == 0.25  # 0.5 of a largest change of 2
    assert of([3.0, 1.0], loss=[4.0, 2.0]).apart(of([3.0, 1.0], loss=[4.0, 1.0]), start) == 0.25
    assert of([3.0, 1.0], stats=[8.0]).apart(one, start) == 0  # the other has no statistics
    assert of([np.nan, 1.0]).apart(one, start) == np.inf
    assert one.apart(of([1.0, 1.0]), start) == np.inf  # nothing was trained


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--sections=modes,speed"], "--sections=speed must be some of modes,mesh,devices,checkpoint,live,"),
        (["--minutes=0"], "--minutes=0 must be above 0"),
        (["--table=nothing.json"], "--table=nothing.json must be a file"),
    ],
)
def test_a_mistake_is_answered(flags, said, capsys):
    with pytest.raises(SystemExit) as exit_:
        command.main(flags)
    assert exit_.value.code == 2
    assert said in capsys.readouterr().err


def test_a_file_without_speeds_makes_no_table(call, monkeypatch, tmp_path, capsys):
    made_of(monkeypatch, one=[lambda bench: [FINE]])
    call()
    assert command.main([f"--table={tmp_path / JSON}"]) == 2
    assert "record must have speeds" in capsys.readouterr().err
