"""Workers that are processes of this machine: memory, signals, and ends; `test_transports.py` has what all do."""

import concurrent.futures
import ctypes
import math
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
import types

import jax
import jax.numpy as jnp
import process_works
import psutil
import pytest
from pools import PATIENCE, SLOW, Pool, assert_answers, heard, made, wait_until_gone

from sgdlab.live import processes
from sgdlab.live.messages import Came, GaveUp, Joined, Lost


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    with made(argument={"slow": SLOW}, logs=tmp_path_factory.mktemp("logs")) as transport:
        pool = Pool(transport)
        with concurrent.futures.ThreadPoolExecutor(1) as thread:  # its end is not theirs
            thread.submit(pool.ready, 0, SLOW).result()
        pool.begin(SLOW)
        pool.heard(1)
        yield pool
    wait_until_gone(*pool.processes.values())


def test_a_gradient_lies_where_its_worker_writes_the_next_one(pool):
    pool.begin(0)
    (came,) = pool.heard(1)
    ticket = pool.begin(0)
    pool.heard(1)
    assert_answers(came._replace(ticket=ticket), pool.params, ticket)


def test_workers_leave_interrupts_of_the_keyboard_to_the_server(pool):
    os.kill(pool.processes[0], signal.SIGINT)
    assert os.getpgid(pool.processes[0]) != os.getpgid(0)  # a terminal sends them to the server's group alone
    pool.begin(0)
    (came,) = pool.heard(1)
    assert type(came) is Came


def test_workers_open_no_port(pool):
    for pid in pool.processes.values():
        assert psutil.Process(pid).net_connections(kind="inet") == []


def test_a_stopped_worker_does_not_block_the_server(pool):
    os.kill(pool.processes[SLOW], signal.SIGSTOP)
    line = pool.transport._workers[SLOW].line
    while not line.waits:  # until the pipe is full
        pool.transport.interrupt(SLOW, 0)
    ticket = pool.begin(SLOW)
    pool.transport.interrupt(SLOW, ticket)
    other = pool.begin(0)
    (came,) = pool.heard(1)
    assert (came.worker, came.ticket) == (0, other)
    os.kill(pool.processes[SLOW], signal.SIGCONT)
    (gave_up,) = pool.heard(1)
    assert (type(gave_up), gave_up.ticket) == (GaveUp, ticket)
    assert not line.waits


class Ending(processes.Processes):
    """Two workers that are sockets alone; what comes of one ends the other, in whose place another may begin."""

    def __init__(self, again):
        self._said, self._dying, self._spare_at, self._again = [], [], math.inf, again  # no spares
        self._selector, self._workers, self.open = selectors.DefaultSelector(), {}, []
        for worker in range(2):
            self.begun(worker)

    def begun(self, worker):
        ours, theirs = socket.socketpair()
        theirs.send(b"x")
        self.open += [ours, theirs]
        self._workers[worker] = types.SimpleNamespace(
            line=types.SimpleNamespace(socket=ours, waits=False), is_watched=False, joined=None
        )
        self._selector.register(ours, selectors.EVENT_READ, worker)

    def _heard(self, worker):
        self._selector.unregister(self._workers.pop(1 - worker).line.socket)
        if self._again:
            self.begun(1 - worker)
        return [(0, Lost(worker, "heard"))]


@pytest.mark.parametrize("again", [False, True])
def test_an_event_of_a_worker_that_an_event_of_the_same_instant_has_ended_is_passed_over(again):
    transport = Ending(again)
    assert len(transport.next(PATIENCE)) == 1
    for each in (transport._selector, *transport.open):
        each.close()


