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


@pytest.mark.parametrize("fault", ["killed", "parted"])
def test_a_machine_is_lost_and_comes_back(fault, tmp_path, alone):
    with Machines(3, tmp_path) as machines:
        children = [begin(machines, name, tmp_path) for name in machines.names]
        machines.wait_for(children[0], " gradients,", times=6)
        if fault == "killed":
            machines.kill("node3")
            machines.wait_for(children[0], "another host was lost", 60.0)
            children[2] = begin(machines, "node3", tmp_path)  # somebody starts the machine again
        else:
            machines.cut("node2")
            machines.wait_for(children[0], "another host was lost", 60.0)
            time.sleep(5.0)
            machines.heal("node2")
        for child in children:
            assert child.wait(timeout=600) == 0, machines.log(child)
        assert "Continued from checkpoint" in machines.log(children[0])
    same(parameters(tmp_path / "run"), alone)
