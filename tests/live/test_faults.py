"""Test what a live run survives: real processes for what is about processes, the rehearsal for what is about order."""

import contextlib
import dataclasses
import json
import signal

import jax
import numpy as np
import pytest
from lib.rehearsal import Fault, Rehearsal, dyadic
from rehearsing import POLICIES, QUICK, compute, opened, rehearse, replayed

from experiments.benchmarks.faults import __main__ as suite
from experiments.benchmarks.faults import checks, damage, nodes, runs, scenarios, servers, transports, work
from experiments.benchmarks.faults.disordered import Disordered
from experiments.benchmarks.faults.runs import Outcome
from experiments.benchmarks.faults.scenario import Scenario, ServerScenario, Step
from sgdlab import policies
from sgdlab.live.fleet import NOT_FINITE
from sgdlab.live.lines import path_in, read

WORKERS = 3
SECONDS = 0.1


@pytest.fixture(name="folder", scope="module")
def folder_with_data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    work.store_data(folder)
    return folder


@pytest.fixture(name="pool", scope="module")
def pool_of_workers(folder):
    """Workers that tests share, with the number of every process of theirs."""
    jax.config.update("jax_enable_x64", True)  # as in the tests, which come later
    pids = set()
    with transports.made("processes", folder, SECONDS, WORKERS) as transport:
        yield transport, pids
    assert runs.left(pids) == 0


# Several faults in one run: each may come while another is not over.
FAULTS = [
    Scenario(
        "killed, raising, NaN, two at once, out of memory",
        "bounded staleness",
        (
            Step("kill_computing", (1,), after=9),
            Step("fail", (0,), after=3),
            Step("nan", (2,), after=3),
            Step("refuse_memory", (0,), after=3),
            Step("kill_process", (0, 2), after=12),  # more than come without worker 0
        ),
        expects={"lost": 2, "failed": 2, "refused": 1},
        expects_words=("killed by SIGKILL", "ArithmeticError", f"worker 2: {NOT_FINITE}", "MemoryError"),
    ),
    Scenario(
        "late, stopped with a full pipe, disordered, replaced, killed with its gradient sent",
        "ringmaster, interrupting",
        (
            Step("come", (2,), after=9),
            Step("stop", (0,), after=9),
            Step("flood", (0,)),
            Step("disorder", seconds=3.0),
            Step("go_on", (0,)),
            Step("replace", (2,), after=9),
            Step("kill_unheard", (1,), after=3),
            Step("order", after=9),
        ),
        absent=(2,),
        expects={"lost": 2},
        expects_words=("worker 2 has joined", "worker 0 is lost: silent for ", "worker 0 is back after "),
    ),
]


@pytest.mark.full
@pytest.mark.sample(1)
@pytest.mark.parametrize("scenario", FAULTS, ids=lambda scenario: scenario.policy)
def test_faults_of_workers(scenario, pool, folder, monkeypatch):
    monkeypatch.setattr(runs, "SETTINGS", dataclasses.replace(runs.SETTINGS, least_patience=2.0))
    transport, pids = pool
    outcome = runs.observed(scenario, transport, folder, seconds=SECONDS, workers=WORKERS, pids=pids)
    assert outcome.survived, outcome
    assert outcome.difference == 0.0


@pytest.mark.full
def test_a_killed_server_with_damaged_files(tmp_path):
    scenario = ServerScenario(
        "server killed, checkpoint damaged, log cut off",
        "timeout, interrupting",
        "SIGKILL",
        (damage.spoil_checkpoint, damage.cut_off_log),
        ("cannot be read", "Resumed from "),
    )
    outcome = servers.observed(scenario, tmp_path, transport="processes", seconds=SECONDS / 2, workers=2, gradients=25)
    assert outcome.survived, outcome


