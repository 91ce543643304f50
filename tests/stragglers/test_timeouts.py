"""Time-outs outlast each other and what was recorded; a cutoff is recommended where it saves more than healing."""

import dataclasses
import json
import types

import made_findings
import numpy as np
import pytest
import scipy.stats
from toy_traces import noise, recording_of, split_of

from sgdlab.predictors import dropping
from sgdlab.stragglers import comparison
from sgdlab.stragglers import recording as split
from sgdlab.stragglers.answer import machine_readable, sentences, verdict
from sgdlab.stragglers.answer.table import Measurements
from sgdlab.stragglers.comparison import measured, sweeps
from sgdlab.stragglers.comparison.comparison import ComparisonSettings
from sgdlab.stragglers.comparison.measured import Resamples
from sgdlab.stragglers.comparison.protocol import Protocol, usage
from sgdlab.stragglers.estimate import duration
from sgdlab.stragglers.timeouts import NAMES, find_timeouts, said

STEPS, WORKERS = 400, 4


def of_name(timeouts):
    return {row.name: row for row in timeouts.rows}


def test_time_outs_are_computed_from_the_waits_of_each_step():
    """In step t the first comes after 1 s, the last after 1 + t / 100 s, and the transfer takes 0.5 s."""
    times = np.ones((STEPS, WORKERS))
    times[:, 2] += np.arange(STEPS) / 100
    inside = {"all_reduce": 0.5 + times.max(axis=1, keepdims=True) - times}
    parts = split.split(recording_of(times, communication=inside))
    exceeding = int(scipy.stats.binom.ppf(0.05, STEPS, 0.02)) - 1  # so many of 400 have a chance of at most 5 %
    assert scipy.stats.binom.cdf(exceeding, STEPS, 0.02) <= 0.05 < scipy.stats.binom.cdf(exceeding + 1, STEPS, 0.02)
    late = (STEPS - 1 - exceeding) / 100
    group, step = late + 0.5, (1 + late + 0.5) + late + 0.5
    expected = {"process_group": group, "join": 2 * group, "step": step, "quorum": step + 2 * group}
    found = find_timeouts(parts, 0.02)
    assert {row.name: row.seconds for row in found.rows} == pytest.approx(expected)
    assert [row.name for row in found.rows] == sorted(expected, key=expected.get)
    assert not found.few
    rows = of_name(found)
    assert rows["process_group"].false_drops == exceeding
    assert rows["process_group"].at_most == dropping.most_likely(exceeding, STEPS) <= 0.02
    assert rows["process_group"].longest == pytest.approx(3.99 + 0.5)
    assert rows["join"].longest == pytest.approx(3.99)  # of requests: without the transfer
    assert rows["step"].longest == rows["quorum"].longest == pytest.approx(4.99 + 0.5)


@pytest.mark.parametrize("rejoin", [0.0, 30.0])
def test_each_time_out_outlasts_those_below(rejoin):
    rows = of_name(find_timeouts(split_of(noise(STEPS, WORKERS)), rejoin_seconds=rejoin))
    assert set(rows) == set(NAMES)
    assert rows["process_group"].seconds < rows["step"].seconds < rows["quorum"].seconds
    assert rows["process_group"].seconds + rejoin <= rows["join"].seconds < rows["quorum"].seconds
    assert rows["join"].seconds == rows["process_group"].seconds + max(rows["process_group"].seconds, rejoin)


def test_of_too_few_steps_the_longest_waits_are_taken():
    times = noise(STEPS, WORKERS)
    found = find_timeouts(split_of(times), 0.001)
    assert found.few
    rows = of_name(found)
    assert rows["process_group"].seconds == rows["process_group"].longest == np.ptp(times, axis=1).max()
    assert rows["process_group"].at_most == pytest.approx(1 - 0.05 ** (1 / STEPS))
    assert "too few" in said(found)
    assert "too few" not in said(find_timeouts(split_of(times), 0.01))


def test_pauses_of_all_count():
    times = noise(STEPS, WORKERS)
    times[100] += 50.0
    assert of_name(find_timeouts(split_of(times)))["step"].longest == times[100].max()


