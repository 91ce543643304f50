"""The head of a Ray cluster is lost: a line and exit code 69, soon, whether or not Ray holds the main thread up."""

import errno
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest

from sgdlab.errors import HostLost
from sgdlab.live import ray_cluster
from sgdlab.live.ray_cluster import Head


@pytest.fixture(name="quick")
def shorter_times(monkeypatch):
    for name, seconds in (("SECONDS", 0.6), ("GRACE", 0.2), ("_INTERVAL", 0.02), ("_TIMEOUT", 0.1)):
        monkeypatch.setattr(ray_cluster, name, seconds)


@pytest.fixture(name="listener")
def somebody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def watched(listener):
    """The watch over a head, and the exit codes with which it has ended this process."""
    codes, ended = [], threading.Event()

    def end(code):
        codes.append(code)
        ended.set()

    return Head(f"127.0.0.1:{listener.getsockname()[1]}", end=end), codes, ended


def until_lost(head, seconds=30.0):
    ends = time.monotonic() + seconds
    while not head.lost:
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_head_that_answers_is_there(quick, listener):
    head, codes, _ = watched(listener)
    time.sleep(1.5)
    head.check()
    head.close()
    assert codes == []


def test_one_that_does_not_answer_is_lost_and_the_process_ends_where_nobody_ends_it(quick, listener, capsys):
    head, codes, ended = watched(listener)
    listener.close()
    until_lost(head)
    with pytest.raises(
        HostLost, match=r"^the head of the Ray cluster, 127\.0\.0\.1:\d+, has not answered for 0\.6 s; "
    ):
        head.check()
    assert ended.wait(30.0)
    assert codes == [69]
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"error: {head.lost}"


def test_where_the_main_thread_closes_it_in_time_the_process_goes_on(quick, listener, monkeypatch):
    monkeypatch.setattr(ray_cluster, "GRACE", 30.0)
    head, codes, ended = watched(listener)
    listener.close()
    until_lost(head)
    head.close()
    assert not ended.wait(0.3)
    assert codes == []


def test_a_lack_of_descriptors_here_is_no_loss_there(quick, listener, monkeypatch):
    def full(*where, **given):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "create_connection", full)
    head, codes, _ = watched(listener)
    time.sleep(1.0)
    head.check()
    head.close()
    assert codes == []


def test_it_takes_less_than_20_seconds():
    """The longest chain: just answered, an interval, attempts that time out, and the main thread held up."""
    slowest = ray_cluster.SECONDS + ray_cluster._INTERVAL + 2 * ray_cluster._TIMEOUT + ray_cluster.GRACE
    assert slowest <= 20


@pytest.mark.integrations
@pytest.mark.long("a cluster of Ray is started, and lost")
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")
def test_a_run_ends_with_69_when_its_head_is_killed(tmp_path):
    flags = "--transport=ray", "--num_workers=1", "--config.network.kind=mlp", "--config.network.mlp.widths=(8,)"
    command = [sys.executable, "-m", "sgdlab", "live", *flags, f"--workdir={tmp_path}/run"]
    log = tmp_path / "run" / "states" / "run" / "log.jsonl"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "--emulate=0.1"], **pipes) as run:
        ends = time.monotonic() + 180
        while not (log.exists() and log.stat().st_size > 1000):
            assert time.monotonic() < ends
            assert run.poll() is None, run.stderr.read()
            time.sleep(0.1)
        children = psutil.Process(run.pid).children(recursive=True)
        (head,) = [each for each in children if each.name().startswith("gcs_server")]
        head.kill()
        begun = time.monotonic()
        _, errors = run.communicate(timeout=60)
    assert time.monotonic() - begun < 20
    assert run.returncode == 69, errors
    (line,) = (line for line in errors.splitlines() if line.startswith("error: "))
    assert "the head of the Ray cluster, 127.0.0.1:" in line
    psutil.wait_procs(children, 30)
    assert [each for each in children if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []
