"""Workers that are real processes: what they are told and answer, and how they end."""

import concurrent.futures
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import process_works
import psutil
import pytest

from sgdlab.live.messages import Came, Failed, GaveUp, Joined, Lost
from sgdlab.live.processes import Processes
from sgdlab.live.work import WorkSource

PATIENCE = 120
"""Seconds after which a test fails; nothing here takes as long, however busy the machine is."""

SLOW = 1
"""The worker whose gradients take for ever, each run's first one excepted."""

ENV = {"JAX_ENABLE_X64": "0"}


def made(function="plus", argument=None, *, aux=None, params=None, num_workers=2, **settings):
    like = process_works.params() if params is None else params
    loss = {"loss": jax.ShapeDtypeStruct((), jnp.float32), "stats": [jax.ShapeDtypeStruct((2,), jnp.bfloat16)]}
    source = WorkSource(f"process_works:{function}", argument)
    settings = {"env": ENV, **settings}
    return Processes(source, like, loss if aux is None else aux, num_workers=num_workers, **settings)


def heard(transport, count):
    """The next messages."""
    end, messages = time.monotonic() + PATIENCE, []
    while len(messages) < count:
        assert time.monotonic() < end, f"only {messages} have come"
        messages += transport.next(1.0)
    return messages


def started(transport, *workers):
    """Process numbers of workers, once they have joined."""
    for worker in workers:
        transport.spawn(worker)
    joined = heard(transport, len(workers))
    assert {type(message) for message in joined} == {Joined}, joined
    return {message.worker: message.process for message in joined}


def answered(transport, *workers):
    """Waits until workers have sent something, without hearing it."""
    for worker in workers:
        ready, _, _ = select.select([transport._processes[worker].line.socket], [], [], PATIENCE)
        assert ready


def wait_until_gone(*pids):
    end = time.monotonic() + PATIENCE
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
        assert time.monotonic() < end, f"one of {pids} is left"
        time.sleep(0.01)


def expected(params, ticket):
    return {name: leaf + jnp.asarray(ticket, leaf.dtype) for name, leaf in params.items()}


def assert_equal(found, wanted):
    jax.tree.map(np.testing.assert_array_equal, found, jax.tree.map(np.asarray, wanted))
    assert jax.tree.map(lambda leaf: leaf.dtype, found) == jax.tree.map(lambda leaf: leaf.dtype, wanted)


class Pool:
    """Two workers that tests share; the tickets of a run only grow."""

    def __init__(self, logs):
        self.transport = made(argument={"slow": SLOW}, logs=logs)
        with concurrent.futures.ThreadPoolExecutor(1) as thread:  # its end is not theirs
            self.pids = thread.submit(started, self.transport, 0, SLOW).result()
        self.params = process_works.params()
        self.version = self.transport.publish(self.params)
        self._tickets = 0
        self.begin(SLOW)
        heard(self.transport, 1)

    def ticket(self):
        self._tickets += 1
        return self._tickets

    def begin(self, worker, version=None):
        ticket = self.ticket()
        self.transport.begin(worker, ticket, self.version if version is None else version)
        return ticket


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    pool = Pool(tmp_path_factory.mktemp("logs"))
    yield pool
    pool.transport.close()
    wait_until_gone(*pool.pids.values())


def test_a_gradient_there_and_back(pool):
    other = {name: leaf * 2 for name, leaf in pool.params.items()}
    for version, params in ((pool.version, pool.params), (pool.transport.publish(other), other)):
        ticket = pool.begin(0, version)
        (came,) = heard(pool.transport, 1)
        assert (came.worker, came.ticket) == (0, ticket)
        assert came.seconds > 0
        assert_equal(came.grads, expected(params, ticket))
        assert_equal(came.aux, {"loss": jnp.float32(ticket / 2), "stats": [jnp.full([2], ticket, jnp.bfloat16)]})
    # Not copied: it lies where the worker writes its next one.
    ticket = pool.begin(0)
    heard(pool.transport, 1)
    assert_equal(came.grads, expected(pool.params, ticket))