@pytest.mark.machines
def test_all_of_the_suite_with_a_short_storm(tmp_path, capsys):
    left = suite.main(["--storm_seconds=30", f"--json={tmp_path / 'found.json'}"])
    found = json.loads((tmp_path / "found.json").read_text())["outcomes"]
    assert left == 0, capsys.readouterr().out
    assert len(found) == len(scenarios.of_workers(30.0)) + len(scenarios.of_servers()) + 1


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", POLICIES)
def test_messages_sent_twice_late_and_out_of_order(name, tmp_path):
    # One is so slow that others get far ahead where a protocol lets them.
    make, runtimes = POLICIES[name], dyadic(np.random.default_rng(7), (60, 4)) * [1, 1, 1, 6]
    faults = [Fault("kill", 1, 20.3, 0.1), Fault("replace", 2, 30.2, 1.0), Fault("nan", 0, 9.0), Fault("raise", 1, 5.0)]
    transport = Disordered(Rehearsal(runtimes, compute, faults=faults), seed=3)
    statuses, updates = [], []
    recording, steps, _, policy = rehearse(
        make,
        runtimes,
        num_gradients=120,
        transport=transport,
        settings=dataclasses.replace(QUICK, watch_seconds=0.0, checkpoint_updates=1000),
        watch=statuses.append,
        on_update=lambda update: updates.append(update.number),
        log=opened(tmp_path),
    )
    assert transport.again > 20
    assert transport.late > 20
    tickets = [ticket for kind, _, *ticket in transport.inner.told if kind == "begin"]
    assert checks.ledger(recording, [ticket for (ticket,) in tickets], statuses) == ""
    assert checks.versions(recording, updates) == ""
    assert checks.bound(recording, name.replace("_", " "), read(path_in(tmp_path))[0][1:]) == ""
    assert np.abs(steps.params - replayed(recording, policy.single)).max() == 0.0
    assert recording.ledger()["refused"] == recording.ledger()["failed"] == 1


def test_another_process_under_the_same_number_begins_when_it_joins():
    """It takes the place of a worker 8.25 s after the start, and joins 1 s later; patience would take 10 s."""
    transport = Rehearsal(np.full((1, 3), 2.0), compute, faults=[Fault("replace", 2, 8.25, 1.0)])
    recording, *_ = rehearse(
        policies.asynchronous, np.full((1, 3), 2.0), num_gradients=60, transport=Disordered(transport, on=False)
    )
    own = np.sort(recording.schedule.started[recording.schedule.worker == 2])
    assert own[:7] == pytest.approx([0.0, 2.0, 4.0, 6.0, 8.0, 9.25, 11.25], abs=1e-6)
    assert recording.ledger()["lost"] == 1


def record(make=policies.asynchronous, **given):
    return rehearse(make, np.array([[1.0, 1.25, 4.0]]), num_gradients=30, **given)[0]


def altered(recording, **fields):
    """A recording that its constructor would refuse, or that says something else."""
    other = dataclasses.replace(recording)
    for name, value in fields.items():
        object.__setattr__(other, name, value)
    return other


def test_what_is_checked_can_be_wrong():
    statuses = []
    recording = record(watch=statuses.append)
    rows, updates = recording.ticket.size, recording.schedule.num_updates
    tickets = list(range(max(recording.ticket) + 1))
    assert checks.ledger(recording, tickets, statuses) == ""
    assert "no fate" in checks.ledger(altered(recording, ticket=recording.ticket + 9), None, [])
    assert "two rows" in checks.ledger(altered(recording, ticket=np.zeros(rows, int)), tickets, [])
    assert "in order" in checks.ledger(recording, [1, 0, *tickets[2:]], [])
    assert "only" in checks.ledger(recording, list(range(rows + 9)), [])
    wrong = dataclasses.replace(statuses[-1], ledger=dict(statuses[-1].ledger, lost=1))
    assert "at one instant" in checks.ledger(recording, tickets, [wrong])

    told = list(range(1, updates + 1))
    assert checks.versions(recording, told) == ""
    assert f"told of {updates - 1}" in checks.versions(recording, told[:-1])
    assert f"told of {updates + 1}" in checks.versions(recording, [1, *told])


