"""Finished runs, each in a file named by a hash of its own whole settings; whole or not there."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sgdlab import files
from sgdlab.results.records import Records, line_of, read_records

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

_SUPERSEDED = "superseded"
_UNDER_WAY = "under_way"


@dataclasses.dataclass(frozen=True)
class Store:
    """A directory of finished runs.

    `<key>.jsonl` holds the records of a run, and the directory `<key>/` what it wrote besides, such as a trained model.
    A run counts as finished when its records are there, which come last.

    Attributes:
      path: the directory; made by the first run.

    Example:
      >>> import tempfile
      >>> store = Store(pathlib.Path(tempfile.mkdtemp()))
      >>> key = key_of({"work": "simulate", "settings": {"seed": 1}})
      >>> store.write(key, [{"kind": "summary", "seconds": 2.5}])
      >>> store.read(key), store.read(key_of({"work": "simulate", "settings": {"seed": 2}}))
      ([{'kind': 'summary', 'seconds': 2.5}], None)
    """

    path: pathlib.Path

    def read(self, key: str) -> Records | None:
        """The records of a finished run; None where it has not finished."""
        return read_records(self.path / f"{key}.jsonl")

    def write(self, key: str, records: Records) -> None:
        """Writes a finished run; one that is there already is put aside."""
        aside, file = self.path / _SUPERSEDED, self.path / f"{key}.jsonl"
        with files.replacing(file) as new:
            new.write("".join(f"{line_of(record)}\n" for record in records).encode())
            if file.exists():
                aside.mkdir(exist_ok=True)
                numbered = (aside / f"{key}.{number}.jsonl" for number in itertools.count(1))
                shutil.copy2(file, next(name for name in numbered if not name.exists()))

    @contextlib.contextmanager
    def held(self, key: str) -> Iterator[None]:
        """Waits until no other command does the run, and keeps others from it; on systems that can lock a file."""
        if fcntl is None:
            yield
            return
        file = self.path / _UNDER_WAY / f"{key}.lock"
        file.parent.mkdir(parents=True, exist_ok=True)
        while True:
            handle = os.open(file, os.O_CREAT | os.O_RDWR)
            fcntl.flock(handle, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.stat(file).st_ino == os.fstat(handle).st_ino:
                    break
            os.close(handle)  # whoever held it has removed the file
        try:
            yield
        finally:
            file.unlink(missing_ok=True)
            os.close(handle)

    def folder(self, key: str) -> pathlib.Path:
        """Where a run writes what is no record; it outlives an interruption."""
        return self.path / key

    def begin_anew(self, key: str) -> None:
        """Puts aside what a run of other code has left, so that nothing of it is continued."""
        folder = self.folder(key)
        if folder.exists():
            aside = self.path / _SUPERSEDED
            aside.mkdir(exist_ok=True)
            numbered = (aside / f"{key}.{number}" for number in itertools.count(1))
            os.replace(folder, next(name for name in numbered if not name.exists()))

    def under_way(self, key: str) -> pathlib.Path:
        """The file to which this process appends the records of a run that has not finished."""
        return self.path / _UNDER_WAY / f"{key}.{os.getpid()}.jsonl"


def key_of(settings: Mapping[str, Any]) -> str:
    """The hash of settings: 20 hexadecimal digits that depend on nothing but their names and values.

    Example:
      >>> key_of({"a": 1, "b": [2.0]}) == key_of({"b": (2.0,), "a": 1}) != key_of({"a": 1, "b": [2.5]})
      True
      >>> len({key_of({"a": value}) for value in (None, float("nan"), float("inf"), "1", 1)})
      5
    """
    text = json.dumps(plain(settings), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def plain(value: Any, name: str = "") -> Any:
    """A setting or result as JSON can hold it: NumPy's numbers and arrays, tuples and paths become Python's.

    Args:
      value: anything.
      name: what an error calls it.

    Raises:
      ValueError: where it is something else.

    Example:
      >>> plain({"a": np.float64(1.5), "b": (np.int64(1), None)})
      {'a': 1.5, 'b': [1, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(entry, f"{name}.{key}".strip(".")) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [plain(entry, name) for entry in value]
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"{name}={value!r} must be a number, a text, None, or a list or mapping of these")
