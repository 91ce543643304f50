"""Those who connect and should not, or say what they should not: each is refused in a line, and the run goes on."""

import contextlib
import functools
import json
import os
import pathlib
import queue
import secrets
import socket
import threading
import time
import weakref

import numpy as np
import own_works
import psutil
import pytest
from joining import TOKEN
from test_joined_runs import served

from experiments.benchmarks.faults.nodes import certify
from sgdlab import live
from sgdlab.live import frames, remote
from sgdlab.live import settings as endpoint
from sgdlab.live.frames import FORMAT, header
from sgdlab.live.messages import Came, Joined, Lost

grpc = endpoint.grpc_or_error()  # with what it prints as in a user's process, if nobody has imported it before
PARAMS = {"w": np.arange(3, dtype=np.float32)}
AUX = {"loss": np.zeros([], np.float32)}
HELLO = header("hello", format=FORMAT, process=1, host="here", sgdlab="1.0.0")
CAME = header("came", run=0, ticket=0, seconds=1.0)


@pytest.fixture(name="said")
def lines():
    return []


@pytest.fixture(name="transport")
def listening(said):
    given = {"num_workers": 2, "endpoint": live.Endpoint(token=TOKEN), "say": said.append}
    with remote.Remote(PARAMS, AUX, **given) as transport:
        transport.spawn(0)
        transport.spawn(1)
        transport._said_at = -1e9  # each line at once
        yield transport


class Outsider:
    """A stream of messages that are given one by one, of somebody who has read the source."""

    def __init__(self, address, *messages, token=TOKEN, method=frames.METHOD, options=()):
        self.out, self.channel = queue.SimpleQueue(), grpc.insecure_channel(address, options=options)
        call = self.channel.stream_stream(f"/{frames.SERVICE}/{method}")
        metadata = () if token is None else ((frames.TOKEN, token),)
        self.say(*messages)
        self.call = call(iter(self.out.get, None), metadata=metadata, timeout=60)

    def say(self, *messages):
        for message in messages:
            self.out.put(message)

    def joined(self):
        assert json.loads(next(self.call))["kind"] == "welcome"
        next(self.call)
        self.say(header("ready"))
        return self

    def answer(self):
        """The code and the words by which the stream ends."""
        with pytest.raises(grpc.RpcError) as caught:
            for _ in self.call:
                pass
        self.out.put(None)
        self.channel.close()
        return caught.value.code().name, caught.value.details()


def heard(transport, count=1):
    found, end = [], time.monotonic() + 30
    while len(found) < count and time.monotonic() < end:
        found += transport.next(0.1)
    return found


@contextlib.contextmanager
def still_working(transport, **given):
    """A worker that has joined before computes during the block, and after it."""
    with live.join(transport.address, TOKEN, **given) as worker:
        assert type(heard(transport)[0]) is Joined

        def one():
            transport.begin(worker.number, transport.tickets, transport.publish(PARAMS))
            assert next(worker)[0] == transport.tickets
            transport.tickets += 1
            worker.send(PARAMS, 0.5)
            (came,) = [message for message in heard(transport) if message.worker == worker.number]
            assert type(came) is Came

        transport.tickets = 0
        one()
        yield worker
        one()


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (None, "there is no token"),
        ("wrong", "the token is not the server's"),
        (TOKEN[:-1], "the token is not the server's"),
        (secrets.token_urlsafe(4000), None),  # more metadata than are read
    ],
    ids=["none", "wrong", "shorter", "long"],
)
def test_a_missing_or_wrong_token(transport, said, token, words):
    with still_working(transport):
        code, details = Outsider(transport.address, HELLO, token=token).answer()
        assert transport.next(0.2) == []
    if words is not None:
        assert (code, details) == ("UNAUTHENTICATED", words)
        assert said == [f"Refused a worker that has connected from 127.0.0.1: {words}"]
    assert code in ("UNAUTHENTICATED", "RESOURCE_EXHAUSTED")


def test_join_says_why_it_is_refused_and_does_not_try_again(transport):
    begun = time.monotonic()
    with pytest.raises(
        ConnectionError, match=r"^127.0.0.1:\d+ has refused this worker: the token is not the server's$"
    ):
        live.join(transport.address, "another-token-of-mine").__enter__()
    assert time.monotonic() - begun < 10


