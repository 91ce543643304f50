"""Workers in processes, of this machine, of Ray, and that join: what they are told and answer, and how they end."""

import importlib.util
import os
import pathlib
import signal

import jax
import process_works
import pytest
from joining import Joining
from pools import SLOW, Pool, assert_answers, made, wait_until_gone

from sgdlab.live.messages import Came, Failed, GaveUp, Lost

RAY = [
    pytest.mark.integrations,
    # Found, not imported: `Ray` imports it, with the settings that keep its ports on loopback.
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray"),
]


@pytest.fixture(name="workers", scope="module", params=["processes", "joined", pytest.param("ray", marks=RAY)])
def workers_of_a_transport(request, tmp_path_factory):
    given = {"argument": {"slow": SLOW}, "logs": tmp_path_factory.mktemp("logs")}
    if request.param == "ray":
        from sgdlab.live.ray import Ray  # noqa: PLC0415 (an extra)

        given["transport"] = Ray
    if request.param == "joined":
        given["transport"] = Joining
    with made(**given) as transport:
        pool = Pool(transport)
        pool.death = {
            "processes": ("killed by SIGKILL; see ", "worker_1.log"),
            "joined": ("its connection has ended", ""),
            "ray": ("its process has ended", "worker_1.log"),
        }[request.param]
        yield pool
    wait_until_gone(*pool.processes.values())


@pytest.fixture
def pool(workers):
    workers.ready(0, SLOW)
    workers.begin(SLOW)
    workers.heard(1)
    yield workers
    assert workers.transport.next(0) == []


def test_a_gradient_there_and_back(pool):
    for factor in (1, 2):
        params = jax.tree.map(lambda leaf, factor=factor: leaf * factor, pool.params)
        version = pool.transport.publish(params)
        ticket = pool.begin(0, version)
        (came,) = pool.heard(1)
        pool.transport.release(version)
        assert (type(came), came.worker) == (Came, 0)
        assert_answers(came, params, ticket)


def test_a_gradient_is_given_up_while_it_is_computed(pool):
    ticket = pool.begin(SLOW)
    pool.transport.interrupt(SLOW, ticket - 1)  # of another time: it means nothing
    assert pool.transport.next(0.1) == []
    pool.transport.interrupt(SLOW, ticket)
    (gave_up,) = pool.heard(1)
    assert gave_up == GaveUp(SLOW, ticket, gave_up.seconds)
    assert gave_up.seconds < process_works.FOR_EVER


def test_a_gradient_is_given_up_before_it_is_begun(pool):
    tickets = [pool.begin(SLOW), pool.begin(SLOW)]
    pool.transport.interrupt(SLOW, tickets[1])
    assert [(type(message), message.ticket) for message in pool.heard(2)] == [(GaveUp, ticket) for ticket in tickets]


def test_a_gradient_that_crosses_its_interrupt_is_given_up_too(pool):
    crossing = pool.begin(0)
    pool.answered(0)
    pool.transport.interrupt(0, crossing)
    ticket = pool.begin(0)
    gave_up, came = pool.heard(2)
    assert gave_up == GaveUp(0, crossing, gave_up.seconds)
    assert_answers(came, pool.params, ticket)


def test_the_earlier_question_is_answered_first(pool):
    for order in ((0, SLOW), (SLOW, 0)):
        tickets = {worker: pool.begin(worker) for worker in order}
        pool.transport.interrupt(SLOW, tickets[SLOW])
        pool.answered(0, SLOW)
        assert [message.worker for message in pool.transport.next(None)] == list(order)


def test_an_error_of_the_users_code_costs_one_gradient(pool):
    pool.transport.begin(0, process_works.BAD_TICKET, pool.version)
    (failed,) = pool.heard(1)
    assert failed[:2] == (0, process_works.BAD_TICKET)
    assert type(failed) is Failed
    assert failed.error.startswith(f"ArithmeticError: a mistake of the user ({process_works.__file__}, line ")
    assert failed.error.endswith(': raise ArithmeticError("a mistake of the user"))')
    log = (pathlib.Path(pool.transport._logs) / "worker_0.log").read_text()
    assert "Traceback (most recent call last)" in log
    pool.transport.begin(0, process_works.BAD_TICKET + 1, pool.version)
    assert type(pool.heard(1)[0]) is Came


def test_a_ready_worker_serves_one_run_after_the_other(pool):
    before = dict(pool.processes)
    pool.begin(0)
    pool.answered(0)  # not heard
    pool.begin(0)
    pool.begin(SLOW)  # not ended
    pool.ready(0, SLOW)
    assert pool.processes == before
    for worker, ticket in ((0, 0), (SLOW, 1)):  # the first of this run is not slow
        pool.transport.begin(worker, ticket, pool.version)
        (came,) = pool.heard(1)
        assert came.worker == worker
        assert_answers(came, pool.params, ticket)


@pytest.mark.parametrize("busy", [True, False])
def test_a_killed_worker_is_lost_once_and_started_again(pool, busy, capfd):
    if busy:
        pool.begin(SLOW)
    process = pool.processes[SLOW]
    os.kill(process, signal.SIGKILL)
    (lost,) = pool.heard(1)
    assert (type(lost), lost.worker) == (Lost, SLOW)
    assert lost.error.startswith(pool.death[0])
    assert lost.error.endswith(pool.death[1])
    pool.begin(SLOW)  # nobody is there, and it has been said already
    pool.transport.interrupt(SLOW, pool.tickets)
    assert pool.transport.next(0.1) == []
    pool.transport.spawn(SLOW)
    pool.ready(SLOW)  # the same one, which is starting
    assert pool.processes[SLOW] != process
    assert capfd.readouterr() == ("", "")


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


def test_an_impossible_worker_is_refused(pool):
    with pytest.raises(ValueError, match=r"^worker=2 must be from 0 to 1$"):
        pool.transport.spawn(2)
