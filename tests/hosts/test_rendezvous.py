"""Processes meet before JAX connects them, or each is told in one line why there is no run."""

import concurrent.futures
import json
import socket
import time

import pytest
from processes import called, free_port, member

from sgdlab import hosts
from sgdlab.errors import HostLost, UsageError
from sgdlab.hosts import address, jax_private, rendezvous


def met(members, seconds=20.0, where="127.0.0.1", port=None):
    """Return what `meet` returns or raises for each member, all of which call it at once."""
    found = address.Address(where, port or free_port())
    with concurrent.futures.ThreadPoolExecutor(len(members)) as pool:
        calls = [pool.submit(rendezvous.meet, own, found, seconds) for own in members]
        return [call.exception() or call.result() for call in calls]


def refused(answers, kind):
    """The one line that all were told."""
    assert {type(answer) for answer in answers} == {kind}, answers
    (line,) = {str(answer) for answer in answers}
    assert "\n" not in line
    return line


def test_each_process_has_a_connection_to_the_first_one():
    answers = met([member(2, 3), member(0, 3), member(1, 3)])
    assert {answer.hosts for answer in answers} == {("host0", "host1", "host2")}
    last, first, middle = (answer.connections for answer in answers)
    assert sorted(first) == [1, 2]
    assert (sorted(middle), sorted(last)) == ([0], [0])
    for index, own in ((1, middle), (2, last)):
        own[0].sendall(b"hello")
        assert first[index].recv(5) == b"hello"
    for ends in (first, middle, last):
        for end in ends.values():
            end.close()


def test_who_does_not_come_is_named():
    line = refused(met([member(0, 4), member(2, 4)], seconds=0.5), HostLost)
    assert line.startswith("waited 0.5 s for 2 processes at 127.0.0.1:")
    assert line.endswith("; 1 and 3 did not come")


def test_the_run_goes_on_with_those_that_are_there_if_they_are_enough(capsys):
    answers = met([member(index, 5, least=3) for index in (3, 0, 4)], seconds=0.5)
    assert [(answer.index, answer.hosts) for answer in answers] == [
        (new, ("host0", "host3", "host4")) for new in (1, 0, 2)
    ]
    third, first, fourth = (answer.connections for answer in answers)
    assert sorted(first) == [1, 2]
    for index, own in ((1, third), (2, fourth)):
        own[0].sendall(b"hello")
        assert first[index].recv(5) == b"hello"
    for ends in (first, third, fourth):
        for end in ends.values():
            end.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("waited 0.5 s for 2 processes at 127.0.0.1:")
    assert line.endswith(
        "; 1 and 2 did not come; going on without; --process_id=3 is process 1; --process_id=4 is process 2"
    )


def test_it_does_not_go_on_with_fewer_and_does_not_wait_for_more(capsys):
    line = refused(met([member(index, 4, least=3) for index in (0, 2)], seconds=0.5), HostLost)
    assert line.endswith("; 1 and 3 did not come")
    begun = time.monotonic()
    for answer in met([member(index, 3, least=1) for index in range(3)], seconds=60.0):
        assert answer.hosts == ("host0", "host1", "host2")
        for end in answer.connections.values():
            end.close()
    assert time.monotonic() - begun < 30
    assert capsys.readouterr().err == ""
    (alone,) = met([member(0, 2, least=1)], seconds=0.1)
    assert (alone.index, alone.hosts, alone.connections) == (0, ("host0",), {})


def test_without_the_first_process_the_others_say_so():
    line = refused(met([member(1)], seconds=0.3), HostLost)
    assert line.startswith("waited 0.3 s for process 0 at 127.0.0.1:")


def test_a_connection_of_a_port_with_itself_is_none():
    port = free_port()
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", port))
        real, attempted = socket.create_connection, []

        def connects_itself(where, timeout):
            attempted.append(where)
            bound.connect(where)
            return bound

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "create_connection", connects_itself)
            with pytest.raises(ConnectionRefusedError):
                rendezvous._connected(address.Address("127.0.0.1", port), 1.0)
        assert attempted == [("127.0.0.1", port)]
    with socket.create_server(("127.0.0.1", port)):  # the port is free at once
        real(("127.0.0.1", port)).close()


def test_two_processes_of_one_number_are_named():
    line = refused(met([member(0, 3), member(1, 3), member(1, 3, host="hostB")]), UsageError)
    assert line.startswith("--process_id=1 was given to two processes, on host")
    assert "hostB" in line


