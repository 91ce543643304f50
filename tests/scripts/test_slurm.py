"""`scripts/slurm/`: what srun is given, and which ends put a job back into the queue."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from fakes import SCRIPTS, Cluster, answer, until

OPTIONS = {
    "job-name", "nodes", "ntasks", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "time", "output", "open-mode",
    "signal", "requeue", "array", "no-kill",
}  # fmt: skip
SRUN = """
count = int(os.environ["SLURM_NTASKS"])
command = [argument for argument in arguments if not argument.startswith(("--kill", "--wait", "--cpus", "--no-kill"))]
os.environ["SRUN"] = str(os.getpid())
tasks = [subprocess.Popen(command, env=os.environ | {"SLURM_PROCID": str(index)}) for index in range(count)]
codes = [task.wait() for task in tasks]
sys.exit(max(code if code >= 0 else 128 - code for code in codes))
"""
TASK = """
import json, os, sys
print(json.dumps([os.environ["SLURM_PROCID"], *sys.argv[1:]]), flush=True)
how = os.environ.get("ENDS", "0 0").split()[int(os.environ["SLURM_PROCID"])]
if how == "KILL":
    os.kill(os.getpid(), 9)
sys.exit(int(how))
"""
HOSTS = {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "1", "SLURM_CPUS_PER_TASK": "4"}
SWEEP = {
    "SLURM_JOB_ID": "78", "SLURM_NTASKS": "1", "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8",
    "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_MAX": "7",
}  # fmt: skip


@pytest.fixture(name="cluster")
def slurm(tmp_path):
    cluster = Cluster(tmp_path / "bin")
    cluster.add("srun", SRUN)
    cluster.add("scontrol")
    cluster.add("sleep")  # the scripts wait for Slurm to end them
    return cluster


def run(cluster, script, *command, **environment):
    """Runs a batch script, as Slurm does on the first host."""
    return answer("bash", SCRIPTS / "slurm" / script, *command, env=cluster.environment | environment)


def task(*arguments):
    return (sys.executable, "-I", "-c", TASK, *arguments)


def requeued(cluster):
    return cluster.calls("scontrol")


@pytest.mark.parametrize("script", ["hosts.sbatch", "sweep.sbatch", "joined.sbatch"])
def test_options_are_slurms_and_stand_before_the_first_command(script):
    lines = (SCRIPTS / "slurm" / script).read_text().splitlines()
    first = next(index for index, line in enumerate(lines) if line and not line.startswith("#"))
    given = [line.removeprefix("#SBATCH --").partition("=")[0] for line in lines if line.startswith("#SBATCH")]
    assert given == [line[10:].partition("=")[0] for line in lines[:first] if line.startswith("#SBATCH --")]
    assert set(given) <= OPTIONS
    assert {"requeue", "signal", "open-mode", "time"} <= set(given)
    # To the tasks, or to the script, which passes it on to the server alone.
    assert f"#SBATCH --signal={'B:' * (script == 'joined.sbatch')}TERM@120" in lines


def test_every_task_runs_the_command_over_hosts(cluster):
    ended = run(cluster, "hosts.sbatch", *task("train", "--workdir=a b"), **HOSTS)
    assert ended.returncode == 0, ended.stderr
    expected = [f'["{index}", "train", "--workdir=a b", "--hosts=auto"]' for index in (0, 1)]
    assert sorted(ended.stdout.splitlines()) == expected
    (call,) = cluster.calls("srun")
    assert call[:3] == ["--kill-on-bad-exit=0", "--wait=150", "--cpus-per-task=4"]
    assert requeued(cluster) == []


@pytest.mark.parametrize(
    ("ends", "code", "again"),
    [
        ("75 75", 75, True),
        ("KILL 69", 137, True),
        ("69 134", 134, True),
        ("1 1", 1, False),
        ("2 2", 2, False),
        ("0 0", 0, False),
    ],
)
def test_a_stopped_run_and_a_lost_host_are_queued_again(cluster, ends, code, again):
    ended = run(cluster, "hosts.sbatch", *task(), ENDS=ends, **HOSTS)
    assert ended.returncode == code
    assert requeued(cluster) == [["requeue", "77"]] * again
    assert ("queued again" in ended.stderr) == again


def test_restarts_have_a_limit(cluster):
    for count, again in (("1", True), ("2", False)):
        ended = run(
            cluster, "hosts.sbatch", *task(), ENDS="69 69", SLURM_RESTART_COUNT=count, MAX_RESTARTS="2", **HOSTS
        )
        assert ended.returncode == 69
        assert ("given up" in ended.stderr) == (not again)
    assert requeued(cluster) == [["requeue", "77"]]  # the first time


def test_a_cancelled_job_is_not_queued_again(cluster, tmp_path):
    """Slurm signals the script as well then. Its tasks stop with a checkpoint all the same."""
    started, go = tmp_path / "started", tmp_path / "go"
    program = f"import os, sys, time\nopen({str(started)!r}, 'w').close()\n"
    program += f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\nsys.exit(75)"
    script = subprocess.Popen(
        ["bash", SCRIPTS / "slurm" / "hosts.sbatch", sys.executable, "-I", "-c", program],
        env=cluster.environment | HOSTS, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(started.exists)
    script.send_signal(signal.SIGTERM)
    go.touch()
    _, errors = script.communicate(timeout=60)
    assert (script.returncode, errors) == (75, "")
    assert requeued(cluster) == []


def test_tasks_are_one_for_each_gpu(cluster):
    ended = run(cluster, "hosts.sbatch", *task(), SLURM_GPUS_ON_NODE="4", **HOSTS)
    assert ended.returncode == 2
    assert "--ntasks-per-node=1 must be 4" in ended.stderr
    assert cluster.calls("srun") == []


def test_a_task_of_an_array_does_its_share(cluster):
    ended = run(cluster, "sweep.sbatch", *task("compare", "--methods=all"), **SWEEP)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == '["0", "compare", "--methods=all", "--shard=3/8"]'


@pytest.mark.parametrize(("code", "again"), [(75, True), (143, True), (1, False), (2, False), (0, False)])
def test_a_stopped_task_of_an_array_is_queued_again(cluster, code, again):
    ended = run(cluster, "sweep.sbatch", *task(), ENDS=str(code), **SWEEP)
    assert ended.returncode == code
    assert requeued(cluster) == [["requeue", "78"]] * again


@pytest.mark.parametrize(
    ("first", "last", "count", "right"),
    [
        ("0", "7", "8", True),
        ("1", "8", "8", True),
        ("2", "9", "8", False),
        ("0", "14", "8", False),
        ("3", "3", "1", False),
    ],
)
def test_shares_have_no_gaps(cluster, first, last, count, right):
    array = {"SLURM_ARRAY_TASK_MIN": first, "SLURM_ARRAY_TASK_MAX": last, "SLURM_ARRAY_TASK_COUNT": count}
    ended = run(cluster, "sweep.sbatch", *task(), **SWEEP | array)
    assert ended.returncode == (0 if right else 2)
    assert len(cluster.calls("srun")) == right
    assert right or f"--array with {count} tasks from {first} to {last} must be" in ended.stderr


@pytest.mark.parametrize("script", ["hosts.sbatch", "sweep.sbatch"])
def test_wrong_usage(cluster, script):
    ended = run(cluster, script, **HOSTS)
    assert ended.returncode == 2
    assert re.match(rf"usage: sbatch .*{script} COMMAND", ended.stderr)


LIVE = """
import time
if any(argument.startswith("--join=") for argument in arguments):
    while os.getppid() == int(os.environ["SRUN"]):  # which ends its tasks when it is ended
        time.sleep(0.01)
    sys.exit(0)
