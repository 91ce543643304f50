"""Runs of compressed messages: without compression nothing of a run changes, records say what was done, refusals."""

import re

import pytest
from lib import tiny

from sgdlab import runs
from sgdlab.compressions import COMPRESSIONS
from sgdlab.errors import UsageError
from sgdlab.results.summary import groups as groups_of
from sgdlab.results.table import notes
from sgdlab.runs import configuration, digests, work
from sgdlab.runs.experiment import resolve
from sgdlab.runs.plan import make_plan


def test_without_compression_a_run_is_what_it_was():
    """Its identity, its key, its digests: as of a configuration from before there was such a family."""
    config, before = tiny.config(), tiny.config()
    with before.unlocked():
        del before["compression"]
    assert resolve(config).compression is None
    assert resolve(config).identity == resolve(before).identity
    assert "compression" not in resolve(config).identity
    assert "compression" not in digests.of_run(resolve(config))
    for function in (work.identity, work.label, lambda config: work.group_of(work.train, config)):
        assert function(config) == function(before)
    assert work.code_of(work.train, config) == work.code_of(work.train, before)
    config.compression.top_k.share = 0.5  # of a part that is not used
    assert resolve(config).identity == resolve(before).identity


def test_a_compressor_is_part_of_a_run():
    config = tiny.config(compression__kind="top_k")
    experiment = resolve(config)
    assert experiment.identity["compression"] == {"kind": "top_k", "feedback": None, "top_k": {"share": 0.01}}
    assert "compression" in digests.of_run(experiment)
    assert work.identity(config) != work.identity(tiny.config(compression__kind="top_k", compression__feedback="none"))
    assert work.group_of(work.train, config) != work.group_of(work.train, tiny.config())


@pytest.mark.parametrize("name", [name for name in COMPRESSIONS if name != "none"])
def test_each_compressor_has_the_memory_of_its_source(name):
    experiment = resolve(tiny.config(compression__kind=name))
    expected = "error" if name in ("top_k", "sign", "power_sgd") else "none"
    assert experiment.compression.feedback == expected
    assert make_plan(tiny.config(compression__kind=name)).rule(0.1, 4).absorb is not None


def test_a_run_trains_and_says_what_it_has_sent():
    config = tiny.config(method="asgd", compression__kind="top_k", compression__top_k__share=0.1)
    run = runs.train.train(make_plan(config))
    about = run.records[0]["about"]["messages"]
    assert re.fullmatch(r"Top-k \(share 0\.1\), error feedback; [\d,]+ bytes each, 13.* % of uncompressed ones", about)
    assert run.records[-1]["test_accuracy"] > 0.3
    plain = runs.train.train(make_plan(tiny.config(method="asgd")))
    assert "messages" not in plain.records[0]["about"]
    for records, said in ((run.records, True), (plain.records, False)):
        lines = notes(groups_of([records]))
        assert any(line.startswith("Compressed messages: Top-k (share 0.1)") for line in lines) == said


def test_waves_and_event_mode_agree_on_a_run():
    changes = {"method": "asgd", "compression__kind": "qsgd", "compression__feedback": "error"}
    event, wave = (runs.train.train(make_plan(tiny.config(**changes, mode=mode))) for mode in ("event", "wave"))
    ours, theirs = (runs.train.leaves(run.result.params) for run in (event, wave))
    assert runs.recorded.largest_difference(ours, theirs) < 1e-5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"method": "pull_gossip", "compression__kind": "sign"},
            "--config.compression.kind=sign must be none with protocol gossip: what is compressed are messages of "
            "workers to a server",
        ),
        (
            {"method": "streaming_diloco", "compression__kind": "top_k"},
            "--config.compression.kind=top_k with feedback=error must be one of none, qsgd, four_bit, with "
            "--config.compression.feedback=none, for messages of fragments: others mix them with the rest",
        ),
        (
            {"method": "streaming_diloco", "compression__kind": "four_bit", "compression__feedback": "error"},
            "--config.compression.kind=four_bit with feedback=error must be one of none, qsgd, four_bit, with "
            "--config.compression.feedback=none, for messages of fragments: others mix them with the rest",
        ),
        (
            {"compression__kind": "top_k", "compression__top_k__share": 2.0},
            "--config.compression.top_k.share=2.0 must be a finite number above 0 and at most 1",
        ),
        (
            {"compression__kind": "sign", "compression__feedback": "ef22"},
            "--config.compression.feedback='ef22' must be one of none, error, ef21",
        ),
    ],
)
def test_refusals_are_one_line(changes, message):
    with pytest.raises(UsageError) as refused:
        make_plan(tiny.config(**changes))
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ("compression.feedback", "none", "compression.kind is none; set --config.compression.kind"),
        ("compression.top_k.share", "none", "compression.kind is none; set --config.compression.kind=top_k"),
        ("compression.top_k.share", "sign", "compression.kind is sign; set --config.compression.kind=top_k"),
    ],
)
def test_entries_without_effect_are_refused(given, kind, message):
    identity = resolve(tiny.config(compression__kind=kind)).identity
    with pytest.raises(UsageError) as refused:
        configuration.check_used([given], [identity])
    assert str(refused.value) == f"--config.{given} has no effect: {message}"
    configuration.check_used(["compression.feedback"], [resolve(tiny.config(compression__kind="sign")).identity])


def test_a_compressor_of_ones_own_that_is_none_is_refused(monkeypatch):
    monkeypatch.setattr(COMPRESSIONS, "_parts", dict(COMPRESSIONS))

    @COMPRESSIONS.register("mine", title="Mine")
    def mine(*, share: float = 0.5):
        return share

    with pytest.raises(UsageError, match=r"^--config.compression.kind=mine returned a float, which must be a "):
        resolve(tiny.config(compression__kind="mine"))