def test_another_version_is_refused_and_both_are_named(transport, said, monkeypatch):
    theirs = header("hello", format=FORMAT + 1, process=1, host="here", sgdlab="9.9")
    code, details = Outsider(transport.address, theirs).answer()
    assert code == "FAILED_PRECONDITION"
    assert details.startswith(f"the server speaks format {FORMAT} of messages, the worker (9.9) format {FORMAT + 1}")
    assert transport.next(0.1) == []
    assert len(said) == 1
    monkeypatch.setattr(remote, "FORMAT", FORMAT + 2)
    with pytest.raises(ConnectionError, match=rf"format {FORMAT + 2} of messages, the worker \(.+\) format {FORMAT}"):
        live.join(transport.address, TOKEN).__enter__()


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"\x80\x04garbage", "a message of 9 bytes was no header of sgdlab"),
        (b"[" * 60_000, "a message of 60,000 bytes was no header of sgdlab"),
        (b'{"kind":"hello"}'.ljust(1 << 16) + b"garbage", "a message of 65,543 bytes was no header of sgdlab"),
        (b'{"kind":"hello","more":"' + b"x" * 70_000 + b'"}', "a message of 70,026 bytes was no header of sgdlab"),
        (header("came"), "the first message must be a hello"),
        (header("hello", format="1"), "hello: format='1' must be a whole number from 0 to"),
        (header("hello", format=FORMAT, process=-1), "hello: process='-1' must be a whole number from 0 to"),
    ],
)
def test_a_hello_that_is_none(transport, said, message, words):
    with still_working(transport):
        code, details = Outsider(transport.address, message).answer()
        assert transport.next(0.1) == []
    assert code == "INVALID_ARGUMENT"
    assert details.startswith(words)
    assert words in said[0]


def test_another_method_is_refused(transport):
    assert Outsider(transport.address, HELLO, method="Other").answer()[0] == "UNIMPLEMENTED"


@pytest.mark.parametrize(
    ("messages", "asked", "words"),
    [
        ([CAME], False, "it was refused: came: it was asked for nothing"),
        ([header("came", run=0, ticket=5, seconds=1.0)], True, "it was refused: came: ticket=5 is not what it was"),
        ([header("came", run=0, ticket=0, seconds="1")], True, "it was refused: came: seconds=1 must be a number"),
        ([header("news", run=0, ticket=0)], True, "it was refused: news is no answer"),
        ([CAME, b"x" * 129], True, "it was refused: 129 bytes have come where 1 to 128 were expected"),
        ([CAME, b""], True, "it was refused: 0 bytes have come where 1 to 128 were expected"),
        ([CAME, b"x" * 128, b"x" * 128], True, None),
        ([CAME, b"x" * (frames.CHUNK + 1)], True, "its connection has ended"),
    ],
)
def test_a_worker_that_says_what_it_should_not_is_lost(transport, messages, asked, words):
    with still_working(transport):
        outsider = Outsider(transport.address, HELLO).joined()
        (joined,) = heard(transport)
        if asked:
            transport.begin(joined.worker, 0, transport.publish(PARAMS))
        outsider.say(*messages)
        found = heard(transport, count=2 if words is None else 1)
        code, details = outsider.answer()
    lost = found[-1]
    assert code in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")
    assert details == lost.error or code == "RESOURCE_EXHAUSTED"  # of gRPC's own
    assert type(lost) is Lost
    assert lost.worker == joined.worker
    assert lost.error.startswith(words or "it was refused: a message of 128 bytes was no header")


def test_who_says_nothing_is_cut_off(transport, monkeypatch):
    monkeypatch.setattr(remote, "HELLO_SECONDS", 0.2)
    monkeypatch.setattr(remote, "READY_SECONDS", 0.2)
    with still_working(transport):
        assert Outsider(transport.address).answer()[0] == "CANCELLED"
        silent = Outsider(transport.address, HELLO)
        assert silent.answer()[0] == "CANCELLED"  # it had a place, which is free again
        with transport._news:  # a thread of gRPC frees it, after the other side was told
            assert transport._news.wait_for(lambda: transport._free == {1}, timeout=10)
        assert transport.next(0.1) == []


