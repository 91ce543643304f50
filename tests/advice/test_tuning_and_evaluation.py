"""What tuning and evaluation steps hold: pauses, transfer, and the steps that the proposed commands use."""

import dataclasses

import made_findings as made
import numpy as np
import pytest

from sgdlab.advice import recording
from sgdlab.advice.answer import next_steps
from sgdlab.traces import Recording

PAUSED = (9, 29, 49, 69)


@pytest.fixture(name="parts")
def paused():
    """Every twentieth step takes five seconds more on all workers; an all-reduce transfers for 0.25 s."""
    times = made.runtimes()
    times[list(PAUSED)] += 5.0
    waiting = times.max(axis=1, keepdims=True) - times + 0.25
    whole = Recording(times, np.arange(80), tuple("abcdef"), ("n0", "n1") * 3, communication={"all_reduce": waiting})
    return recording.split(whole, name="paused", train_share=0.5)


def test_pauses_are_left_out_of_tuning_and_count_in_evaluation(parts):
    assert parts.pauses.rows.tolist() == list(PAUSED)
    assert parts.train.shape == (40 - 2, 6)
    assert parts.test.shape == (40, 6)
    assert np.flatnonzero(parts.test_pauses).tolist() == [row - 40 for row in PAUSED[2:]]
    assert parts.train.max() < 2.0
    assert parts.test.max() > 5.0
    assert parts.test_steps.tolist() == list(range(40, 80))


def test_full_synchrony_takes_the_time_that_was_recorded(parts):
    """Who comes last waits for nobody: a step takes the slowest worker's own time and the transfer."""
    recorded = (parts.complete.runtimes + parts.complete.communication["all_reduce"]).max(axis=1)
    np.testing.assert_allclose(parts.runtimes.max(axis=1), recorded)
    assert parts.transfer_share == pytest.approx(0.25 * 80 / recorded.sum())


def test_a_pause_of_few_workers_stays_among_the_tuning_steps(parts):
    few = dataclasses.replace(parts.pauses, workers=np.array([2, 3, 6, 6]))
    few_paused = dataclasses.replace(parts, pauses=few)
    assert len(few_paused.train) == 40 - 1
    assert np.flatnonzero(few_paused.paused).tolist() == list(PAUSED[1:])


@pytest.mark.parametrize("warm_up", [0, 5, 20, 100])
def test_the_answered_steps_are_the_evaluation_steps_after_the_warm_up(parts, warm_up):
    chosen = made.Protocol("median + k MAD", "", made.DEPLOYABLE, {}, warm_up=warm_up)
    answered = next_steps.answered(parts, chosen)
    before = min(warm_up, len(parts.train))
    np.testing.assert_array_equal(answered.runtimes[before:], parts.test)
    np.testing.assert_array_equal(answered.runtimes[:before], parts.train[len(parts.train) - before :])
    assert answered.steps[before:].tolist() == parts.test_steps.tolist()
    assert (np.diff(answered.steps) > 0).all()
    assert not set(answered.steps[:before]) & set(PAUSED)
    assert answered.nodes == parts.complete.nodes


def test_facts_name_nodes_communication_and_pauses(parts):
    facts = dict(parts.facts())
    assert "2 nodes" in facts["recorded"]
    assert f"{100 * parts.transfer_share:.1f} %" in facts["communication"]
    assert "20" in facts["pauses of all"]  # the period
    assert facts["tuning steps"].startswith("38 steps, 0 to 39")


def test_a_live_recording_that_is_too_short_names_the_slowest_worker():
    times = made.runtimes()[:20]
    times[6:, 2] = np.nan
    whole = Recording(times, np.arange(20), tuple("abcdef"))
    with pytest.raises(ValueError, match=r"too short: 6 rows .* 8 are needed\. Worker c has run-times in 6 of 20 "):
        recording.split(whole, live=True)
