"""The commands over two processes: the same files as from one, stopped by a signal, and continued."""

import os
import pathlib
import signal
import sys

import pytest
import records
from processes import Processes, free_port, until

ROOT = pathlib.Path(__file__).parents[2]
TINY = (
    "--config.evaluations=8",
    "--config.network.kind=mlp",
    "--config.network.mlp.widths=(8,)",
    "--config.batch_size=32",
    "--config.mode=wave",
)


def over_two(module, *arguments):
    """The command lines of two processes."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", f"experiments.{module}", *TINY, *arguments, "--num_processes=2"]
    return [[*command, f"--hosts={address}", f"--process_id={i}"] for i in range(2)]


def printed(log):
    """Return what a process has printed, less what gloo does."""
    return [line for line in log.splitlines() if line and not line.startswith("[Gloo]")]


@pytest.mark.full
def test_a_run_is_stopped_by_a_signal_to_one_process_and_continued(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    one = [sys.executable, "-m", "experiments.main", *TINY, "--config.epochs=4.0", f"--workdir={tmp_path}/one"]
    two = over_two("main", "--config.epochs=4.0", f"--workdir={tmp_path}/two")
    with Processes(tmp_path, [*two, one]) as processes:
        for seen, signalled in ((2, 2), (0, 1)):  # the run of one process first, which would be over soon
            processes.wait_for(" of 176 gradients", seen)
            os.killpg(processes.children[signalled].pid, signal.SIGTERM)
        codes = processes.codes(allowed=(75,))
        assert codes == [75, 75, 75], processes.output()
        for index in (0, 2):
            assert "of 176 gradients; the same command continues" in processes.log(index)
        assert not [line for line in printed(processes.log(1)) if "of 176" in line]
    assert not (tmp_path / "two" / "config.json").exists()  # the directory belongs to nobody yet
    with Processes(tmp_path, [*over_two("main", "--config.epochs=4.0", f"--workdir={tmp_path}/two"), one]) as processes:
        assert processes.codes() == [0, 0, 0], processes.output()
        for index in (0, 2):
            assert "Continued from checkpoint" in processes.log(index)
        assert printed(processes.log(1)) == []
    records.same(records.read(tmp_path / "one"), records.read(tmp_path / "two"))
    files = {path.name for path in (tmp_path / "two").iterdir()}
    assert files == {"config.json", "metrics", "parameters.npz", "plots", "schedule.npz"}
    with Processes(tmp_path, over_two("main", "--config.epochs=4.0", f"--workdir={tmp_path}/two")) as processes:
        assert processes.codes() == [0, 0], processes.output()
        assert "holds this run already" in processes.log(0)


@pytest.mark.full
def test_a_host_that_is_gone_for_good_is_left_out_and_the_run_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    """The other two are supervised, and find each other anew."""
    monkeypatch.chdir(ROOT)
    command = [sys.executable, "-m", "experiments.main", *TINY, "--config.epochs=4.0"]
    given = f"--hosts=127.0.0.1:{free_port()}", "--num_processes=2:3", "--start_seconds=20", "--checkpoint_seconds=0"
    three = [[*command, *given, f"--workdir={tmp_path}/three", f"--process_id={index}"] for index in range(3)]
    supervised = [[str(ROOT / "scripts" / "supervise"), "--wait=0", *each] for each in (three[0], three[2])]
    with Processes(tmp_path, [supervised[0], three[1], supervised[1]]) as processes:
        processes.wait_for(" of 176 gradients", 0)
        until(lambda: list(tmp_path.glob("three/states/run/[1-9]*[0-9]")))
        os.killpg(processes.children[1].pid, signal.SIGKILL)
        codes = processes.codes(allowed=(0, -signal.SIGKILL))
        assert codes == [0, -signal.SIGKILL, 0], processes.output()
        for index in (0, 2):
            assert "ended without a message (killed?)" in processes.log(index)
            assert "starting again in 0 s (restart 1 of 10)" in processes.log(index)
        assert "1 did not come; going on without; --process_id=2 is process 1" in processes.log(0)
        assert "Continued from checkpoint" in processes.log(0)
    with Processes(tmp_path, [[*command, f"--workdir={tmp_path}/one"]]) as processes:
        assert processes.codes() == [0], processes.output()
    records.same(records.read(tmp_path / "one"), records.read(tmp_path / "three"))


@pytest.mark.full
def test_a_comparison_is_run_over_two_processes(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    given = (
        "--methods=all_reduce",
        "--num_workers=2",
        "--seeds=1",
        "--config.epochs=0.5",
        f"--workdir={tmp_path}/runs",
    )
    with Processes(tmp_path, over_two("compare", *given)) as processes:
        assert processes.codes() == [0, 0], processes.output()
        assert "[2/2]" in processes.log(0)
        assert printed(processes.log(1)) == []
    assert (tmp_path / "runs" / "report.html").exists()
    names = {path.stem.rpartition("-")[0] for path in (tmp_path / "runs" / "metrics").glob("*.jsonl")}
    assert names == {"nag_asgd-n1-seed0", "all_reduce-n2-seed0"}


@pytest.mark.full
def test_processes_of_different_configurations_refuse_to_begin(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    commands = over_two("main", f"--workdir={tmp_path}/runs")
    commands[1].append("--config.optimizer.learning_rate=0.3")
    # Both prove the same secret, of which one is told by a flag.
    secrets = [tmp_path / "a", tmp_path / "b"]
    for secret, end in zip(secrets, ("", "\n"), strict=True):
        secret.write_text(f"0123456789abcdef{end}")
    commands[0].append(f"--hosts_secret_file={secrets[0]}")
    environment = [{}, {"SGDLAB_HOSTS_SECRET_FILE": str(secrets[1])}]
    with Processes(tmp_path, commands, environment=environment) as processes:
        assert processes.codes(allowed=()) == [2, 2], processes.output()
        for index in range(2):
            (line,) = printed(processes.log(index))
            assert "--config.optimizer.learning_rate is 0.0125 for process 0" in line
            assert "and 0.3 for process 1" in line
    assert not (tmp_path / "runs").exists()
