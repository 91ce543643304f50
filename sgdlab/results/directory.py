"""A directory of runs: what they share, one metrics file for each finished run, and the records of runs under way."""

import contextlib
import glob
import itertools
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sgdlab import files
from sgdlab.errors import UsageError
from sgdlab.results.entries import ABSENT, differences, merged, present
from sgdlab.results.records import Records, as_stored, line_of, read_records

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

UNDER_WAY, SUPERSEDED = "under_way", "superseded"
"""Folders of `metrics/`: runs that have not finished, and finished runs that were run anew."""

LOGS = ("tensorboard", "wandb")
"""Folders that other programs read (`sgdlab.results.writers`)."""

STATES = "states"
"""The folder of the states of runs under way, from which they continue (`sgdlab.checkpoints`)."""

_PROVENANCE = ("version", "commit")


class OtherConfiguration(UsageError):
    """A directory already holds runs of another configuration."""


class RunDirectory:
    """The metrics files of runs that share a configuration.

    The directory belongs to a configuration from its first finished run on: `config.json` holds
    `{"config": ..., "made": ...}`, the entries that its runs have and what made the first of them. An entry that some
    runs do not have belongs to a part that they do not use: it is added when a run that has it is written.

    Args:
      path: the directory; made by the first `write`.
      shared: configuration entries common to the runs, nested.
      made: provenance: version, commit, jax and device.
      superseding: names of finished runs that are to be run anew: their entries may differ.
      writes: whether this process writes. Of a run over many hosts one does; in the others nothing is checked, and
        `claim`, `under_way`, `write` and `tidy` do nothing.

    Raises:
      OtherConfiguration: where the directory holds runs in which an entry has another value (it names the first one),
        runs of an earlier version, or files that are not ours; or where it cannot be written.

    Example:
      >>> import tempfile
      >>> directory = RunDirectory(tempfile.mkdtemp(), {"epochs": 2}, {"version": "0.4.0"})
      >>> directory.write("gap_aware-n8-seed0", [{"kind": "summary", "test_accuracy": 0.5}])
      >>> directory.read("gap_aware-n8-seed0")
      [{'kind': 'summary', 'test_accuracy': 0.5}]
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        shared: Mapping[str, Any],
        made: Mapping[str, Any] | None = None,
        *,
        superseding: Sequence[str] = (),
        writes: bool = True,
    ):
        self.path, self.writes = pathlib.Path(path), writes
        self._shared, self._made, self._superseding = as_stored(shared), as_stored(made or {}), set(superseding)
        self._first_made: dict[str, Any] | None = None
        if not writes:
            return
        check_writable(self.path)
        stored = self._agreed()
        if stored is None and not _holds_no_results(self.path):
            stored = self._agreed()  # another command may have claimed it meanwhile
        if stored is None and self.path.is_dir() and not _holds_no_results(self.path):
            raise OtherConfiguration(f"--workdir={path} holds files but no config.json; name a new or empty directory")
        self._first_made = None if stored is None else stored["made"]

    def metrics_path(self, name: str) -> pathlib.Path:
        """Where the metrics of a run are."""
        return self.path / "metrics" / f"{name}.jsonl"

    def state_path(self, name: str) -> pathlib.Path:
        """Where the state of a run under way is kept, until the run is written."""
        return self.path / STATES / name

    def claim(self) -> None:
        """Makes the directory this configuration's, as `write` does; to be called before other files are put into it.

        Raises:
          OtherConfiguration: as the constructor, if another command has been there since.
        """
        if not self.writes:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with _locked(self.path):
                stored = self._agreed()
                before = {"config": {}, "made": self._made} if stored is None else stored
                after = before | {"config": merged(before["config"], self._shared)}
                if after != stored:
                    files.write_text(self.path / "config.json", json.dumps(after, indent=2) + "\n")
        except OSError as error:
            raise _not_writable(self.path, str(error)) from error

    @contextlib.contextmanager
    def under_way(self, name: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """Appends the records of a run as they come; a killed run leaves `metrics/under_way/<name>.<process>.jsonl`.

        It does not count as finished, and claims nothing. `write` removes it.

        Args:
          name: of the run.

        Yields:
          A function that appends a record.
        """
        if not self.writes:
            yield lambda record: None
            return
        path = self.path / "metrics" / UNDER_WAY / f"{name}.{os.getpid()}.jsonl"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("w", encoding="utf-8", buffering=1)
        except OSError as error:
            raise _not_writable(self.path, str(error)) from error
        with file:
            yield lambda record: print(line_of(record), file=file)

    def write(self, name: str, records: Records) -> None:
        """Writes a finished run, one record a line, whole or not at all; a run that is there already is superseded."""
        if not self.writes:
            return
        lines = [line_of(record) for record in records]
        self.claim()
        with files.replacing(self.metrics_path(name)) as file:
            file.write(("\n".join(lines) + "\n").encode())
            _supersede(self.path, name, copy=True)  # the old one stands until the new one does
        for left in (self.path / "metrics" / UNDER_WAY).glob(f"{glob.escape(name)}.*.jsonl"):
            left.unlink(missing_ok=True)
        shutil.rmtree(self.state_path(name), ignore_errors=True)

    def tidy(self) -> None:
        """Removes the folders of runs under way where there are none; at the end of a command."""
        if not self.writes:
            return
        for folder in (self.path / "metrics" / UNDER_WAY, self.path / STATES):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def read(self, name: str, identity: Mapping[str, Any] | None = None) -> Records | None:
        """The records of a finished run.

        Args:
          name: of the run.
          identity: all configuration entries of the run, nested, as in the `config` of its first record. None: any.

        Returns:
          The records; None where the run has not finished.

        Raises:
          OtherConfiguration: where the run that is there has another configuration; it names the first entry that
            differs, or that only one of the two has.
        """
        records = read_records(self.metrics_path(name))
        if records is not None and identity is not None:
            for entry, old, new in differences(records[0].get("config", {}), as_stored(identity)):
                there = f"without config.{entry}" if old is ABSENT else f"with config.{entry}={old}"
                asked = "none" if new is ABSENT else new
                raise OtherConfiguration(
                    f"--workdir={self.path} holds a run {name} {there}, not {asked}; name another directory, or run "
                    "it anew by --rerun"
                )
        return records

    def changed_since(self) -> str | None:
        """One line where the runs that are there were made by another version or commit than this one; else None."""
        first, now = self._first_made, self._made
        if first is None or not now or all(first.get(key) == now.get(key) for key in _PROVENANCE):
            return None
        return f"The first runs in {self.path} were made by {_maker(first)}; new ones are made by {_maker(now)}."

    def _agreed(self) -> dict[str, Any] | None:
        """What config.json holds, if that agrees with what is shared; None where there is none."""
        file = self.path / "config.json"
        if not file.exists():
            return None
        stored = _stored(file)
        if self._superseding:
            left = _configs(self.path, self._superseding)
            stored = stored | {"config": present(stored["config"], left)}
        for name, old, new in differences(stored["config"], self._shared):
            if old is not ABSENT and new is not ABSENT:
                raise OtherConfiguration(
                    f"--workdir={self.path} holds runs with config.{name}={old}, not {new}; name another directory, "
                    f"set --config.{name}={old}, or run all that have it anew by --rerun"
                )
        return stored


def put_aside(path: str | pathlib.Path, names: Iterable[str]) -> int:
    """Moves finished runs to `metrics/superseded`, since they are to be run anew, perhaps with another configuration.

    The directory then belongs to the configuration of the runs that are left.

    Args:
      path: the directory.
      names: of the runs; those that have not finished are passed over.

    Returns:
      How many were moved.
    """
    path = pathlib.Path(path)
    names = list(names)
    for name in names:
        shutil.rmtree(path / STATES / name, ignore_errors=True)
    moved = sum(_supersede(path, name) for name in names)
    config = path / "config.json"
    if moved and config.exists():
        stored = _stored(config)
        left = present(stored["config"], _configs(path))
        files.write_text(config, json.dumps(stored | {"config": left}, indent=2) + "\n")
    return moved


def _configs(path: pathlib.Path, less: Container[str] = ()) -> list[dict[str, Any]]:
    """The configurations of the finished runs of a directory, less those of some names."""
    found = (read_records(file) for file in (path / "metrics").glob("*.jsonl") if file.stem not in less)
    return [records[0].get("config", {}) for records in found if records]


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """One command at a time, on systems that can lock a directory."""
    if fcntl is None:
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _supersede(path: pathlib.Path, name: str, *, copy: bool = False) -> bool:
    """Moves, or copies, a finished run aside, where there is one, and says whether there was."""
    file = path / "metrics" / f"{name}.jsonl"
    if not file.exists():
        return False
    aside = file.parent / SUPERSEDED
    aside.mkdir(exist_ok=True)
    number = next(i for i in itertools.count(1) if not (aside / f"{name}.{i}.jsonl").exists())
    (shutil.copy2 if copy else os.replace)(file, aside / f"{name}.{number}.jsonl")
    for folder in (aside, file.parent):
        files.sync_folder(folder)
    return True


def _holds_no_results(path: pathlib.Path) -> bool:
    """Whether a directory is empty but for what killed runs leave."""
    unfinished = (path / "metrics" / UNDER_WAY, path / STATES, *(path / log for log in LOGS))
    found = (file for file in path.rglob("*") if file.is_file() and not files.is_unfinished(file))
    return all(any(folder in file.parents for folder in unfinished) for file in found)


def check_writable(path: pathlib.Path) -> None:
    """Refuses a path that could not be written, without a trace: the first run may end hours from now.

    Raises:
      OtherConfiguration: where it, or the nearest directory above it that exists, takes no new file.
    """
    there = path
    try:
        if path.exists() and not path.is_dir():
            raise OtherConfiguration(f"--workdir={path} must be a directory, and is a file")
        there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
        # Only a file tells: root may write everywhere but into /proc. By its name, it counts as unfinished.
        with tempfile.TemporaryFile(prefix=".writable.", suffix=".part", dir=there):
            pass
    except OSError as error:
        raise _not_writable(path, f"no file can be made in {there} ({error.strerror})") from error


def _not_writable(path: pathlib.Path, why: str) -> OtherConfiguration:
    return OtherConfiguration(f"--workdir={path} must be a directory that can be written: {why}")


def _stored(file: pathlib.Path) -> dict[str, Any]:
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OtherConfiguration(
            f"--workdir={file.parent} holds a config.json that is not one of ours: {error}"
        ) from None
    if not isinstance(stored, dict) or not all(isinstance(stored.get(name), dict) for name in ("config", "made")):
        raise OtherConfiguration(
            f"--workdir={file.parent} holds runs of an earlier version of sgdlab (config.json does not say what made "
            "them); name another directory"
        )
    return stored


def _maker(made: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {made.get(key) or 'unknown'}" for key in _PROVENANCE)
