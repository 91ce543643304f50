"""Runs whose messages cost and whose workers fail: sizes, protocols that take them, and what tables say of them."""

import jax
import numpy as np
import pytest
from lib import pages, tiny

from sgdlab.errors import UsageError
from sgdlab.failures import FAILURES
from sgdlab.results import summary, table, timeline
from sgdlab.runs import compared, compared_report, configuration, resolve
from sgdlab.runs.messages import costs_of, sizes_of
from sgdlab.runs.plan import make_plan
from sgdlab.runs.tasks import task_of
from sgdlab.runs.train import train
from sgdlab.transports import TRANSPORTS, Sizes


def costly(**changed):
    config = tiny.config(**changed)
    config.transport.kind = "star"
    config.transport.star.latency_ms = 500.0
    config.transport.star.server.gbits = 1e-6
    return config


def test_what_is_free_is_not_there():
    plain, named = tiny.config(), tiny.config()
    named.transport.star.latency_ms, named.failures.independent.mean_up_hours = 9.0, 1.0  # of parts that are not used
    assert resolve(plain).identity == resolve(named).identity
    assert {"transport", "failures"} & {*resolve(plain).identity, *resolve(plain).parts} == set()
    assert {"transport", "outages"} & costs_of(resolve(plain), resolve(plain).protocol).keys() == set()


def test_sizes_are_those_of_the_parameters():
    experiment = resolve(costly())
    number = sum(leaf.size for leaf in jax.tree.leaves(task_of(experiment).params))
    assert sizes_of(experiment) == Sizes(4 * number, 4 * number)
    star = costs_of(experiment, experiment.protocol)["transport"]
    assert (star.gradient_bytes, star.parameter_bytes) == (4 * number, 4 * number)
    fragments = resolve(costly(method="streaming_diloco"))
    assert sizes_of(fragments).gradient == number  # one of four


def test_compressed_messages_are_smaller():
    plain, small = (resolve(costly(compression__kind=kind, method="asgd")) for kind in ("none", "four_bit"))
    sizes = [sizes_of(one) for one in (plain, small)]
    assert sizes[1].parameters == sizes[0].parameters == sizes[0].gradient
    assert sizes[1].gradient == sizes[0].gradient / 8 + 4
    times = [make_plan(costly(compression__kind=k, method="asgd")).schedule.wall_clock() for k in ("none", "four_bit")]
    assert times[1] < times[0]


def test_an_all_reduce_takes_what_adds_up():
    config = tiny.config(method="synchronous", transport__kind="all_reduce", compression__kind="power_sgd")
    assert make_plan(config).schedule.traffic.update_seconds > 0
    config.compression.kind = "top_k"
    with pytest.raises(UsageError, match=r"^--config\.compression\.kind=top_k must be one of .*power_sgd"):
        make_plan(config)


def test_micro_batches_are_parts_of_one_message():
    whole, parts = (resolve(costly(method=name, batch_size=32)) for name in ("synchronous", "dropcompute"))
    assert parts.cluster.pieces > 1
    sizes = [costs_of(one, one.protocol)["transport"].gradient_bytes for one in (whole, parts)]
    assert sizes[0] == parts.cluster.pieces * sizes[1]


def test_a_plan_has_the_costs_of_its_messages():
    plan, free = make_plan(costly(method="asgd")), make_plan(tiny.config(method="asgd"))
    assert plan.schedule.wall_clock() > free.schedule.wall_clock()
    assert plan.schedule.traffic.gradient_seconds > 0
    figures = plan.schedule.figures()
    assert 0 < figures["goodput"] < 1
    assert figures["sending_share"] > 0


def test_speed_ups_are_over_synchronous_sgd_with_the_same_messages():
    assert make_plan(costly(method="synchronous")).speedup == pytest.approx(1)


@pytest.mark.parametrize(
    ("method", "family"),
    [("pull_gossip", "failures"), ("partial", "transport"), ("partial", "failures"), ("layerwise", "transport")],
)
def test_protocols_that_take_no_costs_refuse_them(method, family):
    config = tiny.config(method=method)
    config[family].kind = {"transport": "star", "failures": "independent"}[family]
    with pytest.raises(UsageError, match=rf"^--config\.{family}\.kind=\w+ must be left out with protocol \w+: "):
        make_plan(config)


def test_nodes_without_a_server_send_a_message_for_each_edge():
    plans = [make_plan(tiny.config(method="pull_gossip")), make_plan(costly(method="pull_gossip"))]
    assert plans[1].schedule.wall_clock() > plans[0].schedule.wall_clock()


def test_a_bad_entry_is_named_by_its_flag():
    config = costly()
    config.transport.star.server.gbits = -1.0
    with pytest.raises(UsageError, match=r"^--config\.transport\.star\.server\.gbits=-1\.0 must be a finite number"):
        make_plan(config)


def test_a_single_worker_sends_nothing():
    sweep = compared.comparison(costly(compression__kind="top_k"), ["asgd"], [2], 1)
    serial, several = (resolve(point.settings) for point in sweep.runs)
    assert (serial.transport, serial.compression) == (None, None)
    assert (several.transport.name, several.compression.used.name) == ("star", "top_k")
    assert compared.comparison(tiny.config(), ["asgd"], [2], 1).runs[0].varied.get("transport.kind", "") == ""


