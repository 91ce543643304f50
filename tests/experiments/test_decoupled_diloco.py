"""Goodput of learners that fail, and what is said of losses at equal goodput: on made-up numbers, and a toy run."""

import itertools

import numpy as np
import pandas as pd
import pytest

from experiments.beyond import decoupled_diloco as figure
from experiments.harness.claims import FAILS, HOLDS


def shares(**means):
    """Return goodputs of four seeds: about each way's mean, or the formula where there is none."""
    cells = [("job", 1), *itertools.product([way for way in figure.WAYS if way != "job"], (8, 16))]
    rows = []
    for number, (chips, (way, count), seed) in enumerate(itertools.product((1.2e6, 2.4e6), cells, range(4))):
        value = means.get(way, figure._formula(count, chips)) + 1e-3 * np.random.default_rng(number).uniform(-1, 1)
        rows.append({"way": way, "learners": count, "chips": chips, "seed": seed, "goodput": value})
    return pd.DataFrame(rows)


def runs(loss, seconds):
    """Return runs of four seeds of each method, alike but for Decoupled DiLoCo's with failures."""
    rows = []
    for number, (seed, method, kind) in enumerate(itertools.product(range(4), figure.METHODS, figure.FAILS)):
        own = (loss, seconds) if (method, kind) == ("decoupled_diloco", "independent") else (1.0, 100.0)
        found = np.array(own) * np.exp(1e-3 * np.random.default_rng(number).uniform(-1, 1, 2))
        keys = {"task": "digits", "method": method, "failures.kind": kind, "seed": seed}
        rows.append(keys | dict(zip(("test_loss", "seconds"), found, strict=True)))
    return pd.DataFrame(rows)


def verdicts(of_shares, of_runs):
    return [claim.verdict for claim in figure.claims(of_shares, of_runs)]


def test_claims_hold_where_they_should():
    found = figure.claims(shares(diloco=0.6, dropping=0.5), runs(1.0, 50.0))
    assert {claim.verdict for claim in found[1:]} == {HOLDS}
    assert found[0].identity
    assert found[0].holds.holds


@pytest.mark.parametrize(
    ("of_shares", "of_runs", "number"),
    [
        (shares(diloco=0.6, dropping=0.5, decoupled=0.3), runs(1.0, 50.0), 1),
        (shares(diloco=0.99, dropping=0.99), runs(1.0, 50.0), 2),
        (shares(diloco=0.6, dropping=0.5, decoupled=0.7), runs(1.0, 50.0), 3),
        (shares(diloco=0.6, dropping=0.5), runs(1.2, 50.0), 4),
        (shares(diloco=0.6, dropping=0.5), runs(1.0, 150.0), 5),
    ],
)
def test_claims_fail_where_they_should(of_shares, of_runs, number):
    assert verdicts(of_shares, of_runs)[number] == FAILS


def test_a_job_of_one_and_learners_that_wait_for_nobody_have_the_goodput_of_a_renewal_process():
    for way, learners in (("job", 1), ("asynchronous", 8)):
        found = [
            figure.measured(way=way, learners=learners, chips=2.4e6, updates=600, seed=seed)["goodput"]
            for seed in range(4)
        ]
        assert np.mean(found) == pytest.approx(figure._formula(learners, 2.4e6), rel=0.03)
