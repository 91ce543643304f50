"""`sgdlab live`, `replay`, and what else takes a recording: rehearsed here, and on real processes."""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest
from lib import tiny, undrawn
from lib.rehearsal import Fault, Rehearsal

from sgdlab import hosts, results, runs, traces
from sgdlab.commands import live
from sgdlab.live import environment
from sgdlab.live.log import Log
from sgdlab.live.processes import Processes
from sgdlab.live.recording import LiveRecording
from sgdlab.runs import live_run, recorded

ROOT = pathlib.Path(__file__).parents[2]
TINY = (
    "--config.epochs=1.0",
    "--config.batch_size=32",
    "--config.optimizer.learning_rate=0.05",
    "--config.evaluations=3",
    "--config.network.kind=mlp",
    "--config.network.mlp.widths=(8,)",
)
GRADIENTS = 1437 // 32  # of one epoch

pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)


@pytest.fixture(name="rehearsed")
def workers_on_a_clock_that_is_not_real(monkeypatch):
    """`sgdlab live` takes the times of the configuration's cluster; returns the faults that befall its workers."""
    faults = []

    def transport(job, logs, say):
        del logs, say
        times = job.plan.experiment.cluster.law.draw(100, seed=0)[:, : job.num_workers]
        return Rehearsal(times, job.compute_of(0), faults=faults)

    monkeypatch.setattr(live, "_transport", transport)
    return faults


@pytest.fixture(name="undrawn")
def without_pictures(monkeypatch):
    """Pictures take seconds, and one test looks at one."""

    undrawn.leave_undrawn(monkeypatch)
    for module, function in ((results.plots, "training"), (results.timeline, "timeline")):
        monkeypatch.setattr(module, function, lambda *arguments, **given: None)


def done(answer):
    code, output, errors = answer
    assert code == 0, errors
    return output


def one_line(answer):
    code, _, errors = answer
    assert code == 2, errors
    (line,) = errors.strip().splitlines()
    return line


def records_of(workdir):
    return results.records.read_records(pathlib.Path(workdir) / "metrics/run.jsonl")


def difference_in(output):
    (number,) = re.findall(r"largest difference from the parameters of the live run: (\S+)", output)
    return float(number)


