"""Remembers what a report was drawn of, so that it is not drawn again where nothing has changed."""

import functools
import hashlib
import importlib.metadata
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import sgdlab
from sgdlab import files
from sgdlab.runs.store import Store

FILE = "drawn.json"
"""In the work directory: the state of what was drawn, the files that were, and the tables for a terminal."""
_LIBRARIES = ("matplotlib", "numpy", "scipy")


def state(store: Store, names: Sequence[str], asked: Any) -> str:
    """Return a digest of what a report shows: its runs, what else is asked for, and the code that draws it.

    Records of the runs, by their names in order, count by their size and time; what else is `asked` is as JSON can
    hold it.
    """
    shown = [[name, _stamp(store.path / f"{name}.jsonl")] for name in names]
    return hashlib.sha256(json.dumps([shown, asked, _code()]).encode()).hexdigest()[:16]


def found(path: pathlib.Path, state: str) -> tuple[str, pathlib.Path] | None:
    """Return the tables and the page of a report that was drawn in that state and is still as it was; else None."""
    try:
        stored = json.loads((path / FILE).read_text(encoding="utf-8"))
        if stored["state"] == state and all(_stamp(path / name) == was for name, was in stored["files"].items()):
            return stored["text"], path / stored["page"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none, or a damaged one
        pass
    return None


def note(path: pathlib.Path, state: str, page: pathlib.Path, others: Iterable[pathlib.Path], text: str) -> None:
    """Write what was drawn: the page, all other files, and the tables for a terminal."""
    stamps = {str(file.relative_to(path)): _stamp(file) for file in (page, *others)}
    stored = {"state": state, "page": page.name, "files": stamps, "text": text}
    files.write_text(path / FILE, json.dumps(stored))


def _stamp(file: pathlib.Path) -> list[int] | None:
    """Return the size and the time of a file; None where there is none."""
    if not file.exists():
        return None
    there = file.stat()
    return [there.st_size, there.st_mtime_ns]


@functools.cache
def _code() -> str:
    """Return a digest of this package and of the libraries that draw, since any module may change a picture."""
    package = pathlib.Path(sgdlab.__file__).parent
    found = hashlib.sha256(repr([importlib.metadata.version(name) for name in _LIBRARIES]).encode())
    for file in sorted(file for kind in ("*.py", "*.html") for file in package.rglob(kind)):
        found.update(f"{file.relative_to(package)}\n".encode() + file.read_bytes())
    return found.hexdigest()
