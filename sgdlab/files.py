"""Files that survive a crash: written to a temporary name, which is then renamed, in folders that are on the disk."""

import contextlib
import errno
import itertools
import os
import pathlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO

from sgdlab.errors import UsageError

_NOT_SYNCED = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES)
"""Lists the errors of file systems that cannot sync a folder, or of a folder that may not be read."""


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Opens a temporary binary file beside `path` and renames it to `path` once the block has ended without error.

    A reader, or a run that continues after a crash, sees the old file or the new one, never half of one. A link stays a
    link, to what is new; a device or a pipe, such as /dev/null, is written to.

    Example:
      >>> import pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "note.txt"
      >>> with replacing(path) as file:
      ...     _ = file.write(b"whole")
      >>> path.read_text()
      'whole'
    """
    path = pathlib.Path(path)
    if path.exists() and not path.is_file():  # before its link is followed: that of /dev/stdout may lead to no name
        with path.open("wb") as stream:
            yield stream
        return
    path = pathlib.Path(os.path.realpath(path))
    make_folder(path.parent)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        # mkstemp makes the file readable by its owner alone; results are to be read like any other new file.
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(handle, 0o666 & ~mask)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise


def make_folder(path: pathlib.Path) -> None:
    """Makes a folder, and those above it that are missing, so that their names are on the disk too."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: pathlib.Path) -> None:
    """Sees to it that the names in a folder are on the disk, as `os.fsync` does for what is in a file.

    Raises:
      OSError: if that fails.
    """
    if os.name != "posix":
        return
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NOT_SYNCED:
            raise


def put_aside(paths: Sequence[pathlib.Path]) -> pathlib.Path:
    """Moves the files of a folder to a new one beside it, of its name and a number, and returns that."""
    folder = paths[0].parent
    aside = next(beside for beside in numbered(folder) if not beside.exists())
    make_folder(aside)
    for path in paths:
        os.rename(path, aside / path.name)
    for each in (aside, folder):
        sync_folder(each)
    return aside


def numbered(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the paths beside another one that have its name and a number.

    Example:
      >>> paths = numbered(pathlib.Path("states/run"))
      >>> next(paths).as_posix(), next(paths).as_posix()
      ('states/run.1', 'states/run.2')
    """
    path = path if path.name.strip(".") else path.resolve()
    return (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))


def check_writable(path: pathlib.Path, flag: str = "--workdir") -> None:
    """Check that a directory can be written, without a trace: the first run may end hours from now.

    Raises:
      UsageError: where it, or the nearest directory above it that exists, takes no new file.
    """
    there = path
    try:
        if path.exists() and not path.is_dir():
            raise UsageError(f"{flag}={path} must be a directory, and is a file")
        there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
        # Only a file tells: root may write everywhere but into /proc. By its name, it counts as unfinished.
        with tempfile.TemporaryFile(prefix=".writable.", suffix=".part", dir=there):
            pass
    except OSError as error:
        why = f"no file can be made in {there} ({error.strerror})"
        raise UsageError(f"{flag}={path} must be a directory that can be written: {why}") from error


def is_unfinished(path: pathlib.Path) -> bool:
    """Return True if a file is the temporary one of a `replacing` that was killed."""
    return path.name.startswith(".") and path.suffix == ".part"


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes `text` to `path` in UTF-8, whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode())
