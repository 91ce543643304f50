"""Processes that have a secret believe nobody else, neither at the meeting nor what was recorded of an earlier one."""

import concurrent.futures
import contextlib
import hashlib
import hmac
import json
import socket

import pytest
from processes import called, free_port, member

from sgdlab.errors import HostLost, UsageError
from sgdlab.hosts import address, rendezvous, secret

PATIENCE = 60.0
SECRET, OTHER = b"the secret of a test, 32 letters", b"another secret, with as many...."
UNPROVEN = "it does not prove that it has the secret of --hosts_secret_file"


@contextlib.contextmanager
def waiting(own_secret=SECRET, count=2, seconds=PATIENCE):
    """The address of process 0, which waits, and what `meet` returns there."""
    where = address.Address("127.0.0.1", free_port())
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(rendezvous.meet, member(0, count), where, seconds, own_secret)
        try:
            yield where, first
        finally:
            if not first.done():
                with contextlib.suppress(Exception):
                    rendezvous.meet(member(1, count), where, PATIENCE, own_secret)


def come(where, first, own_secret=SECRET):
    """Process 1 comes, and both go on."""
    for met in (rendezvous.meet(member(1), where, PATIENCE, own_secret), first.result(PATIENCE)):
        assert met.hosts == ("host0", "host1")
        for end in met.connections.values():
            end.close()


