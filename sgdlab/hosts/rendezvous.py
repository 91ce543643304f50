"""The meeting of all processes before JAX connects them: who is missing, who differs, and one line for everybody."""

import contextlib
import dataclasses
import errno
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from sgdlab.errors import HostLost, UsageError
from sgdlab.hosts import messages
from sgdlab.hosts.address import Address, listen
from sgdlab.hosts.callers import Caller, Callers
from sgdlab.hosts.messages import shown
from sgdlab.hosts.secret import NotProven, Seal

_HELLO = {"index": int, "count": int, "facts": dict, "host": str, "own_address": str, "least": int}
_MET, _REFUSED, _NONCE = {"hosts": list, "index": int}, {"why": str, "lost": bool}, {"nonce": str}
_LONGEST_ANSWER = 1 << 20
"""Bytes of the answer of process 0, which names all hosts."""
_WAIT_BEFORE_LINE = 5.0
"""Seconds after which a process says on stderr whom it waits for."""
_LATE = 3.0
"""Seconds in which process 0 still tells those who come late why there is no run."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 0.5
"""Seconds between two attempts."""


@dataclasses.dataclass(frozen=True)
class Member:
    """This process."""

    index: int  # its number
    count: int  # of all processes
    facts: Mapping[str, str]  # what must be equal on all processes: name -> value
    host: str  # the name of its host
    own_address: str  # what that name resolves to
    least: int = 0  # of processes with which the run goes on where others do not come; 0: it needs all

    @property
    def counts(self) -> str:
        """Return how many processes there are, as it was given: 4, or 2:4."""
        return f"{self.least}:{self.count}" if self.least else str(self.count)

    def hello(self) -> dict[str, Any]:
        """Return its message to process 0."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return own | {"facts": dict(self.facts), "pid": os.getpid()}


@dataclasses.dataclass(frozen=True)
class Members:
    """The processes of the run, which have come; where some have not, the others are numbered anew, in their order."""

    index: int  # the number of this process
    hosts: tuple[str, ...]  # the name of the host of each process
    connections: dict[int, socket.socket]  # by number: process 0 has one to each other, each has one to process 0


def meet(own: Member, address: Address, seconds: float, secret: bytes = b"") -> Members:
    """Wait until all processes have come, and check that they belong together.

    Where `own.least` is set, and at least so many have come when the time is over, they go on without the others.

    Args:
      own: this process.
      address: of process 0, as it was given, which listens there and nowhere else.
      seconds: how long to wait.
      secret: that all processes prove to have, before anything else of them is believed; b"" for none.

    Raises:
      HostLost: where some do not come in time; it says which.
      UsageError: where the address cannot be used, or processes do not belong together: two of one number, another
        number of processes, facts that differ, another secret than process 0's.
    """
    attempts = _Attempts(seconds)
    if own.index:
        return _join(own, address, attempts, secret)
    while (number := _resolved(address, attempts)) is None:
        pass
    return _FirstProcess(own, address, number, attempts).wait(secret)


def _resolved(address: Address, attempts: "_Attempts") -> Address | None:
    """Return the address with a number; None, after a moment, where its name does not resolve yet (a new cluster)."""
    try:
        return address.resolved()
    except OSError as error:
        if attempts.over():
            raise UsageError(f"--hosts={address}: {address.host} does not resolve: {error.strerror}") from None
        attempts.wait(f"{address.host}, whose name does not resolve yet")
        return None


class _Attempts:
    """Counts the seconds that a process has, with a line on stderr where it takes long."""

    def __init__(self, seconds: float):
        self.seconds, now = seconds, time.monotonic()
        self._ends, self._line_at, self._pause = now + seconds, now + _WAIT_BEFORE_LINE, _SHORTEST_PAUSE

    def over(self) -> bool:
        """Return True if the time is over."""
        return time.monotonic() > self._ends

    def left(self) -> float:
        """Return the seconds that are left; a moment, at least."""
        return max(self._ends - time.monotonic(), _SHORTEST_PAUSE)

    def wait(self, what: str) -> None:
        """Wait a moment, which is longer each time."""
        self.say(what)
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def say(self, what: str) -> None:
        """Say once what is waited for, where it takes long."""
        if time.monotonic() > self._line_at:
            self._line_at = float("inf")
            print(f"still waiting for {what}", file=sys.stderr, flush=True)


