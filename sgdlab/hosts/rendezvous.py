"""The meeting of all processes before JAX connects them: who is missing, who differs, and one line for everybody."""

import contextlib
import dataclasses
import errno
import json
import os
import selectors
import socket
import struct
import sys
import time
from collections.abc import Mapping
from typing import Any

from sgdlab.errors import HostLost, UsageError
from sgdlab.hosts.address import Address, listen

_LONGEST = 1 << 20
"""Bytes of a message; what is longer does not come from one of ours."""
_WAIT_BEFORE_LINE = 5.0
"""Seconds after which a process says on stderr whom it waits for."""
_LONGEST_SHOWN = 80
_LATE = 3.0
"""Seconds in which process 0 still tells those who come late why there is no run."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 0.5
"""Seconds between two attempts."""


@dataclasses.dataclass(frozen=True)
class Member:
    """This process.

    Attributes:
      index: its number.
      count: of all processes.
      facts: what must be equal on all processes: name -> value.
      host: the name of its host.
      own_address: what that name resolves to.
    """

    index: int
    count: int
    facts: Mapping[str, str]
    host: str
    own_address: str

    def hello(self) -> dict[str, Any]:
        """Its message to process 0."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return own | {"facts": dict(self.facts), "pid": os.getpid()}


@dataclasses.dataclass(frozen=True)
class Members:
    """All processes have come.

    Attributes:
      hosts: the name of the host of each process.
      connections: to the other processes, by their number: process 0 has one to each, each has one to process 0.
    """

    hosts: tuple[str, ...]
    connections: dict[int, socket.socket]


def meet(own: Member, address: Address, seconds: float) -> Members:
    """Waits until all processes have come, and checks that they belong together.

    Process 0 listens on the address that was given and on no other; the others say who they are.

    Args:
      own: this process.
      address: of process 0, as it was given.
      seconds: how long to wait.

    Raises:
      HostLost: where some do not come in time; it says which.
      UsageError: where the address cannot be used, or processes do not belong together: two of one number, another
        number of processes, facts that differ.
    """
    attempts = _Attempts(seconds)
    if own.index:
        return _join(own, address, attempts)
    while (number := _resolved(address, attempts)) is None:
        pass
    return _FirstProcess(own, address, number, attempts).wait()


def _resolved(address: Address, attempts: "_Attempts") -> Address | None:
    """The address with a number; None, after a moment, where its name does not resolve yet, as in a new cluster."""
    try:
        return address.resolved()
    except OSError as error:
        if attempts.over():
            raise UsageError(f"--hosts={address}: {address.host} does not resolve: {error.strerror}") from None
        attempts.wait(f"{address.host}, whose name does not resolve yet")
        return None


class _Attempts:
    """The time that a process has, with a line on stderr where it takes long.

    Args:
      seconds: how long it may take.
    """

    def __init__(self, seconds: float):
        self.seconds, now = seconds, time.monotonic()
        self._ends, self._line_at, self._pause = now + seconds, now + _WAIT_BEFORE_LINE, _SHORTEST_PAUSE

    def over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self._ends

    def left(self) -> float:
        """Seconds that are left; a moment, at least."""
        return max(self._ends - time.monotonic(), _SHORTEST_PAUSE)

    def wait(self, what: str) -> None:
        """Waits a moment, which is longer each time."""
        self.say(what)
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def say(self, what: str) -> None:
        """Says once what is waited for, where it takes long."""
        if time.monotonic() > self._line_at:
            self._line_at = float("inf")
            print(f"still waiting for {what}", file=sys.stderr, flush=True)


