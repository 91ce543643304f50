"""`sgdlab certificate`: of methods, of a trace, of a saved schedule; the numbers are those of the library."""

import csv
import functools
import json
import types

import numpy as np
import pytest

from configs import digits
from sgdlab import protocols, runs, theory
from sgdlab.traces import Recording

# ml_collections loads a configuration's file by an importer's method that Python is about to drop.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)
SHORT = ("--config.epochs=1.0", "--config.cluster.num_workers=4")
RUNTIMES = np.random.default_rng(0).gamma(20, 0.05, (30, 5))


@pytest.fixture(name="certify")
def certify_beside_a_trace(call, tmp_path):
    Recording(RUNTIMES, 100 + np.arange(30), tuple(f"w{i}" for i in range(5))).save(tmp_path / "trace.csv")
    return functools.partial(call, "certificate")


def test_methods_of_a_configuration(certify, tmp_path):
    code, output, errors = certify(*SHORT, "--methods=synchronous,asgd,pull_gossip", "--variance=9", "--workdir=found")
    assert code == 0, errors
    assert "Synchronous SGD" in output
    assert "No method can be faster" in output
    written = json.loads((tmp_path / "found/certificate.json").read_text())
    assert written["problem"] == {"smoothness": 1.0, "descent": 1.0, "variance": 9.0, "accuracy": 1.0}
    found, problem = written["certificates"], theory.Problem(variance=9.0)
    assert (found["Synchronous SGD"]["tree_distance"], found["Synchronous SGD"]["iterations"]) == (3, 16 + 72)
    assert found["Pull gossip"]["tree_distance"] is None
    config = digits.get_config()
    config.method, config.epochs, config.cluster.num_workers = "asgd", 1.0, 4
    plan = runs.plan.make_plan(config)
    own = theory.certificate(plan.schedule)
    assert found["ASGD"]["tree_distance"] == own.tree_distance
    assert found["ASGD"]["seconds_to"] == pytest.approx(own.seconds_to(problem))
    assert written["floors"]["homogeneous"] == theory.homogeneous(plan.worker_seconds, problem).seconds
    rows = list(csv.DictReader((tmp_path / "found/certificate.csv").read_text().splitlines()))
    assert [row["tree_distance"] for row in rows] == ["3", str(own.tree_distance), ""]
    assert "| Synchronous SGD" in (tmp_path / "found/certificate.md").read_text()
    record = plan.certified
    assert record["tree_distance"] == own.tree_distance
    assert record["capacity"] == pytest.approx((1 / plan.worker_seconds).sum())


def test_bounds_do_not_depend_on_the_order_of_methods(certify, tmp_path):
    floors = []
    for methods in ("synchronous,dropcompute", "dropcompute,synchronous"):
        code, _, errors = certify(*SHORT, f"--methods={methods}", "--workdir=found")
        assert code == 0, errors
        floors.append(json.loads((tmp_path / "found/certificate.json").read_text())["floors"])
    assert floors[0] == pytest.approx(floors[1])


def test_steps_of_a_trace(certify, tmp_path):
    code, output, errors = certify("trace.csv", "--methods=synchronous,asgd", "--first_step=110", "--json")
    assert code == 0, errors
    found = json.loads(output)
    assert json.loads((tmp_path / "runs/certificate/certificate.json").read_text()) == found
    own = theory.certificate(protocols.asynchronous(RUNTIMES[10:]))
    assert found["certificates"]["ASGD"] | {"shares": None} == json.loads(json.dumps(own.as_dict())) | {
        "shares": None,
        "iterations": own.iterations(theory.Problem()),
        "seconds_to": own.seconds_to(theory.Problem()),
    }
    assert found["floors"]["heterogeneous"] == pytest.approx(
        theory.heterogeneous(RUNTIMES[10:].mean(axis=0), theory.Problem()).seconds, rel=1e-6
    )


@pytest.mark.parametrize("drops", [False, True])
def test_a_saved_schedule(certify, tmp_path, drops):
    make = protocols.backup_workers if drops else protocols.synchronous
    make(RUNTIMES).save(tmp_path / "mine.npz")
    code, output, errors = certify("--schedule=mine.npz", "--json")
    assert code == 0, errors
    found = json.loads(output)
    assert found["certificates"]["mine"]["tree_distance"] == (3 if drops else 4)
    # Gradients that were dropped may have been cut short: how fast the workers are is not known then.
    assert (found["floors"] is None) == drops


def recorded(monkeypatch, schedule, **entries):
    """Makes `--recording` a schedule, with the configuration of a run of these entries, if there are any."""
    config = digits.get_config()
    config.update_from_flattened_dict(entries)
    own = {"config": runs.store.plain(runs.resolve(config).source)} if entries else {}
    monkeypatch.setattr(runs.recorded, "load", lambda path: types.SimpleNamespace(schedule=schedule, config=own))
    return config


