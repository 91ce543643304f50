"""Finished runs, each in a file of its own; whole or not there."""

import contextlib
import dataclasses
import glob
import hashlib
import itertools
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from sgdlab import files
from sgdlab.errors import UsageError
from sgdlab.results.records import Records, as_stored, line_of, read_records
from sgdlab.runs import digests
from sgdlab.runs.configuration import flat

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

METRICS = "metrics"
"""The folder of a work directory in which its runs are stored."""

SUPERSEDED = "superseded"
"""The folder of a store with what runs that were done anew had left."""

_UNDER_WAY, _STATES = "under_way", "states"


@dataclasses.dataclass(frozen=True)
class Store:
    """A directory of finished runs.

    `<name>.jsonl` holds the records of a run, and the directory `<name>/` what it wrote besides, such as a trained
    model. A run counts as finished when its records are there, which come last. A run under way appends its records to
    a file in `under_way/`, and keeps its state, from which it continues, in `states/` beside the store.

    Attributes:
      path: the directory; made by the first run.
      writes: whether this process writes. Of a run over many hosts one does; in the others, nothing is written.

    Example:
      >>> import tempfile
      >>> store = Store(pathlib.Path(tempfile.mkdtemp()))
      >>> key = key_of({"work": "simulate", "settings": {"seed": 1}})
      >>> store.write(key, [{"kind": "summary", "seconds": 2.5}])
      >>> store.read(key), store.read(key_of({"work": "simulate", "settings": {"seed": 2}}))
      ([{'kind': 'summary', 'seconds': 2.5}], None)
    """

    path: pathlib.Path
    writes: bool = True

    @classmethod
    def of(cls, workdir: pathlib.Path, *, writes: bool = True) -> "Store":
        """Return the store of a work directory."""
        return cls(workdir / METRICS, writes)

    @property
    def workdir(self) -> pathlib.Path:
        """Return the directory that the store is in."""
        return self.path.parent

    def read(self, name: str) -> Records | None:
        """Return the records of a finished run; None where it has not finished."""
        return read_records(self.path / f"{name}.jsonl")

    def write(self, name: str, records: Records) -> None:
        """Write a finished run; one that is there already is put aside, and what was under way is removed."""
        if not self.writes:
            return
        lines = _lines(records)
        with files.replacing(self.path / f"{name}.jsonl") as new:
            new.write(lines)
            self._supersede(name, copy=True)  # the old one stands until the new one does
        for left in self.left_under_way(name):
            left.unlink(missing_ok=True)
        shutil.rmtree(self.state_path(name), ignore_errors=True)

    def stamp(self, name: str, code: Mapping[str, str]) -> None:
        """Write other digests of code into a finished run, which are known to make the same."""
        records = self.read(name)
        if records is not None and self.writes:
            first = records[0] | {"code": dict(code), "made_by_code": records[0].get("code")}
            with files.replacing(self.path / f"{name}.jsonl") as new:
                new.write(_lines([first, *records[1:]]))

    def put_aside(self, name: str) -> bool:
        """Put aside a run that is to be done anew, whatever is there of it, and return whether it had finished."""
        shutil.rmtree(self.state_path(name), ignore_errors=True)
        return self._supersede(name)

    @contextlib.contextmanager
    def under_way(self, name: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """Yield a function that appends a record of a run under way; a killed run leaves its file.

        The file is `under_way/<name>.<process>.jsonl`, and is there from the first record on. `write` removes it.
        """
        with contextlib.ExitStack() as stack:
            opened: list[Any] = []

            def append(record: Mapping[str, Any]) -> None:
                if not self.writes:
                    return
                if not opened:
                    path = self.path / _UNDER_WAY / f"{name}.{os.getpid()}.jsonl"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    opened.append(stack.enter_context(path.open("w", encoding="utf-8", buffering=1)))
                print(line_of(record), file=opened[0])

            yield append

    def left_under_way(self, name: str) -> list[pathlib.Path]:
        """Return the files of a run under way, one for each process that has begun it."""
        return sorted((self.path / _UNDER_WAY).glob(f"{glob.escape(name)}.*.jsonl"))

    def tidy(self) -> None:
        """Remove the folders of runs under way where there are none; at the end of a command."""
        for folder in (self.path / _UNDER_WAY, self.workdir / _STATES) if self.writes else ():
            with contextlib.suppress(OSError):
                folder.rmdir()

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Wait until no other command does the run, and keep others from it; on systems that can lock a file."""
        if fcntl is None:
            yield
            return
        file = self.path / _UNDER_WAY / f"{name}.lock"
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

    def state_path(self, name: str) -> pathlib.Path:
        """Return where the state of a run under way is kept, until the run is written (`sgdlab.checkpoints`)."""
        return self.workdir / _STATES / name

    def folder(self, name: str) -> pathlib.Path:
        """Return where a run writes what is no record; it outlives an interruption."""
        return self.path / name

    def begin_anew(self, name: str) -> None:
        """Put aside what a run of other code has left in its folder, so that nothing of it is continued."""
        if self.folder(name).exists():
            os.replace(self.folder(name), self._aside(name, ""))

    def _supersede(self, name: str, *, copy: bool = False) -> bool:
        """Move, or copy, the records of a finished run aside, where there are any, and return whether there were."""
        file = self.path / f"{name}.jsonl"
        if not file.exists():
            return False
        aside = self._aside(name, ".jsonl")
        (shutil.copy2 if copy else os.replace)(file, aside)
        for folder in (aside.parent, file.parent):
            files.sync_folder(folder)
        return True

    def _aside(self, name: str, ending: str) -> pathlib.Path:
        """Return a path in `superseded/` that is free."""
        (self.path / SUPERSEDED).mkdir(exist_ok=True)
        numbered = (self.path / SUPERSEDED / f"{name}.{number}{ending}" for number in itertools.count(1))
        return next(path for path in numbered if not path.exists())


def _lines(records: Records) -> bytes:
    return "".join(f"{line_of(record)}\n" for record in records).encode()


def key_of(settings: Mapping[str, Any]) -> str:
    """Return the hash of settings: 20 hexadecimal digits that depend on nothing but their names and values.

    Example:
      >>> key_of({"a": 1, "b": [2.0]}) == key_of({"b": (2.0,), "a": 1}) != key_of({"a": 1, "b": [2.5]})
      True
      >>> len({key_of({"a": value}) for value in (None, float("nan"), float("inf"), "1", 1)})
      5
    """
    text = json.dumps(plain(settings), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def plain(value: Any, name: str = "") -> Any:
    """Return a setting or result as JSON can hold it: NumPy's numbers and arrays, tuples and paths become Python's.

    Raises:
      ValueError: where it is something else; it is called by its `name`.

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


CONFIG = "config.json"
_OWN = (METRICS, "states", "tensorboard", "wandb", CONFIG)
"""Any of these shows that a directory is a work directory, perhaps one whose first run was killed."""


def check_ours(path: pathlib.Path) -> None:
    """Raise a `UsageError` unless a directory is new, empty or a work directory, without other files."""
    if not path.is_dir() or any((path / name).exists() for name in _OWN):
        return
    if any(not files.is_unfinished(file) for file in path.rglob("*") if file.is_file()):
        raise UsageError(f"--workdir={path} holds files, and none is a run's; name a new or empty directory")


def check_same(
    path: pathlib.Path, there: Mapping[str, Any], asked: Mapping[str, Any], changed: Collection[str] = ()
) -> None:
    """Check that the run of a work directory has the configuration that is asked for.

    Of families whose part's code has `changed` since, entries may have come or gone.

    Raises:
      UsageError: at the first entry that differs, methods and kinds of parts before all others.

    Example:
      >>> check_same(pathlib.Path("runs/one"), {"rule": {"momentum": 0.9}}, {"rule": {"momentum": 0.8}})
      Traceback (most recent call last):
      ...
      sgdlab.errors.UsageError: --workdir=runs/one holds a run with config.rule.momentum=0.9, not 0.8; name another directory, or run it anew by --rerun
    """  # noqa: E501 (the message is one line)
    old, new = (dict(flat(as_stored(entries))) for entries in (there, asked))
    groups = {*changed, *(("optimizer",) if "rule" in changed else ())}  # of which a rule takes what it names
    for name in sorted(old.keys() | new.keys(), key=lambda name: (name != "method", not name.endswith(".kind"), name)):
        both = name in old and name in new
        if (both and old[name] == new[name]) or (not both and name.partition(".")[0] in groups):
            continue
        has = f"with config.{name}={old[name]}, not {new.get(name, 'none')}" if name in old else ""
        raise UsageError(
            f"--workdir={path} holds a run {has or f'without config.{name}={new[name]}'}; name another directory, or "
            "run it anew by --rerun"
        )


def write_config(path: pathlib.Path, config: Mapping[str, Any]) -> None:
    """Write `config.json`: the entries of the run of a work directory, nested, and what made it."""
    stored = {"config": as_stored(config), "made": digests.made_with()}
    files.write_text(path / CONFIG, json.dumps(stored, indent=2) + "\n")
