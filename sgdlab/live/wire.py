"""Messages between a server and a worker: JSON behind its length, over a socket that the worker inherits."""

import contextlib
import json
import linecache
import os
import pathlib
import re
import socket
import traceback
from collections.abc import Iterator
from typing import Any

from sgdlab.errors import is_library

_LENGTH = 4
"""Bytes of a message's length, the most significant first."""
MOST = 16 << 20
"""Bytes of a message, at most; arrays are not in messages."""
MOST_UNSENT = 4 << 20
"""Bytes that wait for a side that does not read; more than it can have been asked for in good order."""


def packed(message: dict[str, Any]) -> bytes:
    r"""Return a message as bytes.

    Example:
      >>> packed({"kind": "begin"})
      b'\x00\x00\x00\x10{"kind":"begin"}'
    """
    body = json.dumps(message, separators=(",", ":")).encode()
    return len(body).to_bytes(_LENGTH, "big") + body


def unpacked(received: bytearray) -> Iterator[dict[str, Any]]:
    """Yield the messages that are whole, and take them off the front.

    Raises:
      ValueError: where what has come is no message.

    Example:
      >>> received = bytearray(packed({"ticket": 1}) + packed({"ticket": 2})[:-1])
      >>> list(unpacked(received)), len(received)
      ([{'ticket': 1}], 15)
    """
    while len(received) >= _LENGTH:
        end = _LENGTH + int.from_bytes(received[:_LENGTH], "big")
        if end > MOST:
            raise ValueError(f"a message has {end:,} bytes; {MOST:,} is most")
        if len(received) < end:
            return
        body = bytes(received[_LENGTH:end])
        del received[:end]
        try:
            message = json.loads(body)
        except RecursionError as error:
            raise ValueError("a message is nested too deeply") from error
        if not isinstance(message, dict):
            raise ValueError(f"a message must be an object; it is a {type(message).__name__}")
        yield message


def heard(line: socket.socket) -> Iterator[dict[str, Any]]:
    """Yield the messages of a socket that blocks, until the other side is gone."""
    received = bytearray()
    while True:
        try:
            some = line.recv(1 << 16)
        except OSError:
            return
        if not some:
            return
        received += some
        yield from unpacked(received)


class BufferedSocket:
    """The server's side of a socket, which never blocks: what it cannot send at once it keeps.

    Attributes:
      error: why nothing is sent or heard any more; '' while it is.
    """

    def __init__(self, line: socket.socket):
        line.setblocking(False)
        self.socket, self.error = line, ""
        self._received, self._unsent = bytearray(), bytearray()

    @property
    def waits(self) -> bool:
        """Return True if something is still to be sent, by `flush`, once the socket can be written to."""
        return bool(self._unsent)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, or keep it; nothing is sent to a side that is gone, or has not read for too long."""
        if self.error:
            return
        self._unsent += packed(message)
        self.flush()
        if len(self._unsent) > MOST_UNSENT:
            self._unsent.clear()
            self._ends(f"it has not read what it was sent: {MOST_UNSENT >> 20} MiB wait for it")

    def flush(self) -> None:
        """Send what the socket takes now."""
        try:
            while self._unsent:
                del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # that the other side is gone is noticed, and said, by `receive`
            self._unsent.clear()

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the messages that have come, and True if they were the last."""
        ended = bool(self.error)
        try:
            while some := self.socket.recv(1 << 16):
                self._received += some
            ended = True
        except BlockingIOError:
            pass
        except OSError:
            ended = True
        messages: list[dict[str, Any]] = []
        try:
            messages.extend(unpacked(self._received))
        except ValueError as error:
            self._ends(f"what it has sent is no message: {error}")
            self._received.clear()
            ended = True
        return messages, ended

    def _ends(self, error: str) -> None:
        """Hear and send nothing any more; the side that waits for this socket finds it ended."""
        self.error = error
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


_FRAME = re.compile(r'^  File "(.+)", line (\d+), in ', re.MULTILINE)
_PACKAGE = f"{pathlib.Path(__file__).parents[1]}{os.sep}"


def in_one_line(error: BaseException) -> str:
    """Return an error's type and message, and the last line of the user's own code, if any has a part in it.

    Errors of callbacks come out of compiled programs as text, with a traceback inside: then it is that text's error.

    Example:
      >>> in_one_line(ValueError("batch_size=3 must be even"))
      'ValueError: batch_size=3 must be even'
    """
    text = "".join(traceback.format_exception_only(error)).split("\n--------------------\n", maxsplit=1)[0].strip()
    within = "Traceback (most recent call last):" in text
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    frames += [(found[1], int(found[2])) for found in _FRAME.finditer(text)]
    what = text.splitlines()[-1 if within else 0]
    for file, number in reversed(frames):
        line = linecache.getline(file, number).strip()
        if line and not is_library(file) and not file.startswith(_PACKAGE):
            return f"{what} ({file}, line {number}: {line})"
    return what
