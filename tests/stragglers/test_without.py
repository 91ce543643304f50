"""Rows without a worker are full synchrony of the others, for the causes that show in the evaluation steps."""

import types

import numpy as np
import pytest
from toy_traces import split_of

from sgdlab.stragglers.comparison import without
from sgdlab.stragglers.diagnosis.causes import SLOW_NODE, SLOW_WORKER, Cause

STEPS, WORKERS = 40, 8


@pytest.fixture(scope="module", name="parts")
def parts_once():
    runtimes = np.random.default_rng(0).gamma(30.0, 0.1, (STEPS, WORKERS))
    return split_of(runtimes, prefix="")


def cause(*workers, node=None, until=None):
    kind = SLOW_WORKER if node is None else SLOW_NODE
    return Cause(kind, workers, node, since=0, until=until, factor=2.0, share=0.1, evidence="")


def rows(parts, *causes):
    return without.rows(parts, types.SimpleNamespace(causes=causes))


def test_a_row_is_full_synchrony_of_the_others(parts):
    found = rows(parts, cause(5), cause(2, 3, node="b"))
    assert [row.title for row in found] == ["without worker 5", "without node b", "without worker 5 and node b"]
    for row, left in zip(found, ((5,), (2, 3), (2, 3, 5)), strict=True):
        others = [worker for worker in range(WORKERS) if worker not in left]
        seconds = np.array([max(step[worker] for worker in others) for step in parts.test])
        assert row.without == left
        assert row.result.gradients_per_second == pytest.approx(len(others) * len(seconds) / seconds.sum())
        assert row.result.idle == pytest.approx(1 - parts.test[:, others].sum() / (len(others) * seconds.sum()))
        assert row.role == "drained"


def test_causes_without_workers_or_before_the_evaluation_steps_have_no_row(parts):
    assert rows(parts) == []
    assert rows(parts, cause(), cause(5, until=19)) == []
    assert [row.without for row in rows(parts, cause(5, until=20), cause(3, until=19))] == [(5,)]


def test_there_are_few_rows_and_none_twice(parts):
    found = rows(parts, *(cause(worker) for worker in range(7)))
    assert [row.without for row in found] == [(0,), (1,), (2,), (3,), (0, 1, 2, 3, 4, 5, 6)]
    assert [row.without for row in rows(parts, cause(4), cause(4), cause(3))] == [(4,), (3,), (3, 4)]
    assert [row.without for row in rows(parts, cause(4), cause(3, 4))] == [(4,), (3, 4)]
    assert [row.without for row in rows(parts, cause(1), cause(*range(WORKERS)))] == [(1,)]


def test_workers_are_named_in_their_order_and_nodes_once(parts):
    assert rows(parts, cause(6), cause(2))[-1].title == "without workers 2 and 6"
    assert rows(parts, cause(6, 7, node="node-1"), cause(2), cause(0))[-1].title == "without workers 0 and 2 and node-1"
