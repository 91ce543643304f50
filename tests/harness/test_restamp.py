"""Restamping: runs of older code whose sample is as before count as of today's, and what differs is said."""

import json
import pathlib
import re

import pytest
from sweep_works import doubled

from configs import digits
from experiments.harness import Claim, Output, Scale, Session, Sweep, board, command, figures, restamp, sampled
from experiments.harness.publishing import digest, produce
from sgdlab.runs import digests

ROOT = pathlib.Path(__file__).parents[2]


def products(*, factor: int = 2, most: int = 5) -> Output:
    """Multiplies.

    Args:
      factor: by which.
      most: so many numbers.
    """
    runs = Sweep({"factor": factor}, {"value": range(most)}, work=doubled).table()
    table = runs[["value"]].assign(factor=factor, ours=runs["product"], paper=None)
    return Output(table, None, [Claim("it is 8", "here", str(runs["product"].max()), None)])


@pytest.fixture(name="made")
def a_stored_figure(declare, stored, monkeypatch, tmp_path):
    del stored  # whose place is another now
    made = declare(products, smoke=Scale("1 s", most=2))
    monkeypatch.setattr(restamp, "_figures", lambda names: [made])
    produce(made, "laptop", {}, Session(tmp_path / "papers", jobs=1))
    board.store(board.assemble([made], tmp_path / "papers"))
    return made


@pytest.fixture(name="edited")
def code_that_was_edited(monkeypatch, made):
    of_code = digests.of_code
    monkeypatch.setattr(digests, "of_code", lambda code: "edited" if code is doubled else of_code(code))
    assert board.stored_result(made.name).changed(made) == ["sweep_works.doubled"]


def restamped(tmp_path, *flags):
    return command.answer(["restamp", f"--workdir={tmp_path / 'papers'}", "--jobs=1", *flags])


def codes(tmp_path):
    files = sorted((tmp_path / "papers/runs").glob("*.jsonl"))
    return [json.loads(file.read_text().splitlines()[0])["code"]["work"] for file in files]


@pytest.mark.usefixtures("edited")
def test_a_sample_that_agrees_restamps_runs_and_the_stored_result(made, tmp_path, capsys):
    whole = (tmp_path / "stored" / f"{made.name}.csv").read_bytes()
    assert restamped(tmp_path, "--sample=2") == 0
    assert "2 of 5 runs were done again, and agree to the bit; all 5 are restamped" in capsys.readouterr().out
    assert codes(tmp_path) == ["edited"] * 5
    stored = board.stored_result(made.name)
    assert stored.changed(made) == []
    assert stored.facts["restamped"]["sample"] == "2 of 5 runs"
    assert stored.facts["digest"] == digest(stored.facts, stored.table.read_text())
    assert (tmp_path / "stored" / f"{made.name}.csv").read_bytes() == whole
    assert not list((tmp_path / "papers/runs").glob("superseded/*"))
    assert restamped(tmp_path) == 0
    assert "0 of 0 runs were done again" in capsys.readouterr().out


@pytest.mark.usefixtures("edited")
def test_a_run_that_differs_is_said_and_nothing_is_changed(made, tmp_path, capsys):
    for file in (tmp_path / "papers/runs").glob("*.jsonl"):
        file.write_text(file.read_text().replace('"product": 4', '"product": 5'))
    assert restamped(tmp_path, "--sample=5") == 1
    said = capsys.readouterr()
    assert '["sweep_works.doubled", {"value": 2}]: product of its record 1 (summary) was 5, and is 4' in said.out
    assert f"{made.name} cannot be restamped" in said.err
    assert "edited" not in codes(tmp_path)
    assert board.stored_result(made.name).changed(made)


@pytest.mark.usefixtures("edited")
def test_a_stored_table_that_differs_stays(made, tmp_path, capsys):
    table = tmp_path / "stored" / f"{made.name}.csv"
    table.write_text(table.read_text().replace("4,2,8", "4,2,9"))
    assert restamped(tmp_path) == 1
    assert "was 4,2,9" in capsys.readouterr().out
    assert board.stored_result(made.name).changed(made)


@pytest.mark.usefixtures("edited")
def test_without_runs_there_is_nothing_to_compare_with(made, tmp_path, capsys):
    for file in (tmp_path / "papers/runs").glob("*.jsonl"):
        file.unlink()
    assert restamped(tmp_path) == 1
    assert f"`python -m experiments {made.name} --scale=laptop` does them" in capsys.readouterr().out