def test_staleness_beyond_a_bound_is_found():
    """One worker takes 4 s, the others 1 and 1.25 s: 4 + 3 updates while it computes its first."""
    recording = record()
    assert int(recording.schedule.staleness().max()) == 7
    assert checks.bound(recording, "ringmaster", []) == "staleness 7 where 2 is most"
    assert checks.bound(recording, "timeout", []) == "staleness 7 where 0 is most"
    assert checks.bound(recording, "asynchronous", []) == ""
    # Two others, of each at most 2 * 2 + 1 gradients; and 2 + 1 more for each worker that joins meanwhile.
    assert checks.bound(recording, "bounded staleness", []) == ""
    longer = rehearse(policies.asynchronous, np.array([[0.25, 0.25, 4.0]]), num_gradients=60)[0]
    assert checks.bound(longer, "bounded staleness", []).startswith("staleness ")
    joins = [["joined", 0.5 + 0.1 * step, 0, 1, "here"] for step in range(9)]
    assert checks.bound(longer, "bounded staleness", joins) == ""


def test_updates_that_are_lost_or_doubled_are_counted():
    before, after = record(), record(policies.synchronous)
    same = record()
    assert checks.lost_or_doubled(before, same) == (0, 0)
    lost, doubled = checks.lost_or_doubled(before, after)  # updates of one gradient, and of three
    assert lost == before.schedule.num_updates
    assert doubled == 0
    tickets = np.array(same.ticket)
    tickets[[3, 4]] = tickets[[4, 3]]
    assert checks.lost_or_doubled(before, altered(same, ticket=tickets)) == (2, 0)


def test_a_replay_is_compared_with_what_it_is_given(folder):
    """See that 0.0 means something: the parameters after a run are not those before it."""
    assert checks.difference(record(), work.params(), folder) > 1e-3


@pytest.mark.parametrize("good", [True, False])
def test_the_table_says_what_was_not_survived(good, monkeypatch, capsys, tmp_path):
    outcome = Outcome("one", "timeout", False, 1.5, difference=0.0, ledger="" if good else "a ticket is in two rows")
    monkeypatch.setattr(suite, "tried", lambda *given: iter([outcome.judged()]))
    assert suite.main(["--only=storm", f"--json={tmp_path / 'found.json'}"]) == int(not good)
    printed = capsys.readouterr().out
    assert ("    a ticket is in two rows" in printed) == (not good)
    assert json.loads((tmp_path / "found.json").read_text())["outcomes"][0]["survived"] is good


@pytest.mark.parametrize(
    "field",
    [
        {"recovery": None},
        {"updates_lost": 1},
        {"updates_doubled": 1},
        {"versions": "x"},
        {"bound": "x"},
        {"difference": 1e-9},
        {"difference": None},
        {"left": 1},
        {"wrong": "x"},
    ],
)
def test_nothing_may_be_wrong(field):
    good = Outcome("one", "timeout", False, 1.5, difference=0.0)
    assert good.judged().survived
    assert not good._replace(**field).judged().survived


def test_the_pace_of_a_run_is_that_of_its_clock():
    """Worker 1 is lost at 2 s, killed once more, and there at 5 s; of worker 0 the server's end makes nothing known."""
    entries = [
        ["start", 0.0, [], 2, 9], ["came", 1.0, 0, 0, 1.0, 0.5, True], ["lost", 2.0, 1, "x"], ["killed", 2.5, 1, "y"],
        ["lost", 4.0, 0, "x"], ["joined", 5.0, 1, 7, "here"], ["restart", 6.0, 0], ["joined", 8.0, 0, 9, "here"],
        ["came", 10.0, 0, 1, 1.0, 0.5, True],
    ]  # fmt: skip
    assert checks.pace(entries) == {"gradients/s": 0.2, "losses": 1, "s to join": 3.0}
    assert checks.pace(entries[:2]) == {"gradients/s": 1.0, "losses": 0, "s to join": None}


class Child:
    """A process that is none."""

    def __init__(self, name):
        self.name, self.code, self.signals = name, None, []

    @property
    def returncode(self):
        return self.code

    def poll(self):
        return self.code

    def kill(self):
        self.code = -signal.SIGKILL

    def wait(self):
        return self.code

    def send_signal(self, number):
        self.signals.append(number)


