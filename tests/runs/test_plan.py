"""Plans: as many gradients as asked for, any protocol with any rule, and refusals that name the flag."""

import collections
import contextlib
import cProfile
import dataclasses
import math
import pstats
import tracemalloc

import numpy as np
import pytest
from lib import tiny

from sgdlab import protocols, replay, theory
from sgdlab.errors import UsageError
from sgdlab.registry import PROTOCOLS, RULES
from sgdlab.runs import plan as plans
from sgdlab.runs import records, resolve
from sgdlab.runs.methods import PRESETS, REPRESENTATIVE, baselines, methods
from sgdlab.runs.plan import make_plan
from sgdlab.runs.train import train

GRADIENTS = 1437 // 32  # of one epoch


@pytest.mark.representatives(*REPRESENTATIVE)
@pytest.mark.parametrize("method", methods())
def test_enough_gradients_and_not_an_update_more(method):
    plan = make_plan(tiny.config(method=method))
    schedule = plan.schedule
    experiment = plan.experiment  # a gradient may be of several local steps, or of a piece of a worker's batch
    wanted = math.ceil(GRADIENTS * experiment.data.pieces / experiment.steps.mean())
    assert plan.num_gradients == wanted
    if not schedule.has_server:
        assert schedule.num_gradients == wanted
        return
    used = schedule.used().sum(axis=0)
    assert used.min() >= wanted
    if method != "layerwise":  # its run ends when the last gradient has arrived whole
        fewest = schedule.update[:, used.argmin()]
        assert used.min() - np.count_nonzero(fewest == fewest.max()) < wanted


def test_a_method_that_one_worker_cannot_run_is_named(monkeypatch):
    monkeypatch.setattr(PROTOCOLS, "_parts", dict(PROTOCOLS))

    @PROTOCOLS.register(title="Couples", rule="asgd")
    def couples(runtimes, *, num_gradients=None):
        raise protocols.NotEnoughRuntimes.after(num_gradients, rows=len(runtimes), done=0)

    words = r"^protocol couples of method couples, with 1 worker, uses no gradient in \d+ rows of compute times"
    with pytest.raises(UsageError, match=words):
        make_plan(tiny.config(method="couples", cluster__num_workers=1))


def test_compute_times_that_no_clock_can_hold_are_the_clusters_fault():
    words = r"^--config\.cluster\.kind=ladder: runtimes\[1, \d\]=\S+e\+90 does not advance the clock"
    config = tiny.config(method="synchronous", cluster__kind="ladder", cluster__ladder__power=300.0)
    with pytest.raises(UsageError, match=words):
        make_plan(config)


@pytest.mark.parametrize("changes", [{}, {"local__steps": 4, "local__by_speed": True, "heterogeneity__alpha": 0.3}])
def test_a_configuration_is_read_once(changes):
    """From its entries to the end of a run nothing asks again what is chosen, or makes the cluster or the data anew."""
    profile = cProfile.Profile()
    profile.enable()
    run = train(make_plan(tiny.config(epochs=0.1, rate__warmup_epochs=0.05, **changes)))
    profile.disable()
    calls = collections.Counter()
    for (file, _, name), (_, number, *_) in pstats.Stats(profile).stats.items():
        if "sgdlab/runs" in file:
            calls[name] += number
    once = ("resolve", "chosen", "local_of", "law", "dataset", "shares")
    assert {name: calls[name] for name in once} == dict.fromkeys(once, 1)
    assert run.records[-1]["kind"] == "summary"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_any_rule_goes_with_a_protocol_or_is_refused(protocol):
    """One plan: rules are checked with its schedule, whatever their own plans would be."""
    config = tiny.config(protocol__kind=protocol, rule__kind="asgd")
    plan = make_plan(config)
    averages, peers = plan.schedule.gradients_per_update() > 1, not plan.schedule.has_server
    for rule in RULES:
        config.rule.kind = rule
        if protocol not in (RULES[rule].facts.protocols or (protocol,)):
            with pytest.raises(UsageError, match=f"^--config.rule.kind={rule} must go with --config.protocol.kind="):
                resolve(config)
            continue
        made = dataclasses.replace(plan, experiment=resolve(config)).rule(plan.rates, plan.schedule.num_workers)
        keeps_state_for_workers = rule.startswith("dana")
        of_a_server = rule in ("malenia", "ace", "aced", "rescaled", "ca2fl", "vecna", "fadas", "token_weighted")
        refused = (keeps_state_for_workers and (averages or peers)) or (of_a_server and peers)
        with pytest.raises(ValueError, match="rule") if refused else contextlib.nullcontext():
            replay.check_rule(plan.schedule, made)


