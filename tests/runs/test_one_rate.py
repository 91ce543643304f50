"""One meaning of the learning rate: what is synchronous SGD in a special case is it at the default configuration."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from configs import digits
from sgdlab import replay
from sgdlab.errors import UsageError
from sgdlab.runs.plan import make_plan
from sgdlab.tasks import Task

ROUNDS = 40
TARGETS = np.random.default_rng(0).normal(size=(1437, 3))
CURVATURE = np.array([0.3, 1.0, 2.0])


def grad_fn(params, batch):
    return jnp.asarray(CURVATURE) * (params - batch), {}


def planned(method, **entries):
    """The plan of the digits configuration as it stands, of 40 rounds of 8 workers."""
    config = digits.get_config()
    config.method = method
    config.epochs = (8 * ROUNDS - 0.5) / (1437 // config.batch_size)  # rounded up, whole rounds
    config.update_from_flattened_dict(entries)
    return make_plan(config)


EQUAL = {"cluster.kind": "fixed"}
"""Workers of one constant speed."""


@functools.cache
def synchronous(cluster):
    """The plan of synchronous SGD, and what it trains."""
    plan = planned("synchronous", **dict(cluster))
    return plan, trained(plan)


def trained(plan):
    served = plan.schedule.has_server
    rule = plan.rule(plan.rates if served else 1.0, plan.schedule.num_workers)
    scale = None if served else plan.rates[: plan.program.num_rows]
    task = Task(grad_fn, jnp.full(3, 5.0))
    # A batch's gradient is the mean of its examples', as is that of each of its pieces.
    examples = jnp.asarray(plan.experiment.data.order(plan.program.num_rows))
    batch_fn = lambda g: jnp.asarray(TARGETS)[examples[g]].mean(axis=0)
    return replay.run(plan.program, rule, task, batch_fn, step_scale=scale, mode="event")


@pytest.mark.parametrize(
    ("method", "entries"),
    [
        ("d_psgd", {"protocol.d_psgd.graph": "complete", "protocol.d_psgd.fresh": True}),
        ("all_reduce", {}),
        ("dropcompute", {"protocol.dropcompute.seconds": float("inf")}),
        ("dropcompute", EQUAL),
        ("anytime", EQUAL),
        ("lb_bsp", EQUAL),
        ("lb_bsp", EQUAL | {"rule.kind": "linear_scaling"}),
    ],
)
def test_is_synchronous_sgd(method, entries):
    plan = planned(method, **entries)
    twin, expected = synchronous(tuple(EQUAL.items()) if EQUAL.items() <= entries.items() else ())
    result = trained(plan)
    np.testing.assert_allclose(result.params, expected.params, rtol=1e-12)
    assert np.abs(expected.params - 5.0).max() > 1.0
    rounds = twin.schedule.applied[:, 0]
    if plan.schedule.has_server:
        exact = 0 if method == "all_reduce" else 1e-11  # pieces of a batch's seconds are added up
        np.testing.assert_allclose(plan.schedule.applied[:, 0], rounds, rtol=exact)
    else:
        assert set(rounds.tolist()) <= set(plan.schedule.finished.tolist())
        assert plan.schedule.wall_clock() == rounds[-1]
    assert plan.speedup == pytest.approx(1.0)
    np.testing.assert_allclose(plan.worker_seconds, twin.worker_seconds / plan.experiment.cluster.pieces)


def test_nodes_that_step_on_their_own_have_the_rate_of_nodes_in_rounds():
    gossip, rounds = planned("pull_gossip"), planned("d_psgd")
    np.testing.assert_array_equal(gossip.rates, rounds.rates)
    # N steps of nodes: the rate of an update of N gradients.
    np.testing.assert_allclose(rounds.rates[::8], planned("synchronous").rates, rtol=1e-14)


def test_the_rate_of_an_update_is_that_of_a_nodes_own_step():
    plan = planned("d_psgd", **{"rate.of": "update"})
    np.testing.assert_allclose(plan.rates[::8] * 8, planned("d_psgd").rates[::8], rtol=0.02)
    assert (np.diff(plan.rates) != 0).mean() > 0.9  # and not the same for the steps of a round


def test_pieces_are_of_one_batch():
    whole, pieces = (planned(method).experiment.data for method in ("synchronous", "dropcompute"))
    assert (whole.batch_size, pieces.batch_size, pieces.batches_per_epoch) == (8, 2, 4 * whole.batches_per_epoch)
    np.testing.assert_array_equal(pieces.order(30).ravel()[:56], whole.order(8).ravel()[:56])
    own = planned("dropcompute", **{"heterogeneity.alpha": 0.5}).experiment.data
    worker, number = np.array([1, 0, 1, 1]), np.array([0, 5, 1, 6])
    found = own.own_order(own.shares, worker, number)
    batches = planned("synchronous", **{"heterogeneity.alpha": 0.5}).experiment.data
    expected = batches.own_order(batches.shares, worker, number // 4)
    np.testing.assert_array_equal(found, [row[2 * (k % 4) :][:2] for row, k in zip(expected, number, strict=True)])


def test_a_batch_that_cannot_be_divided_is_refused():
    match = r"--config.batch_size=6 must be a multiple of --config.protocol.dropcompute.micro_batches=4: the gradients"
    with pytest.raises(UsageError, match=match):
        planned("dropcompute", batch_size=6)
    with pytest.raises(UsageError, match=r"lb_bsp.gradients=2 micro-batches of --config.micro_batches=8 each"):
        planned("lb_bsp", micro_batches=8)


@pytest.mark.parametrize("of", ["gradient", "update"])
def test_a_rule_that_scales_by_itself_makes_the_same_steps(of):
    plain, scales = (
        planned("lb_bsp", **EQUAL, **{"rule.kind": kind, "rate.of": of}) for kind in ("nag_asgd", "linear_scaling")
    )
    np.testing.assert_allclose(scales.rates * 16, plain.rates, rtol=1e-14)  # an update has two pieces of eight workers


def test_nodes_that_explore_have_the_rate_of_a_single_worker():
    elastic, rounds = planned("elastic_averaging"), planned("d_psgd")
    assert elastic.rates.max() * 8 == pytest.approx(rounds.rates.max(), rel=0.01)
    assert planned("elastic_averaging", **{"rate.of": "update"}).rates.max() == elastic.rates.max()


def test_each_worker_needs_a_whole_batch_of_its_own():
    """1,437 examples are 14 batches of 100, whatever pieces these are divided into."""
    match = r"cluster.num_workers=15 must be at most 14 .* each worker needs a batch of 100 of its own"
    for method in ("synchronous", "dropcompute"):
        with pytest.raises(UsageError, match=match):
            planned(method, **{"batch_size": 100, "cluster.num_workers": 15, "heterogeneity.alpha": 1.0})
