"""Metrics of a trace that grows, as Prometheus's own parser reads them over HTTP; the dashboard asks for no others."""

import json
import pathlib
import re
import socket
import sys
import urllib.request
from types import SimpleNamespace

import numpy as np
import prometheus_client
import pytest
from planted_traces import names, noise
from prometheus_client.parser import text_string_to_metric_families
from test_follow import HEADER, answer, text_of

from sgdlab.commands import follow
from sgdlab.errors import UsageError
from sgdlab.stragglers.follow.alarms import AlarmFile
from sgdlab.stragglers.follow.follower import Follower
from sgdlab.stragglers.follow.metrics import METRICS, MOST_NAMED, Metrics, served
from sgdlab.stragglers.follow.monitor import Monitor
from sgdlab.traces.options import Options

ROOT = pathlib.Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "scripts/grafana/stragglers.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def scraped(address):
    """(name, labels) -> value, of all samples."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    text = opener.open(address, timeout=10).read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}


def of_fleet(workers, slow=0):
    """A follower that has read 400 steps, in the later half of which some workers were slow."""
    follower, runtimes = Follower("nothing.csv", Options(), clock=lambda: 0.0), noise(400, workers, 3)
    runtimes[200:, :slow] *= 1.7
    follower.monitor = Monitor(names(workers), [f"n{worker // 8}" for worker in range(workers)])
    follower.monitor.observe(np.arange(400), runtimes)
    return follower


def test_an_alarm_is_in_the_metrics_before_the_next_step_is_read(tmp_path):
    runtimes = noise(300, 8, 0)
    runtimes[200:, 5] *= 1.7
    path, now, seen = tmp_path / "trace.csv", [0.0], []
    path.write_text(HEADER + text_of(runtimes[:150]))
    follower = Follower(path, Options(), clock=lambda: now[0])
    metrics, alarms = Metrics(follower), tmp_path / "alarms.jsonl"

    def sleep(_):  # the next look is much sooner than the page would be drawn again
        now[0] += 0.001
        found = scraped(address)
        raised = found["sgdlab_alarms_total", (("event", "raised"), ("kind", "slow worker"))]
        seen.append((len(alarms.read_text().splitlines()), raised))
        if len(seen) <= 150:
            step = 149 + len(seen)
            with path.open("a") as file:
                file.write(text_of(runtimes[step : step + 1], first=step))
        else:
            now[0] += 10.0

    with served(metrics.registry, "0") as address, AlarmFile(alarms, str(path)) as file:
        say, show = follow._Terminal(as_json=True), lambda finished: metrics.update()
        follow.follow(follower, file, say, show=show, until_idle=5.0, clock=follower._clock, sleep=sleep)
        found = scraped(address)
    assert {(0, 0.0), (1, 1.0)} == set(seen)
    value = {name: found[name, ()] for name, _ in found if (name, ()) in found}
    assert value["sgdlab_steps_total"] == 300
    assert value["sgdlab_workers"] == found["sgdlab_worker_factor_ratio_bucket", (("le", "+Inf"),)] == 8
    assert value["sgdlab_last_step_age_seconds"] == pytest.approx(now[0] - follower.arrivals.grew)
    assert found["sgdlab_standing_alarms", (("kind", "slow worker"),)] == 1
    assert found["sgdlab_straggler_factor_ratio", (("node", ""), ("worker", "5"))] == pytest.approx(1.7, rel=0.1)
    badput = {dict(labels)["cause"]: v for (name, labels), v in found.items() if name == "sgdlab_badput_seconds_total"}
    times = np.round(runtimes, 6)
    assert value["sgdlab_goodput_seconds_total"] + sum(badput.values()) == pytest.approx(times.max(axis=1).sum())
    assert badput["slow worker"] == pytest.approx((times[200:, 5] - 1.2).sum(), rel=0.3)
    assert value["sgdlab_usual_step_seconds"] == pytest.approx(np.median(times[200:].max(axis=1)))
    assert not [family for family in prometheus_client.REGISTRY.collect() if family.name.startswith("sgdlab")]


def test_what_was_not_delivered_is_counted_and_factors_are_added():
    follower = of_fleet(8, 1)
    with served(Metrics(follower, [SimpleNamespace(name="webhook", lost=3, given=9)]).registry, "0") as address:
        found = scraped(address)
    assert found["sgdlab_undelivered_alarms_total", (("to", "webhook"),)] == 3
    factors = [value for (name, _), value in found.items() if name == "sgdlab_straggler_factor_ratio"]
    assert found["sgdlab_worker_factor_ratio_gsum", ()] == pytest.approx(sum(factors))


@pytest.mark.parametrize(("workers", "slow", "named"), [(8, 1, 8), (400, 0, 0), (400, 3, 3), (400, 120, MOST_NAMED)])
def test_series_do_not_grow_with_the_fleet(workers, slow, named):
    follower = of_fleet(workers, slow)
    with served(Metrics(follower).registry, "127.0.0.1:0") as address:
        found = scraped(address)
    shown = {dict(labels)["worker"] for name, labels in found if name == "sgdlab_straggler_factor_ratio"}
    assert len(shown) == named
    assert {str(worker) for worker in range(min(slow, MOST_NAMED))} <= shown or slow > MOST_NAMED
    assert len(found) - named == len(scraped_names(of_fleet(8)))
    factors = follower.monitor.scores().against_fleet
    for bound in ("0.95", "1.1", "+Inf"):
        count = found["sgdlab_worker_factor_ratio_bucket", (("le", bound),)]
        assert count == sum(factor <= float(bound) for factor in factors)


def scraped_names(follower):
    with served(Metrics(follower).registry, "0") as address:
        return [name for name in scraped(address) if name[0] != "sgdlab_straggler_factor_ratio"]


def test_names_are_as_prometheus_asks_and_stand_in_the_table_of_the_page():
    page = (ROOT / "docs/advise.md").read_text()
    for name, (labels, meaning) in METRICS.items():
        assert re.fullmatch(r"sgdlab(_[a-z]+)*_(seconds|ratio|workers|alarms|steps)(_total)?", name)
        shown = f"{{{', '.join(labels)}}}" if labels and labels != ("le",) else ""
        assert f"| `{name}{shown}` |" in page
        assert meaning.endswith(".")


def test_the_dashboard_asks_for_what_is_exported_and_shows_all_of_it():
    with served(Metrics(of_fleet(8, 1), [follow.Outbox("webhook", print)]).registry, "0") as address:
        exported = scraped(address)
    asked = {name for query in QUERIES for name in re.findall(r"\bsgdlab_\w+", query)}
    assert asked <= {name for name, _ in exported}
    assert {name.removesuffix("_bucket") for name in asked} == set(METRICS)
    labels = {label for name, pairs in exported for label, _ in pairs} | {"instance"}  # which Prometheus adds
    words = [re.findall(r"by \((\w+)\)", query) + re.findall(r"(\w+)=~?\"", query) for query in QUERIES]
    words += [re.findall(r"{{(\w+)}}", target["legendFormat"]) for p in DASHBOARD["panels"] for target in p["targets"]]
    assert {word for each in words for word in each} <= labels
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in DASHBOARD["panels"]]
    assert len(set(places)) == len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)


@pytest.mark.integrations
def test_the_dashboard_is_one_of_grafanas_schema_and_its_queries_are_of_prometheus():
    dashboard = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason="grafana-foundation-sdk")
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder").JSONEncoder
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    plugins.register_default_plugins()
    back = json.loads(encoder().encode(dashboard.Dashboard.from_json(DASHBOARD)))

    def lost(given, kept, path=""):  # what the schema does not know is left out
        if isinstance(given, dict):
            pairs = [(key, given[key], kept.get(key, KeyError)) for key in given]
        elif isinstance(given, list):
            pairs = [(place, *both) for place, both in enumerate(zip(given, kept, strict=True))]
        else:
            return [] if given == kept else [path]
        return [each for key, one, other in pairs for each in lost(one, other, f"{path}/{key}")]

    assert lost(DASHBOARD, back) == []
    parser = pytest.importorskip("promql_parser", reason="promql-parser")
    for query in QUERIES:
        parser.parse(query.replace("$__rate_interval", "5m"))


@pytest.mark.parametrize("address", ["9100.5", "localhost", "127.0.0.1:70000", "127.0.0.1:"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(UsageError, match=f"^--metrics={address} must be HOST:PORT"), served(None, address):
        pass


def test_a_port_that_is_taken_and_a_package_that_is_missing_are_one_line(tmp_path, capsys, monkeypatch):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER)
    given = [f"--follow={path}", "--once", f"--workdir={tmp_path}"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert answer(*given, f"--metrics={port}") == 2
    assert capsys.readouterr().err.startswith(f"error: --metrics={port} cannot be used (Address already in use)")
    for module, package in (("metrics", "prometheus_client"), ("otlp", "opentelemetry._logs")):
        monkeypatch.delitem(sys.modules, f"sgdlab.stragglers.follow.{module}", raising=False)
        monkeypatch.setitem(sys.modules, package, None)
        assert answer(*given, f"--{module}=http://127.0.0.1:9") == 2
        assert f"pip install 'sgdlab[{module}]'" in capsys.readouterr().err
    for flag in ("--webhook=ftp://host/secret", "--webhook=http://me:secret@host"):
        assert answer(*given, flag) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "must be an address that begins with http" in line
        assert "secret" not in line
