"""`check_shared`: whether all processes see the directory that the first one writes."""

import contextlib
import os
import pathlib
import tempfile
import time

from sgdlab.errors import UsageError
from sgdlab.hosts import connection

_SECONDS = 15.0
"""Network file systems show a new file to other hosts within a few seconds."""


def check_shared(path: pathlib.Path) -> None:
    """Checks that every process sees, and may write, the directory that the first one writes; all call it.

    Args:
      path: the directory; made, and removed again, where it does not exist.

    Raises:
      UsageError: where one does not.
    """
    if not connection.connected():
        return
    token, made = "", not path.exists()
    if connection.is_first():
        try:
            path.mkdir(parents=True, exist_ok=True)
            handle, token = tempfile.mkstemp(prefix=".shared.", suffix=".part", dir=path)
            os.close(handle)
        except OSError as error:
            raise UsageError(f"--workdir={path} must be a directory that can be written: {error.strerror}") from error
    name = pathlib.Path(connection.gather("a file for all", token)[0]).name
    ends = time.monotonic() + _SECONDS
    while not (path / name).exists() and time.monotonic() < ends:
        time.sleep(0.2)
        if path.is_dir():
            os.listdir(path)  # reads the directory anew where it is cached
    seen = (path / name).exists() and os.access(path, os.W_OK | os.X_OK)
    answers = connection.gather("whether all see the file", "yes" if seen else "no")
    if connection.is_first():
        pathlib.Path(token).unlink(missing_ok=True)
        if made:  # a run that is refused leaves nothing
            with contextlib.suppress(OSError):
                path.rmdir()
    if "no" in answers:
        index = answers.index("no")
        raise UsageError(
            f"--workdir={path} must be on a file system that all hosts share and may write: process {index} on "
            f"{connection.host_of(index)} does not see the files of process 0 on {connection.host_of(0)}"
        )
