"""Messages of a server and the workers that connect to it: a header in JSON, and the bytes that it announces in chunks.

Nothing is unpickled: a header holds numbers and words, and arrays are raw bytes whose layout the server has described.
Both sides import this module, workers without JAX.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sgdlab.hosts import messages
from sgdlab.live.shared_arrays import Fields

FORMAT = 1
"""Of these messages; each side's first one names it."""
SERVICE, METHOD = "sgdlab.live.Workers", "Join"
TOKEN = "sgdlab-token"
"""Key of the token in a stream's metadata."""
CHUNK = 1 << 20
"""Bytes of the largest message of arrays."""
HEADER = 1 << 16
"""Bytes of the largest header."""
_WINDOW = 4 << 20
"""Bytes that a side takes before it is read; they are what a sender who does not wait can occupy."""
_ALIVE = 30_000
"""Milliseconds without a byte after which the other side is asked for a sign of life, and that it may take for it."""

OPTIONS = [
    ("grpc.max_receive_message_length", CHUNK),
    ("grpc.max_send_message_length", CHUNK),
    ("grpc.max_metadata_size", 8 << 10),
    ("grpc.absolute_max_metadata_size", 8 << 10),
    ("grpc.http2.lookahead_bytes", _WINDOW),
    ("grpc.http2.write_buffer_size", _WINDOW),
    ("grpc.http2.max_frame_size", CHUNK),
    ("grpc.keepalive_time_ms", _ALIVE),
    ("grpc.keepalive_timeout_ms", _ALIVE),
    ("grpc.http2.min_ping_interval_without_data_ms", _ALIVE // 2),
]
"""Of gRPC, on both sides."""


def keep_memory() -> None:
    """Let the C library keep the memory of messages, and not return it to the system with each, to be asked for anew.

    That of Linux keeps up to twice the largest block that was freed, of at most 32 MiB: here is one, which nobody uses.
    """
    np.empty(31 << 20, np.uint8)


class FrameError(ValueError):
    """A message that is none, or is not expected."""


def header(kind: str, **values: Any) -> bytes:
    r"""Return a header as bytes.

    Example:
      >>> header("interrupt", ticket=7)
      b'{"kind":"interrupt","ticket":7}'
    """
    return json.dumps({"kind": kind, **values}, separators=(",", ":")).encode()


def chunks(fields: Fields, arrays: Sequence[np.ndarray]) -> Iterator[bytes]:
    """Yield arrays as they lie in memory, in messages; a byte is copied once, when its message is asked for.

    Args:
      fields: where the arrays lie.
      arrays: of their shapes and dtypes.

    Example:
      >>> fields = Fields([["a", "uint8[2]"], ["b", "uint8[3]"]])
      >>> [len(message) for message in chunks(fields, [np.ones(2, np.uint8), np.ones(3, np.uint8)])]
      [128]
    """
    flat = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    first = 0  # of those that have not ended before a message
    for start in range(0, fields.size, CHUNK):
        end = min(start + CHUNK, fields.size)
        while first < len(flat) and fields.fields[first].offset + len(flat[first]) <= start:
            first += 1
        if first < len(flat) and start >= (offset := fields.fields[first].offset) and offset + len(flat[first]) >= end:
            yield flat[first][start - offset : end - offset].tobytes()
            continue
        message = bytearray(end - start)
        for field, array in zip(fields.fields[first:], flat[first:], strict=True):
            if field.offset >= end:
                break
            begin, stop = max(field.offset, start), min(field.offset + len(array), end)
            message[begin - start : stop - start] = array[begin - field.offset : stop - field.offset].data
        yield bytes(message)


def cut(text: bytes) -> list[bytes]:
    """Return bytes in messages.

    Example:
      >>> [len(message) for message in cut(bytes(CHUNK + 3))]
      [1048576, 3]
    """
    return [text[start : start + CHUNK] for start in range(0, len(text), CHUNK)]


class Frames:
    """The messages of the other side, read one after the other.

    Args:
      messages: of a stream.

    Example:
      >>> frames = Frames(iter([header("came", ticket=7), b"ab", b"c"]))
      >>> frames.header(), frames.body(np.zeros(3, np.uint8)).tobytes()
      ({'kind': 'came', 'ticket': 7}, b'abc')
    """

    def __init__(self, messages: Iterator[bytes]):
        self._messages = messages

    def header(self) -> dict[str, Any]:
        """Return the next header; EOFError at the end.

        Raises:
          FrameError: if it is none.
        """
        message = self._next()
        try:
            return messages.read(message if len(message) <= HEADER else b"", {"kind": str})
        except ValueError:
            raise FrameError(f"a message of {len(message):,} bytes was no header of sgdlab") from None

    def _next(self) -> bytes:
        for message in self._messages:
            return message
        raise EOFError

    def body(self, memory: np.ndarray) -> np.ndarray:
        """Read the bytes that a header has announced into memory, uint8[size], and return it.

        Raises:
          FrameError: if there are more of them, or a message has none.
        """
        at = 0
        while at < len(memory):
            message = self._next()
            if not 0 < len(message) <= len(memory) - at:
                raise FrameError(f"{len(message):,} bytes have come where 1 to {len(memory) - at:,} were expected")
            memory[at : at + len(message)] = np.frombuffer(message, np.uint8)
            at += len(message)
        return memory


def whole(said: dict[str, Any], name: str, least: int = 0, most: int = (1 << 63) - 1) -> int:
    """Return a whole number of a header.

    Raises:
      FrameError: if it is missing, or something else.

    Example:
      >>> whole({"kind": "came", "ticket": 7}, "ticket")
      7
    """
    value = said.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise FrameError(f"{said['kind']}: {name}={str(value)[:50]!r} must be a whole number from {least} to {most}")
    return value


def words(said: dict[str, Any], name: str, most: int) -> str:
    """Return a text of a header in one line, cut where it is too long, without what a terminal would obey."""
    return messages.cut(str(said.get(name, "")), most)
