"""A process of a run over hosts that does what its arguments say, in the guard that commands run in.

    python member.py WHERE NUM_PROCESSES PROCESS_ID ACTION

NUM_PROCESSES may be the least and the largest number, as 2:3; it then waits 12 seconds.

The last process is the one that fails.
"""

import os
import pathlib
import sys
import time

from sgdlab import hosts
from sgdlab.commands import launch
from sgdlab.hosts import shared

_WAIT = 600.0


def main(argv):
    where, count, index, action = argv[1:5]
    hosts.connect(
        where,
        num_processes=int(count.rpartition(":")[2]) if count else None,
        least_processes=int(count.partition(":")[0]) if ":" in count else None,
        process_id=int(index) if index else None,
        timeouts=hosts.Timeouts(
            start=12.0 if ":" in count else 60.0,
            heartbeat=3.0 if action == "freezes" else 60.0,
            barrier=1.0 if action == "late" else 1800.0,
        ),
    )
    last = hosts.process_id() == hosts.num_processes() - 1
    print("connected", hosts.process_id(), "of", hosts.num_processes(), flush=True)
    ACTIONS[action](last)


def _agrees(last):
    for i in range(3):
        print(hosts.gather("values", f"{hosts.process_id()}.{i}"))
    print("sum", _sum())


def _sum():
    """Of 0, 1, 2, ..., one number on each device."""
    import jax  # noqa: PLC0415 (it must not be imported before `connect`)
    import numpy as np  # noqa: PLC0415
    from jax.sharding import NamedSharding, PartitionSpec  # noqa: PLC0415

    mesh = hosts.mesh()
    numbers = np.arange(mesh.size, dtype=np.float32).reshape(mesh.devices.shape)
    split = NamedSharding(mesh, PartitionSpec("host", "device"))
    placed = jax.make_array_from_callback(numbers.shape, split, lambda index: numbers[index])
    whole = NamedSharding(mesh, PartitionSpec())
    return float(jax.jit(lambda x: x.sum(), out_shardings=whole)(placed))


def _sums(last):
    print("begun", _sum(), flush=True)
    while True:
        _sum()


def _waits(last):
    """The last process does not come to where the others wait."""
    print("waits", flush=True)
    if last:
        time.sleep(_WAIT)
    hosts.barrier("the first pause")


def _raises(last):
    if last:
        raise ValueError("this gradient is none")
    hosts.barrier("the first pause")


def _exits(last):
    if last:
        sys.exit(7)
    hosts.barrier("the first pause")


def _stops(last):
    with hosts.stopping():
        print("ready", flush=True)
        while not any(hosts.gather("stop", "yes" if hosts.stop_requested() else "")):
            time.sleep(0.05)
        print("all stop", flush=True)
        time.sleep(_WAIT)


def _shares(last):
    """The last process sees another directory, of the same name, as on a host without the shared file system."""
    shared._SECONDS = 0.5
    folder = pathlib.Path(os.environ["SHARED_FOLDER"])
    hosts.check_shared(folder)
    print("shared", [file.name for file in folder.iterdir()], flush=True)
    hosts.barrier("both have seen it")
    hosts.check_shared(folder / "other" if last else folder)


ACTIONS = {
    "agrees": _agrees,
    "sums": _sums,
    "waits": _waits,
    "late": _waits,
    "freezes": _waits,
    "raises": _raises,
    "exits": _exits,
    "stops": _stops,
    "shares": _shares,
}

if __name__ == "__main__":
    launch._guarded(main, sys.argv)
