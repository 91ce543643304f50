"""`Lifeline`: connections that stay open between process 0 and the others, by which the end of one is noticed."""

import contextlib
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sgdlab.hosts import messages

LOST = 69
"""Exit code of a process that ends because another one was lost."""

_BYE, _ENDED = {"bye": bool}, {"ended": str, "code": int}
_LARGEST_CODE = 255
_GRACE = 1.0
"""Seconds in which the main thread of a process that is to end may end it itself, with a message of its own."""
_LONGEST_LEAVING = 30.0
"""Seconds in which it has to, once it has begun."""
_RETRY = 0.1
"""Seconds between two checks whether the others have ended."""
_LINGER = 5.0
"""Seconds that process 0, without which the others are aborted, waits for them to end."""


class Lifeline:
    """Notices that another process has ended, or does not answer; then it ends this one.

    Process 0 has a connection to each other process, and tells all of them what happened to one. A thread sends a sign
    of life over every connection and reads those of the others. Where a connection is closed without a goodbye, the
    process behind it was killed.

    Args:
      own: the number of this process.
      hosts: the name of the host of each process.
      connections: to the others, by number; see `sgdlab.hosts.rendezvous.Members`.
      seconds: without a sign of life, after which a process counts as lost.
    """

    def __init__(self, own: int, hosts: Sequence[str], connections: Mapping[int, socket.socket], seconds: float):
        self._own, self._hosts, self._seconds = own, tuple(hosts), seconds
        self._open = dict(connections)
        self._interval = min(1.0, seconds / 5)
        self._sending, self._closing, self._leaving = threading.Lock(), False, threading.Event()
        self._all_gone, self._printed = threading.Event(), False
        self._decision: _Decision | None = None
        self._strange: set[int] = set()
        for connection in self._open.values():
            connection.settimeout(2.0)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def name(self, index: int) -> str:
        """Return a process and its host, for messages."""
        return f"process {index} on {self._hosts[index]}"

    def announce(self, line: str, code: int) -> None:
        """Tell the others that this process is about to end, what happened, and the exit code for them."""
        self._leaving.set()
        self._tell_all({"ended": f"{self.name(self._own)}: {line}", "code": code})

    def linger(self) -> None:
        """Let process 0 wait a few seconds for the others to end, since they are aborted without it."""
        if self._own == 0:
            self._all_gone.wait(_LINGER)

    def close(self) -> None:
        """End the watch, where all processes have come to their end."""
        self._closing = True
        self._tell_all({"bye": True})
        self._thread.join(_LINGER)
        for connection in self._open.values():
            connection.close()

    def _tell_all(self, message: Mapping[str, Any]) -> None:
        for index in list(self._open):
            self._send(index, messages.line_of(message))

    def _send(self, index: int, data: bytes) -> None:
        with self._sending, contextlib.suppress(OSError, KeyError):  # who has gone is noticed by reading
            self._open[index].sendall(data)

    def _watch(self) -> None:
        """Watch the others, in a thread: where that fails, nobody would notice their end, and this process ends."""
        try:
            self._watch_others()
        except Exception as error:
            why = messages.cut(f"{type(error).__name__}: {error}")
            self._decide(f"{self.name(self._own)}: its watch over the others failed: {why}", LOST)
            while self._decision is not None:
                self._carry_out(time.monotonic(), others=False)
                time.sleep(_RETRY)

    def _watch_others(self) -> None:
        """Send and read signs of life, and end this process where another one has ended."""
        selector, now = selectors.DefaultSelector(), time.monotonic()
        for index, connection in self._open.items():
            selector.register(connection, selectors.EVENT_READ, (index, messages.Inbox(connection)))
        reading, heard, sent, last = set(self._open), dict.fromkeys(self._open, now), 0.0, now
        while reading or self._decision is not None:
            for key, _ in selector.select(self._interval if self._decision is None else _RETRY):
                index, inbox = key.data
                heard[index] = time.monotonic()
                goodbye, end = self._read(index, inbox)
                if goodbye or end:
                    selector.unregister(key.fileobj)
                    reading.discard(index)
                if end and not goodbye:
                    self._decide(f"{self.name(index)} {end}", LOST)
            now = time.monotonic()
            if now - sent >= self._interval:
                sent = now
                for index in reading:
                    self._send(index, b"\n")
            if now - last > self._seconds / 2:  # this process itself was suspended
                heard = dict.fromkeys(heard, now)
            last = now
            silent = {index for index in reading if now - heard[index] > self._seconds}
            for index in sorted(silent):
                self._decide(f"{self.name(index)} has not answered for {self._seconds:g} s", LOST)
            if not reading:
                self._all_gone.set()
            self._carry_out(now, others=bool(reading - silent))

    def _read(self, index: int, inbox: messages.Inbox) -> tuple[bool, str]:
        """Take in what a process has sent; return True if it says goodbye, and how its connection ended, if it did."""
        try:
            lines = inbox.lines()
        except OSError:
            return False, "ended without a message (killed?)"
        except ValueError as error:
            return False, f"is none of ours: {error}"
        goodbyes = [self._take(index, line) for line in lines if line]
        return any(goodbyes), ""

    def _take(self, index: int, line: bytes) -> bool:
        """Take in a message, and return True if it was a goodbye; what is none is said once, and passed over."""
        try:
            message = messages.read(line, _BYE, _ENDED)
            if "bye" in message:
                return True
            if not 0 < message["code"] <= _LARGEST_CODE:
                raise ValueError(f"it sent code={messages.shown(str(message['code']))}, which is no exit code")
        except ValueError as error:
            if index not in self._strange:
                self._strange.add(index)
                sys.stderr.write(f"warning: a message of {self.name(index)} is passed over: {error}\n")
            return False
        self._decide(messages.cut(message["ended"]), message["code"])
        return False

    def _decide(self, line: str, code: int) -> None:
        """Decide that this process is to end, with the first line that says why, and tell the others."""
        if self._closing or self._decision is not None:
            return
        self._decision = _Decision(line, code, time.monotonic())
        if self._own == 0:
            self._tell_all({"ended": line, "code": code})

    def _carry_out(self, now: float, *, others: bool) -> None:
        """End this process where that is decided and its main thread does not do so itself."""
        decision = self._decision
        if decision is None or now < decision.at + (_LONGEST_LEAVING if self._leaving.is_set() else _GRACE):
            return
        if not self._printed:
            self._printed = True
            sys.stderr.write(f"error: {decision.line}\n")
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
        if self._own == 0 and others and now < decision.at + _GRACE + _LINGER:
            return
        os._exit(decision.code)


class _Decision(NamedTuple):
    """The decision that a process is to end: why, and when it was made."""

    line: str
    code: int
    at: float