@pytest.mark.parametrize("other", [{"--config.epochs": "2.0"}, {}])
def test_a_fact_that_differs_is_named_with_both_values(other):
    line = refused(met([member(0), member(1, facts=other)]), UsageError)
    there = other.get("--config.epochs", "not set")
    assert (
        line == f"processes differ: --config.epochs is 1.0 for process 0 on host0, and {there} for process 1 on host1"
    )


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (error,) = met([member(0)], port=port)
    assert isinstance(error, UsageError)
    assert str(error) == f"--hosts=127.0.0.1:{port}: port {port} of 127.0.0.1 is taken; name another"


def test_an_address_of_another_host_is_refused():
    (error,) = met([member(0)], where="192.0.2.1")  # an address that documentation may use and nobody has
    assert isinstance(error, UsageError)
    assert "192.0.2.1 is none of" in str(error)


def test_a_name_that_does_not_resolve_is_named(monkeypatch):
    def unknown(*args, **options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    (error,) = met([member(0)], where="nowhere.invalid", seconds=0.2)
    assert isinstance(error, UsageError)
    assert "nowhere.invalid does not resolve: Name or service not known" in str(error)
    monkeypatch.setattr(socket, "gethostbyname", unknown)
    monkeypatch.setattr(jax_private, "uses_devices", lambda: False)
    with pytest.raises(UsageError, match=f"the name of this host, {socket.gethostname()}, does not resolve"):
        hosts.connect("127.0.0.1:4321", num_processes=2, process_id=0)


@pytest.mark.parametrize(("others_host", "warned"), [("host1", True), ("host0", False)])
def test_a_host_whose_name_no_other_can_reach_is_named(capsys, others_host, warned):
    own = [rendezvous.Member(index, 2, {}, host, "127.0.1.1") for index, host in enumerate(("host0", others_host))]
    for answer in met(own):
        for end in answer.connections.values():
            end.close()
    assert ("warning: the name host1 is 127.0.1.1 on that host" in capsys.readouterr().err) == warned


def test_a_process_that_is_started_again_is_no_second_one():
    port = free_port()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        own = [member(index, 3) for index in range(3)]
        first = pool.submit(rendezvous.meet, own[0], address.Address("127.0.0.1", port), 20.0)
        with called(port) as ended:
            ended.sendall(json.dumps(own[1].hello()).encode() + b"\n")
            time.sleep(0.3)
        others = [pool.submit(rendezvous.meet, each, address.Address("127.0.0.1", port), 20.0) for each in own[1:]]
        for answer in (first.result(), *(other.result() for other in others)):
            assert answer.hosts == ("host0", "host1", "host2")
            for end in answer.connections.values():
                end.close()


@pytest.mark.parametrize(
    ("where", "count", "index", "words"),
    [
        ("node7:0", 2, 0, "--hosts=node7:0 must be"),
        ("::1:4321", 2, 0, "--hosts=::1:4321 must be"),
        ("127.0.0.1:4321", 2, None, "needs --process_id"),
        ("127.0.0.1:4321", 2, 2, "--process_id=2 must be from 0 to 1"),
        ("127.0.0.1:4321", 0, 0, "--num_processes=0 must be at least 1"),
    ],
)
def test_impossible_arguments_are_refused(where, count, index, words):
    with pytest.raises(UsageError) as refusal:
        hosts.connect(where, num_processes=count, process_id=index)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("where", "least", "words"),
    [
        ("127.0.0.1:4321", 3, "--num_processes=3:2 must be the least number, from 1, and the largest"),
        ("127.0.0.1:4321", 0, "--num_processes=0:2 must be"),
        ("auto", 1, "--num_processes=1:2 needs --hosts=HOST:PORT"),
    ],
)
def test_impossible_least_numbers_are_refused(where, least, words):
    with pytest.raises(UsageError, match=words):
        hosts.connect(where, num_processes=2, process_id=0, least_processes=least)


def test_a_single_process_is_not_connected():
    hosts.connect("127.0.0.1:4321", num_processes=1, process_id=0)
    assert not hosts.connected()
    assert hosts.gather("a value", "x") == ["x"]
    hosts.barrier("nobody else")
    hosts.disconnect()


def test_a_process_that_has_used_a_device_cannot_be_connected(monkeypatch):
    monkeypatch.setattr(jax_private, "uses_devices", lambda: True)
    with pytest.raises(RuntimeError, match="before JAX is asked for a device"):
        hosts.connect("127.0.0.1:4321", num_processes=2, process_id=0)
