"""How long workers take: run-time models. Run-times are float64[T, N] seconds, row t each worker's t-th gradient."""

from sgdlab.cluster.gamma import gamma

__all__ = ["gamma"]
