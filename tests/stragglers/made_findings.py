"""Findings made by hand: a recording, causes and a few protocols, without any search for causes or training."""

import dataclasses

import numpy as np

from sgdlab.stragglers import diagnosis as search
from sgdlab.stragglers import what_if
from sgdlab.stragglers.answer import verdict
from sgdlab.stragglers.answer.table import Measurements
from sgdlab.stragglers.comparison import measured
from sgdlab.stragglers.comparison.comparison import Comparison, ComparisonSettings
from sgdlab.stragglers.comparison.measured import Resamples
from sgdlab.stragglers.comparison.protocol import DEPLOYABLE, DRAINED, HINDSIGHT, STALE, Protocol
from sgdlab.stragglers.comparison.sweeps import FINISHING, INTERRUPTED
from sgdlab.stragglers.diagnosis import pauses
from sgdlab.stragglers.diagnosis.causes import Cause
from sgdlab.stragglers.findings import Findings
from sgdlab.stragglers.recording import SplitRecording
from sgdlab.traces import Recording

STEPS, WORKERS, SLOW, SINCE = 80, 6, 3, 40


def runtimes(factor=1.6, seed=0):
    """Five equal workers and one, the fourth, that is slower from the middle on: float64[80, 6], seconds."""
    times = 1 + 0.02 * np.random.default_rng(seed).random((STEPS, WORKERS))
    times[SINCE:, SLOW] *= factor
    return times


def parts(times, train_steps=SINCE, **others):
    names = tuple(f"w{i}" for i in range(times.shape[1]))
    whole = Recording(times, 100 + np.arange(len(times)), names, **others)
    return SplitRecording("made", whole, whole, pauses.find_pauses(whole), train_steps)


def slow_worker(factor=1.6, until=None, worker=SLOW):
    return Cause("slow worker", (worker,), None, SINCE, until, factor, 0.2, "in all steps since")


def without(split, workers):
    """The row of a table without some workers."""
    others = np.delete(split.test, workers, axis=1)
    result = measured.interrupted(others, others.shape[1])
    name = " and ".join(f"w{worker}" for worker in workers)
    return Protocol(name, "", DRAINED, result, without=workers)


def diagnosis(split, *causes):
    """Return what is really found, but for the causes."""
    return dataclasses.replace(search.find_causes(split.complete, split.pauses), causes=causes)


def protocols(split, *, formula=None, fixed=0, drained=()):
    """Rows of a table: full synchrony, a fixed number of backups, a formula's cutoffs, some workers left out."""
    test, workers = split.test, split.test.shape[1]
    rows = [Protocol("full synchrony", "", DEPLOYABLE, measured.interrupted(test, workers), backups=0)]
    for role, b in ((DEPLOYABLE, fixed), (HINDSIGHT, 1)):
        rows += [
            Protocol(INTERRUPTED, f"b = {b}", role, measured.interrupted(test, workers - b), backups=b),
            Protocol(FINISHING, f"b = {b}", role, measured.finishing(test, [b])[b], backups=b),
        ]
    if formula is not None:
        known = {"parameters": {"window": 2, "deviations": 6.0}}
        result = measured.interrupted(test, formula)
        rows.append(Protocol("median + k MAD", "k = 6, window 2", DEPLOYABLE, result, **known))
    rows += [without(split, workers) for workers in drained]
    rows.append(Protocol("asynchrony", "", STALE, measured.asynchronous(test)))
    return rows


def findings(split, found, rows):
    """All results, with the rows as they are."""
    compared = Comparison(rows, (), None, "")
    answers = Measurements(compared, Resamples(len(split.test), seed=0))
    decided = verdict.decide(answers, found, split.train_steps)
    repaired = what_if.try_repairs(split.complete, split.pauses)
    return Findings(split, found, answers, decided, repaired, ComparisonSettings())


def with_comparison(made, **changes):
    """The same findings with changes to the comparison."""
    table = dataclasses.replace(made.table, comparison=dataclasses.replace(made.comparison, **changes))
    return dataclasses.replace(made, table=table)
