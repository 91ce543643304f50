"""Faults over three machines: workers that join, and actors of Ray; all of the suite, with short storms."""

import importlib.util
import json
import pathlib
import shutil
import socket
import subprocess
import sys

import pytest

from experiments.benchmarks.faults import __main__ as suite
from experiments.benchmarks.faults import namespaces, scenarios

pytestmark = [
    pytest.mark.machines,
    pytest.mark.long("runs over three machines"),
    pytest.mark.skipif(
        bool(namespaces.why_not()) or shutil.which("openssl") is None,
        reason=f"no machines can be made: {namespaces.why_not() or 'openssl'}",
    ),
]


@pytest.mark.parametrize("transport", ["grpc", "ray"])
def test_what_befalls_machines_is_survived_and_replayed(transport, tmp_path, capsys):
    if importlib.util.find_spec(transport) is None:
        pytest.skip(f"needs {transport}")
    flags = ["--machines=3", f"--transport={transport}", "--storm_seconds=60", f"--json={tmp_path / 'found.json'}"]
    left = suite.main(flags)
    printed = capsys.readouterr().out
    assert left == 0, printed
    found = json.loads((tmp_path / "found.json").read_text())["outcomes"]
    assert len(found) == len(scenarios.of_machines(transport, 60.0))
    assert all(each["difference"] == 0.0 for each in found)


KILLED = """
import pathlib, sys, time
from experiments.benchmarks.faults.namespaces import Machines
with Machines(1, pathlib.Path(sys.argv[1])):
    print("made", flush=True)
    time.sleep(600)
"""


def test_machines_of_a_process_that_was_killed_are_removed_by_the_next(tmp_path):
    command = [sys.executable, "-c", KILLED, tmp_path]
    with subprocess.Popen(command, cwd=pathlib.Path(__file__).parents[2], stdout=subprocess.PIPE) as killed:
        assert killed.stdout.readline() == b"made\n"
        killed.kill()
    listed = lambda: subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert listed().count(f"sg{killed.pid}-") == 2  # it, and the bridge
    with namespaces.Machines(1, tmp_path):
        assert f"sg{killed.pid}-" not in listed()


def test_a_socket_of_this_process_listens_on_a_machine(tmp_path):
    said = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2]))).sendall(b'here')"
    with namespaces.Machines(2, tmp_path) as made, made.listen("node1") as listener:
        address, port = listener.getsockname()
        assert address == made.address("node1")
        made.start("node2", [sys.executable, "-c", said, address, str(port)])
        listener.settimeout(60)
        with listener.accept()[0] as channel:
            assert channel.recv(4) == b"here"
        with pytest.raises(OSError, match="assign requested address"):  # this process is back where it was
            socket.create_server((address, 0))