def lines_of(connection):
    """The lines that come until the connection is closed."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while more := connection.recv(1 << 16):
            data += more
    return [json.loads(line) for line in data.splitlines()]


@pytest.mark.parametrize(
    ("here", "there", "refused", "told"),
    [
        (SECRET, OTHER, UNPROVEN, "does not prove that it has the secret of --hosts_secret_file"),
        (SECRET, b"", UNPROVEN, "asks for a secret: give every process the same --hosts_secret_file"),
        (
            b"",
            SECRET,
            "it asks for a secret, and process 0 has no --hosts_secret_file",
            "does not prove that it has the secret of --hosts_secret_file",
        ),
    ],
)
def test_another_secret_or_none_is_refused_and_the_wait_goes_on(capsys, here, there, refused, told):
    with waiting(here) as (where, first):
        with pytest.raises(UsageError) as refusal:
            rendezvous.meet(member(1), where, PATIENCE, there)
        assert str(refusal.value).startswith(f"process 0 at 127.0.0.1:{where.port} {told}")
        come(where, first, here)
    errors = capsys.readouterr().err
    assert f"refused 127.0.0.1: {refused}\n" in errors
    for own in filter(None, (here, there)):
        assert own.decode() not in errors + str(refusal.value)


def test_the_proof_is_an_hmac_over_both_nonces_and_the_message():
    """A second implementation of process 1, by hand."""
    with waiting() as (where, first), called(where.port) as connection:
        file = connection.makefile("rwb")
        theirs = json.loads(file.readline())["nonce"]
        hello = member(1).hello()
        content = json.dumps([False, "ab" * 16, theirs, hello], sort_keys=True).encode()
        proof = hmac.digest(SECRET, content, hashlib.sha256).hex()
        file.write(b'{"nonce": "' + b"ab" * 16 + b'"}\n' + json.dumps(hello | {"proof": proof}).encode() + b"\n")
        file.flush()
        answer = json.loads(file.readline())
        met = {"hosts": ["host0", "host1"], "index": 1}
        content = json.dumps([True, theirs, "ab" * 16, met], sort_keys=True).encode()
        assert answer == met | {"proof": hmac.digest(SECRET, content, hashlib.sha256).hex()}
        for end in first.result(PATIENCE).connections.values():
            end.close()


def recorded_meeting():
    """Return all that process 1 has sent in a meeting, and was answered, as somebody between the two sees it."""
    with waiting() as (where, first), socket.create_server(("127.0.0.1", 0)) as between:
        own = address.Address("127.0.0.1", between.getsockname()[1])
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            last = pool.submit(rendezvous.meet, member(1), own, PATIENCE, SECRET)
            near, _ = between.accept()
            far = called(where.port)
            with near, far:
                sent, answered = near.makefile("rb"), far.makefile("rb")
                far.sendall(greeting := sent.readline())
                near.sendall(nonce := answered.readline())
                far.sendall(hello := sent.readline())
                near.sendall(answer := answered.readline())
                for met in (first.result(PATIENCE), last.result(PATIENCE)):
                    assert met.hosts == ("host0", "host1")
                    for end in met.connections.values():
                        end.close()
    return greeting + hello, nonce + answer


def test_a_recorded_meeting_proves_nothing_to_either_side(capsys):
    sent, answered = recorded_meeting()
    with waiting() as (where, first):
        with called(where.port) as stranger:
            stranger.sendall(sent)
            assert lines_of(stranger)[-1]["why"] == UNPROVEN
        come(where, first)
    assert f"refused 127.0.0.1: {UNPROVEN}\n" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as false, concurrent.futures.ThreadPoolExecutor(1) as pool:
        own = address.Address("127.0.0.1", false.getsockname()[1])
        last = pool.submit(rendezvous.meet, member(1), own, PATIENCE, SECRET)
        connection, _ = false.accept()
        with connection:
            connection.sendall(answered)
            with pytest.raises(UsageError, match="does not prove that it has the secret"):
                last.result(PATIENCE)


def test_nobody_is_believed_who_sends_ones_own_messages_back():
    own = secret.Seal(SECRET, is_first=False)
    own.meet(own.greeting)
    with pytest.raises(secret.NotProven):
        own.opened(own.sealed({"hosts": []}), {"hosts": list})


def test_another_protocol_on_the_port_is_not_taken_for_another_secret():
    """Process 0's port is JAX's once the meeting is over: who comes late has lost it, and comes again."""
    with socket.create_server(("127.0.0.1", 0)) as other, concurrent.futures.ThreadPoolExecutor(1) as pool:
        own = address.Address("127.0.0.1", other.getsockname()[1])
        last = pool.submit(rendezvous.meet, member(1), own, PATIENCE, SECRET)
        connection, _ = other.accept()
        with connection:
            connection.sendall(b"\0\0\x0a\4\0\n")
            with pytest.raises(HostLost, match="did not answer"):
                last.result(PATIENCE)


def test_why_there_is_no_run_is_proven_too_also_to_the_late():
    with waiting(count=3) as (where, first), concurrent.futures.ThreadPoolExecutor(2) as pool:
        both = member(1, 3), member(1, 3, host="hostB")
        early = [pool.submit(rendezvous.meet, own, where, PATIENCE, SECRET) for own in both]
        told = {str(each.exception(PATIENCE)) for each in (first, *early)}
        assert len(told) == 1
        assert "--process_id=1 was given to two processes" in told.pop()
    with waiting(count=3, seconds=0.2) as (where, first), called(where.port) as stranger:
        with pytest.raises(HostLost, match="1 and 2 did not come"):
            first.result(PATIENCE)  # it waits for whoever is late, and says nothing to those that prove nothing
        assert [list(line) for line in lines_of(stranger)] == [["nonce"]]


def test_a_secret_is_read_from_a_file(tmp_path):
    file = tmp_path / "secret"
    file.write_bytes(b"\n  0123456789abcdef \n")
    assert secret.read(file) == b"0123456789abcdef"
    for content, words in ((b"short\n", "must hold 16 to 4096 bytes, not 5"), (b"x" * 9999, "not 4097")):
        file.write_bytes(content)
        with pytest.raises(UsageError, match=words) as refusal:
            secret.read(file)
        assert content.decode().strip() not in str(refusal.value)
    with pytest.raises(UsageError, match="missing cannot be read: No such file"):
        secret.read(tmp_path / "missing")
