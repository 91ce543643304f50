"""`mesh`: the devices of all processes."""

import importlib
from typing import TYPE_CHECKING

from sgdlab.errors import UsageError
from sgdlab.hosts import connection

if TYPE_CHECKING:
    from jax.sharding import Mesh


def mesh(devices: int | None = None) -> "Mesh | None":
    """The devices of all processes, hosts outside: what is sent along axis "device" stays inside a process.

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