def test_a_piece_of_memory_is_used_again_for_another_version(pool):
    twice = {name: leaf * 2 for name, leaf in pool.params.items()}
    first = pool.transport.publish(twice)
    pool.transport.release(first)
    pool.transport.release(first)
    versions = [pool.transport.publish(jax.tree.map(lambda leaf: leaf * k, pool.params)) for k in range(3, 9)]  # noqa: B023
    assert len({version.slot for version in versions}) == 6
    for factor, version in zip(range(3, 9), versions, strict=True):
        ticket = pool.begin(0, version)
        (came,) = heard(pool.transport, 1)
        assert_equal(came.grads, expected(jax.tree.map(lambda leaf: leaf * factor, pool.params), ticket))  # noqa: B023
        pool.transport.release(version)


def test_a_gradient_is_given_up_while_it_is_computed(pool):
    ticket = pool.begin(SLOW)
    pool.transport.interrupt(SLOW, ticket - 1)  # of another time: it means nothing
    assert pool.transport.next(0.1) == []
    pool.transport.interrupt(SLOW, ticket)
    (message,) = heard(pool.transport, 1)
    assert message[:2] == (SLOW, ticket)
    assert type(message) is GaveUp
    assert message.seconds < process_works.FOR_EVER


def test_a_gradient_is_given_up_before_it_is_begun(pool):
    first, second = pool.begin(SLOW), pool.begin(SLOW)
    pool.transport.interrupt(SLOW, second)
    assert [(type(message), message.ticket) for message in heard(pool.transport, 2)] == [
        (GaveUp, first),
        (GaveUp, second),
    ]


def test_a_gradient_that_crosses_its_interrupt_is_given_up_too(pool):
    crossing = pool.begin(0)
    answered(pool.transport, 0)
    pool.transport.interrupt(0, crossing)
    ticket = pool.begin(0)
    gave_up, came = heard(pool.transport, 2)
    assert (type(gave_up), gave_up.ticket) == (GaveUp, crossing)
    assert (type(came), came.ticket) == (Came, ticket)
    assert_equal(came.grads, expected(pool.params, ticket))


def test_the_earlier_question_is_answered_first(pool):
    for order in ((0, SLOW), (SLOW, 0)):
        tickets = {worker: pool.begin(worker) for worker in order}
        pool.transport.interrupt(SLOW, tickets[SLOW])
        answered(pool.transport, 0, SLOW)
        assert [message.worker for message in pool.transport.next(None)] == list(order)


def test_an_error_of_the_users_code_costs_one_gradient(pool):
    pool.transport.begin(0, process_works.BAD_TICKET, pool.version)
    (failed,) = heard(pool.transport, 1)
    assert (type(failed), failed.ticket) == (Failed, process_works.BAD_TICKET)
    assert failed.error.startswith(f"ArithmeticError: a mistake of the user ({process_works.__file__}, line ")
    assert failed.error.endswith(': raise ArithmeticError("a mistake of the user"))')
    assert "a mistake of the user" in (pool.transport._logs / "worker_0.log").read_text()
    ticket = pool.begin(0)
    (came,) = heard(pool.transport, 1)
    assert (type(came), came.ticket) == (Came, ticket)


def test_workers_leave_interrupts_of_the_keyboard_to_the_server(pool):
    os.kill(pool.pids[0], signal.SIGINT)
    assert os.getpgid(pool.pids[0]) != os.getpgid(0)  # a terminal sends them to the server's group alone
    pool.begin(0)
    (came,) = heard(pool.transport, 1)
    assert type(came) is Came


def test_workers_open_no_port(pool):
    for pid in pool.pids.values():
        assert psutil.Process(pid).net_connections(kind="inet") == []


def test_a_stopped_worker_does_not_block_the_server(pool):
    os.kill(pool.pids[SLOW], signal.SIGSTOP)
    line = pool.transport._processes[SLOW].line
    while not line.waits:  # until the pipe is full
        pool.transport.interrupt(SLOW, 0)
    ticket = pool.begin(SLOW)
    pool.transport.interrupt(SLOW, ticket)
    other = pool.begin(0)
    (came,) = heard(pool.transport, 1)
    assert (came.worker, came.ticket) == (0, other)
    os.kill(pool.pids[SLOW], signal.SIGCONT)
    (gave_up,) = heard(pool.transport, 1)
    assert (type(gave_up), gave_up.ticket) == (GaveUp, ticket)
    assert not line.waits