@pytest.mark.parametrize(("method", "said"), [("ringleader", True), ("asgd", False), (None, False)])
def test_a_recording_knows_its_rule(certify, monkeypatch, method, said):
    # A program that serves by itself gives its recording a configuration of its own, or none.
    recorded(monkeypatch, protocols.asynchronous(RUNTIMES), **({"method": method} if method else {}))
    code, output, errors = certify("--recording=mine/recording.npz")
    assert code == 0, errors
    assert ("all workers weigh alike under mine, live" in output) == said


@pytest.mark.parametrize("by_speed", [False, True])
def test_a_recorded_message_is_as_many_edges_as_its_steps(certify, monkeypatch, by_speed):
    schedule = protocols.synchronous(RUNTIMES)
    entries = {"method": "local_sgd", "cluster.num_workers": 5, "local.steps": 4, "local.by_speed": by_speed}
    config = recorded(monkeypatch, schedule, **entries)
    code, output, errors = certify("--recording=mine/recording.npz", "--json")
    assert code == 0, errors
    steps = runs.resolve(config).steps
    assert (len(set(steps)) > 1) == by_speed
    found = json.loads(output)
    own = theory.certificate(schedule, steps=steps[schedule.worker])
    assert found["certificates"]["mine, live"]["tree_distance"] == own.tree_distance
    assert found["certificates"]["mine, live"]["gradients"] == steps[schedule.worker].sum()
    # Nobody is faster than that many local steps a second.
    seconds = theory.seconds_per_gradient(schedule) / steps
    assert found["floors"]["homogeneous"] == theory.homogeneous(seconds, theory.Problem()).seconds
    made, real = [], theory.certificate
    monkeypatch.setattr(theory, "certificate", lambda *given, **named: made.append(real(*given, **named)) or made[-1])
    code, output, _ = certify("--recording=mine/recording.npz")
    assert "another than the server's: mine, live." in " ".join(output.split())
    assert len(made) == 1


def test_a_message_takes_several_steps_of_a_trace(certify):
    code, output, errors = certify("trace.csv", "--methods=asgd", "--config.local.steps=3", "--json")
    assert code == 0, errors
    found = json.loads(output)["certificates"]["ASGD"]
    messages = RUNTIMES.reshape(10, 3, 5).sum(axis=1)
    own = theory.certificate(protocols.asynchronous(messages), steps=3)
    assert (found["tree_distance"], found["gradients"]) == (own.tree_distance, own.gradients)
    assert found["seconds"] == pytest.approx(own.seconds)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--accuracy=0"], "--accuracy=0.0 must be a finite number above 0"),
        (["--variance=-1"], "--variance=-1.0 must be a finite number at least 0"),
        (["--variance=nan"], "--variance=nan must be a finite number"),
        (["--methods=nothing"], "--methods=nothing must be one of"),
        (["--schedule=nothing.npz"], "--schedule=nothing.npz must be a file"),
        (["--schedule=trace.csv"], "--schedule=trace.csv must be a schedule"),
        (["nothing.csv"], "--trace"),
        (["--recording=nothing.npz"], "--recording=nothing.npz must be a file"),
        (["--schedule=mine.npz", "--methods=asgd"], "--methods=asgd must be left out: --schedule has a schedule"),
        (["--first_step=3"], "--first_step=3 must be left out without --trace"),
        (["--config.method=asgd", "--methods=asgd"], "--config.method must be left out"),
        (
            ["trace.csv", "--methods=asgd,fadas", "--config.local.steps=31"],
            "30 complete steps of the trace are too few; --config.method=asgd makes 31 local steps for a message: "
            "leave the method out, or set --config.local.steps=30",
        ),
        (
            ["trace.csv", "--steps=6", "--methods=asgd,fadas"],
            "--steps=6: 6 complete steps of the trace are too few; --config.method=fadas makes 8 local steps",
        ),
        (
            ["trace.csv", "--steps=8", "--methods=fadas"],
            "--steps=8 must be about 40 for --config.method=fadas, whose messages have 8 local steps: num_gradients=",
        ),
        (["trace.csv", "--methods=pull_gossip", "--config.local.steps=3"], "--config.local.steps=3"),
        (["--acuracy=1"], "--acuracy is not a flag; did you mean --accuracy=1?"),
        ([*SHORT, "--config.method=asgd", "--workdir=trace.csv"], "--workdir=trace.csv must be a directory"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(certify, arguments, message):
    code, _, errors = certify(*arguments)
    assert code == 2
    (line,) = errors.strip().splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_help(certify):
    code, output, _ = certify("--help")
    assert code == 0
    for words in ("sgdlab certificate --methods", "--smoothness", "--accuracy", "--workdir", "--config.method="):
        assert words in output
    assert "those of an earlier call are replaced" in output
    assert max(map(len, output.splitlines())) <= 120