def test_what_a_killed_worker_had_sent_is_whole(pool):
    ticket, pid = pool.begin(0), pool.processes[0]
    pool.answered(0)
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)
    came, lost = pool.heard(2)
    assert_answers(came, pool.params, ticket)
    assert (type(lost), lost.worker) == (Lost, 0)
    assert not psutil.pid_exists(pid)  # not even as a zombie
    pool.ready(0)
    pool.begin(0)
    pool.answered(0)
    pool.transport.kill(0)  # with an answer that is not heard
    pool.ready(0)
    ticket = pool.begin(0)
    (came,) = pool.heard(1)
    assert_answers(came, pool.params, ticket)


@pytest.mark.full
def test_a_process_that_dies_between_two_runs(pool):
    pool.transport.spawn(0)
    os.kill(pool.processes[0], signal.SIGKILL)
    joined, lost = pool.heard(2)
    assert (joined, type(lost)) == (Joined(0, pool.processes[0], joined.host), Lost)
    pool.ready(0)
    before = pool.processes[0]
    os.kill(before, signal.SIGKILL)
    os.waitid(os.P_PID, before, os.WEXITED | os.WNOWAIT)
    pool.ready(0)  # and nobody has been told
    assert pool.processes[0] != before


@pytest.mark.full
def test_an_event_of_a_worker_that_is_gone_by_then_is_passed_over(pool, monkeypatch):
    transport, heard_of = pool.transport, pool.transport._heard

    def kill_the_other(worker):
        transport.kill(1 - worker)
        return heard_of(worker)

    transport.kill(SLOW)  # the first gradient of the next one takes no longer than others
    pool.ready(SLOW)
    tickets = {worker: pool.begin(worker) for worker in (0, SLOW)}
    pool.answered(0, SLOW)
    with monkeypatch.context() as patched:
        patched.setattr(transport, "_heard", kill_the_other)
        (came,) = transport.next(PATIENCE)
    assert came.ticket == tickets[came.worker]
    assert transport.next(0.0) == []
    pool.ready(1 - came.worker)


def test_workers_that_cannot_start_say_why(tmp_path):
    wrong = process_works.params() | {"matrix": jnp.zeros([2, 4], jnp.float32)}
    cases = {
        "OSError: no data here": made("raising", "no data here"),
        "['params']['matrix'] is float32[2, 3] in the worker and float32[2, 4] in the server": made(
            argument={}, params=wrong
        ),
        "exit code 3 before its first gradient: last words": made("dying", "last words", logs=tmp_path),
    }
    try:
        for transport in cases.values():
            transport.spawn(0)
        for words, transport in cases.items():
            (lost,) = heard(transport, 1)
            assert type(lost) is Lost
            assert words in lost.error
    finally:
        for transport in cases.values():
            transport.close()


def test_a_worker_loads_nothing_that_it_does_not_need():
    heavy = ["numpyro", "orbax", "matplotlib", "pandas", "scipy", "sklearn", "pyarrow", "sgdlab.live.server"]
    jax.config.update("jax_enable_x64", False)
    with made("naming_heavy_modules", heavy, env={}) as transport:
        pool = Pool(transport)
        pool.ready(0)
        pool.begin(0)
        (failed,) = pool.heard(1)
        assert failed.error.startswith("LookupError: loaded: [], False (")  # and it has this process's settings
        assert 'raise LookupError(f"loaded: {loaded}, {jax.config.jax_enable_x64}")' in failed.error
        with pytest.raises(KeyError, match="an error of the server"), transport:
            raise KeyError("an error of the server")
        wait_until_gone(*pool.processes.values())
    transport.close()  # a third time


def with_spare(transport):
    """The process number of the spare of a transport, which is there soon after a worker."""
    end = time.monotonic() + PATIENCE
    while not transport._spares:
        assert transport.next(0.01) == []
        assert time.monotonic() < end
    return transport._spares[0].child.pid