def test_a_killed_worker_is_lost_and_its_successor_is_another(pool):
    pool.begin(0)
    answered(pool.transport, 0)
    pid = pool.pids[0]
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)
    came, lost = heard(pool.transport, 2)  # what it had sent is whole
    assert type(came) is Came
    assert_equal(came.grads, expected(pool.params, came.ticket))
    assert lost[:1] == (0,)
    assert lost.error.startswith("killed by SIGKILL; see ")
    assert not psutil.pid_exists(pid)  # not even as a zombie
    pool.begin(0)  # nobody is there, and it has been said already
    pool.transport.interrupt(0, 0)
    assert pool.transport.next(0.0) == []

    pool.pids |= started(pool.transport, 0)
    assert pool.pids[0] != pid
    ticket = pool.begin(0)
    answered(pool.transport, 0)
    pool.transport.kill(0)  # with an answer that is not heard
    pool.pids |= started(pool.transport, 0)
    later = pool.begin(0)
    (came,) = heard(pool.transport, 1)
    assert (type(came), came.ticket) == (Came, later)
    assert_equal(came.grads, expected(pool.params, later))
    assert ticket < later


def test_a_process_serves_one_run_after_the_other(pool):
    transport = pool.transport
    transport.begin(0, 10**6, pool.version)
    answered(transport, 0)  # not heard
    transport.begin(0, 10**6 + 1, pool.version)
    transport.begin(SLOW, 10**6 + 2, pool.version)  # not ended
    assert started(transport, 0, SLOW) == pool.pids  # the same processes
    for worker, ticket in ((0, 0), (SLOW, 1)):  # the first of this run is not slow
        transport.begin(worker, ticket, pool.version)
        (came,) = heard(transport, 1)
        assert (type(came), came.worker, came.ticket) == (Came, worker, ticket)
        assert_equal(came.grads, expected(pool.params, ticket))
    assert transport.next(0.0) == []

    transport.spawn(0)
    os.kill(pool.pids[0], signal.SIGKILL)
    joined, lost = heard(transport, 2)
    assert (joined, type(lost)) == (Joined(0, pool.pids[0], joined.host), Lost)
    pool.pids |= started(transport, 0)
    os.kill(pool.pids[0], signal.SIGKILL)
    os.waitid(os.P_PID, pool.pids[0], os.WEXITED | os.WNOWAIT)
    new = started(transport, 0)  # it has died between two runs, and nobody has been told
    assert new != {0: pool.pids[0]}
    pool.pids |= new


def test_an_impossible_worker_is_refused(pool):
    with pytest.raises(ValueError, match="worker=2 must be from 0 to 1"):
        pool.transport.spawn(2)


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
        pids = started(transport, 0)
        transport.begin(0, 0, transport.publish(process_works.params()))
        (failed,) = heard(transport, 1)
        assert failed.error.startswith("LookupError: loaded: [], False (")  # and it has this process's settings
        assert 'raise LookupError(f"loaded: {loaded}, {jax.config.jax_enable_x64}")' in failed.error
        with pytest.raises(KeyError, match="an error of the server"), transport:
            raise KeyError("an error of the server")
        wait_until_gone(*pids.values())
    transport.close()  # a third time


SERVER = """
import sys
sys.path[:] = {path!r}
import test_processes
transport = test_processes.made(argument={{"slow": 0}}, num_workers=3)
pids = test_processes.started(transport, 0)
version = transport.publish(test_processes.process_works.params())
transport.begin(0, 1, version)
test_processes.heard(transport, 1)
transport.begin(0, 2, version)
pids |= {{2: test_processes.started(transport, 2)[2]}} if {linux} else {{}}
transport.spawn(1)
print(*pids.values(), transport._processes[1].child.pid, flush=True)
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