OVERSIZED = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff\xff\xff" + bytes(6) + bytes(1 << 16)  # a frame of 16 MB


def held_by(transport):
    """The connections that the server has."""
    port = int(transport.address.split(":")[1])
    found = [one for one in psutil.Process().net_connections("tcp") if one.laddr[1] == port]
    return [one for one in found if one.status == "ESTABLISHED"]


def test_grpc_prints_no_line_for_each_stranger(monkeypatch):
    monkeypatch.delenv("GRPC_VERBOSITY")
    endpoint.grpc_or_error()
    assert os.environ["GRPC_VERBOSITY"] == "NONE"
    monkeypatch.setenv("GRPC_VERBOSITY", "DEBUG")  # who wants to see it
    endpoint.grpc_or_error()
    assert os.environ["GRPC_VERBOSITY"] == "DEBUG"


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", secrets.token_bytes(1 << 16), OVERSIZED],
    ids=["nothing", "HTTP", "noise", "oversized frame"],
)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_a_thousand_connections(tls, sent, said, tmp_path, capfd):
    """Sockets beside gRPC: as many as there may be are held; none of them costs a thread, much memory, or a line.

    Both ends of all of them are in this process; the memory is that of 1,000 sockets, and of some windows of gRPC.
    """
    files = certified(tmp_path, "server") if tls else (None, None)
    where = live.Endpoint(token=TOKEN, certificate=files[0], key=files[1])
    with contextlib.ExitStack() as stack:
        transport = stack.enter_context(remote.Remote(PARAMS, AUX, num_workers=2, endpoint=where, say=said.append))
        transport.spawn(0)
        with still_working(transport, certificate=files[0]):
            process = psutil.Process()
            before, threads = process.memory_info().rss, threading.active_count()
            with contextlib.ExitStack() as sockets:
                for _ in range(1000):
                    line = sockets.enter_context(socket.create_connection(tuple(transport.address.split(":"))))
                    with contextlib.suppress(OSError):
                        line.settimeout(1.0)
                        line.sendall(sent)
                time.sleep(0.3)
                assert len(held_by(transport)) <= 2 + remote.SPARE
                assert threading.active_count() <= threads + 2
                assert process.memory_info().rss - before < 64 << 20
        assert transport.next(0.1) == [Lost(0, "it has left")]
        transport.spawn(0)
        with live.join(transport.address, TOKEN, certificate=files[0]):  # there is room again
            assert type(heard(transport)[0]) is Joined
    assert len(capfd.readouterr().err.splitlines()) < 10


def test_a_flood_takes_no_memory(transport):
    """A worker sends as fast as it can what it was not asked for, and one who is refused does the same."""
    with still_working(transport):
        before = psutil.Process().memory_info().rss
        for token in (TOKEN, "wrong"):
            outsider = Outsider(transport.address, HELLO, token=token)
            if token == TOKEN:
                outsider.joined()
                heard(transport)
            outsider.say(*[bytes(frames.CHUNK)] * 500)  # one object
            outsider.answer()
        assert psutil.Process().memory_info().rss - before < 100 << 20
        heard(transport)


def test_a_worker_that_does_not_read_holds_few_versions_and_is_left_in_the_end(said, monkeypatch):
    monkeypatch.setattr(remote, "MOST_UNREAD", 60)
    params, held = {"w": np.zeros(1 << 21, np.float32)}, []  # 8 MB, which is more than is sent to one who does not read
    with remote.Remote(params, AUX, num_workers=1, endpoint=live.Endpoint(token=TOKEN), say=said.append) as transport:
        transport.spawn(0)
        outsider = Outsider(transport.address, HELLO).joined()
        assert type(heard(transport)[0]) is Joined
        for ticket in range(60):
            version = transport.publish({"w": np.full(1 << 21, ticket, np.float32)})
            held.append(weakref.ref(version))
            transport.begin(0, ticket, version)
            while ticket == 0 and transport._workers[0]._versions:
                time.sleep(0.001)  # until it is being sent
            if ticket == 20:  # one is being sent, and the newest one is held here
                assert sum(each() is not None for each in held) <= 3
            transport.interrupt(0, ticket)
        assert heard(transport) == [Lost(0, "it has not read what it was sent: 60 messages wait for it")]
        outsider.out.put(None)
        outsider.channel.close()


