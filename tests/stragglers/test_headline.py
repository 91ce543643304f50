"""The recommendation and its headline, on findings that are made by hand."""

import dataclasses
import re

import made_findings as made
import numpy as np
import pytest

from sgdlab.stragglers.answer import headline, machine_readable, sentences

JARGON = re.compile(r"hindsight|MAD\b|objective|throughput|oracle|cutoff|deadline", re.IGNORECASE)


OUT = (made.SLOW,)


def of(*causes, times=None, **rows):
    split = made.parts(made.runtimes() if times is None else times)
    return made.findings(split, made.diagnosis(split, *causes), made.protocols(split, **rows))


def expected_gain(factor=1.6):
    """Gradients per second of full synchrony without the slow worker over those with it, by hand."""
    test = made.runtimes(factor)[made.SINCE :]
    others = np.delete(test, made.SLOW, axis=1)
    return (5 / others.max(axis=1).mean()) / (6 / test.max(axis=1).mean())


def test_a_machine_that_is_slow_is_taken_out_where_no_protocol_gives_more():
    found = of(made.slow_worker(), formula=np.full(40, 5), drained=[OUT])
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
    found = of(over, formula=np.full(40, 5), drained=[OUT])
    assert found.verdict.drained is None
    said = headline.headline(found)
    assert "Without" not in said.problem
    assert said.advice.startswith("Do not wait for the slowest worker: on average 5 of 6")


def test_where_waiting_for_fewer_gives_more_the_machine_is_only_looked_at():
    """Another worker is slower still in every second step: to leave one machine out gains, but less."""
    times = made.runtimes(factor=3.0)
    times[made.SINCE :: 2, 0] *= 4
    found = of(made.slow_worker(3.0), times=times, formula=np.tile([4, 5], 20), drained=[OUT])
    assert found.table.relative(found.comparison.protocols[-2].result)[0] > 1.1  # without that machine
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
    found = of(times=times, formula=np.tile([6, 5], 20))
    assert found.verdict.chosen.title == "median + k MAD"
    assert found.verdict.fixed is None


def test_a_fixed_number_that_was_tuned_is_chosen_itself():
    found = of(formula=np.full(40, 5), fixed=1)
    assert found.verdict.chosen.backups == 1
    assert found.verdict.fixed is None
    assert "5 of 6 enter every update" in headline.headline(found).advice


def test_full_synchrony_is_kept_where_nothing_is_slow():
    found = of(times=made.runtimes(1.0), formula=np.full(40, 5), drained=[OUT])
    assert found.verdict.chosen.backups == 0
    assert found.verdict.drained is None
    assert not JARGON.search(str(headline.headline(found)))
    assert f"{100 * found.comparison.synchrony.idle:.1f} %" in headline.headline(found).problem


def test_the_first_cause_and_the_first_machine_are_both_named():
    pauses = made.Cause("all slower", (), None, 20, None, 1.5, 0.4, "")
    found = of(pauses, made.slow_worker(), formula=np.full(40, 5), drained=[OUT])
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
    found = of(made.slow_worker(), formula=np.full(40, 5), drained=[OUT])
    answer = machine_readable.as_dict(found)
    (cause,) = answer["causes"]
    assert (cause["workers"], cause["since"], cause["until"]) == (["w3"], 140, None)
    assert answer["take_out"]["workers"] == ["w3"]
    assert answer["take_out"]["gain"][0] == pytest.approx(expected_gain())
    assert answer["recommendation"]["gradients_per_update"] == pytest.approx(5)
    (row,) = [row for row in answer["protocols"] if row["without"]]
    assert row["gain"] == answer["take_out"]["gain"]
    assert '"version": 1' in machine_readable.text(found)


def of_two(first=1.8, second=1.8):
    """Two machines that are slow from the middle on, with the rows without each and without both."""
    times = made.runtimes(first)
    times[made.SINCE :, 1] *= second
    one, other = made.slow_worker(first), made.slow_worker(second, worker=1)
    return of(one, other, times=times, drained=[OUT, (1,), (1, *OUT)]), times[made.SINCE :]


