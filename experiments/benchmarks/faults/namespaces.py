"""`Machines`, machines of one's own: network namespaces with addresses and host names, joined by a bridge alone."""

import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
from typing import IO

NETWORK = "10.213.88"
"""Addresses that only these namespaces have."""


def why_not() -> str:
    """Return why no machines can be made here; empty where they can."""
    if os.geteuid() != 0:
        return "network namespaces are made by root alone"
    missing = [name for name in ("ip", "tc", "unshare") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed (Debian: iproute2, util-linux)"
    probe = f"sgdlab-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return "" if made.returncode == 0 else f"ip netns add: {made.stderr.decode().strip()}"


class Machines:
    """Makes machines node1, node2, ..., and removes them at the end, with all that runs on them.

    Args:
      count: how many.
      folder: for what their processes print.
    """

    def __init__(self, count: int, folder: pathlib.Path):
        self.names, self.folder = [f"node{number}" for number in range(1, count + 1)], folder
        self._prefix, self._hub = f"sg{os.getpid()}", f"sg{os.getpid()}-hub"
        self._children: list[subprocess.Popen] = []

    def __enter__(self) -> "Machines":
        _remove_left()
        with contextlib.ExitStack() as stack:
            stack.callback(self._remove)
            self._make()
            stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._remove()

    def address(self, name: str) -> str:
        """Return the address of a machine."""
        return f"{NETWORK}.{self.names.index(name) + 1}"

    def start(self, name: str, command: list[str], **env: str) -> subprocess.Popen:
        """Start a process on a machine; what it prints is in the file that `log` reads."""
        place = f'hostname {name}; exec "$@"'
        inside = ["ip", "netns", "exec", self._of(name), "unshare", "--uts", "sh", "-c", place, "sh", *command]
        with self._log(name, len(self._children)).open("wb") as file:
            child = subprocess.Popen(
                inside, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **env}, start_new_session=True
            )
        self._children.append(child)
        return child

    def listen(self, name: str) -> socket.socket:
        """Return a socket of this process that listens on a machine, at a port that is free there."""
        with open("/proc/thread-self/ns/net", "rb") as own, open(f"/run/netns/{self._of(name)}", "rb") as other:
            try:
                _enter(other)
                return socket.create_server((self.address(name), 0))
            finally:
                _enter(own)

    def log(self, child: subprocess.Popen) -> str:
        """Return what a process has printed."""
        number = self._children.index(child)
        (path,) = self.folder.glob(f"*-{number}.log")
        return path.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, child: subprocess.Popen, words: str, seconds: float = 240.0, *, times: int = 1) -> None:
        """Wait until a process has printed words so often; RuntimeError if it has ended, or does not in time."""
        end = time.monotonic() + seconds
        while self.log(child).count(words) < times:
            if child.poll() is not None:
                raise RuntimeError(f"it has ended with {child.returncode}: {self.log(child)}")
            if time.monotonic() > end:
                raise RuntimeError(f"there is no {words!r} in {self.log(child)}")
            time.sleep(0.1)

    def kill(self, name: str) -> None:
        """End all processes of a machine at once, as a power cut does."""
        _kill(self._of(name))

    def cut(self, name: str) -> None:
        """Part a machine from all others."""
        self._ip("netns", "exec", self._hub, "ip", "link", "set", self._port(name), "down")

    def heal(self, name: str) -> None:
        """Join a machine to the others again."""
        self._ip("netns", "exec", self._hub, "ip", "link", "set", self._port(name), "up")

    def limit(self, name: str, mbits: float) -> None:
        """Limit what a machine sends."""
        limit = ["tbf", "rate", f"{mbits}mbit", "burst", "32kbit", "latency", "400ms"]
        self._ip("netns", "exec", self._of(name), "tc", "qdisc", "replace", "dev", "eth0", "root", *limit)

    def unlimit(self, name: str) -> None:
        """Let a machine send as fast as it can again."""
        self._ip("netns", "exec", self._of(name), "tc", "qdisc", "del", "dev", "eth0", "root")

    def _make(self) -> None:
        inside = lambda space, *command: self._ip("netns", "exec", space, "ip", *command)
        self._ip("netns", "add", self._hub)
        inside(self._hub, "link", "add", "br0", "type", "bridge")
        inside(self._hub, "link", "set", "br0", "up")
        hosts = "127.0.0.1 localhost\n" + "".join(f"{self.address(name)} {name}\n" for name in self.names)
        for name in self.names:
            space, port = self._of(name), self._port(name)
            self._ip("netns", "add", space)
            self._ip("link", "add", port, "netns", self._hub, "type", "veth", "peer", "name", "eth0", "netns", space)
            inside(self._hub, "link", "set", port, "master", "br0", "up")
            inside(space, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                inside(space, "link", "set", device, "up")
            own = pathlib.Path("/etc/netns") / space  # which `ip netns exec` lays over /etc
            own.mkdir(parents=True)
            (own / "hosts").write_text(hosts, encoding="utf-8")

    def _remove(self) -> None:
        for name in self.names:
            self.kill(name)
        for child in self._children:
            child.wait()
        for space in (*map(self._of, self.names), self._hub):
            _remove(space)

    def _of(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _port(self, name: str) -> str:
        return f"p-{name}"

    def _log(self, name: str, number: int) -> pathlib.Path:
        return self.folder / f"{name}-{number}.log"

    def _ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _enter(space: IO[bytes]) -> None:
    """Let this thread be in a network namespace: `os.setns`, which is new in Python 3.12."""
    if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), 0):
        raise OSError(ctypes.get_errno(), "setns")


def _kill(space: str) -> None:
    found = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False)
    for process in map(int, found.stdout.split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _remove(space: str) -> None:
    subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
    shutil.rmtree(pathlib.Path("/etc/netns") / space, ignore_errors=True)


def _remove_left() -> None:
    """Remove the machines of processes that were killed before they could do it."""
    found = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for space, owner in re.findall(r"^(sg(\d+)-\w+)", found.stdout, re.MULTILINE):
        if not pathlib.Path(f"/proc/{owner}").exists():
            _kill(space)
            _remove(space)