@pytest.mark.usefixtures("rehearsed", "undrawn")
def test_a_run_leaves_what_it_was_and_its_replay_is_the_same(call, monkeypatch):
    pathlib.Path("my own").mkdir()
    pathlib.Path("my own/hinted.py").write_text("")
    flags = (*TINY, "--config.method=backup_workers", "--num_workers=3", "--serve", "--workdir=here")
    code, output, errors = call("live", *flags, "--parts=my own/hinted.py")
    assert code == 0, errors
    assert "Watch it at http://127.0.0.1:" in output
    assert re.search(r"finished, .*test loss \d\.\d{4}, test accuracy \d+\.\d %", errors)
    assert not re.search(r"accuracy [\d.]+(?! %|[\d.])", errors)
    left = {str(path.relative_to("here")) for path in pathlib.Path("here").rglob("*") if path.is_file()}
    assert left == {
        "config.json", "log.jsonl", "metrics/run.jsonl", "parameters.npz", "recording.npz", "schedule.npz",
        *(f"plots/{name}.{ending}" for name in ("timeline", "training") for ending in ("png", "svg")),
    }  # fmt: skip
    records, recording = records_of("here"), LiveRecording.load("here/recording.npz")
    run, *evaluations, summary = records
    assert [run["kind"], summary["kind"]] == ["run", "summary"]
    assert run["live"]
    assert "real processes" in run["about"]["cluster"]
    assert [record["gradients"] for record in evaluations] == [0, 16, 30, GRADIENTS]  # ends of updates of two
    # What is said of the gradients between two evaluations is what was recorded.
    used = recording.schedule.used()[:, 0]
    losses = recording.loss[used]
    assert evaluations[2]["train_loss"] == pytest.approx(losses[16:30].mean())
    assert evaluations[2]["seconds"] == recording.schedule.applied[14, 0]
    ledger = recording.ledger()
    assert ledger["applied"] == GRADIENTS
    assert ledger["interrupted"] + ledger["late"] == summary["dropped"] > 0
    assert all(record["evaluation_seconds"] > 0 for record in evaluations)

    (command,) = re.findall(r"^`sgdlab (replay .*)` repeats it", output, re.MULTILINE)
    assert shlex.split(command) == ["replay", "--recording=here/recording.npz", "--parts=my own/hinted.py"]
    # The directory of a run that has ended may be named as well as its file.
    outputs = [
        done(call(*given))
        for given in (
            [*shlex.split(command), "--workdir=again"],
            ["replay", "--recording=here", "--parts=my own/hinted.py", "--workdir=whole"],
        )
    ]
    assert list(map(difference_in, outputs)) == [0.0, 0.0]
    again = records_of("again")
    for name in ("gradients", "updates", "seconds", "test_accuracy", "test_loss", "average_accuracy", "staleness"):
        assert [record[name] for record in again[1:-1]] == [record[name] for record in evaluations], name
    assert again[-1]["gap"] >= 1.0
    assert summary["gap"] is None  # a live run does not measure it
    # It is a run like others: shown, not run again.
    assert "nothing had to be run" in done(call("replay", "here/recording.npz", "--workdir=again"))
    code, _, errors = call("replay", "here/recording.npz", "--recording=here/recording.npz")
    assert code == 2
    assert errors.startswith("error: here/recording.npz must be left out beside --recording=here/recording.npz")
    assert "nothing had to be run" in done(
        call("live", *TINY, "--config.method=backup_workers", "--num_workers=3", "--workdir=here")
    )
    # Other numbers are noticed.
    with np.load("here/parameters.npz") as file:
        leaves = dict(file)
    name = next(iter(leaves))
    leaves[name].flat[0] += 0.25
    np.savez("here/parameters.npz", **leaves)
    output = done(call("replay", "--recording=here/recording.npz", "--workdir=again"))
    assert difference_in(output) == pytest.approx(0.25)
    assert "Every bit" not in output
    cpus = int(recording.versions["cpus"])
    now = {**recording.versions, "cpus": str(cpus + 1)}
    monkeypatch.setattr(recorded.live_recording, "versions", lambda: now)
    output = done(call("replay", "--recording=here/recording.npz", "--workdir=again"))
    assert (
        f"The live run was computed with cpus {cpus} (here {cpus + 1}): replay is the same then to rounding" in output
    )


@pytest.mark.full
@pytest.mark.usefixtures("rehearsed", "undrawn")
def test_another_rule_meets_the_same_events(call):
    done(call("live", *TINY, "--config.method=asgd", "--config.cluster.num_workers=3", "--workdir=here"))
    recording = "--recording=here/recording.npz"
    output = done(call("replay", recording, "--config.mode=event", "--workdir=one_loop"))
    assert difference_in(output) < 1e-5
    output = done(call("replay", recording, "--config.rule.kind=gap_aware", "--workdir=other"))
    assert "largest difference" not in output
    assert "changed: rule.kind gap_aware (live asgd)" in output
    assert re.search(r"live: ASGD +\d", output)
    assert re.search(r"replay: Gap-Aware \+ Asynchronous SGD +\d", output)
    before, after = records_of("here")[-1], records_of("other")[-1]
    assert before["test_loss"] != after["test_loss"]
    assert before["seconds"] == after["seconds"]
    # The events are the recording's; what would change them is refused, and so is what is no recording.
    assert "--config.epochs=2.0 must be left out" in one_line(call("replay", recording, "--config.epochs=2.0"))
    for flag in ("--config.protocol.timeout.seconds=1.0", "--config.cluster.gamma.mean=1.0"):
        assert f"{flag.split('=')[0]} must be left out" in one_line(call("replay", recording, flag))
    assert "--config must be left out" in one_line(call("replay", recording, "--config=configs/digits.py"))
    assert "--recording must name" in one_line(call("replay"))
    assert "--recording=nowhere.npz must be a file" in one_line(call("replay", "--recording=nowhere.npz"))
    assert "must be the recording" in one_line(call("replay", "--recording=here/parameters.npz"))
    # It is drawn, and its compute times are a trace.
    assert "44 applied" in done(call("timeline", recording, "--workdir=drawn"))
    assert pathlib.Path("drawn/timeline.png").is_file()
    line = one_line(call("timeline", recording, "--schedule=here/schedule.npz"))
    assert "--schedule=here/schedule.npz must be left out" in line
    times = LiveRecording.load("here/recording.npz").runtimes()
    np.testing.assert_array_equal(traces.read("here/recording.npz").runtimes, times)
    assert "must be left out beside --trace=trace.csv" in one_line(call("advise", recording, "--trace=trace.csv"))


