"""One meaning of the learning rate: methods that are synchronous SGD in a special case are it as they are configured."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from configs import digits
from sgdlab import replay
from sgdlab.runs.plan import make_plan
from sgdlab.tasks import Task

ROUNDS = 40
TARGETS = np.random.default_rng(0).normal(size=(8 * ROUNDS, 3))
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


@functools.cache
def synchronous():
    return trained(planned("synchronous"))


def trained(plan):
    served = plan.schedule.has_server
    rule = plan.rule(plan.rates if served else 1.0, plan.schedule.num_workers)
    scale = None if served else plan.rates[: plan.program.num_rows]
    task = Task(grad_fn, jnp.full(3, 5.0))
    return replay.run(plan.program, rule, task, lambda g: jnp.asarray(TARGETS)[g], step_scale=scale, mode="event")


@pytest.mark.parametrize(
    ("method", "entries"),
    [
        ("d_psgd", {"protocol.d_psgd.graph": "complete", "protocol.d_psgd.fresh": True}),
        ("all_reduce", {}),
    ],
)
def test_is_synchronous_sgd(method, entries):
    plan, twin = planned(method, **entries), planned("synchronous").schedule
    result = trained(plan)
    np.testing.assert_allclose(result.params, synchronous().params, rtol=1e-12)
    assert np.abs(synchronous().params - 5.0).max() > 1.0
    ended = plan.schedule.applied[:, 0] if plan.schedule.has_server else np.unique(plan.schedule.finished)
    rounds = twin.applied[:, 0]
    assert set(rounds.tolist()) <= set(ended.tolist())
    assert ended.max() == rounds[-1]
    assert plan.speedup == pytest.approx(1.0)


def test_nodes_that_step_on_their_own_have_the_rate_of_nodes_in_rounds():
    gossip, rounds = planned("pull_gossip"), planned("d_psgd")
    np.testing.assert_array_equal(gossip.rates, rounds.rates)
    # N steps of nodes: the rate of an update of N gradients.
    np.testing.assert_allclose(rounds.rates[::8], planned("synchronous").rates, rtol=1e-14)


def test_the_rate_of_an_update_is_that_of_a_nodes_own_step():
    plan = planned("d_psgd", **{"rate.of": "update"})
    np.testing.assert_allclose(plan.rates[::8] * 8, planned("d_psgd").rates[::8], rtol=0.02)
    assert (np.diff(plan.rates) != 0).mean() > 0.9  # and not the same for the steps of a round
