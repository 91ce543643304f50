"""Messages between processes: a line of JSON each, which anybody may have sent who has found a port."""

import json
import socket
from collections.abc import Mapping
from typing import Any

LONGEST = 1 << 16
"""Bytes of a message; what is longer does not come from one of ours."""
LONGEST_LINE = 1000
"""Characters of a line that is printed."""
_LONGEST_SHOWN = 80


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