def _join(own: Member, address: Address, attempts: _Attempts, secret: bytes) -> Members:
    """Call process 0, say who this process is, and wait for the answer."""
    connection: Any = None
    while connection is None:
        try:
            # The number may change meanwhile, where process 0 is started again on another host.
            number: Any = _resolved(address, attempts)
            connection = number and _connected(number, attempts.left())
        except OSError as error:
            if attempts.over():
                why = error.strerror or str(error)
                raise HostLost(
                    f"waited {attempts.seconds:g} s for process 0 at {address}; it did not come ({why})"
                ) from None
            attempts.wait(f"process 0 at {address}")
    seal = Seal(secret, is_first=False)
    # Process 0 waits as long for the others, from an earlier moment on.
    lines = _lines_from(connection, attempts.seconds + _LATE + _WAIT_BEFORE_LINE, _LONGEST_ANSWER)
    try:
        if secret:
            connection.sendall(seal.greeting)
            seal.meet(next(lines))
        connection.sendall(seal.sealed(own.hello()))
        answer = seal.opened(next(lines), _MET, _REFUSED, _NONCE)
    except NotProven:
        connection.close()
        raise UsageError(
            f"process 0 at {address} does not prove that it has the secret of --hosts_secret_file: give every process "
            "the same file"
        ) from None
    except (OSError, ValueError) as error:
        connection.close()
        why = getattr(error, "strerror", None) or error
        raise HostLost(f"process 0 at {address} did not answer ({why})") from None
    if "nonce" in answer:
        connection.close()
        raise UsageError(f"process 0 at {address} asks for a secret: give every process the same --hosts_secret_file")
    if "hosts" not in answer:
        connection.close()
        raise (HostLost if answer["lost"] else UsageError)(answer["why"])
    return Members(answer["index"], tuple(answer["hosts"]), {0: connection})


def _connected(number: Address, seconds: float) -> socket.socket:
    """Return a connection to an address; OSError where nobody listens there."""
    connection = socket.create_connection((number.host, number.port), timeout=seconds)
    if connection.getsockname() == connection.getpeername():
        # On process 0's own host, the system may choose the very port as this side's, and connect it with itself.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # frees the port at once
        connection.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    return connection


def _lines_from(connection: socket.socket, seconds: float, longest: int) -> Iterator[bytes]:
    """Yield the lines that come over a connection within some seconds in all; OSError, ValueError as of `Inbox`."""
    inbox, ends = messages.Inbox(connection, longest), time.monotonic() + seconds
    while True:
        connection.settimeout(max(ends - time.monotonic(), 1e-3))
        yield from inbox.lines()


