"""Methods that somebody registers: what they mean, and what is refused."""

import jax.numpy as jnp
import pytest
from lib import tiny

from sgdlab import protocols
from sgdlab.errors import UsageError
from sgdlab.registry import PROTOCOLS, RULES
from sgdlab.runs import register_method, resolve
from sgdlab.runs.methods import OWN, baselines, forget_method, methods, why_none
from sgdlab.runs.plan import make_plan

PAIR = {"protocol": "bounded_staleness", "rule": "delay_compensated", "title": "Mine"}


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    for name in list(OWN):
        forget_method(name)


def test_a_method_is_its_parts_with_its_entries():
    register_method("tight", **PAIR, entries={"bound": 1}, rule_entries={"variance_control": 2.0}, local={"steps": 3})
    config = tiny.config(method="tight")
    experiment = resolve(config)
    protocol, rule = experiment.protocol.entries, experiment.rule.entries
    assert (protocol["bound"], rule["variance_control"], experiment.local.steps) == (1, 2.0, 3)
    assert rule["adaptive"] is False  # as the rule has it
    found = resolve(config).identity
    assert found["protocol"]["bounded_staleness"]["bound"] == 1
    assert found["rule"]["delay_compensated"]["variance_control"] == 2.0
    messages = []
    for method in ("tight", "delay_compensated"):
        rule, one = make_plan(tiny.config(method=method, optimizer__weight_decay=0.0)).rule(1.0, 2), jnp.ones(1)
        messages.append(rule.receive(one, rule.init(one), 2 * one, worker=0, delay=1, read_params=one).gradient.item())
    assert messages == [3.0, pytest.approx(1.04)]  # g + variance_control g g (theta - theta_read)
    with pytest.raises(
        UsageError, match=r"--config.rule.delay_compensated.variance_control=9.0 must be left out: tight"
    ):
        make_plan(tiny.config(method="tight", rule__delay_compensated__variance_control=9.0))


@pytest.mark.parametrize(
    ("name", "changed", "words"),
    [
        ("asgd", {}, "name='asgd' must be another"),
        ("push_gossip", {}, "name='push_gossip' must be another"),
        ("mine", {"title": "Softsync"}, "title='Softsync' must be another: the method softsync has it"),
        ("two words", {}, "name='two words' must be a name"),
        ("mine", {"protocol": "bounded_stalenes"}, "protocol='bounded_stalenes' .* did you mean 'bounded_staleness'"),
        ("mine", {"rule": "delay_compensatd"}, "rule='delay_compensatd' .* did you mean 'delay_compensated'"),
        ("mine", {"entries": {"bond": 1}}, "entries name 'bond', .* did you mean 'bound'"),
        ("mine", {"entries": {"bound": "one"}}, "entries={'bound': 'one'} must be of another kind"),
        ("mine", {"rule_entries": {"bound": 1}}, "rule_entries name 'bound', which rule delay_compensated does not"),
        ("mine", {"local": {"step": 8}}, "local name 'step', .* did you mean 'steps'"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_registered(name, changed, words):
    with pytest.raises(ValueError, match=words):
        register_method(name, **PAIR | changed)
    assert (name in methods()) == words.startswith("name=") * ("another" in words)


def test_a_protocol_may_name_a_rule_that_comes_later_and_none_that_never_does(monkeypatch):
    for registry in (PROTOCOLS, RULES):
        monkeypatch.setattr(registry, "_parts", dict(registry))

    @PROTOCOLS.register(title="Mine", rule="asdg")
    def mine(runtimes, *, num_gradients=None):
        return protocols.asynchronous(runtimes, num_gradients=num_gradients)

    words = r"^--config\.method=mine is registered \(test_own_methods\.py, mine\) with rule='asdg', which must .* 'asgd"
    with pytest.raises(UsageError, match=words):
        resolve(tiny.config(method="mine"))
    assert "mine" not in baselines()
    RULES.register("asdg", title="Later")(RULES["asgd"].make)
    assert resolve(tiny.config(method="mine")).rule.name == "asdg"


def test_a_name_is_registered_once():
    register_method("mine", **PAIR)
    with pytest.raises(ValueError, match="name='mine' must be another"):
        register_method("mine", **PAIR)


def test_the_reason_is_said_where_a_part_is_no_method(monkeypatch):
    monkeypatch.setattr(PROTOCOLS, "_parts", dict(PROTOCOLS))
    PROTOCOLS.register("lonely", title="Lonely")(lambda runtimes: None)
    assert "names no `rule=`" in why_none("lonely")
    with pytest.raises(UsageError, match="lonely is a protocol that names no `rule=`"):
        resolve(tiny.config(method="lonely"))
