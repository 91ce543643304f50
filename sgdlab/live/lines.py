"""The lines of a live run's log, in one file or several: how they are spelled, checked and found."""

import json
import os
import pathlib
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

LOG = 2
"""Format of the lines."""
Entry = list[Any]


class LogError(ValueError):
    """A log that cannot be used, or opened; the message is one line, and names the file and the place."""


class LogPlace(NamedTuple):
    """A place between two lines of a log.

    Attributes:
      lines: number of lines before it; the header of each file is one.
      chain: checksum of these.
      first: number of lines before the file in which it is.
      offset: bytes before it in that file.
    """

    lines: int = 0
    chain: int = 0
    first: int = 0
    offset: int = 0


def differs(theirs: object, ours: int) -> str:
    """Say that something cannot be read.

    Example:
      >>> differs(1, 2)
      'is written in format 1; this version reads format 2'
    """
    return f"is written in format {theirs}; this version reads format {ours}"


def path_in(folder: str | os.PathLike[str]) -> pathlib.Path:
    """Return the log of a run in a directory: the file that has its newest lines."""
    return pathlib.Path(folder) / "log.jsonl"


def files_in(folder: pathlib.Path) -> dict[int, pathlib.Path]:
    """Return the files of a log by the number of lines before each, rising; empty where none has a line."""
    found = {}
    for path in [*folder.glob("log-*.jsonl"), path_in(folder)]:  # the last one has two names for a moment
        if path.is_file() and (header := header_of(path)):
            found[header[4]] = path
    return dict(sorted(found.items()))


def header_of(path: pathlib.Path) -> Entry | None:
    """Return the first line of a file: "log", format, configuration, versions, lines before it, and their checksum.

    None where it has no whole line.

    Raises:
      LogError: if it is not of a log, or of one in another format.
    """
    with path.open("rb") as file:
        line = file.readline()
    if not line.endswith(b"\n"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, list) or found[:1] != ["log"]:
        raise LogError(f"log={str(path)!r} is not the log of a live run")
    if found[1] != LOG:
        raise LogError(f"log={str(path)!r} {differs(found[1], LOG)}")
    if _chain(line, found[5]) is None:
        raise LogError(f"log={str(path)!r} is damaged in line 1")
    return found[:-1]


def line_of(entry: Entry, chain: int) -> tuple[bytes, int]:
    """Return the line of an entry, and the checksum after it, where `chain` is that before it."""
    body = json.dumps(entry, separators=(",", ":"))[:-1].encode()
    chain = zlib.crc32(body, chain)
    return body + b',"%08x"]\n' % chain, chain


def header(config: dict[str, Any], versions: dict[str, str], before: LogPlace) -> Entry:
    """Return the entry with which a file begins whose lines are after this place."""
    return ["log", LOG, config, versions, before.lines, before.chain]


def read(path: pathlib.Path) -> tuple[list[Entry], LogPlace]:
    """Return the entries of one file of a log, its header first, and the place after them.

    Half a line at the end is left out.

    Raises:
      LogError: if a line is damaged or one before it is missing; it names the line.
    """
    found, place = [], start_of(path)
    for entry, after in walk(path, place):
        found.append(entry)
        place = after
    return found, place


def start_of(path: pathlib.Path) -> LogPlace:
    """Return the place before the first line of a file."""
    head = header_of(path)
    return LogPlace() if head is None else LogPlace(head[4], head[5], head[4], 0)


def walk(path: pathlib.Path, place: LogPlace, *, parsed: bool = True) -> Iterator[tuple[Entry, LogPlace]]:
    """Yield the entries of a file from a place on, each with the place after it; errors are as of `read`.

    Args:
      path: of the file.
      place: in it.
      parsed: whether entries are wanted; they are empty if not, which is faster.
    """
    before = b"[0, 0.0]"
    with path.open("rb") as file:
        file.seek(place.offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            chain = _chain(line, place.chain)
            if chain is None:
                last = json.loads(before)[1]
                raise LogError(
                    f"log={str(path)!r} is damaged in line {place.lines - place.first + 1}, or lines before it are "
                    f"missing; the {place.lines - place.first} lines before it, up to {last:.3f} s of the run, can be "
                    f"used (keep a copy of it, then: truncate -s {place.offset} {path})"
                )
            entry: Entry = json.loads(line)[:-1] if parsed else []
            before = line
            place = LogPlace(place.lines + 1, chain, place.first, place.offset + len(line))
            yield entry, place


def follow(folder: pathlib.Path, place: LogPlace, *, parsed: bool = True) -> Iterator[tuple[Entry, LogPlace]]:
    """Yield the entries of all files of a log from a place on, but for headers; arguments and errors as of `walk`."""
    for first, path in files_in(folder).items():
        if first < place.first:
            continue
        if first > place.first:
            if start_of(path)[:2] != place[:2]:
                raise LogError(f"log={str(path)!r} does not follow from the file before: lines are missing")
            place = start_of(path)
        for entry, after in walk(path, place, parsed=parsed):
            place = after
            if entry[:1] != ["log"]:
                yield entry, place


def begin_of(folder: pathlib.Path) -> LogPlace:
    """Return the place before the first line of a log; a `LogError` if that is gone, and no checkpoint can be used."""
    first, path = next(iter(files_in(folder).items()))
    if first:
        why = f"the {first:,} lines before {str(path.name)!r} were removed, and no checkpoint of later ones can be used"
        raise LogError(f"log={str(path_in(folder))!r} cannot be followed: {why}")
    return start_of(path)


def holds(folder: pathlib.Path, place: LogPlace) -> bool:
    """Return True if a log has a place: the line before it has that checksum, which is one of all lines before."""
    path = files_in(folder).get(place.first)
    if path is None or place.offset > path.stat().st_size:
        return False
    end = b'"%08x"]\n' % place.chain
    with path.open("rb") as file:
        file.seek(max(place.offset - len(end), 0))
        return file.read(len(end)) == end


def _chain(line: bytes, chain: int) -> int | None:
    """Return the checksum of a line and all before; None if that with which the line ends is another."""
    body, comma, _ = line.rpartition(b",")
    chain = zlib.crc32(body, chain)
    return chain if line == body + comma + b'"%08x"]\n' % chain else None