@pytest.mark.long("a run that waits for a silent worker")
def test_a_slow_sender_is_silent_and_then_killed_and_the_run_goes_on(tmp_path):
    patience = {"least_patience": 1.5, "first_patience": 1.5, "kill_patience": 1.2, "patience": 2}
    settings = live.LiveSettings(join_seconds=10, respawn_seconds=0.05, turn_seconds=0.05, **patience)
    server = served(own_works.steady, tmp_path, settings=settings, num_gradients=300)

    def good():
        with live.join(server.address, TOKEN) as worker:
            for ticket, params in worker:
                time.sleep(0.01)
                worker.send(*own_works.gradient(params, ticket))

    def slow():
        outsider = Outsider(server.address, HELLO).joined()
        begun = next(message for message in outsider.call if message.startswith(b'{"kind":"begin"'))
        asked = json.loads(begun)
        outsider.say(header("came", run=0, ticket=asked["ticket"], seconds=0.1))
        for _ in range(60):
            outsider.say(b"x")
            time.sleep(0.05)
        with contextlib.suppress(grpc.RpcError):
            list(outsider.call)
        outsider.out.put(None)
        outsider.channel.close()

    threads = [threading.Thread(target=one, daemon=True) for one in (good, slow)]
    for thread in threads:
        thread.start()
    _, recording = server.run()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert recording.schedule.used().sum() == 300
    assert recording.ledger()["lost"] >= 1
    assert '"killed"' in (tmp_path / "log.jsonl").read_text()


class TestBeyondThisMachine:
    def test_a_token_over_plain_tcp_is_refused_by_both_sides(self):
        for address in ("0.0.0.0:0", "10.0.0.1:8476", "[::]:0", "example.org:80"):
            with pytest.raises(ValueError, match=r"is beyond this machine, where others could read the token"):
                live.Endpoint(address, token=TOKEN)
            with pytest.raises(ValueError, match=r"is beyond this machine, where others could read the token"):
                live.join(address, TOKEN)
            assert live.Endpoint(address, token=TOKEN, insecure=True).address == address

    @pytest.mark.parametrize("address", ["127.0.0.1:0", "127.8.0.1:80", "[::1]:80", "localhost:80"])
    def test_this_machine_needs_no_certificate(self, address):
        endpoint.check_address(address, certificate=None, insecure=False)

    @pytest.mark.parametrize(
        "address", ["", "127.0.0.1", ":80", "127.0.0.1:99999", "unix:/tmp/a:1", "dns:///a:1", "a b:1"]
    )
    def test_what_is_no_address(self, address):
        with pytest.raises(ValueError, match=r"must be HOST:PORT, such as 10\.0\.0\.5:4321$"):
            live.Endpoint(address, insecure=True)

    def test_tls(self, tmp_path, said):
        files = {name: certified(tmp_path, name) for name in ("server", "other")}
        certificate, key = files["server"]
        with pytest.raises(ValueError, match="certificate and key must be given together"):
            live.Endpoint("0.0.0.0:0", token=TOKEN, certificate=certificate)
        where = live.Endpoint("127.0.0.1:0", token=TOKEN, certificate=certificate, key=key)
        with remote.Remote(PARAMS, AUX, num_workers=1, endpoint=where, say=said.append) as transport:
            transport.spawn(0)
            with live.join(transport.address, TOKEN, certificate=certificate) as worker:
                assert type(heard(transport)[0]) is Joined
                transport.begin(0, 0, transport.publish(PARAMS))
                assert next(worker)[0] == 0
                worker.send(PARAMS)
                assert type(heard(transport)[0]) is Came
            heard(transport)
            for wrong in (None, files["other"][0]):  # no TLS; a server that somebody else has certified
                with pytest.raises(ConnectionError, match="cannot be reached"):
                    live.join(transport.address, TOKEN, certificate=wrong, wait_seconds=0.1).__enter__()
            transport.spawn(0)
            with still_working(transport, certificate=certificate):
                assert Outsider(transport.address, HELLO).answer()[0] == "UNAVAILABLE"  # the token over plain TCP
                assert transport.next(0.1) == []

    def test_files_that_are_not_there(self, tmp_path):
        missing = tmp_path / "missing.pem"
        where = live.Endpoint("127.0.0.1:0", token=TOKEN, certificate=missing, key=missing)
        with pytest.raises(ValueError, match=r"^key='.+missing\.pem' cannot be read: No such file or directory$"):
            remote.Remote(PARAMS, AUX, num_workers=1, endpoint=where)
        with pytest.raises(ValueError, match=r"^token='.+missing\.pem' cannot be read"):
            live.join("127.0.0.1:1", missing)


