"""What a cluster's launcher says of the processes of a job, asked only with --hosts=auto."""

import dataclasses
import importlib

from sgdlab.errors import UsageError

KNOWN = "SLURM, Open MPI, TPU pods and GKE"


@dataclasses.dataclass(frozen=True)
class Detected:
    """The processes of a job.

    Attributes:
      address: HOST:PORT of process 0.
      num_processes: how many there are.
      process_id: which of them this is.
      local_device_ids: accelerators of the host that this process uses; None: all.
    """

    address: str
    num_processes: int
    process_id: int
    local_device_ids: tuple[int, ...] | None


def detect(num_processes: int | None, process_id: int | None, seconds: float) -> Detected:
    """Asks JAX's detection of clusters; it reads variables of the environment, or asks the cluster.

    Args:
      num_processes: as given; None: to be detected.
      process_id: likewise.
      seconds: how long a cluster may take to answer.

    Raises:
      UsageError: where this process does not run on a cluster that is known.
    """
    clusters = importlib.import_module("jax._src.clusters")  # private: there is no public way to ask
    try:
        address, count, own, devices = clusters.ClusterEnv.auto_detect_unset_distributed_params(
            None, num_processes, process_id, None, None, int(seconds)
        )
    except Exception as error:
        raise UsageError(f"--hosts=auto: the cluster could not be asked: {_line(error)}") from error
    if address is None or count is None or own is None:
        raise UsageError(
            f"--hosts=auto found no cluster (it knows {KNOWN}); name the address of process 0: --hosts=HOST:PORT"
        )
    return Detected(address, int(count), int(own), None if devices is None else tuple(devices))


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0] or type(error).__name__