@pytest.mark.full
@pytest.mark.usefixtures("undrawn")
def test_a_run_that_was_stopped_continues(call, rehearsed, monkeypatch):
    rehearsed.append(Fault("nan", 1, at=40.0))
    rehearsed.append(Fault("kill", 2, at=90.0))
    arguments = (*TINY, "--config.method=timeout", "--num_workers=3", "--workdir=here")
    asked = iter([False] * 800 + [True] * 1000)  # four a second
    with monkeypatch.context() as patch:
        patch.setattr(hosts, "stop_requested", lambda: next(asked))
        code, _, errors = call("live", *arguments)
    assert code == 75, errors
    stopped = re.search(r"Stopped after (\d+) of 44 gradients; the same command continues", errors)
    assert 0 < int(stopped.group(1)) < GRADIENTS
    # What has happened so far is a recording, though the run has not ended.
    so_far = recorded.load("here/states/run")
    assert so_far.ledger()["applied"] == int(stopped.group(1))
    assert "updates from" in done(call("timeline", "--recording=here/states/run", "--workdir=drawn"))
    assert "There is no" in done(call("replay", "--recording=here/states/run", "--workdir=half"))
    assert records_of("half")[-1]["gradients"] == int(stopped.group(1))
    # Nobody else continues it, or begins it anew, while a process executes it.
    before = pathlib.Path("here/states/run/log.jsonl").read_bytes()
    with open("here/states/run/lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for flags in ([], ["--rerun"]):
            line = one_line(call("live", *arguments, *flags)).split("--workdir=", 1)[1]
            assert line.startswith("here holds a run that another process executes")
    assert pathlib.Path("here/states/run/log.jsonl").read_bytes() == before
    # Where a log cannot be had, as while it is being written, it is not at fault.
    with open("here/states/run/log.jsonl", "ab") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        line = one_line(call("live", *arguments))
    assert "written by another process" in line
    assert "--rerun" not in line
    # Another configuration is not what has been begun there.
    line = one_line(call("live", *arguments, "--config.seed=1"))
    assert "config.seed" in line
    assert "--rerun begins anew" in line
    rehearsed.clear()
    output = done(call("live", *arguments))
    assert "Resumed from" in output
    assert difference_in(done(call("replay", "--recording=here/recording.npz", "--workdir=again"))) == 0.0
    live_ones, again = records_of("here"), records_of("again")
    for name in ("gradients", "test_accuracy", "train_loss", "staleness"):
        assert [record[name] for record in live_ones[1:-1]] == [record[name] for record in again[1:-1]], name
    ledger = LiveRecording.load("here/recording.npz").ledger()
    assert ledger["refused"] == 1
    assert ledger["lost"] >= 1
    assert ledger["begun"] == sum(number for fate, number in ledger.items() if fate != "begun")
    # Anew, what was there is put aside.
    done(call("live", *arguments, "--config.seed=1", "--rerun"))
    assert records_of("here")[0]["seed"] == 1
    aside = {path.name for path in pathlib.Path("here/metrics/superseded").iterdir()}
    assert {"run.1.jsonl", "run.recording.npz", "run.log.jsonl"} <= aside


def test_the_server_waits_for_no_evaluation(monkeypatch, tmp_path):
    """None but the first one ends before the run does: four are under way, and the others are put off to the end."""
    made, finished, waited = live_run._timed, threading.Event(), []

    def slow(evaluation):
        if waited:
            waited.append(finished.wait(60))
        else:
            waited.append(True)
        return made(evaluation)

    monkeypatch.setattr(live_run, "_timed", slow)
    job = runs.live.make_job(tiny.config(method="asgd", evaluations=10))
    transport = Rehearsal(job.plan.experiment.cluster.law.draw(100, seed=0), job.compute_of(0))
    watch = lambda status: finished.set() if status.finished else None
    run, recording = runs.live_run.execute(job, transport, folder=tmp_path, watch=watch)
    assert waited == [True] * 6
    evaluations = run.records[1:-1]
    assert [record["gradients"] for record in evaluations] == [0, 5, 10, 15, 20, GRADIENTS]
    for begin, end in ((0, 1), (1, 2), (4, 5)):  # means since the one before
        rows = slice(evaluations[begin]["gradients"], evaluations[end]["gradients"])
        assert evaluations[end]["train_loss"] == pytest.approx(
            recording.loss[recording.schedule.used()[:, 0]][rows].mean()
        )


@pytest.mark.usefixtures("rehearsed", "undrawn")
def test_a_work_directory_that_is_deleted_ends_the_run_which_continues(call, monkeypatch):
    command = ("live", *TINY, "--config.method=backup_workers", "--num_workers=3", "--workdir=here")
    real, gone = Log.sync, []

    def sync(log, now, **given):
        if log._place.lines > 40 and not gone:
            gone.append(now)
            log._saved()
            shutil.rmtree("here")
        real(log, now, **given)

    with monkeypatch.context() as patched:
        patched.setattr(Log, "sync", sync)
        code, _, errors = call(*command)
    assert code == 2, errors
    line = errors.splitlines()[-1]
    assert line.startswith("error: log='here/states/run/log.jsonl' was deleted, moved or unmounted")
    assert line.endswith("saved in here/states/run: the same command continues")
    code, output, errors = call(*command)
    assert code == 0, errors
    assert "; 0 gradients since checkpoint" in output + errors
    assert LiveRecording.load("here/recording.npz").ledger()["applied"] == GRADIENTS


@pytest.mark.usefixtures("rehearsed", "undrawn")
def test_a_run_whose_directory_is_deleted_when_it_has_ended_leaves_all_but_its_log(call, monkeypatch):
    execute = runs.live_run.execute

    def then_deleted(*given, **options):
        found = execute(*given, **options)
        shutil.rmtree("here")
        return found

    monkeypatch.setattr(runs.live_run, "execute", then_deleted)
    command = ("live", *TINY, "--config.method=backup_workers", "--num_workers=3", "--workdir=here")
    assert "here/states/run/log.jsonl was deleted when the run had ended" in done(call(*command))
    left = {path.name for path in pathlib.Path("here").iterdir()}
    assert left == {"config.json", "metrics", "parameters.npz", "plots", "recording.npz", "schedule.npz"}


@pytest.mark.usefixtures("rehearsed", "undrawn")
def test_parameters_are_written_before_all_else(call, monkeypatch):
    def full(recording, path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LiveRecording, "save", full)
    code, _, errors = call("live", *TINY, "--config.method=backup_workers", "--num_workers=3", "--workdir=here")
    assert code == 1
    assert "No space left" in errors
    assert pathlib.Path("here/parameters.npz").exists()


@pytest.mark.usefixtures("undrawn")
def test_too_few_workers_end_a_run_that_can_be_continued(call, rehearsed):
    rehearsed += [Fault("doomed", 0, at=100.0, seconds=1e9), Fault("kill", 0, at=101.0)]
    arguments = (*TINY, "--config.method=asgd", "--num_workers=2", "--min_workers=2", "--workdir=here")
    code, _, errors = call("live", *arguments, "--wait_seconds=60")
    assert code == 69, errors
    assert "error: " in errors
    assert "worker 0" in errors.splitlines()[-1]
    rehearsed.clear()
    assert "Resumed from" in done(call("live", *arguments))
    assert LiveRecording.load("here/recording.npz").ledger()["applied"] == GRADIENTS


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--config.method=all_reduce"], "--config.protocol.kind=all_reduce must be another"),
        (["--config.method=partial"], "--config.protocol.kind=partial must be another"),
        (["--config.method=cutoff", "--config.predictor.kind=oracle"], "--config.predictor.kind=oracle knows"),
        (
            ["--config.protocol.kind=softsync", "--config.rule.kind=dana"],
            "--config.rule.kind=dana with protocol",
        ),
        (["--config.stream=True"], "--config.stream=True reads examples from files"),
        (["--config.network.kind=transformer_xl", "--config.data.kind=stdlib_text"], "transformer_xl remembers"),
        (["--num_workers=3", "--config.cluster.num_workers=2"], "--num_workers=3 differs from"),
        (["--patience=0.5"], "--patience=0.5 must be"),
        (["--emulate=0"], "--emulate=0.0 must be"),
        (["--min_workers=9"], "--min_workers=9 must be a whole number from 1 to 8"),
        (["--serve=many"], "--serve=many must be a port"),
        (["--address=auto"], "--address=auto is of a Ray cluster"),
        (["--config.protocol.timeout.at_least=0.5"], "--config.protocol.timeout.at_least has no effect"),
    ],
)
def test_what_cannot_be_live_is_said_in_one_line(call, flags, words):
    assert words in one_line(call("live", *TINY[1:4], *flags, "--workdir=here"))
    assert not pathlib.Path("here").exists()


