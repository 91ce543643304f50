"""Messages between a server and a worker (`sgdlab.hosts.messages`) over a socket that the worker inherits."""

import contextlib
import linecache
import os
import pathlib
import re
import socket
import traceback
from collections.abc import Iterator
from typing import Any

from sgdlab.errors import is_library
from sgdlab.hosts import messages

MOST = 16 << 20
"""Bytes of a message, at most; arrays are not in messages."""
MOST_UNSENT = 4 << 20
"""Bytes that wait for a side that does not read; more than it can have been asked for in good order."""
_KIND = {"kind": str}


def heard(line: socket.socket) -> Iterator[dict[str, Any]]:
    """Yield the messages of a socket that blocks, until the other side is gone."""
    inbox = messages.Inbox(line, MOST)
    with contextlib.suppress(OSError):
        while True:
            yield from (messages.read(each, _KIND) for each in inbox.lines())


class BufferedSocket:
    """The server's side of a socket, which never blocks: what it cannot send at once it keeps.

    Attributes:
      error: why nothing is sent or heard any more; '' while it is.
    """

    def __init__(self, line: socket.socket):
        line.setblocking(False)
        self.socket, self.error = line, ""
        self._inbox, self._unsent = messages.Inbox(line, MOST), bytearray()

    @property
    def waits(self) -> bool:
        """Return True if something is still to be sent, by `flush`, once the socket can be written to."""
        return bool(self._unsent)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, or keep it; nothing is sent to a side that is gone, or has not read for too long."""
        if self.error:
            return
        self._unsent += messages.line_of(message)
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
        found: list[dict[str, Any]] = []
        try:
            while not self.error:
                found.extend(messages.read(line, _KIND) for line in self._inbox.lines())
        except BlockingIOError:
            return found, False
        except OSError:
            pass
        except ValueError as error:
            self._ends(f"what it has sent is no message: {error}")
        return found, True

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
