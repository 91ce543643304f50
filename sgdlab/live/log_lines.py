"""The lines of a live run's log: JSON arrays, each with a checksum of itself and all before it."""

import json
import os
import pathlib
import zlib
from typing import Any

Entry = list[Any]
FORMAT = 1
"""Of a log; its header names it."""


class LogError(ValueError):
    """A log that cannot be used, or opened; the message is one line, and names the file and the place."""


def path_in(folder: str | os.PathLike[str]) -> pathlib.Path:
    """The log of a run in a directory."""
    return pathlib.Path(folder) / "log.jsonl"


def read(path: pathlib.Path) -> tuple[list[Entry], list[int], int]:
    """The lines of a log that are whole.

    Args:
      path: of the file.

    Returns:
      The entries, the header first; the checksum after each; and how many bytes they take. Half a line at the end is
      left out.

    Raises:
      LogError: if a line is damaged or one before it is missing; it names the line.
    """
    data = path.read_bytes()
    entries, chains, length, chain = [], [], 0, 0
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(keepends=True), 1):
        entry = _entry(line, chain)
        if entry is None or (not entries and entry[:2] != ["log", FORMAT]):
            if not entries:
                raise LogError(f"log={str(path)!r} is not the log of a live run")
            last = next((entry[1] for entry in reversed(entries[1:])), 0.0)
            raise LogError(
                f"log={str(path)!r} is damaged in line {number}, or lines before it are missing; the "
                f"{number - 1} lines before it, up to {last:.3f} s of the run, can be used (keep a copy of it, then: "
                f"truncate -s {length} {path})"
            )
        chain = int(entry.pop(), 16)
        entries.append(entry)
        chains.append(chain)
        length += len(line)
    return entries, chains, length


def line_of(entry: Entry, chain: int) -> tuple[bytes, int]:
    """The line of an entry, and the checksum after it, where `chain` is that before it."""
    body = json.dumps(entry, separators=(",", ":"), allow_nan=False)[:-1].encode()
    chain = zlib.crc32(body, chain)
    return body + b',"%08x"]\n' % chain, chain


def _entry(line: bytes, chain: int) -> Entry | None:
    """The entry of a line, with its checksum; None if it does not fit."""
    body, comma, _ = line.rpartition(b",")
    if line != body + comma + b'"%08x"]\n' % zlib.crc32(body, chain):
        return None
    return json.loads(line)


def agree(path: pathlib.Path, stored: dict[str, Any], given: dict[str, Any], prefix: str = "") -> None:
    """Checks that the configuration is that of the log.

    Raises:
      LogError: where it is another; it names the entry that differs.
    """
    for name in sorted(stored.keys() | given.keys()):
        before, now = stored.get(name), given.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            agree(path, before, now, f"{prefix}{name}.")
        elif before != now:
            raise LogError(
                f"log={str(path)!r} is of a run with {prefix}{name}={json.dumps(before)}, not {json.dumps(now)}; name "
                "another directory"
            )
