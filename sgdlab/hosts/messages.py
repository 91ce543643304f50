"""Messages between processes: a line of JSON each, which anybody may have sent who has found a port.

A server and the workers that it has started (`sgdlab.live`) send them over sockets that these inherit: of some "kind".
"""

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any

LONGEST = 1 << 16
"""Bytes of a message; what is longer does not come from one of ours."""
LONGEST_LINE = 1000
"""Characters of a line that is printed."""
_LONGEST_SHOWN = 80
MOST = 16 << 20
"""Bytes of a message, at most; arrays are not in messages."""
MOST_UNSENT = 4 << 20
"""Bytes that wait for a side that does not read; more than it can have been asked for in good order."""
_KIND = {"kind": str}


class Inbox:
    """Takes in what comes over a connection, line by line; it keeps no more than `longest` bytes, those of a line."""

    def __init__(self, connection: socket.socket, longest: int = LONGEST):
        self.connection, self._longest, self._rest = connection, longest, b""

    def lines(self) -> list[bytes]:
        """Receive once, and return the lines that are whole now.

        Raises:
          OSError: if the connection has ended.
          ValueError: if a line is too long.
        """
        data = self.connection.recv(1 << 16)
        if not data:
            raise ConnectionError("it has ended the connection")
        *lines, self._rest = (self._rest + data).split(b"\n")
        if max(map(len, [*lines, self._rest])) > self._longest:
            raise ValueError(f"it sent more than {self._longest:,} bytes, which no message has")
        return lines


def line_of(message: Mapping[str, Any]) -> bytes:
    """Return the line of a message."""
    return json.dumps(message).encode() + b"\n"


def read(line: bytes, *kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return the message of a line, which has all entries of one of some kinds, of the right types.

    Raises:
      ValueError: where it is no such message; it says why in a few words.

    Example:
      >>> read(b'{"bye": true}', {"bye": bool}, {"ended": str, "code": int})
      {'bye': True}
      >>> read(b'{"ended": 7, "code": 1}', {"bye": bool}, {"ended": str, "code": int})
      Traceback (most recent call last):
      ...
      ValueError: it sent no message with bye (bool), or with ended (str) and code (int)
    """
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("it sent JSON that is nested too deeply") from None
    except ValueError:
        raise ValueError("it sent what is not JSON") from None
    if isinstance(message, dict):
        for kind in kinds:
            if all(type(message.get(name)) is expected for name, expected in kind.items()):
                return message
    wanted = (" and ".join(f"{name} ({kind[name].__name__})" for name in kind) for kind in kinds)
    raise ValueError(f"it sent no message with {', or with '.join(wanted)}")


def heard(line: socket.socket) -> Iterator[dict[str, Any]]:
    """Yield the messages of a socket that blocks, until the other side is gone."""
    inbox = Inbox(line, MOST)
    with contextlib.suppress(OSError):
        while True:
            yield from (read(each, _KIND) for each in inbox.lines())


class BufferedSocket:
    """The server's side of a socket, which never blocks: what it cannot send at once it keeps.

    Attributes:
      error: why nothing is sent or heard any more; '' while it is.
    """

    def __init__(self, line: socket.socket):
        line.setblocking(False)
        self.socket, self.error = line, ""
        self._inbox, self._unsent = Inbox(line, MOST), bytearray()

    @property
    def waits(self) -> bool:
        """Return True if something is still to be sent, by `flush`, once the socket can be written to."""
        return bool(self._unsent)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, or keep it; nothing is sent to a side that is gone, or has not read for too long."""
        if self.error:
            return
        self._unsent += line_of(message)
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
                found.extend(read(line, _KIND) for line in self._inbox.lines())
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


def shown(value: str | None) -> str:
    """Return a value as it stands in a line, short whatever came over the network."""
    return "not set" if value is None else cut(value, _LONGEST_SHOWN)


def printable(text: str) -> str:
    """Return a text as one line, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def cut(text: str, longest: int = LONGEST_LINE) -> str:
    r"""Return one line that can be printed, whatever came over the network.

    Example:
      >>> cut("an error\nof \ud800many words", 16)
      'an error of  ...'
    """
    line = printable(text)
    return line if len(line) <= longest else f"{line[: longest - 3]}..."
