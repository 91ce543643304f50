"""Whoever finds the port of process 0 can neither end its wait nor fill its memory; those that belong there come."""

import concurrent.futures
import contextlib
import errno
import json
import os
import socket
import threading

import psutil
import pytest
from processes import called, free_port, member

from sgdlab.errors import HostLost, UsageError
from sgdlab.hosts import address, callers, messages, rendezvous

PATIENCE = 60.0
NESTED = b"[" * 100_000


def hello(**other):
    """The message of process 1, with other entries."""
    return json.dumps(member(1).hello() | other).encode() + b"\n"


@pytest.fixture(name="waiting")
def process_0_that_waits():
    """Its address, and what it returns when process 1 has come at last."""
    where = address.Address("127.0.0.1", free_port())
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(rendezvous.meet, member(0), where, PATIENCE)
        yield where, first
        if not first.done():  # a test that failed
            with contextlib.suppress(Exception):
                rendezvous.meet(member(1), where, PATIENCE)


def answer(connection):
    """All that comes until the connection is closed."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while more := connection.recv(1 << 16):
            data += more
    return data


def sent(where, data):
    with called(where.port) as stranger:
        with contextlib.suppress(ConnectionError):
            stranger.sendall(data)
        return answer(stranger)


def come(where, first):
    """Process 1 comes, and both go on."""
    for met in (rendezvous.meet(member(1), where, PATIENCE), first.result(PATIENCE)):
        assert met.hosts == ("host0", "host1")
        for end in met.connections.values():
            end.close()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (NESTED + b"\n", "it sent more than 65,536 bytes"),
        (NESTED[:60_000] + b"\n", "it sent JSON that is nested too deeply"),
        (bytes(range(256)) * 3 + b"\n", "it sent what is not JSON"),
        (b"[1, 2]\n", "it sent no message with index (int) and count (int) and facts (dict)"),
        (hello(index=True), "it sent no message with index"),
        (hello(facts=[]), "it sent no message with index"),
        (hello(facts={"a": [1]}), "it sent facts that are not text"),
        (hello(least=1), "--num_processes is 2 for process 0 on host0, and 1:2 for process 1 on host1"),
        (hello(index=0), "--process_id=0 must be from 1 to 1"),
        (hello(index=7), "--process_id=7 must be from 1 to 1"),
        (hello(count=99), "--num_processes is 2 for process 0 on host0, and 99 for process 1 on host1"),
        (hello(count=99, host="\nb\ud800"), "--num_processes is 2 for process 0 on host0, and 99 for process 1 on b"),
        (hello(count=10**4000), "--num_processes is 2 for process 0 on host0, and 1000"),
        (hello() + hello(), "it said twice who it is"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_who_does_not_belong_is_named_and_the_wait_goes_on(waiting, capsys, data, why):
    where, first = waiting
    told = sent(where, data)
    come(where, first)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("still waiting")]
    assert line.startswith(f"refused 127.0.0.1: {why}")
    assert len(line) < 1100
    if told:  # what was not read may have taken the answer with it
        assert json.loads(told)["why"] in line


def test_a_process_of_another_number_of_processes_says_so_on_both_sides(waiting, capsys):
    where, first = waiting
    with pytest.raises(UsageError) as refusal:
        rendezvous.meet(member(1, 3), where, PATIENCE)
    assert str(refusal.value) == "--num_processes is 2 for process 0 on host0, and 3 for process 1 on host1"
    come(where, first)
    assert f"refused 127.0.0.1: {refusal.value}\n" in capsys.readouterr().err


def test_where_nobody_else_comes_the_other_number_of_processes_is_the_reason(monkeypatch):
    where, over = address.Address("127.0.0.1", free_port()), threading.Event()
    monkeypatch.setattr(rendezvous._Attempts, "over", lambda attempts: over.is_set())
    monkeypatch.setattr(rendezvous, "_LATE", 0.0)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(rendezvous.meet, member(0), where, PATIENCE)
        why = json.loads(sent(where, hello(count=3)))["why"]
        over.set()
        assert str(first.exception(PATIENCE)).endswith(f"; 1 did not come (refused: {why})")
    assert isinstance(first.exception(), HostLost)


def test_too_many_connections_close_the_oldest_that_say_nothing(waiting, capsys):
    where, first = waiting
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(called(where.port)) for _ in range(callers._MOST_STRANGERS + 3)]
        for stranger in idle[:3]:
            assert b"have connected after it" in answer(stranger)
        come(where, first)
        for stranger in idle:
            answer(stranger)  # it ends, for all are closed
    assert capsys.readouterr().err.count("refused 127.0.0.1") == 1  # one line however many there are


@pytest.mark.parametrize("own_secret", [b"", b"the secret of a test, 32 letters"], ids=["open", "secret"])
@pytest.mark.parametrize("sent", [b"", NESTED[:60_000], NESTED], ids=["nothing", "slow", "oversized"])
def test_a_thousand_connections_take_little_memory(sent, own_secret, capsys):
    where, process = address.Address("127.0.0.1", free_port()), psutil.Process()
    with concurrent.futures.ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as stack:
        first = pool.submit(rendezvous.meet, member(0), where, PATIENCE, own_secret)
        stack.enter_context(called(where.port))
        before = process.memory_info().rss
        for _ in range(1000):
            stranger = stack.enter_context(called(where.port))
            with contextlib.suppress(OSError):
                stranger.settimeout(1.0)
                stranger.sendall(sent)
        held = [one for one in process.net_connections("tcp") if one.laddr[1] == where.port and one.raddr]
        grown = process.memory_info().rss - before
        for met in (rendezvous.meet(member(1), where, PATIENCE, own_secret), first.result(PATIENCE)):
            for end in met.connections.values():
                end.close()
    assert len([one for one in held if one.fd >= 0]) <= callers._MOST_STRANGERS + 1
    assert grown < 32 << 20  # 64 lines of 64 kB, and both ends of 1,000 sockets
    assert 1 <= len(capsys.readouterr().err.splitlines()) < 10


def test_who_says_nothing_for_some_seconds_is_refused(waiting, monkeypatch):
    where, first = waiting
    with called(where.port) as silent, called(where.port) as slow:
        slow.sendall(b'{"index"')
        monkeypatch.setattr(callers, "_SECONDS_TO_SAY", 0.0)
        for stranger in (silent, slow):
            assert b"has not said who it is" in answer(stranger)
        monkeypatch.undo()
    come(where, first)


def test_connections_that_cannot_be_accepted_do_not_end_the_wait(monkeypatch, capsys):
    where, left, real = address.Address("127.0.0.1", free_port()), [errno.EMFILE] * 3, socket.socket.accept

    def accept(listener):
        if left:
            code = left.pop()
            raise OSError(code, os.strerror(code))
        return real(listener)

    monkeypatch.setattr(socket.socket, "accept", accept)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(rendezvous.meet, member(0), where, PATIENCE)
        come(where, first)
    assert not left
    assert capsys.readouterr().err.count("a connection cannot be accepted: Too many open files") == 1


def test_a_connection_that_says_nothing_makes_room_where_no_descriptor_is_left(monkeypatch, waiting):
    where, first = waiting
    real, held = socket.socket.accept, []

    def accept(listener):
        if held and held[0].fileno() >= 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        connection, peer = real(listener)
        held.append(connection)
        return connection, peer

    monkeypatch.setattr(callers, "_PAUSE", 0.0)
    monkeypatch.setattr(socket.socket, "accept", accept)
    with called(where.port) as idle:
        come(where, first)
        assert answer(idle) == b""


def test_an_answer_is_waited_for_as_long_as_said_even_where_it_drips():
    near, far = socket.socketpair()
    with near, far:
        far.sendall(b"{")
        with pytest.raises(TimeoutError):
            next(rendezvous._lines_from(near, 0.0, messages.LONGEST))