@pytest.mark.parametrize(
    "method",
    ["pull_gossip", "push_gossip", "elastic_averaging", "d_psgd", "sgp", "ad_psgd", "a2cid2"],
)
def test_methods_without_a_server_are_refused_and_the_line_says_where_they_run(call, method):
    protocol = runs.resolve(tiny.config(method=method)).protocol.name
    assert one_line(call("live", *TINY[1:4], f"--config.method={method}", "--workdir=here")) == (
        f"error: --config.protocol.kind={protocol} must be a protocol with a server on real processes: nodes that "
        "average with each other have none, and are simulated and replayed exactly by `sgdlab train`"
    )
    assert not pathlib.Path("here").exists()


@pytest.mark.parametrize("name", ["live", "replay"])
def test_help_is_a_page(call, name):
    lines = done(call(name, "--help")).splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 120
    assert any(line.startswith("  --config:") for line in lines) == (name == "live")  # a recording has its own


@pytest.mark.usefixtures("rehearsed", "undrawn")
def test_too_short_a_recording_is_no_trace(call):
    done(call("live", *TINY, "--config.epochs=0.2", "--config.method=asgd", "--num_workers=3", "--workdir=here"))
    line = one_line(call("advise", "--recording=here/recording.npz"))
    assert (
        "--recording=here/recording.npz is too short: 2 rows hold a compute time of every worker; 8 are needed" in line
    )


