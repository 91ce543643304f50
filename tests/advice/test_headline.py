"""The recommendation and its headline, on findings that are made by hand."""

import re

import made_findings as made
import numpy as np
import pytest

from sgdlab.advice.answer import headline, machine_readable, sentences

JARGON = re.compile(r"hindsight|MAD\b|objective|throughput|oracle|cutoff|deadline", re.IGNORECASE)


def of(*causes, factor=1.6, **rows):
    split = made.parts(made.runtimes(factor))
    return made.findings(split, made.diagnosis(split, *causes), made.protocols(split, **rows))


def expected_gain(factor=1.6):
    """Gradients per second of full synchrony without the slow worker over those with it, by hand."""
    test = made.runtimes(factor)[made.SINCE :]
    others = np.delete(test, made.SLOW, axis=1)
    return (5 / others.max(axis=1).mean()) / (6 / test.max(axis=1).mean())


def test_a_machine_that_is_slow_is_taken_out_where_no_protocol_gives_more():
    found = of(made.slow_worker(), formula=np.full(40, 5), drained=made.SLOW)
    assert found.verdict.drained.without == (made.SLOW,)
    assert found.verdict.chosen.title == "median + k MAD"  # until then
    assert found.verdict.is_of(found.verdict.drained)
    assert not found.verdict.is_of(found.verdict.chosen)
    said = headline.headline(found)
    assert said.problem.startswith(made.slow_worker().headline(found.parts.complete).rstrip("."))
    assert "Without it, the other 5" in said.problem
    assert f"{expected_gain():.2f}" in said.problem
    assert re.search("w3.* the other 5\\.", said.advice)
    assert "on average 5 of 6" in said.advice.split("Until then")[1]
    assert not JARGON.search(str(said))


def test_a_machine_that_is_slow_no_longer_is_not_taken_out():
    over = made.slow_worker(until=60)
    found = of(over, formula=np.full(40, 5), drained=made.SLOW)
    assert found.verdict.drained is None
    said = headline.headline(found)
    assert "Without" not in said.problem
    assert said.advice.startswith("Do not wait for the slowest worker: on average 5 of 6")


def test_where_waiting_for_fewer_gives_more_the_machine_is_only_looked_at():
    """Another worker is slower still in every second step: to leave one machine out gains, but less."""
    times = made.runtimes(factor=3.0)
    times[made.SINCE :: 2, 0] *= 4
    split = made.parts(times)
    rows = made.protocols(split, formula=np.tile([4, 5], 20), drained=made.SLOW)
    found = made.findings(split, made.diagnosis(split, made.slow_worker(3.0)), rows)
    assert found.table.relative(rows[-2].paper)[0] > 1.1  # without that machine
    assert found.verdict.drained is None
    said = headline.headline(found)
    assert "look at that machine first" in said.problem
    assert "the slowest 2 workers: on average 4.5 of 6" in said.advice


def test_a_fixed_number_that_does_as_well_as_a_formula_is_said():
    found = of(formula=np.full(40, 5))
    assert found.verdict.fixed.backups == 1
    assert "Always waiting for 5 of 6" in headline.headline(found).advice
    # A formula that is better than every fixed number stands alone: it waits for all in every second step.
    times = made.runtimes()
    times[made.SINCE :: 2, made.SLOW] = 1.0
    times[made.SINCE + 1 :: 2, made.SLOW] = 4.0
    split = made.parts(times)
    better = made.protocols(split, formula=np.tile([6, 5], 20))
    found = made.findings(split, made.diagnosis(split), better)
    assert found.verdict.chosen.title == "median + k MAD"
    assert found.verdict.fixed is None


def test_a_fixed_number_that_was_tuned_is_chosen_itself():
    found = of(formula=np.full(40, 5), fixed=1)
    assert found.verdict.chosen.backups == 1
    assert found.verdict.fixed is None
    assert "5 of 6 enter every update" in headline.headline(found).advice


def test_full_synchrony_is_kept_where_nothing_is_slow():
    found = of(factor=1.0, formula=np.full(40, 5), drained=made.SLOW)
    assert found.verdict.chosen.backups == 0
    assert found.verdict.drained is None
    assert not JARGON.search(str(headline.headline(found)))
    assert f"{100 * found.comparison.synchrony.idle:.1f} %" in headline.headline(found).problem


def test_the_first_cause_and_the_first_machine_are_both_named():
    pauses = made.Cause("all slower", (), None, 20, None, 1.5, 0.4, "")
    found = of(pauses, made.slow_worker(), formula=np.full(40, 5), drained=made.SLOW)
    said = headline.problem(found)
    first, second = (cause.headline(found.parts.complete).rstrip(".") for cause in found.diagnosis.causes)
    assert said.index(first) < said.index(second)


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_what_of_communication_is_counted_follows_from_the_recording(share):
    times = made.runtimes()
    transfer = {"all_reduce": np.full(times.shape, share) + 0.1 * np.arange(6)} if share else {}
    parts = made.parts(times, communication=transfer)
    np.testing.assert_allclose(parts.test, times[made.SINCE :] + share)
    if not share:
        assert parts.transfer_share is None
        return
    by_hand = share * len(times) / (times.max(axis=1) + share).sum()
    assert parts.transfer_share == pytest.approx(by_hand)
    assert f"{100 * by_hand:.1f} %" in sentences.communication(parts)


def test_the_findings_as_json_are_those_of_the_table():
    found = of(made.slow_worker(), formula=np.full(40, 5), drained=made.SLOW)
    answer = machine_readable.as_dict(found)
    (cause,) = answer["causes"]
    assert (cause["workers"], cause["since"], cause["until"]) == (["w3"], 140, None)
    assert answer["take_out"]["workers"] == ["w3"]
    assert answer["take_out"]["gain"][0] == pytest.approx(expected_gain())
    assert answer["recommendation"]["gradients_per_update"] == pytest.approx(5)
    (row,) = [row for row in answer["protocols"] if row["without"]]
    assert row["gain"] == answer["take_out"]["gain"]
    assert '"version": 1' in machine_readable.text(found)