calls = lambda flag: pathlib.Path(os.environ["CALLS"]).read_text().count('["sgdlab", "live", "--' + flag)
while calls("join") < 2 * calls("num_workers"):
    time.sleep(0.01)
sys.exit(int(os.environ["ENDS"]))
"""


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
class TestJoined:
    def test_an_end_that_can_continue_is_queued_again_and_ends_the_workers(self, cluster, tmp_path):
        cluster.add("sgdlab", LIVE)
        for ends, again in (
            ("75", [["requeue", "77"]]),
            ("69", [["requeue", "77"]] * 2),
            ("1", [["requeue", "77"]] * 2),
        ):
            ended = run(cluster, "joined.sbatch", "sgdlab", "live", "--num_workers=2", ENDS=ends, **HOSTS)
            assert (ended.returncode, requeued(cluster)) == (int(ends), again), ended.stderr
        for call in cluster.calls("sgdlab"):
            kinds = [argument.partition("=")[0] for argument in call]
            server = ["live", "--num_workers", "--listen", "--certificate", "--key"]
            assert kinds in (server, ["live", "--join", "--certificate"])

    def test_wrong_usage(self, cluster):
        ended = run(cluster, "joined.sbatch", "sgdlab", **HOSTS)
        assert ended.returncode == 2
        assert ended.stderr.startswith("usage: sbatch --ntasks=WORKERS")

    @pytest.mark.full
    def test_a_run_by_tls_leaves_nothing_but_its_results(self, cluster, tmp_path, monkeypatch):
        pytest.importorskip("grpc")
        monkeypatch.chdir(tmp_path)
        cluster.add("sgdlab", f"os.execv({sys.executable!r}, [{sys.executable!r}, '-m', 'sgdlab', *arguments])")
        small = [
            "--config.epochs=1.0",
            "--config.network.kind=mlp",
            "--config.network.mlp.widths=(8,)",
            "--workdir=run",
        ]
        command = ["sgdlab", "live", "--config.method=backup_workers", "--num_workers=2", *small]
        paths = {"PYTHONPATH": os.pathsep.join([str(SCRIPTS.parent), *sys.path])}
        with socket.create_server(("", 0)) as free:
            paths["PORT"] = str(free.getsockname()[1])
        script = ["bash", SCRIPTS / "slurm" / "joined.sbatch", *command]
        ended = subprocess.run(
            script, env=cluster.environment | HOSTS | paths, capture_output=True, text=True, timeout=300, check=False
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.count("The run has ended.") == 2
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "run"]
        assert (tmp_path / "run/recording.npz").exists()
