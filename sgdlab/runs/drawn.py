"""What a report was drawn of, so that it is not drawn again where nothing has changed."""

import functools
import hashlib
import importlib.metadata
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sgdlab
from sgdlab import files
from sgdlab.runs.store import Store

FILE = "drawn.json"
"""In the work directory: the state of what was drawn, the files that were, and the tables for a terminal."""
_LIBRARIES = ("matplotlib", "numpy", "scipy")


def state(store: Store, names: Sequence[str], over: Mapping[str, Any]) -> str:
    """Return a digest of what a report shows: its runs, what is varied, and the code that draws it.

    Args:
      store: with the records of the runs, which count by their size and time.
      names: of the runs, in order.
      over: the entries that are varied.
    """
    shown = [[name, _stamp(store.path / f"{name}.jsonl")] for name in names]
    return hashlib.sha256(json.dumps([shown, over, _code()]).encode()).hexdigest()[:16]


def text_of(path: pathlib.Path, state: str) -> str | None:
    """Return the tables of a report that was drawn in that state and is still there; None where it has to be drawn."""
    try:
        stored = json.loads((path / FILE).read_text(encoding="utf-8"))
        there = stored["state"] == state and all(_stamp(path / name) == was for name, was in stored["files"].items())
        return stored["text"] if there else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none, or a damaged one
        return None


def note(path: pathlib.Path, state: str, drawn: Iterable[pathlib.Path], text: str) -> None:
    """Write what was drawn.

    Args:
      path: the work directory.
      state: of what it shows.
      drawn: its files.
      text: the tables for a terminal.
    """
    stamps = {str(file.relative_to(path)): _stamp(file) for file in drawn}
    files.write_text(path / FILE, json.dumps({"state": state, "files": stamps, "text": text}))


def _stamp(file: pathlib.Path) -> list[int]:
    found = file.stat()
    return [found.st_size, found.st_mtime_ns]


@functools.cache
def _code() -> str:
    """Return a digest of this package and of the libraries that draw, since any module may change a picture."""
    package = pathlib.Path(sgdlab.__file__).parent
    found = hashlib.sha256(repr([importlib.metadata.version(name) for name in _LIBRARIES]).encode())
    for file in sorted(file for kind in ("*.py", "*.html") for file in package.rglob(kind)):
        found.update(f"{file.relative_to(package)}\n".encode() + file.read_bytes())
    return found.hexdigest()
