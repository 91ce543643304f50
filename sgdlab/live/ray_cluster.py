"""`Cluster`, one of Ray that is joined, or started on this machine, where nobody else can reach it, and its `Head`."""

import contextlib
import errno
import ipaddress
import logging
import math
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import psutil

from sgdlab.errors import HostLost
from sgdlab.hosts.lifeline import LOST
from sgdlab.live import ray_private

SECONDS = 10.0
"""Without an answer, after which the head counts as lost; Ray itself ends this process after 60."""
GRACE = 5.0
"""Seconds in which the main thread may end the process with the line, unless Ray holds it up."""
_INTERVAL, _TIMEOUT = 1.0, 2.0
_OURS = (errno.EMFILE, errno.ENFILE)
"""Errors that say nothing of the head."""
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""At 0, Ray binds all its ports to 127.0.0.1, on Linux too; it is read when Ray is imported. The documented
`_node_ip_address="127.0.0.1"` is replaced by the machine's own address, and some ports are open to everybody."""
_LOCAL = {_LOOPBACK: "0", "RAY_AUTH_MODE": "token"}
_TOKEN = "RAY_AUTH_TOKEN"
"""Without it Ray leaves a token in a file that other users of this machine may be able to read; a process's environment
they are not."""
_ALWAYS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to Ray's makers
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of workers whose answer nobody waits for
}
_LONGEST = 40
"""Letters of a folder in which Ray can still make sockets, whose names are at most 107 letters long."""
_LEAST_MEMORY = 80 << 20
"""Bytes; Ray refuses less."""
PATIENCE = 10.0
"""Seconds that Ray's processes have to end by themselves before they are killed."""


def imported(*, local: bool) -> ModuleType:
    """Import Ray with the settings that it reads only once, those of a cluster on this machine alone if it is `local`.

    Raises:
      ValueError: if Ray is not installed, or was imported before with other settings.
    """
    os.environ.update(_ALWAYS | (_LOCAL if local else {}))
    if local:
        os.environ.setdefault(_TOKEN, secrets.token_hex(32))
    try:
        import ray  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(f"transport=ray needs Ray, which `pip install 'sgdlab[ray]'` installs: {error}") from error
    ray_private.check(ray)
    if local and ray_private.may_open_ports(ray):
        raise ValueError(
            f"address='local' needs {_LOOPBACK}=0 in the environment before Ray is imported, or its ports would be "
            "open to the network; Ray has been imported already"
        )
    return ray


class Cluster:
    """A connection to a cluster, and the cluster too if it is one of this machine's own.

    On this machine: on loopback only, with a token that no other user knows, silent, without a dashboard; another
    cluster is not joined, even if there is one.
    A cluster elsewhere is joined as it is, if it asks for a token (`RAY_AUTH_MODE=token`): see that its network is
    private, too.

    Args:
      address: "local" starts one; "auto" joins the one that runs on this machine; or its address.
      memory: bytes of the memory that workers and server share, of a cluster that is started.
      insecure: join a cluster that asks for no token, too.

    Raises:
      ValueError: if Ray is missing, is another version, or is connected already, there is no such cluster, or it asks
        for no token.
      HostLost: if nobody answers at HOST:PORT.
    """

    def __init__(self, address: str = "local", *, memory: int = 256 << 20, insecure: bool = False):
        self.local = address == "local"
        self.head: Any = None  # `Head`, once it is connected
        self.ray = imported(local=self.local)
        if self.ray.is_initialized():
            raise ValueError(
                "address: this process is connected to a cluster of Ray already; call ray.shutdown() first"
            )
        self.processes: set[psutil.Process] = set()  # all of its own, if it was started here
        self._folder = _short_folder() if self.local else None
        if re.fullmatch(r"[^/]+:\d+", address):
            try:
                call(address)  # Ray itself takes minutes to give up
            except OSError as error:
                raise HostLost(f"no head of a Ray cluster answers at {address} ({error.strerror or error})") from None
        settings: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
        if self.local:
            os.environ.pop("RAY_ADDRESS", None)
            settings |= {
                "num_cpus": 0,  # else it starts so many processes, which nobody asks for anything
                "include_dashboard": False,
                "object_store_memory": max(memory, _LEAST_MEMORY),
                "_temp_dir": self._folder,
            }
        try:
            self._connect(settings)
            found = self.ray.get_runtime_context().gcs_address
            if not (self.local or insecure or self._asks_for_token(found)):
                raise ValueError(
                    f"address={address!r} is a cluster that asks for no token: whoever reaches its ports can run code "
                    "there and here. Start it with RAY_AUTH_MODE=token on all nodes, or say insecure (--insecure) to "
                    "join it as it is"
                )
            self.head = Head(found, end=self._end)
        except BaseException:
            self.close()
            raise

    def _connect(self, settings: dict[str, Any]) -> None:
        own = {psutil.Process()}
        before, open_before = _descendants(own), _open(own)
        try:
            # JAX warns of the fork by which Ray starts its processes: they run another program, without JAX. What its
            # threads hold at that instant cannot block them: it has nothing to compute, and they ask it for nothing.
            with _own_signals(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
                self.ray.init(**settings)
        except ConnectionError as error:
            raise ValueError(f"address={settings['address']!r} is no cluster of Ray: {error}") from error
        finally:
            self.note(_descendants(own) - before)
        ray_private.silence(self.ray)
        if self.local and (ports := _open(self.processes | own) - open_before):
            raise ValueError(f"address='local': this version of Ray opens ports to the network, {sorted(ports)}")

    def _asks_for_token(self, address: str) -> bool:
        return os.environ.get("RAY_AUTH_MODE") == "token" and ray_private.asks_for_token(self.ray, address)

    def nodes(self) -> set[str]:
        """Return the names of the hosts of a cluster elsewhere that are there; none of one that was started here."""
        return set() if self.local else {str(node["NodeManagerHostname"]) for node in self.ray.nodes() if node["Alive"]}

    def places(self) -> list[str]:
        """Return the names by which Ray knows the nodes of a cluster elsewhere that are there; none of one here."""
        return [] if self.local else sorted(node["NodeID"] for node in self.ray.nodes() if node["Alive"])

    def at(self, node: str) -> Any:
        """Return what places an actor at a node, or elsewhere if that is gone."""
        return self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=True)

    def _end(self, code: int) -> None:
        """End this process at once, and the cluster if it was started here."""
        self.note()
        for process in self.processes:
            self.kill(process.pid)
        os._exit(code)

    @property
    def cores(self) -> float | None:
        """Return the cores of all nodes, infinitely many if none has said; None: it was started here."""
        return None if self.local else self.ray.cluster_resources().get("CPU", math.inf)

    def note(self, processes: set[psutil.Process] | None = None) -> None:
        """Remember processes, or all that there are now, which `close` ends if the cluster is of this machine."""
        if self.local:
            self.processes |= _descendants(self.processes) if processes is None else processes

    def kill(self, process: int) -> None:
        """End a process of a cluster that was started here; Ray's own way does not reach one that is stopped."""
        for known in self.processes:
            if known.pid == process:
                with contextlib.suppress(psutil.NoSuchProcess):
                    known.kill()

    def close(self) -> None:
        """Disconnect, and end what was started here."""
        self.note()
        with contextlib.suppress(Exception):
            self.ray.shutdown()
        if self.head is not None:
            self.head.close()  # not before: without a head, Ray may hold up its own end
        _, alive = psutil.wait_procs(self.processes, PATIENCE if self.local else 0)
        for process in alive:
            self.kill(process.pid)
        psutil.wait_procs(alive, PATIENCE)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


