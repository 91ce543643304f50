"""Atomic writing of files: to a temporary name, which is then renamed."""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import IO


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Opens a temporary binary file beside `path` and renames it to `path` once the block has ended without error.

    A reader, or a run that continues after a crash, sees the old file or the new one, never half of one.

    Example:
      >>> import pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "note.txt"
      >>> with replacing(path) as file:
      ...     _ = file.write(b"whole")
      >>> path.read_text()
      'whole'
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
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
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise


def is_unfinished(path: pathlib.Path) -> bool:
    """Whether a file is the temporary one of a `replacing` that was killed."""
    return path.name.startswith(".") and path.suffix == ".part"


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes `text` to `path` in UTF-8, whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode())
