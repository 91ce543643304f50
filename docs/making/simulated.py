"""The speed of each protocol on four kinds of clusters, simulated when the site is built: nothing is trained."""

import dataclasses
import functools
from typing import Any

from sgdlab import runs, theory
from sgdlab.errors import UsageError
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.runs.methods import Method
from sgdlab.schedule import Schedule

NUM_WORKERS = 16
PICTURED_WORKERS = 5

CLUSTERS = {
    "equal workers": {"kind": "gamma", "gamma.heterogeneous": False},
    "unequal workers": {"kind": "gamma", "gamma.heterogeneous": True},
    "rare long stalls": {
        "kind": "long_tailed",
        "long_tailed.median": 8.0,
        "long_tailed.tail_start": 16.0,
        "long_tailed.tail_index": 1.2,
    },
    "slow regimes": {"kind": "regimes", "regimes.mean": 8.0, "regimes.std": 3.0},
}
"""Name -> entries of `config.cluster`; a gradient takes about 8 seconds on each."""

_FIRST: dict[tuple[Any, ...], str] = {}
"""Protocol with its arguments -> the first method that has it: its speeds are those of all of them."""


@dataclasses.dataclass(frozen=True)
class Speed:
    """Holds what a protocol makes of a cluster.

    Attributes:
      speedup: used gradients per second, over those of synchronous SGD on the same compute times.
      staleness: mean number of updates between reading and use; NaN without a server.
      wasted: share of the workers' time that goes into gradients which are dropped.
      idle: share of the workers' time in which they wait.
      distance: R, the largest distance in the computation tree; None without a server.
      effective: of as many workers, were all used equally, the data are learned from.
    """

    speedup: float
    staleness: float
    wasted: float
    idle: float
    distance: int | None
    effective: float


def flags(cluster: str) -> str:
    """Return the flags of one of `CLUSTERS`."""
    return " ".join(f"--config.cluster.{entry}={value}" for entry, value in CLUSTERS[cluster].items())


def speeds(method: Method) -> dict[str, Speed]:
    """Return what a method's protocol makes of each cluster; none where it takes no compute times of a cluster."""
    name = _FIRST.setdefault(waiting(method), method.name)
    return {cluster: found for cluster in CLUSTERS if (found := _speed(name, cluster)) is not None}


def waiting(method: Method) -> tuple[Any, ...]:
    """Return what methods share that wait for the same workers: the protocol and its entries, and local steps."""
    return method.protocol, tuple(sorted(method.entries.items())), tuple(sorted(method.local.items()))


def schedule_of_five(method: str) -> Schedule | PeerSchedule:
    """Return a schedule of five unequal workers, for the picture of a method's protocol."""
    return _plan(method, PICTURED_WORKERS, {}).schedule


def configured(method: str, num_workers: int, cluster: dict) -> runs.plan.ConfigDict:
    """Return the configuration of a schedule that is simulated: two epochs of the digits' own."""
    from configs import digits  # noqa: PLC0415 (which is found in a checkout)

    config = digits.get_config()
    config.method, config.epochs, config.cluster.num_workers = method, 2.0, num_workers
    config.rate.decay = "constant"  # which schedules do not depend on, and which compiles nothing
    config.data.kind = "mock"  # as many images as the digits, which take seconds to be read
    config.data.mock.image_shape, config.data.mock.num_classes, config.data.mock.num_examples = (8, 8, 1), 10, 1437
    with config.unlocked():
        config.update_from_flattened_dict({f"cluster.{entry}": value for entry, value in cluster.items()})
    return config


def _plan(method: str, num_workers: int, cluster: dict) -> runs.plan.Plan:
    return runs.plan.make_plan(configured(method, num_workers, cluster))


@functools.cache
def _speed(method: str, cluster: str) -> Speed | None:
    try:
        plan = _plan(method, NUM_WORKERS, CLUSTERS[cluster])
    except UsageError:
        return None
    made = plan.schedule
    peers = isinstance(made, PeerSchedule)
    local = plan.experiment.local.active and not peers
    steps = {"steps": plan.experiment.steps[made.worker]} if local else {}
    certified = theory.certificate(made, **steps)
    return Speed(
        speedup=plan.speedup,
        staleness=float("nan") if peers else float(made.staleness().mean()),
        wasted=0.0 if peers else float(made.wasted_share().mean()),
        idle=float(made.idle_share().mean()),
        distance=certified.tree_distance,
        effective=certified.effective_workers,
    )
