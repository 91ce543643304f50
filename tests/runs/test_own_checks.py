"""Networks and custom rules that cannot be: said of the part, before the run begins."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from sgdlab import data, rules
from sgdlab.errors import UsageError
from sgdlab.registry import NETWORKS, RULES
from sgdlab.runs.parts import check_outputs, check_rule, outputs_of
from sgdlab.runs.records import check_first

SPLIT = data.Images(np.zeros((4, 1, 1, 3), np.uint8), np.arange(4, dtype=np.int32))
DATASET = data.Dataset(SPLIT, SPLIT, num_classes=4)
PARAMS = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}


TABLE = jnp.arange(4.0)


class Net(nnx.Module):
    """A layer, which normalises, and perhaps returns nothing."""

    def __init__(self, outputs, rngs):
        self.norm, self.layer, self.outputs = (
            nnx.BatchNorm(3, rngs=rngs),
            nnx.Linear(3, outputs or 4, rngs=rngs),
            outputs,
        )

    def __call__(self, images, key=None):
        logits = self.layer(self.norm(images.reshape(len(images), -1)))
        return logits if self.outputs else None


def part(registry, monkeypatch):
    monkeypatch.setattr(registry, "_parts", dict(registry))
    registry.register("mine", title="Mine")(lambda: None)
    return registry["mine"]


@pytest.mark.parametrize(
    ("outputs", "words"), [(4, None), (7, None), (3, r"returned \(2, 3\)"), (0, "None: is `return` missing")]
)
def test_logits_have_the_shape_of_the_classes(outputs, words, monkeypatch):
    mine, network = part(NETWORKS, monkeypatch), Net(outputs, nnx.Rngs(0))
    before = np.asarray(network.norm.mean[...])
    if words is None:
        check_outputs(mine, outputs_of(mine, network, DATASET), DATASET)
    else:
        with pytest.raises(UsageError, match=rf"--config.network.kind=mine must return .*\(2, 4\) .*{words}"):
            check_outputs(mine, outputs_of(mine, network, DATASET), DATASET)
    np.testing.assert_array_equal(network.norm.mean[...], before)  # nothing was computed


def transform(update):
    return rules.server_rule(
        optax.chain(optax.GradientTransformationExtraArgs(lambda params: jnp.zeros([]), update), optax.scale(-1.0))
    )


def on(tree, function):
    return jax.tree.map(function, tree)


def fails(updates, state, params=None, **extra):
    raise ValueError("my own reason")


@pytest.mark.parametrize(
    ("update", "error", "words"),
    [
        (lambda u, s, p=None, **e: (u, s), None, ""),
        (lambda u, s, p=None, **e: None, UsageError, r"kind=mine: its `update` must return \(updates, state\)"),
        (lambda u, s, p=None, **e: (on(u, lambda x: x[None]), s), UsageError, r"updates of shape \(1, 3\) for b"),
        (lambda u, s, p=None, **e: (u, jnp.zeros(2)), UsageError, r"returned a state of shape \(2,\)"),
        (lambda u, s, p=None, **e: (on(u, lambda x: x * jnp.nan), s), None, ""),  # no values are looked at
        (lambda u, s, p=None, **e: (on(u, lambda x: (x - x.mean()) / x.std()), s), None, ""),
        (lambda u, s, p=None, *, num_gradients, **e: (on(u, lambda x: x / (num_gradients - 1)), s), None, ""),
        (lambda u, s, p=None, *, num_gradients, **e: (on(u, lambda x: x * TABLE[num_gradients - 1]), s), None, ""),
        (lambda u, s, p=None, **e: (on(u, lambda x: x.mean()), s), None, ""),  # is added to all of a parameter
        (fails, ValueError, "^my own reason"),
    ],
)  # fmt: skip
def test_a_rule_makes_updates_like_the_parameters(update, error, words, monkeypatch):
    mine = part(RULES, monkeypatch)
    if error is None:
        check_rule(mine, transform(update), PARAMS)
        return
    with pytest.raises(error, match=words):
        check_rule(mine, transform(update), PARAMS)
    check_rule(RULES["asgd"], transform(update), PARAMS)  # rules of this package are not asked


def test_a_rule_is_traced_as_it_will_be_used(monkeypatch):
    mine, told = part(RULES, monkeypatch), []

    def update(updates, state, params=None, *, worker, **extra):
        told.append(worker)
        return updates, state + 1

    # A number of Python's own as the state.
    rule = rules.server_rule(optax.GradientTransformationExtraArgs(lambda params: 0, update))
    check_rule(mine, rule, PARAMS, single=False)
    assert told == [None]
    check_rule(mine, rule, PARAMS)
    assert told[1].dtype == jnp.int32


def test_a_loss_that_is_not_finite_at_first_is_no_divergence():
    experiment = types.SimpleNamespace(
        network=types.SimpleNamespace(name="net"), data=types.SimpleNamespace(kind="set")
    )
    plan = types.SimpleNamespace(experiment=experiment)
    check_first(plan, {"gradients": 0, "test_loss": 2.3})
    check_first(plan, {"gradients": 8, "test_loss": np.nan})
    with pytest.raises(UsageError, match=r"--config.network.kind=net on --config.data.kind=set .* nan before"):
        check_first(plan, {"gradients": 0, "test_loss": np.nan})
