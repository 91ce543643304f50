"""Clusters: laws of workers' compute times, recorded compute times, and delays of messages.

`draw(rows, seed=...)` gives compute times, float64[T, N] seconds; row t holds each worker's t-th gradient.
A number that is out of its range raises a ValueError that names it.
"""

from sgdlab.cluster.exponential import Exponential, exponential
from sgdlab.cluster.family import CLUSTERS
from sgdlab.cluster.fixed import Fixed
from sgdlab.cluster.gamma import Gamma, GammaQuantiles, gamma
from sgdlab.cluster.ladder import Ladder
from sgdlab.cluster.law import Law
from sgdlab.cluster.long_tailed import LongTailed, long_tailed
from sgdlab.cluster.messages import MessageDelays
from sgdlab.cluster.recorded import Recorded, recorded
from sgdlab.cluster.regimes import Contention, Drift, RegimeCluster, RegimeRun, regimes
from sgdlab.traces.recording import Recording, from_schedule

__all__ = [
    "CLUSTERS",
    "Contention",
    "Drift",
    "Exponential",
    "Fixed",
    "Gamma",
    "GammaQuantiles",
    "Ladder",
    "Law",
    "LongTailed",
    "MessageDelays",
    "Recorded",
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
