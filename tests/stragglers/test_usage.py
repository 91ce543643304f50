"""Test whose gradients a protocol of the comparison uses: the same as the certificate of its schedule says."""

import json

import made_findings
import numpy as np
import pytest

from sgdlab import protocols, theory
from sgdlab.protocols.rounds import rounds_in_arrays
from sgdlab.stragglers.answer import machine_readable, sentences
from sgdlab.stragglers.comparison import measured
from sgdlab.stragglers.comparison.protocol import DEPLOYABLE, DRAINED, STALE, Protocol, usage

RUNTIMES = np.random.default_rng(0).gamma(3.0, 1.0, (60, 5)) * [1.0, 1.0, 1.2, 1.5, 4.0]
TIED = np.random.default_rng(1).integers(1, 4, (60, 5)).astype(float)


def of(result):
    return usage(Protocol("", "", DEPLOYABLE, result))


def same(found, schedule):
    expected = theory.certificate(schedule)
    np.testing.assert_allclose(found.shares, expected.shares, rtol=1e-12)
    assert found.tree_distance == expected.tree_distance
    assert found.effective_workers == pytest.approx(expected.effective_workers)
    assert found.least_share == pytest.approx(expected.least_share)
    assert found.under_used.tolist() == expected.under_used.tolist()


@pytest.mark.parametrize("runtimes", [RUNTIMES, TIED], ids=["gamma", "tied"])
class TestSharesAreThoseOfTheSchedule:
    def test_of_interrupted_rounds(self, runtimes):
        cutoffs = np.random.default_rng(2).integers(1, 6, len(runtimes))
        schedule = rounds_in_arrays(runtimes, at_least=cutoffs, seconds=0.0, interrupt=True)
        same(of(measured.interrupted(runtimes, cutoffs)), schedule)

    @pytest.mark.parametrize("backups", [0, 1, 3])
    def test_of_backup_workers(self, runtimes, backups):
        schedule = protocols.backup_workers(runtimes, backups=backups)
        same(of(measured.finishing(runtimes, [backups])[backups]), schedule)


def test_asynchrony_in_the_long_run_uses_each_worker_by_its_rate():
    found = of(measured.asynchronous(RUNTIMES))
    schedule = protocols.asynchronous(RUNTIMES)
    assert found.tree_distance == schedule.staleness().max()
    np.testing.assert_allclose(found.shares, theory.certificate(schedule).shares, atol=0.03)


def test_workers_that_are_left_out_are_not_used():
    result = measured.interrupted(np.delete(RUNTIMES, [1, 4], axis=1), 3)
    found = usage(Protocol("", "", DRAINED, result, without=(1, 4)))
    np.testing.assert_allclose(found.shares, [1 / 3, 0, 1 / 3, 1 / 3, 0])
    assert found.tree_distance == 2
    assert found.under_used.tolist() == [1, 4]


@pytest.mark.parametrize(("factor", "said"), [(4.0, True), (1.2, False)])
def test_what_is_said_of_a_slow_worker(factor, said):
    split = made_findings.parts(made_findings.runtimes(factor))
    found = made_findings.findings(split, made_findings.diagnosis(split), made_findings.protocols(split))
    text = sentences.asynchrony(found)
    assert ("Less than half of an equal share of the gradients would come from worker w3" in text) == said
    (row,) = [p for p in found.comparison.protocols if p.role == STALE]
    entries = json.loads(json.dumps(machine_readable._protocol(found, row)))
    assert entries["under_used"] == (["w3"] if said else [])
    assert entries["least_used"]["worker"] == "w3"
    assert entries["least_used"]["share"] == pytest.approx(6 / (5 * factor + 1), rel=0.05)
