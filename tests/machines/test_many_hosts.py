"""One run over three machines, one of which is killed or parted from the others: it ends as if nothing had happened."""

import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

from experiments.benchmarks.faults.namespaces import Machines, why_not

ROOT = pathlib.Path(__file__).parents[2]
TRAIN = (
    sys.executable, "-m", "sgdlab", "train", "--config.method=asgd", "--config.cluster.num_workers=6",
    "--config.epochs=100", "--config.evaluations=40", "--config.network.kind=mlp", "--config.network.mlp.widths=(8,)",
    "--config.batch_size=32", "--config.mode=wave", "--config.target=None", "--checkpoint_seconds=0.5",
)  # fmt: skip

pytestmark = [
    pytest.mark.machines,
    pytest.mark.long("one run over three machines"),
    pytest.mark.skipif(sys.platform != "linux" or bool(why_not()), reason=f"no machines can be made: {why_not()}"),
]


@pytest.fixture(name="alone", scope="module")
def parameters_of_one_process(tmp_path_factory):
    """The parameters of the same run by one process."""
    folder = tmp_path_factory.mktemp("alone")
    subprocess.run([*TRAIN, f"--workdir={folder}"], cwd=ROOT, check=True, capture_output=True)
    return parameters(folder)


def parameters(folder):
    with np.load(folder / "parameters.npz") as stored:
        return dict(stored)


def begin(machines, name, folder):
    """Start the run on a machine, under supervision."""
    supervised = [sys.executable, str(ROOT / "scripts/supervise"), "--wait=1", "--", *TRAIN]
    address = f"{machines.address('node1')}:8476"
    own = [f"--hosts={address}", "--num_processes=3", f"--process_id={machines.names.index(name)}"]
    command = [*supervised, f"--workdir={folder}/run", *own, "--heartbeat_seconds=10"]
    return machines.start(name, command, PYTHONPATH=str(ROOT), JAX_PLATFORMS="cpu")


def same(found, alone):
    for name, expected in alone.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fault", ["killed", "first killed", "parted", "limited"])
def test_what_befalls_a_machine_changes_nothing(fault, tmp_path, alone):
    lost = {"killed": 2, "first killed": 0}.get(fault)
    with Machines(3, tmp_path) as machines:
        children = [begin(machines, name, tmp_path) for name in machines.names]
        machines.wait_for(children[0], " gradients,", times=6)
        if lost is not None:
            machines.kill(machines.names[lost])
            machines.wait_for(children[1], "another host was lost", 60.0)
            children[lost] = begin(machines, machines.names[lost], tmp_path)  # somebody starts the machine again
        elif fault == "parted":
            machines.cut("node2")
            machines.wait_for(children[0], "another host was lost", 60.0)
            time.sleep(20.0)
            machines.heal("node2")
        else:
            machines.limit("node2", 1.0)
            time.sleep(20.0)
            assert {child.poll() for child in children} == {None}  # it has not been over before
            machines.unlimit("node2")
        for child in children:
            assert child.wait(timeout=600) == 0, machines.log(child)
        printed = machines.log(children[0])
    assert ("Continued from checkpoint" in printed) == (fault != "limited")
    same(parameters(tmp_path / "run"), alone)
