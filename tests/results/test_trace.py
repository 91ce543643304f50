"""Time-lines and Chrome traces say what the schedule says: every gradient, update and exchange, at its second."""

import itertools
import json

import numpy as np
import pytest

from sgdlab import protocols
from sgdlab.results.timeline import timeline
from sgdlab.results.trace import write_trace

RUNTIMES = np.random.default_rng(0).uniform(1, 3, (6, 4))
SERVERS = {
    "asynchronous": lambda: protocols.asynchronous(RUNTIMES),
    "backup_workers": lambda: protocols.backup_workers(RUNTIMES, backups=2),
    "partial": lambda: protocols.partial(
        RUNTIMES,
        num_servers=3,
        push_at_least=2,
        pull_at_least=2,
        pull_delays=np.broadcast_to([0.0, 0.0, 5.0], (6, 4, 3)),
    ),
    "layers": lambda: protocols.layerwise(RUNTIMES, num_blocks=3, reads="forward"),
    "ringmaster": lambda: protocols.ringmaster(RUNTIMES, max_delay=2, interrupt=True),
}
PEERS = {
    "pull": lambda: protocols.gossip(RUNTIMES, seed=0),
    "push": lambda: protocols.gossip(RUNTIMES, kind="push", clock="rounds", seed=0),
    "elastic": lambda: protocols.elastic_averaging(RUNTIMES),
}


def traced(schedule, path) -> list[dict]:
    write_trace(path / "trace.json", schedule)
    return json.loads((path / "trace.json").read_text())["traceEvents"]


def slices(events, process):
    return [event for event in events if event["ph"] == "X" and event["pid"] == process]


@pytest.mark.parametrize("name", SERVERS)
def test_a_trace_holds_every_gradient_and_every_update(name, tmp_path):
    schedule = SERVERS[name]()
    events = traced(schedule, tmp_path)
    gradients, updates = slices(events, 1), slices(events, 2)
    assert len(gradients) == schedule.num_gradients
    for row, event in enumerate(gradients):
        assert event["tid"] == schedule.worker[row]
        assert event["ts"] == 1e6 * schedule.started[row]
        assert event["args"]["read"] == schedule.read[row].tolist()
        assert event["args"]["update"] == schedule.update[row].tolist()
        kinds = {"used": schedule.used(), "dropped": schedule.dropped(), "pending": schedule.pending()}
        assert kinds[event["cat"]][row].any()
    assert len(updates) == np.isfinite(schedule.applied).sum()
    ends = sorted(event["ts"] + event["dur"] for event in updates)
    np.testing.assert_allclose(ends, np.sort(1e6 * schedule.applied[np.isfinite(schedule.applied)]))
    assert sum(event["args"]["gradients"] for event in updates) == schedule.used().sum()
    flows = {phase: {event["id"] for event in events if event["ph"] == phase} for phase in "sf"}
    assert flows["s"] == flows["f"]
    assert len(flows["s"]) == schedule.used().sum()


@pytest.mark.parametrize("name", PEERS)
def test_a_trace_holds_every_event_and_exchange_of_peers(name, tmp_path):
    schedule = PEERS[name]()
    events = traced(schedule, tmp_path)
    assert len(slices(events, 1)) == schedule.node.size
    others = schedule.source != schedule.node[schedule.event]
    assert sum(event["ph"] == "s" for event in events) == others.sum()
    for event in slices(events, 1):
        assert sum(part["weight"] for part in event["args"]["averaged"]) == pytest.approx(1)


def test_work_of_the_same_worker_does_not_overlap(tmp_path):
    for schedule in (SERVERS["backup_workers"](), SERVERS["ringmaster"](), PEERS["pull"]()):
        for worker in range(schedule.num_workers):
            spans = [(e["ts"], e["ts"] + e["dur"]) for e in slices(traced(schedule, tmp_path), 1) if e["tid"] == worker]
            for (_, end), (begin, _) in itertools.pairwise(spans):
                assert begin >= end - 1e-3


def test_time_lines_of_every_kind_are_drawn():
    schedules = {name: make() for name, make in (SERVERS | PEERS).items()}
    figure = timeline(schedules, seconds=8.0)
    assert len(figure.axes) == len(schedules)
    words = [text.get_text() for text in figure.axes[list(schedules).index("partial")].texts]
    assert "0" in words
    assert any("-" in word for word in words)  # blocks of two versions
    assert all(axes.get_xlim() == (0, 8.0) for axes in figure.axes)
