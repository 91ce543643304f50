"""Workers that are actors of Ray, on a cluster of this machine: the same calls and messages as of other processes."""

import importlib.util
import os
import pathlib
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
import ray_works

from sgdlab.live import ray as transports
from sgdlab.live.messages import Came, Failed, GaveUp, Joined, Lost
from sgdlab.live.ray import Ray
from sgdlab.live.work import WorkSource

# Found, not imported: `Ray` imports it, with the settings that keep its ports on loopback.
pytestmark = [
    pytest.mark.integrations,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray"),
]

PATIENCE = 120
"""Seconds after which a test fails; nothing here takes as long, however busy the machine is."""

SLOW = 1
"""The worker whose gradients take for ever."""


class Pool:
    """Two workers that tests share."""

    def __init__(self, logs):
        self.params = process_works.params()
        loss = {"loss": jax.ShapeDtypeStruct((), jnp.float32), "stats": [jax.ShapeDtypeStruct((2,), jnp.bfloat16)]}
        source = WorkSource("ray_works:plus", {"slow": SLOW})
        self.transport = Ray(source, self.params, loss, num_workers=2, env={"JAX_ENABLE_X64": "0"}, logs=logs)
        self.processes, self.tickets = {}, 0
        self.version = self.transport.publish(self.params)

    def ready(self, *workers):
        """Sees that workers are there, and free."""
        for worker in workers:
            self.transport.spawn(worker)
        joined = self.heard(len(workers))
        assert {type(message) for message in joined} == {Joined}, joined
        self.processes |= {message.worker: message.process for message in joined}

    def begin(self, worker, version=None):
        self.tickets += 1
        self.transport.begin(worker, self.tickets, self.version if version is None else version)
        return self.tickets

    def heard(self, count):
        end, messages = time.monotonic() + PATIENCE, []
        while len(messages) < count:
            assert time.monotonic() < end, f"only {messages} have come"
            messages += self.transport.next(1.0)
        return messages

    def answered(self, ticket):
        """Waits until a gradient's answer has come, without hearing it."""
        (reference,) = [each for each, call in self.transport._calls.items() if call.ticket == ticket]
        ray = self.transport._ray
        assert ray.wait([reference], timeout=PATIENCE)[0]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    handler = signal.getsignal(signal.SIGTERM)
    pool = Pool(tmp_path_factory.mktemp("logs"))
    assert signal.getsignal(signal.SIGTERM) is handler
    pool.ready(0, SLOW)
    yield pool
    pool.transport.close()
    started = pool.transport._cluster.processes
    assert {process.pid for process in started} >= set(pool.processes.values())
    assert [process for process in started if process.is_running()] == []
    assert not pathlib.Path(pool.transport._cluster._folder).exists()


@pytest.fixture
def pool(alone):
    alone.ready(0, SLOW)
    yield alone
    assert alone.transport.next(0) == []


def wait_until_gone(process):
    end = time.monotonic() + PATIENCE
    while psutil.pid_exists(process) and psutil.Process(process).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.01)


def assert_equal(found, wanted):
    jax.tree.map(np.testing.assert_array_equal, found, jax.tree.map(np.asarray, wanted))
    assert jax.tree.map(lambda leaf: leaf.dtype, found) == jax.tree.map(lambda leaf: leaf.dtype, wanted)


def test_no_port_can_be_reached_from_other_machines(pool):
    addresses = set()
    for process in [psutil.Process(), *pool.transport._cluster.processes]:
        if process.is_running():
            listening = [each for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN]
            addresses |= {each.laddr.ip.removeprefix("::ffff:") for each in listening}
    # Workers listen too, and are among the processes.
    assert {process.pid for process in pool.transport._cluster.processes} >= set(pool.processes.values())
    assert addresses == {"127.0.0.1"}


@pytest.mark.parametrize("inline", [0, transports.INLINE])
def test_a_gradient_there_and_back(pool, monkeypatch, inline):
    monkeypatch.setattr(transports, "INLINE", inline)
    for factor in (1, 2):
        params = {name: leaf * factor for name, leaf in pool.params.items()}
        version = pool.transport.publish(params)
        ticket = pool.begin(0, version)
        (came,) = pool.heard(1)
        pool.transport.release(version)
        assert type(came) is Came
        assert (came.worker, came.ticket) == (0, ticket)
        assert came.seconds > 0
        assert_equal(came.grads, {name: leaf + jnp.asarray(ticket, leaf.dtype) for name, leaf in params.items()})
        assert_equal(came.aux, {"loss": jnp.float32(ticket / 2), "stats": [jnp.full([2], ticket, jnp.bfloat16)]})
        for leaf in jax.tree.leaves((came.grads, came.aux)):
            leaf[...] = 0  # it belongs to whoever has it


def test_a_gradient_is_given_up_while_it_is_computed(pool):
    ticket = pool.begin(SLOW)
    pool.transport.interrupt(SLOW, ticket - 1)  # of another time: it means nothing
    assert pool.transport.next(0.1) == []
    pool.transport.interrupt(SLOW, ticket)
    (gave_up,) = pool.heard(1)
    assert gave_up == GaveUp(SLOW, ticket, gave_up.seconds)


def test_a_gradient_that_crosses_its_interrupt_is_given_up(pool):
    ticket = pool.begin(0)
    pool.answered(ticket)
    pool.transport.interrupt(0, ticket)
    (gave_up,) = pool.heard(1)
    assert gave_up == GaveUp(0, ticket, gave_up.seconds)