class _FirstProcess:
    """Process 0, which waits for the others."""

    def __init__(self, own: Member, address: Address, number: Address, attempts: _Attempts):
        self._own, self._address, self._number, self._attempts = own, address, number, attempts
        self._other_count = ""

    def wait(self, secret: bytes) -> Members:
        """Wait until all have come, and tell them so."""
        if self._own.count == 1:
            return Members(0, (self._own.host,), {})
        with listen(self._number, self._address) as listener, Callers(listener, secret) as callers:
            self._callers = callers
            while True:
                try:
                    self._step()
                except UsageError as error:
                    self._tell(str(error), lost=False)
                    raise
                if len(self._came()) == self._own.count - 1:
                    break
                if self._attempts.over():
                    why = f"waited {self._attempts.seconds:g} s for {self._missing()} did not come{self._hint()}"
                    if 0 < self._own.least <= len(self._came()) + 1:
                        self._go_on(why)
                        break
                    self._tell(why, lost=True)
                    raise HostLost(why)
                self._attempts.say(f"{self._missing()} did not come yet")
        came = [caller for _, caller in sorted(self._came().items())]
        hosts = (self._own.host, *(shown(caller.hello["host"]) for caller in came))
        self._warn(hosts)
        for index, caller in enumerate(came, 1):
            with contextlib.suppress(OSError):  # one that has gone meanwhile is noticed at once by those that watch
                caller.connection.sendall(caller.seal.sealed({"hosts": hosts, "index": index}))
        return Members(0, hosts, {index: caller.connection for index, caller in enumerate(came, 1)})

    def _go_on(self, why: str) -> None:
        """Say that the run goes on without some, and which numbers the others have now."""
        numbers = [
            f"--process_id={old} is process {new}" for new, old in enumerate(sorted(self._came()), 1) if new != old
        ]
        print("; ".join([f"{why}; going on without", *numbers]), file=sys.stderr, flush=True)

    def _came(self) -> dict[int, Caller]:
        """Return the processes that are there, by their numbers."""
        return {caller.hello["index"]: caller for caller in self._callers.all if caller.hello is not None}

    def _missing(self) -> str:
        came = self._came()
        missing = [str(i) for i in range(1, self._own.count) if i not in came]
        several = "es" * (len(missing) > 1)
        which = f"{', '.join(missing[:-1])} and {missing[-1]}" if len(missing) > 1 else missing[0]
        return f"{len(missing)} process{several} at {self._address}; {which}"

    def _hint(self) -> str:
        """Say why they may not have come."""
        if self._other_count:
            return f" (refused: {self._other_count})"
        if self._number.is_loopback and self._address.host != self._number.host:
            return f" ({self._address.host} is {self._number.host} here, which no other host can reach)"
        return ""

    def _warn(self, hosts: tuple[str, ...]) -> None:
        """Warn of a host whose name's address others cannot reach: collectives of processors listen there."""
        came = self._came()
        addresses = [self._own.own_address, *(came[i].hello["own_address"] for i in sorted(came))]
        for host, own_address in dict(zip(hosts, addresses, strict=True)).items():
            if len(set(hosts)) > 1 and own_address.startswith("127."):
                print(
                    f"warning: the name {host} is {own_address} on that host (see its /etc/hosts), which no other host "
                    "can reach: over CPUs this run will fail",
                    file=sys.stderr,
                    flush=True,
                )

    def _step(self) -> None:
        """Take in what comes in a moment: whoever does not belong to this run is refused, and the wait goes on."""
        for caller, line in self._callers.next(_SHORTEST_PAUSE):
            try:
                self._take(caller, line)
            except UsageError:
                raise
            except ValueError as error:
                self._callers.refuse(caller, str(error))

    def _take(self, caller: Caller, line: bytes) -> None:
        """Take in who a process says it is; ValueError: it is none of this run's; UsageError: it is, with a mistake."""
        if caller.hello is not None:
            raise ValueError("it said twice who it is")
        if caller.seal.meet(line):
            return
        hello = caller.seal.opened(line, _HELLO, _NONCE)
        if "index" not in hello:
            raise ValueError("it asks for a secret, and process 0 has no --hosts_secret_file")
        caller.said = True
        index, count, facts, host = hello["index"], hello["count"], hello["facts"], shown(hello["host"])
        if not all(isinstance(value, str) for value in facts.values()):
            raise ValueError("it sent facts that are not text")
        own, name, first = self._own, f"process {index} on {host}", f"process 0 on {self._own.host}"
        other = f"{hello['least']}:{count}" if hello["least"] else str(count)
        if other != own.counts:
            self._other_count = messages.cut(f"--num_processes is {own.counts} for {first}, and {other} for {name}")
            raise ValueError(self._other_count)
        if not 0 < index < count:
            raise ValueError(f"--process_id={index} must be from 1 to {count - 1}")
        if index in (came := self._came()):
            other = shown(came[index].hello["host"])
            raise UsageError(f"--process_id={index} was given to two processes, on {other} and on {host}")
        for fact in sorted(own.facts.keys() | facts.keys()):
            here, there = own.facts.get(fact), facts.get(fact)
            if here != there:
                raise UsageError(
                    f"processes differ: {shown(fact)} is {shown(here)} for {first}, and {shown(there)} for {name}"
                )
        caller.hello = hello

    def _tell(self, why: str, *, lost: bool) -> None:
        """Tell everybody why there is no run, also those that come within a few seconds."""
        message, ends, told = {"why": why, "lost": lost}, time.monotonic() + _LATE, 0
        coming = [caller for caller in self._callers.all if caller.said]
        while True:
            for caller in coming:
                with contextlib.suppress(OSError):
                    caller.connection.sendall(caller.seal.sealed(message))
                    told += 1
                self._callers.forget(caller)
            if told >= self._own.count - 1 or time.monotonic() > ends:
                return
            coming = []
            for caller, line in self._callers.next(_SHORTEST_PAUSE):
                try:
                    if not caller.seal.meet(line):
                        caller.seal.opened(line, _HELLO)
                        coming.append(caller)
                except ValueError as error:
                    self._callers.refuse(caller, str(error))