@pytest.mark.full
@pytest.mark.long("workers and a spare are processes")
def test_a_spare_takes_the_place_of_a_worker_that_is_lost(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "_SPARE_AFTER", 0.0)
    with made(argument={"prints": "it is worker"}, logs=tmp_path) as transport:
        pool = Pool(transport)
        pool.ready(1)
        spare = with_spare(transport)
        os.kill(pool.processes[1], signal.SIGKILL)
        assert type(pool.heard(1)[0]) is Lost
        pool.ready(1)
        assert pool.processes[1] == spare
        ticket = pool.begin(1)
        (came,) = pool.heard(1)
        assert_answers(came, pool.params, ticket)
        # What it prints is where its predecessor has printed.
        assert "it is worker 1" in (tmp_path / "worker_1.log").read_text()
        dead = with_spare(transport)
        os.kill(dead, signal.SIGKILL)
        os.waitid(os.P_PID, dead, os.WEXITED | os.WNOWAIT)
        pool.ready(0)  # not by the one that is dead
        assert pool.processes[0] != dead
        left = with_spare(transport)
    wait_until_gone(left, *pool.processes.values())


def open_files():
    return len(os.listdir("/dev/fd"))


def test_too_few_open_files_are_refused_before_anything_starts(monkeypatch):
    allowed = open_files() + 2 * 300
    monkeypatch.setattr(resource, "getrlimit", lambda which: (allowed, 1 << 20))
    words = r"^num_workers=300 need [\d,]+ open files, and `ulimit -n` allows [\d,]+: set `ulimit -n \d+`, or"
    with pytest.raises(ValueError, match=words):
        made(argument={}, num_workers=300)
    made(argument={}, num_workers=250).close()


def test_no_spare_is_started_where_none_is_wanted(monkeypatch):
    monkeypatch.setattr(processes, "_SPARE_AFTER", 0.0)
    with pytest.raises(ValueError, match=r"^spares=-1 must be"):
        made(argument={}, spares=-1)
    with made(argument={}, spares=0) as transport:
        pool, before = Pool(transport), open_files()
        pool.ready(0)
        assert open_files() - before == processes._FILES
        assert transport.next(0.0) == []
        assert not transport._spares


SERVER = """
import sys
sys.path[:] = {path!r}
import pools
pool = pools.Pool(pools.made(argument={{"slow": 0}}, num_workers=3))
pool.ready(0)
pool.begin(0)
pool.heard(1)
pool.begin(0)
if {linux}:
    pool.ready(2)
pool.transport.spawn(1)
print(*pool.processes.values(), pool.transport._workers[1].child.pid, flush=True)
input()
"""


@pytest.fixture
def inherits():
    """Linux gives this process the children of a child that has ended, as it gives them to a container's shell.

    Else it would wake a stopped one and hang up on it, by itself.
    """
    inherit = ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *values: None
    inherit(36, 1)  # PR_SET_CHILD_SUBREAPER
    yield
    inherit(36, 0)


@pytest.mark.long("a server and its workers are processes")
@pytest.mark.usefixtures("inherits")
def test_workers_end_with_a_server_that_is_killed():
    # One of them computes for ever, a second is stopped, and a third has only just been started.
    linux = sys.platform == "linux"
    command = [sys.executable, "-c", SERVER.format(path=sys.path, linux=linux)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        pids = list(map(int, server.stdout.readline().split()))
        assert len(pids) == 2 + linux
        assert all(psutil.pid_exists(pid) for pid in pids)
        if linux:
            os.kill(pids[1], signal.SIGSTOP)
        server.kill()
        wait_until_gone(*pids)
    for pid in pids if linux else ():
        os.waitpid(pid, 0)


def test_a_process_that_cannot_be_started_is_a_lost_worker(monkeypatch):
    def refuse(*arguments, **settings):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with made(argument={}) as transport:
        files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
        transport.spawn(1)
        transport.spawn(0)
        transport.kill(0)  # so that nothing is heard of it
        (lost,) = transport.next(None)
        assert lost == Lost(1, "its process could not be started: [Errno 11] Resource temporarily unavailable")
        if files is not None:
            assert len(os.listdir("/proc/self/fd")) == files