def test_a_sample_has_runs_of_every_kind_and_is_the_same_everywhere():
    def asked(values):
        of = [Sweep({"value": value}, {"factor": [1, 2]}, work=doubled).runs for value in values]
        return [(doubled, run) for runs in of for run in runs]

    # Runs of two sweeps that vary the same cannot be told apart by what varies.
    assert sampled.sample(asked([1, 2]), 3) == {}
    runs = [(doubled, run) for run in Sweep({}, {"value": range(20)}, work=doubled).runs]
    chosen = sampled.sample(runs, 3)
    assert len(chosen) == 3
    assert sampled.sample(runs[::-1], 3).keys() == chosen.keys()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--figures=gossip.nothing"], "--figures=gossip.nothing must be a table or figure"),
        (["--figures=gossip.bounds", "--reference=nowhere"], "--reference=nowhere must be a checkout"),
    ],
)
def test_what_cannot_be_restamped_is_named(flags, words, tmp_path, capsys):
    assert restamped(tmp_path, *flags) in (1, 2)
    seen = capsys.readouterr()
    assert words in seen.out + seen.err


@pytest.mark.full
@pytest.mark.usefixtures("stored")
def test_a_checkout_stands_for_stored_runs(tmp_path, capsys):
    """This checkout is its own reference, and says so where its code is another than the result's."""
    made = figures.find_figure("beyond.dropcompute")
    produce(made, "smoke", {}, Session(tmp_path / "papers", jobs=1))
    board.store(board.assemble([made], tmp_path / "papers"))
    flags = ["--figures=beyond.dropcompute", f"--reference={ROOT}"]
    assert restamped(tmp_path, *flags) == 0
    assert "1 run and the scale smoke agree to the bit" in capsys.readouterr().out
    stored = tmp_path / "stored/beyond.dropcompute.json"
    facts = json.loads(stored.read_text())
    assert facts["restamped"]["sample"] == "1 run and the scale smoke"
    stored.write_text(json.dumps(facts | {"code": facts["code"] | {"figure": "older"}}))
    assert restamped(tmp_path, *flags) == 1
    assert "has other code too: figure; name an earlier checkout" in capsys.readouterr().out


@pytest.mark.full
@pytest.mark.usefixtures("stored")
def test_where_data_sets_alone_have_changed_their_examples_are_compared(tmp_path, capsys, monkeypatch):
    made = figures.find_figure("beyond.single_worker")
    produce(made, "smoke", {}, Session(tmp_path / "papers", jobs=1))
    board.store(board.assemble([made], tmp_path / "papers"))
    stored = tmp_path / "stored/beyond.single_worker.json"
    facts = json.loads(stored.read_text())
    monkeypatch.setattr(restamp, "digest_now", lambda part: "newer" if part[:5] == "data:" else facts["code"][part])
    flags = ["--figures=beyond.single_worker", f"--reference={ROOT}"]
    assert restamped(tmp_path, *flags) == 0
    runs = re.search(r"  the examples of (\d+) runs agree to the bit", capsys.readouterr().out)
    assert int(runs[1]) > 1
    assert json.loads(stored.read_text())["restamped"]["sample"] == f"the examples of {runs[1]} runs"


def test_the_digest_of_examples_is_that_of_every_pixel_label_and_fold():
    def found(**entries):
        config = digits.get_config()
        config.update(entries)
        return sampled.data_of(config)

    one = found(split="drawn", seed=1)
    assert one == found(split="drawn", seed=1, batch_size=16)  # which are the same examples
    assert len({one, found(), found(split="drawn", seed=2)}) == 3
    mock = found(data={"kind": "mock"})
    assert mock != found(data={"kind": "mock", "mock": {"noise": 0.3}})


def test_an_entry_that_was_changed_on_purpose_is_not_compared():
    old = [{"kind": "run"}, {"kind": "summary", "loss": 0.5, "seconds_to_target": 12.0}]
    new = [{"kind": "run"}, {"kind": "summary", "loss": 0.5, "seconds_to_target": 11.5}]
    assert len(restamp.differences({"a": old}, {"a": new})) == 1
    assert restamp.differences({"a": old}, {"a": new}, ["seconds_to_target"]) == []