def _join(own: Member, address: Address, attempts: _Attempts) -> Members:
    """What every process but the first does: calls process 0, says who it is, and waits for the answer."""
    connection = None
    while connection is None:
        try:
            # The number may change meanwhile, where process 0 is started again on another host.
            number = _resolved(address, attempts)
            connection = number and _connected(number, attempts.left())
        except OSError as error:
            if attempts.over():
                why = error.strerror or str(error)
                raise HostLost(
                    f"waited {attempts.seconds:g} s for process 0 at {address}; it did not come ({why})"
                ) from None
            attempts.wait(f"process 0 at {address}")
    # Process 0 waits as long for the others, from an earlier moment on.
    connection.settimeout(attempts.seconds + _LATE + _WAIT_BEFORE_LINE)
    try:
        connection.sendall(_line(own.hello()))
        answer = _read_line(connection)
    except OSError as error:
        connection.close()
        raise HostLost(f"process 0 at {address} did not answer ({error.strerror or error})") from None
    if "hosts" not in answer:
        connection.close()
        raise (HostLost if answer.get("lost") else UsageError)(str(answer.get("why", "process 0 refused this process")))
    return Members(tuple(answer["hosts"]), {0: connection})


def _connected(number: Address, seconds: float) -> socket.socket:
    """A connection to an address.

    Raises:
      OSError: where nobody listens there.
    """
    connection = socket.create_connection((number.host, number.port), timeout=seconds)
    if connection.getsockname() == connection.getpeername():
        # On process 0's own host, the system may choose the very port as this side's, and connect it with itself.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # frees the port at once
        connection.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    return connection


def _read_line(connection: socket.socket) -> dict[str, Any]:
    received = b""
    while not received.endswith(b"\n") and len(received) < _LONGEST:
        more = connection.recv(1 << 16)
        if not more:
            raise OSError("it has ended the connection")
        received += more
    try:
        return dict(json.loads(received))
    except (ValueError, TypeError):
        raise OSError("it is not a process of such a run") from None


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