def found_with(times, **settings):
    """The findings of a recording, with full synchrony, a cutoff and the oracle."""
    parts = split_of(times)
    given = ComparisonSettings(model="no", **settings)
    found = types.SimpleNamespace(causes=(), machines=())
    compared = comparison.compare(parts, found, None, settings=given, report=lambda line: None)
    table = Measurements(compared, Resamples(len(parts.test), seed=0))
    whole = made_findings.findings(parts, made_findings.diagnosis(parts), made_findings.protocols(parts))
    decided = verdict.decide(table, whole.diagnosis, parts.train_steps)
    return dataclasses.replace(whole, table=table, verdict=decided, settings=given)


def one_late_in_each_step():
    """One of four workers takes 3 s instead of 1: without it 3 gradients a second, with it 4 in 3 s."""
    times = np.ones((120, WORKERS)) + 1e-3 * np.random.default_rng(0).random((120, WORKERS))
    times[np.arange(120), np.random.default_rng(1).integers(WORKERS, size=120)] += 2.0
    return times


@pytest.mark.sample(2)
@pytest.mark.parametrize(("rejoin", "waits_for"), [(0.0, 3), (4.0, 3), (6.0, 4), (600.0, 4)])
def test_a_cutoff_is_recommended_where_it_saves_more_than_healing_costs(rejoin, waits_for):
    """3 / (1 + R / 4) and 4 / 3 gradients per second are equal for R = 5."""
    found = found_with(one_late_in_each_step(), rejoin_seconds=rejoin)
    assert found.verdict.chosen.result.waited_for == pytest.approx(waits_for, abs=0.05)
    relative = {row.title: found.table.relative(row.result)[0] for row in found.comparison.protocols}
    best = max(1.0, 9 / (4 + rejoin))
    assert relative["oracle"] == pytest.approx(best, rel=3e-3)
    assert relative["full synchrony"] == 1.0
    assert relative["asynchrony"] > 1.2  # which drops nobody, and is as without a price
    deadline = next(row for row in found.comparison.protocols if row.method == "median + k MAD")
    assert deadline.result.waited_for == pytest.approx(3.0)
    assert relative["median + k MAD"] == pytest.approx(9 / (4 + rejoin), rel=3e-3)
    interrupted, finishing = found.comparison.sweeps  # who finishes is late for the next update too
    assert interrupted.tuned == 4 - waits_for >= finishing.tuned
    assert ("to come back" in sentences.limits(found)) == bool(rejoin)
    assert json.loads(machine_readable.text(found))["rejoin_seconds"] == rejoin


def test_the_best_cutoffs_at_a_price_are_those_of_all_combinations():
    times = np.random.default_rng(3).gamma(4, 0.25, (5, 3))
    price = dropping.healing_seconds(3, 0.7)
    ordered = np.sort(times, axis=1) + price
    choices = np.array(np.meshgrid(*[[1, 2, 3]] * 5)).reshape(5, -1).T
    rates = [c.sum() / ordered[np.arange(5), c - 1].sum() for c in choices]
    found = sweeps.oracle_cutoffs(times, "rate", price)
    assert found.sum() / ordered[np.arange(5), found - 1].sum() == pytest.approx(max(rates))
    free = measured.interrupted(times, found)
    dear = measured.interrupted(times, found, 0.7)
    assert dear.gradients_per_second == pytest.approx(max(rates))
    assert dear.updates_per_second == pytest.approx(5 / dear.seconds.sum())
    np.testing.assert_array_equal(dear.used, free.used)


def test_who_is_used_does_not_depend_on_the_price():
    times = np.ones((50, 3)) * [1.0, 1.1, 2.0]
    dear = measured.interrupted(times, 2, 9.0)
    row = Protocol("backups, interrupted", "", comparison.DEPLOYABLE, dear)
    assert usage(row).shares == pytest.approx([0.5, 0.5, 0.0])


def test_time_outs_are_in_text_and_json():
    made = made_findings.findings(
        parts := split_of(noise(STEPS, WORKERS)), made_findings.diagnosis(parts), made_findings.protocols(parts)
    )
    assert json.loads(machine_readable.text(made))["timeouts"] is None
    assert "Time-outs" not in dict(sentences.details(made))
    found = find_timeouts(parts, 0.01)
    made = dataclasses.replace(made, timeouts=found)
    text = dict(sentences.details(made))["Time-outs"]
    for row in found.rows:
        assert (
            f"{row.name} {duration(row.seconds)}, of {NAMES[row.name]}: {row.false_drops} of 400 steps waited" in text
        )
    stored = json.loads(machine_readable.text(made))["timeouts"]
    assert stored == {"rows": [row._asdict() for row in found.rows], "steps": STEPS, "few": False}