class Machines:
    """Three machines that are none, and what was done to them."""

    def __init__(self, folder):
        self.folder, self.names, self.parted, self.started = folder, ["node1", "node2", "node3"], set(), []
        self.cut, self.heal, self.address = self.parted.add, self.parted.discard, "10.0.0.{}".format

    def start(self, name, command, **env):
        self.started.append(Child(name))
        return self.started[-1]

    def kill(self, name):
        for child in self.started:
            child.code = -signal.SIGKILL if child.name == name else child.code

    def log(self, child):
        return "first\nlast"


@pytest.fixture(name="clock")
def clock_that_is_set(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(nodes.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(nodes, "certify", lambda *given: None)
    monkeypatch.setattr(nodes.servers, "examined_in", lambda *given: given)
    return now


def alive(machines):
    return sorted(child.name for child in machines.started if child.code is None)


def made_nodes(folder, seconds=0.1):
    machines = Machines(folder)
    return machines, nodes.Nodes(machines, folder, kind="grpc", policy="asynchronous", seconds=seconds, workers=6)


def test_a_storm_makes_every_strike_and_calm_mends_all(tmp_path, clock):
    machines, made = made_nodes(tmp_path)
    whole = alive(machines)
    assert whole == sorted(["node1", *2 * machines.names])
    made.storm()
    while made.done.total() < 36:
        clock[0] += 0.5
        made.tend()
    assert made.done == {"kill": 18, "freeze": 9, "cut": 6, "kill_server": 3}
    assert len(made.before) == 3
    made.calm()
    assert not machines.parted
    frozen = [child for child in machines.started if child.code is None and child.signals]
    assert all(child.signals[-1] == signal.SIGCONT for child in frozen)
    for _ in range(2):  # seen, and started after a second
        clock[0] += 2.0
        made.tend()
    assert alive(machines) == whole
    assert made.done.total() == 36


def test_a_node_without_power_is_parted_and_nothing_starts_on_it(tmp_path, clock):
    machines, made = made_nodes(tmp_path)
    made.do("kill_node", 3)
    for _ in range(3):
        clock[0] += 2.0
        made.tend()
    assert (machines.parted, alive(machines)) == ({"node3"}, ["node1"] * 3 + ["node2"] * 2)
    made.do("boot", 3)
    for _ in range(2):
        clock[0] += 2.0
        made.tend()
    assert (machines.parted, alive(machines).count("node3")) == (set(), 2)


def test_what_a_server_does_of_itself_or_a_limit_that_limits_nothing_is_an_error(tmp_path, clock):
    machines, made = made_nodes(tmp_path)
    machines.started[-1].code = 1
    with pytest.raises(RuntimeError, match=r"the server has ended: first \| last"):
        made.tend()
    machines.limit = machines.unlimit = lambda name, *mbits: None
    for came, fine in (([10, 3, 9, 9, 3, 9], True), ([10, 8, 9, 9, 8, 9], False), ([10, 0, 9, 9, 0, 9], False)):
        (tmp_path / "seen.json").unlink(missing_ok=True)
        made.do("limit", 2)
        (tmp_path / "seen.json").write_text(json.dumps(came))
        with contextlib.nullcontext() if fine else pytest.raises(RuntimeError, match="workers have sent"):
            made.do("unlimit", 2)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--machines=3"], "--machines=3: no machines can be made here: root is needed\n"),
        (["--machines=2"], "--machines=2 must be at least 3, or 0"),
        (["--machines=3", "--transport=processes"], "--transport=processes must be grpc or ray with --machines=3"),
        (["--transport=grpc"], "--transport=grpc must be processes or ray with --machines=0"),
    ],
)
def test_machines_that_cannot_be_made_are_said(flags, words, capsys, monkeypatch):
    monkeypatch.setattr(suite.namespaces, "why_not", lambda: "root is needed")
    with pytest.raises(SystemExit) as ended:
        suite.main(flags)
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert len(printed.splitlines()) == 1 or "usage" in printed


@pytest.mark.full
def test_scenarios_that_are_not_there_are_named(capsys):
    with pytest.raises(SystemExit) as ended:
        suite.main(["--only=flood of frogs"])
    assert ended.value.code == 2
    assert "--only='flood of frogs' must be words of a scenario's name: killed mid-gradient;" in capsys.readouterr().err
