"""Test what a run's summary says of its schedule: every local step is an edge, and the pace is of single steps."""

import numpy as np
import pytest
from lib import tiny

from sgdlab import theory
from sgdlab.runs.plan import make_plan


def test_a_gradient_is_an_edge():
    plan = make_plan(tiny.config(method="asgd"))
    found = plan.certified
    assert found["tree_distance"] == plan.schedule.staleness().max()
    assert found["steps"] == plan.schedule.used().sum()
    assert found["capacity"] == pytest.approx((1 / plan.worker_seconds).sum())


@pytest.mark.parametrize("by_speed", [False, True])
def test_a_message_is_as_many_edges_as_steps(by_speed):
    plan = make_plan(tiny.config(method="asgd", local__steps=3, local__by_speed=by_speed))
    schedule, found = plan.schedule, plan.certificate
    steps = plan.experiment.steps[schedule.worker]
    assert found.gradients == steps[schedule.used()[:, 0]].sum()
    np.testing.assert_array_equal(found.shares, theory.certificate(schedule, steps=steps).shares)
    assert found.tree_distance == theory.tree_distances(schedule, steps).max() >= schedule.staleness().max()
    assert (len(set(steps)) > 1) == by_speed


def test_the_pace_is_that_of_the_cluster_whatever_the_method_sends():
    plans = [make_plan(tiny.config(method="asgd", **local)) for local in ({}, {"local__steps": 3})]
    once, thrice = (plan.certified["capacity"] for plan in plans)
    assert thrice == pytest.approx(once, rel=0.05)  # a few gradients more or less of the same workers


def test_without_a_server():
    plan = make_plan(tiny.config(method="pull_gossip"))
    found = plan.certified
    assert found["tree_distance"] is None
    assert found["steps"] == plan.schedule.num_gradients
    assert found["effective_workers"] > 1
