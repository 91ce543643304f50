"""How long workers and messages take. Run-times are float64[T, N] seconds, row t each worker's t-th gradient."""

from sgdlab.cluster.exponential import exponential
from sgdlab.cluster.gamma import gamma
from sgdlab.cluster.long_tailed import long_tailed
from sgdlab.cluster.messages import MessageDelays
from sgdlab.cluster.recorded import Recording, from_schedule, recorded
from sgdlab.cluster.regimes import Contention, Drift, RegimeCluster, RegimeRun, regimes

__all__ = [
    "Contention",
    "Drift",
    "MessageDelays",
    "Recording",
    "RegimeCluster",
    "RegimeRun",
    "exponential",
    "from_schedule",
    "gamma",
    "long_tailed",
    "recorded",
    "regimes",
]
