"""A process of a run over several: replays cases of `lib/mesh_cases`; the first one stores what came of them.

python mesh_member.py ADDRESS COUNT INDEX FOLDER RUN [RUN ...]

A run is CASE:DEVICES:LAYOUT, with so many devices of each process. CASE:DEVICES:LAYOUT:stopped has checkpoints in
FOLDER/states/CASE, from which it continues; the last process stops it, and it is begun again. CASE:DEVICES:LAYOUT:full
has checkpoints that the last process cannot write, as on a full disk; in CASE:DEVICES:LAYOUT:differs the last process
replays another case.
"""

import pathlib
import resource
import sys

from sgdlab import hosts
from sgdlab.checkpoints import Checkpoints
from sgdlab.commands import launch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))


def main(address, count, index, folder, *runs):
    hosts.connect(address, num_processes=int(count), process_id=int(index), facts={"runs": " ".join(runs)})
    import jax  # noqa: PLC0415 (after `connect`, like everything that may ask for a device)
    import numpy as np  # noqa: PLC0415

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)
    from lib.mesh_cases import leaves, replayed, stopped_and_continued  # noqa: PLC0415

    for run in runs:
        name, devices, layout, *how = run.split(":")
        on_mesh = {"mesh": hosts.mesh(int(devices)), "layout": layout}
        last = hosts.process_id() == hosts.num_processes() - 1
        if how == ["differs"]:
            found = leaves(replayed(("asgd", "synchronous")[last], **on_mesh))
        elif how == ["full"]:
            if last:
                resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
            with Checkpoints(pathlib.Path(folder) / "full", {}, timeout_seconds=4) as checkpoints:
                found = leaves(replayed(name, every=2, checkpoints=checkpoints, **on_mesh))
        elif how:
            found = stopped_and_continued(name, pathlib.Path(folder) / "states" / name, stops=last, **on_mesh)
        else:
            found = leaves(replayed(name, **on_mesh))
        if hosts.is_first():
            np.savez(pathlib.Path(folder) / f"{run}.npz", **found)
    hosts.disconnect()


if __name__ == "__main__":
    launch._guarded(lambda argv: main(*argv[1:]), sys.argv)
