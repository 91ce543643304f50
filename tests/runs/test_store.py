"""A store of runs: whole files or none, what is put aside, and what a kill leaves."""

import json
import math

import pytest

from sgdlab.results import summary
from sgdlab.runs.store import Store

SUMMARY = {"kind": "summary", "loss": 0.5}


def test_finished_runs_are_found_again(tmp_path):
    Store.of(tmp_path).write("one", [{"kind": "run", "config": {"rate": math.inf}}, SUMMARY])
    again = Store.of(tmp_path)
    assert again.read("one") == [{"kind": "run", "config": {"rate": None}}, SUMMARY]
    lines = (tmp_path / "metrics/one.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["run", "summary"]
    assert summary.read(tmp_path) == [again.read("one")]


@pytest.mark.parametrize("text", ["", "1\n", '{"kind": "run"}\n', '{"kind": "run"}\n{"kind": "summ'])
def test_a_half_written_file_does_not_count(tmp_path, text):
    store = Store.of(tmp_path)
    store.path.mkdir()
    (store.path / "one.jsonl").write_text(text)
    assert store.read("one") is None
    assert summary.read(tmp_path) == []


def test_only_directories_of_runs_are_read(tmp_path):
    with pytest.raises(ValueError, match="directory="):
        summary.read(tmp_path)


def test_records_that_cannot_be_written_leave_nothing(tmp_path):
    with pytest.raises(TypeError):
        Store.of(tmp_path / "runs").write("one", [{"kind": "summary", "loss": object()}])
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_does_not_write_leaves_all_as_it_is(tmp_path):
    Store.of(tmp_path).write("one", [{"kind": "run"}, SUMMARY])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    store = Store.of(tmp_path, writes=False)
    with store.under_way("one") as append:
        append({"kind": "run"})
    store.write("one", [{"kind": "run"}, SUMMARY | {"loss": 0.25}])
    store.tidy()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert store.read("one") == [{"kind": "run"}, SUMMARY]


def test_each_old_run_is_put_aside_under_a_number_of_its_own(tmp_path):
    store = Store.of(tmp_path)
    for value in range(3):
        store.write("x", [{"kind": "run"}, {"kind": "summary", "value": value}])
    assert aside_of(store) == {"x.1.jsonl": 0, "x.2.jsonl": 1}
    assert store.read("x")[-1]["value"] == 2
    store.state_path("x").mkdir(parents=True)
    assert [store.put_aside("x"), store.put_aside("missing")] == [True, False]
    assert store.read("x") is None
    assert not store.state_path("x").exists()
    assert aside_of(store) == {"x.1.jsonl": 0, "x.2.jsonl": 1, "x.3.jsonl": 2}


def test_an_old_run_stands_until_the_new_one_does(tmp_path, monkeypatch):
    store = Store.of(tmp_path)
    store.write("x", [SUMMARY])

    def full(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="no space left"):
        store.write("x", [SUMMARY | {"loss": 0.1}])
    assert store.read("x") == [SUMMARY]


def test_what_is_under_way_is_on_the_disk_at_once_and_goes_with_the_finished_run(tmp_path):
    store = Store.of(tmp_path)
    with store.under_way("x") as append, store.under_way("y") as other, store.under_way("z"):
        append({"kind": "run", "gap": float("nan")})
        other({"kind": "run"})
        (left,) = store.left_under_way("x")
        assert json.loads(left.read_text()) == {"kind": "run", "gap": None}
        assert store.left_under_way("z") == []  # it has no record yet
    assert store.read("x") is None
    store.write("x", [SUMMARY])
    store.tidy()
    assert [store.left_under_way("x"), len(store.left_under_way("y"))] == [[], 1]
    store.write("y", [SUMMARY])
    store.tidy()
    assert not (tmp_path / "metrics/under_way").exists()


def aside_of(store):
    files = sorted((store.path / "superseded").iterdir())
    return {path.name: json.loads(path.read_text().splitlines()[-1])["value"] for path in files}
