"""A cluster of Ray on this machine: ports, memory, users; `test_transports.py` has what its workers are asked."""

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys

import jax
import psutil
import pytest
from pools import PATIENCE, SLOW, Pool, assert_answers, made

from sgdlab.live import ray as transports
from sgdlab.live.messages import GaveUp, Lost
from sgdlab.live.ray import Ray
from sgdlab.live.work import WorkSource

# Found, not imported: `Ray` imports it, with the settings that keep its ports on loopback.
pytestmark = [
    pytest.mark.integrations,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray"),
]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    handler = signal.getsignal(signal.SIGTERM)
    pool = Pool(made(argument={"slow": SLOW}, transport=Ray, logs=tmp_path_factory.mktemp("logs")))
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


def test_no_port_can_be_reached_from_other_machines(pool):
    addresses = set()
    for process in [psutil.Process(), *pool.transport._cluster.processes]:
        if process.is_running():
            listening = [each for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN]
            addresses |= {each.laddr.ip.removeprefix("::ffff:") for each in listening}
    # Workers listen too, and are among the processes.
    assert {process.pid for process in pool.transport._cluster.processes} >= set(pool.processes.values())
    assert addresses == {"127.0.0.1"}


def test_large_parameters_are_sent_once_and_a_gradient_belongs_to_whoever_has_it(pool, monkeypatch):
    monkeypatch.setattr(transports, "INLINE", 0)
    version = pool.transport.publish(pool.params)
    for _ in range(2):
        ticket = pool.begin(0, version)
        (came,) = pool.heard(1)
        assert_answers(came, pool.params, ticket)
        for leaf in jax.tree.leaves((came.grads, came.aux)):
            leaf[...] = 0
    pool.transport.release(version)


def test_a_stopped_worker_keeps_few_versions(pool):
    os.kill(pool.processes[SLOW], signal.SIGSTOP)
    tickets = []
    for _ in range(6):
        version = pool.transport.publish(pool.params)
        tickets.append(pool.begin(SLOW, version))
        pool.transport.interrupt(SLOW, tickets[-1])
        pool.transport.release(version)
    assert sum(call.asked is not None for call in pool.transport._calls.values()) == 2
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


def test_what_cannot_be_is_refused(pool):
    with pytest.raises(ValueError, match=r"is connected to a cluster of Ray already; call ray\.shutdown\(\) first"):
        Ray(WorkSource("process_works:plus", {}), pool.params, {}, num_workers=1)
    with pytest.raises(ValueError, match=r"^function='lambda'"):
        Ray(WorkSource("lambda", {}), pool.params, {}, num_workers=1)


def test_why_a_worker_cannot_start_is_said(alone, monkeypatch):
    alone.transport.kill(SLOW)
    monkeypatch.setattr(alone.transport, "_source", WorkSource("process_works:raising", "no such disk"))
    alone.transport.spawn(SLOW)
    alone.transport.spawn(SLOW)  # it is on its way
    (lost,) = alone.heard(1)
    assert (type(lost), lost.worker) == (Lost, SLOW)
    assert lost.error.startswith("it could not start: OSError: no such disk")