@pytest.mark.parametrize("second", [1.8, 1.65])
def test_machines_that_hide_each_other_are_named_with_what_all_of_them_are_worth(second):
    found, test = of_two(second=second)
    assert set(found.verdict.drained.without) == {1, made.SLOW}
    said = headline.headline(found)
    for cause in found.diagnosis.causes:
        assert cause.headline(found.parts.complete).rstrip(".") in said.problem
    others = np.delete(test, [1, made.SLOW], axis=1)
    gained = (4 / others.max(axis=1).mean()) / (6 / test.max(axis=1).mean())
    assert f"Without them, the other 4 in full synchrony give {gained:.2f}" in said.problem
    assert "would not help" not in said.problem
    assert "repair them, and keep waiting for the other 4." in said.advice


def test_machines_that_hide_each_other_are_told_together_where_none_is_to_be_taken_out():
    found, test = of_two(1.2, 1.2)
    assert found.verdict.drained is None
    said = headline.problem(found)
    for cause in found.diagnosis.causes:
        assert cause.headline(found.parts.complete).rstrip(".") in said
    others = np.delete(test, [1, made.SLOW], axis=1)
    mended = np.maximum(others.max(axis=1), np.median(others, axis=1)).sum()
    assert f"full synchrony would be {test.max(axis=1).sum() / mended:.2f} times as fast; to take them out" in said


def test_a_machine_whose_absence_gains_nothing_is_alone():
    found = of(made.slow_worker(1.1), times=made.runtimes(1.1), drained=[OUT])
    assert found.verdict.drained is None
    assert "would not help" in headline.problem(found)


def test_of_two_workers_the_other_goes_on_alone():
    times = made.runtimes(3.0)[:, [0, made.SLOW]]
    found = of(made.slow_worker(3.0, worker=1), times=times, drained=[(1,)])
    said = headline.headline(found)
    assert "the other worker alone gives" in said.problem
    assert "both would give" in said.problem
    assert "go on with the other worker alone" in said.advice


def test_a_worker_that_has_recovered_does_not_decide():
    """Slow in the first ten of forty evaluation steps: a formula gains in those, and nothing since."""
    times = 1 + 0.02 * np.random.default_rng(1).random((made.STEPS, made.WORKERS))
    times[20 : made.SINCE + 10, made.SLOW] *= 2.0
    split = made.parts(times)
    rows = made.protocols(split, formula=np.where(np.arange(40) < 10, 5, 6))
    over = made.slow_worker(2.0, until=made.SINCE + 9)
    found = made.findings(split, made.diagnosis(split, over), rows)
    assert found.table.relative(rows[-2].result)[1] > 1.05
    assert (found.verdict.chosen.backups, found.verdict.table.first) == (0, 10)
    assert f"steps {split.test_steps[10]} to {split.test_steps[-1]}" in headline.advice(found)
    lasting = made.findings(split, made.diagnosis(split), rows)
    assert (lasting.verdict.chosen.title, lasting.verdict.table.first) == ("median + k MAD", 0)


def test_what_has_become_slow_in_the_evaluation_steps_decides_since_then():
    times = made.runtimes(1.0)
    times[made.SINCE + 20 :, made.SLOW] *= 1.6
    cause = dataclasses.replace(made.slow_worker(), since=made.SINCE + 20)
    found = of(cause, times=times, drained=[OUT])
    assert found.verdict.table.first == 20
    last = times[made.SINCE + 20 :]
    gained = 5 / 6 * last.max(axis=1).sum() / np.delete(last, made.SLOW, axis=1).max(axis=1).sum()
    assert f"the other 5 in full synchrony give {gained:.2f}" in headline.problem(found)
    answer = machine_readable.as_dict(found)
    assert answer["take_out"]["gain"][0] == pytest.approx(gained)
    assert answer["recommendation"]["since"] == found.parts.test_steps[20]


@pytest.mark.parametrize(("factor", "kept"), [(1.03, True), (1.3, False)])
def test_a_gain_must_pay_for_the_gradients_that_it_drops(factor, kept):
    """Waiting for 4 of 6 drops a third of the batch: 2 % more gradients per second do not pay it, 10 % do."""
    times = made.runtimes(1.0)
    times[made.SINCE :, [1, 3]] *= 1.5 * factor
    found = of(times=times, formula=np.full(40, 4))
    assert found.table.relative(found.comparison.protocols[-2].result)[1] > 1.01
    assert (found.verdict.chosen.backups == 0) == kept


def test_a_worker_that_stopped_is_named_first():
    found = of(made.slow_worker(), drained=[OUT])
    parts = dataclasses.replace(found.parts, stopped="Worker 9 has no compute times since step 3.")
    assert headline.problem(dataclasses.replace(found, parts=parts)).startswith(parts.stopped)
