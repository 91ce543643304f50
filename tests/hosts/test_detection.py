"""--hosts=auto believes what SLURM and Open MPI put into the environment; nothing is detected unasked."""

import pytest

from sgdlab import hosts
from sgdlab.errors import UsageError
from sgdlab.hosts import address

SLURM = {
    "SLURM_JOB_ID": "4097",
    "SLURM_STEP_NODELIST": "node[007-009],other2",
    "SLURM_NTASKS": "8",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
}
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "8192.0;tcp://10.96.0.1,10.148.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}


@pytest.fixture(name="cluster")
def fake_cluster(monkeypatch):
    def set_variables(variables):
        for name in (*SLURM, *OPEN_MPI, "JAX_COORDINATOR_PORT", "KUBERNETES_SERVICE_HOST"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_variables


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        # The port of SLURM's is the job's number modulo 4096, above 61440; of Open MPI the job is a multiple of 4096.
        (SLURM, address.Detected(f"node007:{61440 + 4097 % 4096}", 8, 3, (1,))),
        (OPEN_MPI, address.Detected(f"10.96.0.1:{61440 + 8192 // 4096}", 4, 2, (0,))),
    ],
)
def test_launchers_are_asked(cluster, variables, found):
    cluster(variables)
    assert address.detect(None, None, 10) == found


def test_what_is_given_is_not_detected(cluster):
    cluster(SLURM)
    assert address.detect(2, 1, 10) == address.Detected("node007:61441", 2, 1, (1,))


def test_without_a_cluster_the_address_must_be_named(cluster):
    cluster({})
    with pytest.raises(UsageError, match="--hosts=auto found no cluster"):
        hosts.connect("auto")


def test_a_cluster_whose_variables_are_broken_is_one_line(cluster):
    cluster(SLURM | {"SLURM_NTASKS": "many"})
    with pytest.raises(UsageError, match="the cluster could not be asked: invalid literal"):
        address.detect(None, None, 10)


def test_nothing_is_detected_unasked(cluster):
    cluster(SLURM)
    hosts.connect("none")
    assert not hosts.connected()
    assert (hosts.num_processes(), hosts.process_id()) == (1, 0)
