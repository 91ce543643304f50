"""The things that all processes share: the directory that the first one writes, and their devices as one mesh."""

import contextlib
import importlib
import os
import pathlib
import tempfile
import time
from typing import TYPE_CHECKING

from sgdlab.errors import UsageError
from sgdlab.hosts import connection

if TYPE_CHECKING:
    from jax.sharding import Mesh

_SECONDS = 15.0
"""Network file systems show a new file to other hosts within a few seconds."""


def check_shared(path: pathlib.Path) -> None:
    """Check that every process sees, and may write, a directory that the first one makes where it does not exist.

    Raises:
      UsageError: where one does not; all call it, and a run that is refused leaves nothing.
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
        if made:
            with contextlib.suppress(OSError):
                path.rmdir()
    if "no" in answers:
        index = answers.index("no")
        raise UsageError(
            f"--workdir={path} must be on a file system that all hosts share and may write: process {index} on "
            f"{connection.host_of(index)} does not see the files of process 0 on {connection.host_of(0)}"
        )


def mesh(devices: int | None = None) -> "Mesh | None":
    """Return the devices of all processes, hosts outside: what is sent along axis "device" stays inside a process.

    Args:
      devices: how many of each process's devices to use. None: all of them over several processes, one in a single
        process.

    Returns:
      A mesh with the axes ("host", "device"); None for a single device.

    Raises:
      UsageError: where a process has fewer devices, or processes have different numbers of them.

    Example:
      >>> mesh() is None
      True
    """
    if devices is None and not connection.connected():
        return None
    jax = importlib.import_module("jax")
    np = importlib.import_module("numpy")
    rows: dict[int, list] = {}
    for device in sorted(jax.devices(), key=lambda device: (device.process_index, device.id)):
        rows.setdefault(device.process_index, []).append(device)
    counts = [len(row) for row in rows.values()]
    if devices is None and len(set(counts)) > 1:
        numbers = ", ".join(f"{count} of process {i}" for i, count in zip(rows, counts, strict=True))
        raise UsageError(
            f"processes must have equally many devices, not {numbers}; --devices={min(counts)} uses so many of each"
        )
    wanted = counts[0] if devices is None else devices
    if not 1 <= wanted <= min(counts):
        raise UsageError(f"--devices={wanted} must be from 1 to {min(counts)}, the devices of a process")
    if len(rows) * wanted == 1:
        return None
    grid = np.array([row[:wanted] for row in rows.values()], dtype=object)
    auto = (jax.sharding.AxisType.Auto,) * 2
    return jax.sharding.Mesh(grid, ("host", "device"), axis_types=auto)