def test_a_rule_that_cannot_be_used_with_a_protocol_is_named_with_it():
    with pytest.raises(UsageError, match=r"--config\.rule\.kind=dana with protocol synchronous: "):
        make_plan(tiny.config(protocol__kind="synchronous", rule__kind="dana"))


def test_a_pair_of_ones_own_is_named_after_both():
    choice = resolve(tiny.config(protocol__kind="bounded_staleness", rule__kind="staleness_aware"))
    assert choice.method.title == "Staleness-Aware + Bounded staleness"
    assert choice.method.name == "bounded_staleness+staleness_aware"
    assert choice.rank >= len(methods())
    named = resolve(tiny.config(method="asgd", protocol__kind="timeout", rule__kind="linear_scaling"))
    assert named.method.title == "Linear scaling + Time-out" or named.method.name == "timeout"


def test_methods_are_parts_with_their_usual_partner_and_presets():
    known = methods()
    of_protocols = [part.name for part in PROTOCOLS.values() if part.facts.rule is not None]
    of_rules = [part.name for part in RULES.values() if part.facts.method]
    assert len(known) == len(of_protocols) + len(of_rules) + len(PRESETS)  # no name stands for two
    assert set(REPRESENTATIVE) < set(known)
    assert (known["timeout"].protocol, known["timeout"].rule) == ("timeout", "linear_scaling")
    assert (known["dana"].protocol, known["dana"].rule) == ("asynchronous", "dana")
    assert known["push_gossip"].entries == {"kind": "push"}
    assert set(baselines()) == {"nag_asgd", "adam"}
    assert {known[name].baseline for name in ("adam", "adam_gap_aware")} == {"adam"}


def test_what_a_preset_means_cannot_be_contradicted():
    assert make_plan(tiny.config(method="push_gossip")).experiment.protocol.entries["kind"] == "push"
    says = r"--config\.protocol\.gossip\.kind=push must be left out: pull_gossip is gossip"
    with pytest.raises(UsageError, match=says):
        make_plan(tiny.config(method="pull_gossip", protocol__gossip__kind="push"))
    own = make_plan(tiny.config(protocol__kind="gossip", protocol__gossip__kind="push"))
    assert own.experiment.protocol.entries["kind"] == "push"


def test_entries_reach_the_parts():
    config = tiny.config(method="partial", protocol__partial__num_servers=2, protocol__partial__push_at_least=3.0)
    config.protocol.partial.push_timeout = 0.0
    schedule = make_plan(config).schedule
    assert schedule.num_blocks == 2
    assert set(np.bincount(schedule.update[schedule.used()[:, 0], 0])) == {3}
    ramped = tiny.config(method="simulated_staleness", protocol__simulated_staleness__average=2.0)
    ramped.protocol.simulated_staleness.ramp_epochs = 0.0
    assert make_plan(ramped).schedule.staleness()[2:].mean() == 2
    strict = make_plan(tiny.config(method="ringmaster", protocol__ringmaster__max_delay=1))
    assert strict.schedule.staleness().max() == 0


def test_momentum_is_the_rules_own_unless_it_is_set():
    def momentum(method, **changes):
        plan = make_plan(tiny.config(method=method, **changes))
        rule, ones = plan.rule(1.0, 4), np.ones(1)
        _, state = rule.update(ones, rule.init(ones), ones, num_gradients=1, delay=1, worker=0)
        updates, _ = rule.update(0 * ones, state, ones, num_gradients=1, delay=1, worker=0)
        return -float(updates[0])  # heavy ball: m; with look-ahead: m^2

    np.testing.assert_allclose(momentum("asgd"), 0.0)
    np.testing.assert_allclose(momentum("asgd", optimizer__momentum=0.5), 0.5)
    np.testing.assert_allclose(momentum("nag_asgd"), 0.9**2)
    np.testing.assert_allclose(momentum("nag_asgd", optimizer__nesterov=False), 0.9)


