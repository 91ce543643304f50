"""A custom rule that does not take what its rivals have: said before the run, in its record, and in tables."""

import optax
import pytest
from ml_collections import ConfigDict

from sgdlab.errors import UsageError
from sgdlab.registry import RULES
from sgdlab.runs import compared, configuration, parts, records, resolve
from sgdlab.runs.plan import make_plan


@pytest.fixture(name="config")
def configuration_of_an_own_rule(monkeypatch):
    """Of `bare`, which takes a learning rate alone, and `whole`, which takes all."""
    from configs import digits  # noqa: PLC0415 (configurations hold the entries of the parts that there are)

    for registry in configuration.FAMILIES:
        monkeypatch.setattr(registry, "_parts", dict(registry))

    @RULES.register(title="Bare")
    def bare(*, learning_rate):
        return optax.scale_by_learning_rate(learning_rate)

    @RULES.register(title="Whole")
    def whole(*, learning_rate, momentum: float = 0.9, nesterov: bool = True, weight_decay: float = 0.0):
        return optax.chain(optax.add_decayed_weights(weight_decay), optax.sgd(learning_rate, momentum, nesterov))

    @RULES.register(title="Misspelt")
    def misspelt(*, learning_rate):
        update = lambda updates, state, params=None, *, dellay=1, **extra_args: (updates, state)
        return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)

    def configured(rule, **optimizer) -> ConfigDict:
        config = digits.get_config()
        config.method, config.epochs, config.cluster.num_workers = rule, 0.2, 2
        config.optimizer.update(optimizer)
        return config

    return configured


def test_what_a_rule_does_not_take_is_said(config):
    bare = resolve(config("bare", momentum=0.5, nesterov=True))
    values = {"momentum": 0.5, "nesterov": True, "weight_decay": 0.0005}
    assert bare.not_taken == values
    assert parts.clauses(bare.not_taken)[:2] == [
        "momentum 0.5 is not used",
        "nesterov True is not used",
    ]
    bare = resolve(config("bare"))
    assert parts.notes(bare.rule.part, bare.not_taken) == [
        "Note: bare takes no weight_decay: 0.0005 is not used; name it as an argument to get it "
        "(test_not_used.py, bare)"
    ]
    assert records.about_run(make_plan(config("bare")))["rule"] == "weight decay 0.0005 is not used"


def test_it_is_said_once(config):
    sweep = compared.comparison(config("bare", momentum=0.5), ["bare"], [2], 1)
    assert compared.check(sweep, ["optimizer.momentum"]).notes == []  # since `parts.notes` says it
    assert compared.check(sweep, ["optimizer.nesterov"]).notes == ["Note: bare does not take optimizer.nesterov"]


@pytest.mark.parametrize("rule", ["whole", "asgd", "dana"])
def test_a_rule_that_takes_it_or_is_known_well_is_left_alone(config, rule):
    assert resolve(config(rule, nesterov=True)).not_taken == {}
    assert "not used" not in records.about_run(make_plan(config(rule)))["rule"]


def test_what_is_not_set_or_is_the_workers_is_not_missed(config):
    assert resolve(config("bare", weight_decay=0.0)).not_taken == {}
    local = config("bare")
    local.local.steps = 2
    assert resolve(local).not_taken == {}


def test_a_misspelt_argument_names_the_rule(config):
    with pytest.raises(
        UsageError, match=r"^--config\.rule\.kind=misspelt: dellay=.* \(did you mean delay\?\): test_not_us"
    ):
        make_plan(config("misspelt"))