def test_a_single_worker_sends_nothing_whatever_is_swept():
    over = {"transport.kind": ["free", "star"], "failures.kind": ["independent"], "budget": [1.0, 2.0]}
    sweep = compared.comparison(tiny.config(), ["asgd"], [2], 1, over)
    alone, *several = (resolve(point.settings) for point in sweep.runs)
    assert (alone.transport, alone.failures, alone.ending.budget) == (None, None, None)
    assert [(one.transport is None, one.ending.budget) for one in several] == [
        (True, 1.0), (True, 2.0), (False, 1.0), (False, 2.0),
    ]  # fmt: skip
    # It is the one of a comparison that varies nothing; its table has no value of what it does not take.
    (plain, _) = compared.comparison(tiny.config(), ["asgd"], [2], 1, equal="gradients").runs
    assert alone.identity | {"spacing": 0, "evaluations": 0} == resolve(plain.settings).identity | {
        "spacing": 0, "evaluations": 0,
    }  # fmt: skip
    records = [{"config": alone.identity}, {}]
    ((run, _),) = [compared_report._varied(sweep.runs[0], records, over)]
    assert "budget" not in run["config"]
    assert "kind" not in run["config"].get("transport", {})


def test_failures_follow_the_seed():
    config = costly(method="synchronous")
    config.failures.kind = "independent"
    config.failures.independent.mean_up_hours = 0.01
    first = make_plan(config).schedule
    assert first.dropped().any()
    config.seed = 1
    assert make_plan(config).schedule.wall_clock() != first.wall_clock()


def test_a_worker_that_was_lost_has_no_memory_of_what_it_has_not_sent():
    changed = {"compression__kind": "top_k", "failures__kind": "independent"}
    config = tiny.config(method="asgd", failures__independent__mean_up_hours=0.01, **changed)
    plan = make_plan(config)
    schedule, down, anew = plan.schedule, plan.down, plan.program.anew
    assert 0 < anew.sum() < len(anew)
    for row in np.flatnonzero(anew):  # between its worker's last gradient that was used, and this one
        worker, started = plan.program.worker[row], schedule.started[plan.program.gradient[row]]
        before = schedule.arrived[(schedule.worker == worker) & schedule.used()[:, 0] & (schedule.started < started), 0]
        assert any(before.max() <= was and back <= started for own, was, back in down if own == worker)
    config.failures.independent.recovery.means = "pause"
    assert not make_plan(config).program.anew.any()
    assert not make_plan(tiny.config(method="asgd", **changed | {"failures__kind": "none"})).program.anew.any()
    recovery = config.failures.independent.recovery
    recovery.means, recovery.interval_seconds, recovery.checkpoint_seconds = "rollback", 2.0, 0.1
    recovery.restart_seconds = 1.0
    plan = make_plan(config)
    assert len(plan.down)
    assert not plan.program.anew.any()


def test_networks_and_failures_of_your_own(monkeypatch):
    """The file of docs/messages.md: half of the workers are 30 ms away, and down for six hours of each day but one."""
    for registry in (TRANSPORTS, FAILURES):
        monkeypatch.setattr(registry, "_parts", dict(registry))
    (own,) = [code for page, code in pages.PYTHON if page == "docs/messages.md" and code.startswith("# my_network")]
    exec(compile(own, "my_network.py", "exec"), {"__name__": "my_network"})
    config = tiny.config(transport__kind="half_at_home", failures__kind="nightly")
    for family in ("transport", "failures"):
        config[family] = {**configuration.parts({})[family].to_dict(), "kind": config[family].kind}
    costs = costs_of(resolve(config), resolve(config).protocol)
    assert costs["transport"].latency == (0.0, 0.03, 0.0, 0.03)
    assert costs["outages"].away(0, 0.0) == (86400.0, 86400.0 + 6 * 3600)
    assert make_plan(config).schedule.traffic.gradient_bytes > 0


def test_time_lines_show_messages():
    words = lambda figure: [text.get_text() for text in figure.legends[0].get_texts()]
    assert "message under way" in words(timeline.timeline({"ASGD": make_plan(costly(method="asgd")).schedule}))
    assert "message under way" not in words(timeline.timeline({"ASGD": make_plan(tiny.config()).schedule}))


def test_records_and_tables_say_what_messages_cost():
    lines = {name: train(make_plan(config)).records for name, config in (("costly", costly()), ("free", tiny.config()))}
    groups = {name: summary.groups([records]) for name, records in lines.items()}
    about = lines["costly"][0]["about"]
    assert about["transport"].startswith("Star network (latency ms 500; server: (gbits 1e-06")
    assert "transport" not in lines["free"][0]["about"]
    assert "Transport: Star network" in table.text(groups["costly"])
    for column in ("goodput", "sending", "server", "MB a worker"):
        assert column in table.table(groups["costly"]).columns
        assert column not in table.table(groups["free"]).columns
    assert "goodput_mean" in table.comma_separated(groups["costly"])
    assert "goodput_mean" not in table.comma_separated(groups["free"])