def test_rates_are_of_one_gradient_or_of_an_update():
    def peak(method, of):
        plan = make_plan(tiny.config(method=method, rate__of=of, rate__decay="constant", rate__warmup_epochs=0.0))
        return plan.rates.max() / plan.experiment.optimizer.learning_rate, plan.schedule.gradients_per_update()

    assert peak("synchronous", "gradient") == (4.0, 4.0)
    assert peak("synchronous", "update") == (1.0, 4.0)
    assert peak("asgd", "gradient") == peak("asgd", "update") == (1.0, 1.0)
    rate, mean = peak("timeout", "gradient")  # its rule multiplies by the number itself
    assert rate == 1.0
    np.testing.assert_allclose(peak("timeout", "update"), (1 / mean, mean))


def test_identity_holds_the_entries_of_the_parts_that_are_used_alone():
    config = tiny.config(method="gap_aware")
    before = resolve(config).identity
    config.protocol.timeout.seconds, config.rule.adam.b1, config.cluster.regimes.std = 9.0, 0.5, 1.0
    config.memory, config.optimizer.adam_learning_rate = 3.0, 1.0
    assert resolve(config).identity == before
    config.rule.gap_aware.granularity = "layer"
    assert resolve(config).identity != before
    cutoff = resolve(tiny.config(method="cutoff")).identity
    assert cutoff["predictor"] == {"kind": "running_mean", "running_mean": {"window": 5, "at_least": 0.5}}
    assert "predictor" not in before


def test_speedup_compares_gradients_per_second_on_one_cluster():
    assert make_plan(tiny.config(method="synchronous")).speedup == 1 < make_plan(tiny.config(method="asgd")).speedup


def test_a_given_schedule_is_planned_as_it_is():
    runtimes = np.random.default_rng(0).uniform(1, 2, (20, 4))
    schedule = protocols.asynchronous(runtimes, num_gradients=GRADIENTS)
    plan = make_plan(tiny.config(method="asgd"), schedule=schedule)
    assert plan.schedule is schedule
    assert len(plan.rates) == GRADIENTS


def test_synchronous_sgd_beside_a_given_schedule_is_simulated_when_it_is_asked_for(monkeypatch):
    made, real = [], plans.synchronous_twin
    monkeypatch.setattr(plans, "synchronous_twin", lambda *given: made.append(real(*given)) or made[-1])
    config = tiny.config(method="asgd")
    own = make_plan(config)
    assert len(made) == 1
    plan = make_plan(config, schedule=own.schedule)
    assert plan.program.num_rows
    assert len(made) == 1
    np.testing.assert_array_equal(plan.worker_seconds, own.worker_seconds)
    assert len(made) == 2
    np.testing.assert_array_equal(own.worker_seconds, theory.seconds_per_gradient(made[0]))


def test_workers_with_points_of_their_own_are_told_apart_by_the_rule_itself():
    assert make_plan(tiny.config(method="dc_s3gd")).program.by_worker
    assert not make_plan(tiny.config(method="synchronous")).program.by_worker


@pytest.mark.parametrize("kind", ["gamma", "exponential", "long_tailed", "regimes"])
def test_every_kind_of_cluster_can_be_chosen_and_one_worker_of_it_is_the_baseline(kind):
    config = tiny.config(method="nag_asgd", cluster__kind=kind, cluster__num_workers=6)
    six = make_plan(config)
    assert six.schedule.num_workers == 6
    config.cluster.first_workers = 1
    alone = make_plan(config)
    first = six.experiment.cluster.law.draw(3, seed=resolve(config).seeds.of("runtimes"))[:, 0]
    np.testing.assert_allclose(alone.schedule.arrived[:3, 0], np.cumsum(first), rtol=1e-12)


def trace(tmp_path, steps):
    path = tmp_path / "trace.npy"
    np.save(path, np.random.default_rng(0).uniform(1, 2, (steps, 4)))
    return str(path)