@pytest.mark.usefixtures("rehearsed", "undrawn")
@pytest.mark.parametrize("flag", [None, 0.5])
def test_the_server_computes_where_its_workers_do(call, monkeypatch, flag):
    asked, make = [], runs.live.make_job

    def make_job(*arguments, **given):
        assert len(asked) == 1  # before JAX is first used
        return make(*arguments, **given)

    monkeypatch.setattr(environment, "for_server", asked.append)
    monkeypatch.setattr(runs.live, "make_job", make_job)
    flags = [] if flag is None else [f"--gpus_per_worker={flag}"]
    done(
        call("live", *TINY, "--config.epochs=0.1", "--config.method=asgd", "--num_workers=2", *flags, "--workdir=here")
    )
    assert asked == [flag]


def test_emulated_gradients_are_those_of_the_cluster_in_proportion():
    config = tiny.config(method="asgd")
    experiment = runs.resolve(config)
    source = runs.live.source_of(experiment, emulate=0.25)
    json.dumps(source.argument)
    work = source.make()
    law = experiment.cluster.law.draw(200, seed=experiment.seeds.of("runtimes"))
    found = np.array([[work.seconds(worker, k) for worker in range(4)] for k in range(20)])
    np.testing.assert_allclose(found / found[0, 0], law[:20] / law[0, 0])
    rows = 2 * (GRADIENTS // 4) + 2
    whole = np.array([[work.seconds(worker, k) for worker in range(4)] for k in range(rows)])
    assert whole.mean() == pytest.approx(0.25)


def test_a_ticket_names_its_batch():
    config = tiny.config(method="asgd")
    plan = runs.plan.make_plan(config)
    batches = runs.tasks.batches_by_ticket(plan.experiment)
    by_gradient = runs.tasks.batches_of(plan, GRADIENTS)
    for ticket in (0, 3, 43):  # as in a simulation, where the gradient's number is in the place of the ticket
        ours, theirs = batches(jax.numpy.int32(ticket)), by_gradient(jax.numpy.int32(ticket))
        np.testing.assert_array_equal(ours.inputs, theirs.inputs)
        np.testing.assert_array_equal(jax.random.key_data(ours.key), jax.random.key_data(theirs.key))
    # Past the table, which has 64 rows for 44 gradients, its first rows come again, with other keys.
    first, later = batches(jax.numpy.int32(2)), batches(jax.numpy.int32(66))
    np.testing.assert_array_equal(first.inputs, later.inputs)
    assert (jax.random.key_data(first.key) != jax.random.key_data(later.key)).any()


PAIRS = [
    ("timeout", "linear_scaling"),
    ("asynchronous", "dana_gap_aware"),
    ("synchronous", "nag_asgd"),
    ("backup_workers", "adam"),
    ("cutoff", "gap_aware"),
    ("softsync", "staleness_aware"),
    ("rennala", "rmsprop"),
    ("bounded_staleness", "delay_compensated"),
    ("ringmaster", "delay_adaptive"),
    ("asynchronous", "exponential_penalty"),
]
"""Every protocol, and a rule of every family."""


def job_of(protocol, rule):
    config = tiny.config(protocol__kind=protocol, rule__kind=rule, cluster__num_workers=2)
    config.protocol.cutoff.window = 3
    config.protocol.timeout.at_least = 0.5
    return runs.live.make_job(config)


def check_replays(job, run, recording, tmp_path):
    recording.save(tmp_path / "recording.npz")
    recording = LiveRecording.load(tmp_path / "recording.npz")
    config = runs.live.config_of(recording.config["config"])
    again = runs.train.train(recorded.repeated(recorded.plan_of(config, recording), recording))
    ours, theirs = (runs.train.leaves(result.params) for result in (run.result, again.result))
    assert recorded.largest_difference(ours, theirs) == 0.0, job.plan.experiment.method.name
    assert run.records[-1]["gradients"] >= GRADIENTS


def run_all(pairs, tmp_path):
    """Runs one after the other, on one set of workers: what they compute knows of no protocol and no rule."""
    first = job_of(*pairs[0])
    params, aux = first.task.params, first.gradients.aux
    with contextlib.closing(Processes(first.source, params, aux, num_workers=2)) as transport:
        for number, pair in enumerate(pairs):
            job, folder = job_of(*pair), tmp_path / str(number)
            run, recording = runs.live_run.execute(job, transport, folder=folder)
            check_replays(job, run, recording, tmp_path)


@pytest.mark.long("workers in processes of their own")
def test_real_workers_train_and_their_record_replays(tmp_path):
    run_all(PAIRS[:1], tmp_path)


@pytest.mark.machines
def test_every_protocol_and_a_rule_of_every_family_trains_and_replays(tmp_path):
    run_all(PAIRS, tmp_path)


@pytest.mark.full
@pytest.mark.usefixtures("undrawn")
def test_a_server_that_is_killed_continues(call):
    arguments = [*TINY, "--config.method=asgd", "--num_workers=2", "--emulate=0.05", "--workdir=here"]
    arguments += ["--checkpoint_updates=8", "--checkpoint_seconds=0", "--config.evaluations=2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_ENABLE_X64": "true"}
    lightly = jax.config.read("jax_disable_most_optimizations")
    environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(lightly).lower()  # as this process computes
    command = [sys.executable, "-m", "sgdlab", "live", *arguments]
    with open("output", "w") as output:
        server = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    folder, until = pathlib.Path("here/states/run"), time.monotonic() + 120
    while not list(folder.glob("checkpoint-16.npz")):
        assert server.poll() is None, pathlib.Path("output").read_text()
        assert time.monotonic() < until, pathlib.Path("output").read_text()
        time.sleep(0.02)
    server.send_signal(signal.SIGKILL)
    server.wait()
    output = done(call("live", *arguments))
    resumed = re.search(r"Resumed from .*: (\d+) updates", output)
    assert 16 <= int(resumed.group(1)) < GRADIENTS
    assert difference_in(done(call("replay", "--recording=here/recording.npz", "--workdir=again"))) == 0.0
    recording = LiveRecording.load("here/recording.npz")
    used = recording.schedule.used()[:, 0]
    assert recording.schedule.update[used, 0].tolist() == list(range(GRADIENTS))  # nothing skipped or applied twice
    assert recording.ledger()["lost"] == 2  # one of each worker was in flight