class Head:
    """Calls the head of a cluster once a second, in a thread: `check` raises `HostLost` once it counts as lost.

    Args:
      address: HOST:PORT.
      end: called with exit code 69 where the process has not called `close` a few seconds after that.

    Example:
      >>> with socket.create_server(("127.0.0.1", 0)) as listener:
      ...     head = Head(f"127.0.0.1:{listener.getsockname()[1]}")
      ...     head.check()
      ...     head.close()
    """

    def __init__(self, address: str, *, end: Callable[[int], object] = os._exit):
        self._address, self._end = address, end
        self._closed = threading.Event()
        self.lost = ""  # why, once it is
        threading.Thread(target=self._watch, daemon=True).start()

    def check(self) -> None:
        """Raise HostLost if the head is lost."""
        if self.lost:
            raise HostLost(self.lost)

    def close(self) -> None:
        """End the watch."""
        self._closed.set()

    def _watch(self) -> None:
        heard = last = time.monotonic()
        while not self.lost:
            if self._closed.wait(_INTERVAL):
                return
            answers, now = self._answers(), time.monotonic()
            if answers or now - last > SECONDS / 2:  # or this process itself was suspended
                heard = now
            last = now
            if now - heard > SECONDS:
                self.lost = (
                    f"the head of the Ray cluster, {self._address}, has not answered for {SECONDS:g} s; once it is "
                    "started again, the same command continues"
                )
        if not self._closed.wait(GRACE):
            sys.stderr.write(f"error: {self.lost}\n")
            sys.stderr.flush()
            self._end(LOST)

    def _answers(self) -> bool:
        try:
            call(self._address)
        except OSError as error:
            return error.errno in _OURS
        return True


def call(address: str) -> None:
    """Connect to HOST:PORT for a moment; OSError where nobody answers within two seconds."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT).close()


def _short_folder() -> str:
    parent = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="ray", dir=parent if len(parent) <= _LONGEST else "/tmp")


def _open(processes: set[psutil.Process]) -> set[tuple[str, int]]:
    """Return the addresses at which processes can be reached from other machines."""
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            connections = process.net_connections("inet")
            found |= {tuple(each.laddr) for each in connections if each.status == psutil.CONN_LISTEN}
    return {place for place in found if not ipaddress.ip_address(place[0].removeprefix("::ffff:")).is_loopback}


def _descendants(processes: set[psutil.Process]) -> set[psutil.Process]:
    found = set(processes)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= set(process.children(recursive=True))
    return found


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this process's handlers of signals, in the place of which Ray puts its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