def test_a_trace_that_is_just_long_enough_is_used_and_a_shorter_one_refused_or_extended(tmp_path):
    rows = -(-GRADIENTS // 4)
    config = tiny.config(method="synchronous", cluster__kind="recorded", cluster__recorded__trace=trace(tmp_path, rows))
    assert make_plan(config).schedule.num_updates == rows
    config.cluster.recorded.trace = trace(tmp_path, rows - 1)
    with pytest.raises(UsageError, match=r"--config\.cluster\.recorded\.trace=.* must have at least"):
        make_plan(config)
    config.cluster.recorded.extend, config.cluster.recorded.block = "bootstrap", 3
    plan = make_plan(config)
    assert plan.schedule.num_updates == rows
    assert "bootstrap" in str(plan.experiment.cluster.law)
    config.cluster.num_workers = 5
    with pytest.raises(UsageError, match=r"--config\.cluster\.num_workers=5 must be 4"):
        make_plan(config)


def test_what_a_run_would_take_is_said_before_it_is_made(monkeypatch):
    with pytest.raises(UsageError, match=r"--config\.cluster\.num_workers=1000000000 with .* would take about .* GiB"):
        make_plan(tiny.config(cluster__num_workers=10**9))
    with pytest.raises(UsageError, match="would take about"):
        make_plan(tiny.config(memory=1e-6))
    make_plan(tiny.config(memory=1.0))


@pytest.mark.parametrize(
    ("protocol", "entries", "workers"),
    [
        *((protocol, {}, 500) for protocol in ("asynchronous", "synchronous", "bounded_staleness", "gossip")),
        ("ringmaster", {}, 500),
        ("d_psgd", {"graph": "ring"}, 500),  # half of it are the weights
        ("d_psgd", {"graph": "random"}, 50),
        ("sgp", {"graph": "one_peer_exponential"}, 300),
        ("ad_psgd", {"graph": "torus"}, 50),
        ("a2cid2", {"graph": "ring"}, 50),
    ],
)
def test_the_estimate_bounds_what_making_a_schedule_takes(protocol, entries, workers):
    """Against a count of what is allocated meanwhile."""
    gradients = 8000 if not entries else 1600
    runtimes = np.random.default_rng(0).uniform(1, 2, (2 * gradients // workers + 4, workers))
    tracemalloc.start()
    PROTOCOLS.make(protocol, entries, runtimes=runtimes, num_gradients=gradients, seed=0)
    peak = tracemalloc.get_traced_memory()[1] + runtimes.nbytes
    tracemalloc.stop()
    config = tiny.config(
        cluster__num_workers=workers,
        protocol__kind=protocol,
        memory=peak / 2**30,
        **{f"protocol__{protocol}__{name}": value for name, value in entries.items()},
    )
    with pytest.raises(UsageError, match="would take about"):
        plans.check_memory(resolve(config), gradients)
    config.memory = 6 * peak / 2**30
    plans.check_memory(resolve(config), gradients)


IMPOSSIBLE = {  # of the entries of one part of each family, whose others its own tests refuse
    "gap_aware": [
        ("method", "sgd"), ("data.kind", "photos"), ("mode", "batch"), ("seed", -1), ("batch_size", 0),
        ("micro_batches", 0), ("batch_size", 1438), ("epochs", 0.0), ("epochs", float("nan")), ("evaluations", 0),
        ("target", 1.5), ("average_decay", 1.0), ("memory", 0.0), ("cluster.num_workers", 0),
        ("cluster.first_workers", 5), ("cluster.kind", "cloud"), ("optimizer.learning_rate", float("nan")),
        ("optimizer.adam_learning_rate", float("inf")), ("optimizer.momentum", 1.0), ("optimizer.weight_decay", -0.1),
        ("optimizer.clip_norm", 0.0), ("rule.kind", "sgd"), ("rule.gap_aware.granularity", "row"),
        ("network.kind", "transformer"), ("rate.decay", "sudden"), ("rate.warmup_epochs", -1.0),
        ("protocol.kind", "nobody"),
    ],
    "partial": [("protocol.partial.push_at_least", 5.0), ("protocol.partial.pull_delays.late_share", 2.0)],
    "pull_gossip": [("protocol.gossip.period", 0)],
    "cutoff": [("predictor.kind", "crystal_ball")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("method", "name", "value"), [(method, *entry) for method, entries in IMPOSSIBLE.items() for entry in entries]
)
def test_impossible_entries_are_refused_by_flag_and_value(method, name, value):
    config = tiny.config(**({"method": method} | {name.replace(".", "__"): value}))
    with pytest.raises(UsageError) as error:
        make_plan(config)
    text = str(error.value)
    assert text.startswith(f"--config.{name}=")
    assert str(value) in text
    if name.startswith(("protocol.partial", "protocol.gossip")):  # of another part it has no meaning
        config.method = "asgd"
        make_plan(config)


def test_a_person_is_told_where_most_comes_to_nothing():
    """By the schedule itself: how many of its gradients are dropped, and how long its workers compute."""
    for method, entry in (("rennala", "gradients_per_update"), ("ata", "gradients_per_update")):
        plan = make_plan(tiny.config(method=method, cluster__num_workers=12, epochs=4.0))
        dropped, used = plan.schedule.dropped().sum(), plan.schedule.used().sum()
        idle, wasted = 1 - plan.schedule.busy_share().mean(), plan.schedule.wasted_share().mean()
        says = {
            "rennala": f"throws away {100 * dropped / (dropped + used):.0f} % of the gradients of 12 workers, "
            f"{100 * wasted:.0f} % of their time",
            "ata": f"lets 12 workers wait {100 * idle:.0f} % of the time",
        }[method]
        assert plan.waste == [f"Note: {method} {says}; see --config.protocol.{method}.{entry}"]
    assert not make_plan(tiny.config(method="rennala", protocol__rennala__gradients_per_update=40)).waste
    assert not make_plan(tiny.config(method="gap_aware")).waste
    plan = make_plan(tiny.config(method="ringmaster", transport__kind="star", transport__star__server__gbits=1e-7))
    busy, sending = plan.schedule.busy_share().mean(), plan.schedule.sending_share().mean()
    what = f"{100 - 100 * (1 - busy):.0f} % of the time, messages being under way for {100 * sending:.0f} %"
    note = f"Note: ringmaster lets {plan.schedule.num_workers} workers compute only {what}"
    assert plan.waste == [note]  # nobody waits, and no entry of the protocol helps


def test_steps_that_shrink_by_themselves_have_a_constant_rate():
    decaying = {"rate__decay": "cosine", "rate__warmup_epochs": 0.5}
    for method, rate in (("growing_ringmaster", 0.5), ("ada_delay", 0.05)):
        plan = make_plan(tiny.config(method=method, **decaying))
        np.testing.assert_array_equal(plan.rates, plan.rates.max())
        assert plan.rates.max() == pytest.approx(rate)
        assert records.about_run(plan)["learning rate"].endswith("; constant")
    assert np.unique(make_plan(tiny.config(method="asgd", **decaying)).rates).size > 2


def test_what_a_method_suggests_can_be_changed():
    """A part's entry that is open by default (None) is not what the method's name means, but its own default."""
    assert make_plan(tiny.config(method="fedbuff")).schedule.gradients_per_update() == 4
    changed = tiny.config(method="fedbuff", protocol__softsync__gradients_per_update=3)
    assert make_plan(changed).schedule.gradients_per_update() == 3
    with pytest.raises(UsageError, match=r"--config\.rule\.fedbuff\.exponent=2.0 must be left out: softsync is"):
        make_plan(tiny.config(method="softsync", rule__fedbuff__exponent=2.0))


def test_what_the_names_of_presets_mean_reaches_the_rules():
    for method, part, meant in (
        ("delay_compensated_adaptive", "delay_compensated", {"adaptive": True, "variance_control": 2.0}),
        ("ringmaster_muon_code", "muon", {"form": "authors"}),
        ("fadas", "fadas", {"adaptation": "divided"}),
    ):
        rule = resolve(tiny.config(method=method)).rule
        assert rule.name == part
        assert meant.items() <= rule.entries.items()
    constant, adaptive = (
        make_plan(tiny.config(method=f"delay_compensated{suffix}")).rule(1.0, 4) for suffix in ("", "_adaptive")
    )
    params = {"w": np.full(2, 0.5)}
    use = {"worker": 0, "delay": 2, "read_params": {"w": np.zeros(2)}}
    sizes = [made.penalty({"w": np.full(2, 0.1)}, made.init(params), params, **use) for made in (constant, adaptive)]
    raw = 0.1 + 0.0005 * 0.5  # with the weight decay; the mean square begins at zero
    assert sizes[0] == pytest.approx(0.04 * raw * 0.5, rel=1e-5)
    assert sizes[1] == pytest.approx(2.0 * raw * 0.5 / math.sqrt(0.05 * raw**2 + 1e-7), rel=1e-5)


def test_momentum_is_as_in_the_papers():
    for method, rule in (("bounded_staleness", "asgd"), ("softsync", "fedbuff")):
        plan = make_plan(tiny.config(method=method))
        assert plan.experiment.rule.name == rule
        made, params = plan.rule(1.0, 4), {"w": np.zeros(2)}
        state, use = made.init(params), {"worker": 0, "delay": 3, "read_params": params}
        for _ in range(2):  # the second step is as long as the first
            message = made.receive({"w": np.ones(2)}, state, params, **use)
            updates, state = made.update(message, state, params, num_gradients=2, delay=3, worker=None)
            expected = -1 / 3 if method == "softsync" else -1.0
            np.testing.assert_allclose(updates["w"], expected, rtol=1e-6)