def test_a_stopped_worker_keeps_few_versions(pool):
    os.kill(pool.processes[SLOW], signal.SIGSTOP)
    tickets = []
    for _ in range(6):
        version = pool.transport.publish(pool.params)
        tickets.append(pool.begin(SLOW, version))
        pool.transport.interrupt(SLOW, tickets[-1])
        pool.transport.release(version)
    assert sum(call.kind == "compute" for call in pool.transport._calls.values()) == 2
    assert [params for _, params in pool.transport._workers[SLOW].waiting] == [None] * 4
    os.kill(pool.processes[SLOW], signal.SIGCONT)
    assert [(type(each), each.ticket) for each in pool.heard(6)] == [(GaveUp, ticket) for ticket in tickets]


def test_another_user_of_this_machine_is_refused(pool):
    address, token = pool.transport._ray.get_runtime_context().gcs_address, os.environ["RAY_AUTH_TOKEN"]
    commands = [" ".join(each.cmdline()) for each in pool.transport._cluster.processes if each.is_running()]
    assert commands
    assert not [command for command in commands if token in command]
    command = [sys.executable, "-c", f"import ray; ray.init(address={address!r}); print('connected')"]
    for own, refused in ((token, False), ("0" * 64, True)):
        env = {**os.environ, "RAY_AUTH_TOKEN": own}
        done = subprocess.run(command, env=env, check=False, capture_output=True, text=True, timeout=PATIENCE)
        assert ("connected" not in done.stdout) == refused, done.stderr[-2000:]
        assert ("AuthenticationError" in done.stderr) == refused, done.stderr[-2000:]


def test_answers_come_in_the_order_of_their_questions(pool):
    first, second = pool.begin(SLOW), pool.begin(0)
    pool.answered(second)
    pool.transport.interrupt(SLOW, first)
    pool.answered(first)
    assert [(type(message), message.ticket) for message in pool.transport.next(0)] == [(GaveUp, first), (Came, second)]


def test_a_worker_that_raises_lives(pool):
    pool.transport.begin(0, process_works.BAD_TICKET, pool.version)
    (failed,) = pool.heard(1)
    assert type(failed) is Failed
    assert failed[:2] == (0, process_works.BAD_TICKET)
    assert failed.error.startswith("ArithmeticError: a mistake of the user (")
    assert 'raise ArithmeticError("a mistake of the user")' in failed.error
    log = pathlib.Path(pool.transport._logs) / "worker_0.log"
    assert "Traceback (most recent call last)" in log.read_text()
    pool.transport.begin(0, process_works.BAD_TICKET + 1, pool.version)
    assert type(pool.heard(1)[0]) is Came


def test_a_ready_worker_serves_another_run(pool):
    before = dict(pool.processes)
    old, crossing = pool.begin(SLOW), pool.begin(0)
    pool.answered(crossing)
    pool.ready(0, SLOW)
    assert pool.processes == before
    assert pool.transport.next(0.1) == []
    pool.transport.begin(0, 0, pool.version)
    pool.transport.begin(SLOW, 0, pool.version)  # after `old`, if that were still computed
    assert [message.ticket for message in pool.heard(1)] == [0]
    pool.transport.interrupt(SLOW, 0)
    (gave_up,) = pool.heard(1)
    assert (gave_up.worker, gave_up.ticket) == (SLOW, 0)
    assert old > 0


def test_a_run_counts_its_own_gradients(pool):
    for _ in range(2):
        pool.ready(0)
        for _ in range(ray_works.COUNT):
            pool.begin(0)
            assert type(pool.heard(1)[0]) is Came
    pool.begin(0)
    assert pool.transport.next(0.1) == []


@pytest.mark.parametrize("busy", [True, False])
def test_a_killed_worker_is_lost_once_and_started_again(pool, busy, capfd):
    if busy:
        pool.begin(SLOW)
    process = pool.processes[SLOW]
    os.kill(process, signal.SIGKILL)
    (lost,) = pool.heard(1)
    assert (type(lost), lost.worker) == (Lost, SLOW)
    assert lost.error.startswith("its process has ended (ActorDiedError: ")
    assert lost.error.endswith("worker_1.log")
    pool.begin(SLOW)
    pool.transport.interrupt(SLOW, pool.tickets)
    assert pool.transport.next(0.1) == []
    pool.transport.spawn(SLOW)
    pool.ready(SLOW)  # of the same actor, which is starting
    assert pool.processes[SLOW] != process
    assert capfd.readouterr() == ("", "")


def test_what_cannot_be_is_refused(pool):
    with pytest.raises(ValueError, match=r"^worker=2 must be from 0 to 1$"):
        pool.transport.spawn(2)
    with pytest.raises(ValueError, match=r"is connected to a cluster of Ray already; call ray\.shutdown\(\) first"):
        Ray(WorkSource("process_works:plus", {}), pool.params, {}, num_workers=1)
    with pytest.raises(ValueError, match=r"^function='lambda'"):
        Ray(WorkSource("lambda", {}), pool.params, {}, num_workers=1)


def test_a_stopped_worker_is_killed_without_a_word(pool):
    process = pool.processes[SLOW]
    os.kill(process, signal.SIGSTOP)
    pool.begin(SLOW)
    pool.transport.interrupt(SLOW, pool.tickets)
    assert pool.transport.next(0.1) == []
    pool.transport.kill(SLOW)
    wait_until_gone(process)
    assert pool.transport.next(0.1) == []
    pool.transport.kill(SLOW)


def test_why_a_worker_cannot_start_is_said(alone, monkeypatch):
    alone.transport.kill(SLOW)
    monkeypatch.setattr(alone.transport, "_source", WorkSource("process_works:raising", "no such disk"))
    alone.transport.spawn(SLOW)
    alone.transport.spawn(SLOW)  # it is on its way
    (lost,) = alone.heard(1)
    assert (type(lost), lost.worker) == (Lost, SLOW)
    assert lost.error.startswith("it could not start: OSError: no such disk")
