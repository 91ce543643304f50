"""How long workers and messages take. Run-times are float64[T, N] seconds, row t each worker's t-th gradient."""

from sgdlab.cluster.exponential import exponential
from sgdlab.cluster.gamma import gamma
from sgdlab.cluster.long_tailed import long_tailed
from sgdlab.cluster.messages import MessageDelays

__all__ = ["MessageDelays", "exponential", "gamma", "long_tailed"]