class _FirstProcess:
    """Process 0, which waits for the others."""

    def __init__(self, own: Member, address: Address, number: Address, attempts: _Attempts):
        self._own, self._address, self._number, self._attempts = own, address, number, attempts
        self._selector = selectors.DefaultSelector()
        self._received: dict[socket.socket, bytes] = {}
        self._came: dict[int, tuple[socket.socket, dict[str, Any]]] = {}

    def wait(self) -> Members:
        """Waits until all have come, and tells them so."""
        if self._own.count == 1:
            return Members((self._own.host,), {})
        with listen(self._number, self._address) as listener, self._selector:
            self._selector.register(listener, selectors.EVENT_READ)
            while True:
                try:
                    self._step(listener)
                except UsageError as error:
                    self._refuse(listener, str(error), lost=False)
                    raise
                if len(self._came) == self._own.count - 1:
                    break
                if self._attempts.over():
                    why = f"waited {self._attempts.seconds:g} s for {self._missing()} did not come{self._hint()}"
                    self._refuse(listener, why, lost=True)
                    raise HostLost(why)
                self._attempts.say(f"{self._missing()} did not come yet")
            for connection in self._received.keys() - {found for found, _ in self._came.values()}:
                connection.close()
        hosts = (self._own.host, *(_shown(str(self._came[i][1]["host"])) for i in sorted(self._came)))
        self._warn(hosts)
        answer = _line({"hosts": hosts})
        for connection, _ in self._came.values():
            with contextlib.suppress(OSError):  # one that has gone meanwhile is noticed at once by those that watch
                connection.sendall(answer)
        return Members(hosts, {i: self._came[i][0] for i in sorted(self._came)})

    def _missing(self) -> str:
        missing = [str(i) for i in range(1, self._own.count) if i not in self._came]
        several = "es" * (len(missing) > 1)
        which = f"{', '.join(missing[:-1])} and {missing[-1]}" if len(missing) > 1 else missing[0]
        return f"{len(missing)} process{several} at {self._address}; {which}"

    def _hint(self) -> str:
        """Why nobody may have come."""
        if self._number.is_loopback and self._address.host != self._number.host:
            return f" ({self._address.host} is {self._number.host} here, which no other host can reach)"
        return ""

    def _warn(self, hosts: tuple[str, ...]) -> None:
        """Collectives of processors listen on the address of each host's name, which others must be able to reach."""
        addresses = [self._own.own_address, *(str(self._came[i][1].get("own_address")) for i in sorted(self._came))]
        for host, own_address in dict(zip(hosts, addresses, strict=True)).items():
            if len(set(hosts)) > 1 and own_address.startswith("127."):
                print(
                    f"warning: the name {host} is {own_address} on that host (see its /etc/hosts), which no other host "
                    "can reach: over CPUs this run will fail",
                    file=sys.stderr,
                    flush=True,
                )

    def _step(self, listener: socket.socket) -> None:
        for key, _ in self._selector.select(_SHORTEST_PAUSE):
            connection: Any = key.fileobj
            if connection is listener:
                accepted, _ = listener.accept()
                accepted.settimeout(1.0)
                self._received[accepted] = b""
                self._selector.register(accepted, selectors.EVENT_READ)
                continue
            try:
                more = connection.recv(1 << 16)
            except OSError:
                more = b""
            self._received[connection] += more
            if not more or len(self._received[connection]) > _LONGEST:
                self._forget(connection)
            elif self._received[connection].endswith(b"\n"):
                self._take(connection)

    def _forget(self, connection: socket.socket) -> None:
        """One that ended, such as one that is started again, or whose messages are not ours."""
        self._selector.unregister(connection)
        del self._received[connection]
        self._came = {i: (other, hello) for i, (other, hello) in self._came.items() if other is not connection}
        connection.close()

    def _take(self, connection: socket.socket) -> None:
        """Takes in who a process says it is.

        Raises:
          UsageError: where it does not belong to this run.
        """
        try:
            hello = dict(json.loads(self._received[connection]))
            index, count, facts = int(hello["index"]), int(hello["count"]), dict(hello["facts"])
            host = _shown(str(hello["host"]))
            name = f"process {index} on {host}"
        except (ValueError, TypeError, KeyError):
            self._forget(connection)
            return
        own, first = self._own, f"process 0 on {self._own.host}"
        if count != own.count:
            raise UsageError(f"--num_processes is {own.count} for {first}, and {count} for {name}")
        if index in self._came or not 0 < index < count:
            other = _shown(str(self._came[index][1]["host"])) if index in self._came else own.host
            raise UsageError(f"--process_id={index} was given to two processes, on {other} and on {host}")
        for fact in sorted(own.facts.keys() | facts.keys()):
            here, there = own.facts.get(fact), facts.get(fact)
            if here != there:
                raise UsageError(
                    f"processes differ: {fact} is {_shown(here)} for {first}, and {_shown(there)} for {name}"
                )
        self._came[index] = connection, hello

    def _refuse(self, listener: socket.socket, why: str, *, lost: bool) -> None:
        """Tells everybody why there is no run, also those that come within a few seconds."""
        answer, ends, answered = _line({"why": why, "lost": lost}), time.monotonic() + _LATE, 0
        waiting = list(self._received)
        listener.settimeout(_SHORTEST_PAUSE)
        while True:
            for connection in waiting:
                with contextlib.suppress(OSError), connection:
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    answered += 1
            if answered >= self._own.count - 1 or time.monotonic() > ends:
                return
            try:
                accepted, _ = listener.accept()
                accepted.settimeout(1.0)
                with contextlib.suppress(OSError):
                    _read_line(accepted)  # what is unread when a connection is closed would take the answer with it
                waiting = [accepted]
            except OSError:
                waiting = []


def _shown(value: str | None) -> str:
    """A value as it stands in a message, which is one short line whatever came over the network."""
    if value is None:
        return "not set"
    printable = "".join(letter for letter in value if letter.isprintable())
    return printable if len(printable) <= _LONGEST_SHOWN else f"{printable[: _LONGEST_SHOWN - 3]}..."
