"""Files in the trace event format of Chrome, which PyTorch's and JAX's profilers write too.

Source: "Trace Event Format", Nat Duca and Dean Sinclair, 2016: an array of events, whose closing bracket may be
missing, or an object with the array `traceEvents`. Times (`ts`, `dur`) are microseconds.
"""

import dataclasses
import json
import pathlib
import re
import zlib
from collections.abc import Callable
from typing import Any

from sgdlab.traces.problems import BadTrace

_DECODER: Any = json.JSONDecoder(strict=False)  # profilers leave control characters in names
_NUMBER = (int, float)
_BETWEEN: Any = re.compile(r"[\s,]*")
_EVENT = re.compile(r'\{\s*"(?:ph|name|cat|pid|tid|ts)"\s*:')


@dataclasses.dataclass
class Around:
    """What a file holds beside its events.

    Attributes:
      header: the object's entries other than the events; empty for an array.
      events: how many were read.
      skipped: how many places could not be read, behind which reading went on.
      cut_off: whether the file ends before its events do. An array without its closing bracket is whole.
    """

    header: dict[str, Any] = dataclasses.field(default_factory=dict)
    events: int = 0
    skipped: int = 0
    cut_off: bool = False


def scan(path: pathlib.Path, take: Callable[[dict[str, Any]], None]) -> Around:
    """Hands over the events of a file one by one, so that no more of them is kept than is needed.

    Args:
      path: of a file, perhaps compressed by gzip.
      take: what is done with an event.

    Raises:
      BadTrace: where the file is not in this format.
    """
    around = Around()
    raw, around.cut_off = _bytes(path)
    text = raw.decode("utf-8", errors="replace")
    del raw
    index = _BETWEEN.match(text, 1 if text.startswith("\ufeff") else 0).end()
    if text.startswith("[", index):
        _scan_array(text, index + 1, take, around)
        return around
    if not text.startswith("{", index):
        raise BadTrace("must hold trace events: an array of them, or an object with traceEvents, in JSON")
    index, found = index + 1, False
    try:
        while not text.startswith("}", index := _BETWEEN.match(text, index).end()):
            name, index = _DECODER.scan_once(text, index)
            index = _BETWEEN.match(text, text.index(":", index) + 1).end()
            if name == "traceEvents" and text.startswith("[", index):
                found = True
                index = _scan_array(text, index + 1, take, around)
                around.cut_off = around.cut_off or index == len(text)
            else:
                around.header[name], index = _DECODER.scan_once(text, index)
    except (ValueError, StopIteration):  # the end of the text, or what is no JSON
        around.cut_off = True
    if not found:
        raise BadTrace("has no traceEvents")
    return around


def _scan_array(text: str, index: int, take: Callable[[dict[str, Any]], None], around: Around) -> int:
    """Reads events up to the closing bracket or the end of the text, and returns where reading stopped."""
    between, once = _BETWEEN.match, _DECODER.scan_once
    while True:
        index = between(text, index).end()
        if index == len(text):
            return index
        if text[index] == "]":
            return index + 1
        try:
            event, index = once(text, index)
        except (ValueError, StopIteration):
            if (following := _EVENT.search(text, index + 1)) is None:
                around.cut_off = True
                return len(text)
            around.skipped += 1
            index = following.start()
            continue
        if isinstance(event, dict):
            around.events += 1
            take(event)


def _bytes(path: pathlib.Path) -> tuple[bytes, bool]:
    """The bytes of a file, decompressed, and whether the compressed ones end too early."""
    raw = path.read_bytes()
    if not raw.startswith(b"\x1f\x8b"):
        return raw, False
    parts = []
    while raw:
        stream = zlib.decompressobj(wbits=31)
        try:
            parts.append(stream.decompress(raw))
        except zlib.error as error:
            raise BadTrace(f"cannot be decompressed: {error}") from error
        if not stream.eof:
            return b"".join(parts), True
        raw = stream.unused_data.lstrip(b"\0")
    return b"".join(parts), False


def is_span(event: dict[str, Any]) -> bool:
    """Tell whether an event is complete: with a name, a begin and a duration."""
    times = (event.get("ts"), event.get("dur"))
    return event.get("ph") == "X" and isinstance(event.get("name"), str) and all(isinstance(t, _NUMBER) for t in times)


def head(path: pathlib.Path, size: int = 1 << 20) -> str:
    """Return the first characters of a file, decompressed; empty where they cannot be read."""
    try:
        with path.open("rb") as file:
            raw = file.read(size)
        if raw.startswith(b"\x1f\x8b"):
            raw = zlib.decompressobj(wbits=31).decompress(raw, size)
    except (OSError, zlib.error):
        return ""
    return raw.decode("utf-8", errors="replace")


def has_events(text: str) -> bool:
    """Tell whether a file that begins like this is in the trace event format."""
    return '"traceEvents"' in text or bool(re.match(r'\ufeff?\s*\[\s*\{[^{}]*"ph"\s*:', text))
