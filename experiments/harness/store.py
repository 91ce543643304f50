"""Finished runs, each in a file named by a hash of its own whole settings; whole or not there."""

import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

from sgdlab import files
from sgdlab.results.directory import Records, as_stored, line_of, read_records

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
    """
    text = json.dumps(as_stored(settings), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