def certified(folder, name):
    """A certificate of this machine's, and its key."""
    (folder / name).mkdir()
    certify(folder / name, "127.0.0.1")
    return folder / name / "server.pem", folder / name / "server.key"


class TestToken:
    def test_a_file_or_the_environment_holds_it(self, tmp_path, monkeypatch):
        (tmp_path / "token").write_text(f"{TOKEN}\n")
        assert endpoint.token_of(tmp_path / "token") == endpoint.token_of(TOKEN) == TOKEN
        monkeypatch.delenv("SGDLAB_TOKEN", raising=False)
        with pytest.raises(ValueError, match=r"^token=None must be a token, the pathlib\.Path of its file, or in"):
            endpoint.token_of(None)
        monkeypatch.setenv("SGDLAB_TOKEN", TOKEN)
        assert endpoint.token_of(None) == TOKEN

    @pytest.mark.parametrize("token", ["", "short", "with blanks in the middle", "not of ASCII äöü äöü äöü"])
    def test_one_that_is_too_weak_is_refused_and_not_shown(self, token):
        with pytest.raises(ValueError, match=r"^token must have at least 16 printable ASCII characters") as caught:
            endpoint.token_of(token)
        assert token == "" or token not in str(caught.value)

    def test_it_is_in_no_text(self, transport, said, capfd):
        assert TOKEN not in repr(live.Endpoint(token=TOKEN))
        Outsider(transport.address, HELLO, token="wrong" + TOKEN).answer()
        with pytest.raises(ConnectionError) as caught:
            live.join("127.0.0.1:1", TOKEN, wait_seconds=0.1).__enter__()
        with live.join(transport.address, TOKEN) as worker:
            words = [repr(message) for message in heard(transport)]
            words += [repr(worker), repr(worker._line._call), repr(transport), str(caught.value)]
        words += [*said, *map(repr, heard(transport)), *capfd.readouterr()]
        assert len(said) == 1
        assert not any(TOKEN in text for text in words)

    @pytest.mark.long("a run")
    def test_it_is_in_no_file(self, tmp_path, capfd):
        server = served(own_works.steady, tmp_path, num_workers=1, num_gradients=20)
        work = functools.partial(live.join(server.address, TOKEN).__enter__)

        def good():
            worker = work()
            for ticket, params in worker:
                worker.send(*own_works.gradient(params, ticket))

        thread = threading.Thread(target=good, daemon=True)
        thread.start()
        server.run()
        thread.join(10)
        files = [path for path in pathlib.Path(tmp_path).rglob("*") if path.is_file()]
        assert len(files) >= 3
        assert not any(TOKEN.encode() in path.read_bytes() for path in files)
        assert not any(TOKEN in text for text in capfd.readouterr())


def test_without_grpc_it_is_said_what_to_install(monkeypatch):
    import sys  # noqa: PLC0415

    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ValueError, match=r"^workers that connect need gRPC, which `pip install 'sgdlab\[grpc\]'` inst"):
        live.join("127.0.0.1:1", TOKEN)


def test_a_port_that_is_taken(transport):
    with pytest.raises(ValueError, match=r"^address='127\.0\.0\.1:\d+' cannot be listened at: the port may be taken$"):
        remote.Remote(PARAMS, AUX, num_workers=1, endpoint=live.Endpoint(transport.address, token=TOKEN))
