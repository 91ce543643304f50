"""The effective learning rate of a run: how far it moves what it trains by gradients that are all the same."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs import digits
from sgdlab import replay
from sgdlab.registry import RULES
from sgdlab.rules.server_rule import absorbed
from sgdlab.runs import effective_rate
from sgdlab.runs.plan import make_plan
from sgdlab.tasks import Task

WORKERS = 4
CLAIMING = [name for name, part in RULES.items() if "momentum" in part.given and not part.facts.rate]


def planned(method, **entries):
    config = digits.get_config()
    config.method, config.cluster.num_workers, config.epochs = method, WORKERS, 1.0
    config.update_from_flattened_dict(entries)
    return make_plan(config)


def figures(method, **entries):
    return effective_rate.figures(planned(method, **entries))


def moved(plan):
    """Return how far gradients of one have moved the server's parameters, or the mean of the nodes."""
    served = plan.schedule.has_server
    rule = plan.rule(plan.rates if served else 1.0, plan.schedule.num_workers)
    scale = None if served else plan.rates[: plan.program.num_rows]
    start = [jnp.zeros(2)] * 4  # as many arrays as `layerwise` has servers
    task = Task(lambda params, batch: (jax.tree.map(jnp.ones_like, params), {}), start)
    end = replay.run(plan.program, rule, task, lambda g: g, step_scale=scale, mode="event").params
    return -float(np.mean(end))


@pytest.mark.parametrize(
    "method",
    [
        "synchronous", "backup_workers", "timeout", "dropcompute", "dropcompute_count", "anytime", "asgd",
        "layerwise", "malenia", "ringleader", "d_psgd", "ad_psgd",
    ],
)  # fmt: skip
def test_it_is_what_parameters_move_by_without_momentum(method):
    plan = planned(method, **{"optimizer.momentum": 0.0, "optimizer.weight_decay": 0.0})
    exact = 1e-3 if method == "d_psgd" else 1e-9  # a round that is cut short is averaged by some nodes alone
    assert moved(plan) == pytest.approx(effective_rate.figures(plan)["summed_rate"], rel=exact)


@pytest.mark.parametrize(
    ("method", "entries"),
    [
        ("d_psgd", {"protocol.d_psgd.graph": "complete"}),
        ("asgd", {"optimizer.momentum": 0.9}),
        ("nag_asgd", {}),
        ("all_reduce", {}),
        ("ad_psgd", {}),
        ("dropcompute", {"protocol.dropcompute.seconds": float("inf")}),
        ("synchronous", {"rule.kind": "linear_scaling"}),
    ],
)
def test_methods_with_one_momentum_agree(method, entries):
    expected, found = figures("synchronous"), figures(method, **entries)
    assert found["summed_rate"] == pytest.approx(expected["summed_rate"], rel=0.02)  # the updates are rounded up
    assert found["effective_rate"] == pytest.approx(expected["effective_rate"], rel=0.02)


def test_plain_sgd_has_a_tenth_and_nodes_that_explore_have_a_part():
    nag, plain, elastic = (figures(method) for method in ("nag_asgd", "asgd", "elastic_averaging"))
    for name, value in nag.items():
        assert plain[name] == pytest.approx(0.1 * value, rel=1e-3)
        assert elastic[name] == pytest.approx(value / WORKERS, rel=0.02)


def test_by_hand():
    """Synchronous SGD at one rate: N eta / (1 - gamma) for each update of N gradients."""
    plan = planned("synchronous", **{"rate.decay": "constant", "rate.warmup_epochs": 0.0})
    eta = plan.experiment.optimizer.learning_rate
    found = effective_rate.figures(plan)
    assert found["effective_rate"] == pytest.approx(eta / 0.1)
    assert found["summed_rate"] == pytest.approx(eta / 0.1 * plan.schedule.used().sum())


@pytest.mark.parametrize("method", ["adam", "muon", "normalised_momentum", "local_sgd", "async_diloco", "fedasync"])
def test_steps_of_another_unit_have_none(method):
    assert figures(method) == {"effective_rate": None, "summed_rate": None}


def settled(name, momentum, workers):
    """The mean step of a rule that has had the same fresh gradient for long, at the learning rate 1."""
    entries = {"noise": 0.0} if name == "ada_delay" else {}
    given = {"momentum": momentum, "num_workers": workers, "workers": workers, "expected_gradients": 1.0}
    rule = RULES.make(name, entries, learning_rate=1.0, weight_decay=0.0, fragments=1, **given)
    gradient, params = jnp.full((2, 3), 2.0), jnp.zeros((2, 3))

    def update(state, step):
        use = {"worker": step % workers, "delay": 1}
        state = absorbed(rule, gradient, state, params, read_params=params, **use)
        message = rule.receive(gradient, state, params, read_params=params, **use)
        updates, state = rule.update(message, state, params, num_gradients=1, **use)
        return state, updates

    return -np.asarray(jax.lax.scan(update, rule.init(params), jnp.arange(120))[1][-2:]).mean() / 2.0


@pytest.mark.parametrize("name", CLAIMING)
def test_rules_that_are_momentum_sgd_are(name):
    momentum = 0.75
    claimed = RULES[name].facts.momentum_sgd
    assert claimed == bool(np.isclose(settled(name, momentum, 1 if claimed else 2), 1 / (1 - momentum), rtol=1e-6))


def test_a_rule_of_ones_own():
    @RULES.register(title="Own")
    def own(*, learning_rate, **rest):
        return optax.sgd(learning_rate)

    try:
        assert figures("asgd", **{"rule.kind": "own"})["summed_rate"] is None
    finally:
        RULES.forget("own")
