"""The registry of laws of compute times, which say how long gradients take."""

from sgdlab.registry import Registry

CLUSTERS = Registry(
    "cluster",
    given={"num_workers": "cluster.num_workers", "batch_size": "batch_size"},
    modules=(
        "sgdlab.cluster.exponential",
        "sgdlab.cluster.fixed",
        "sgdlab.cluster.gamma",
        "sgdlab.cluster.ladder",
        "sgdlab.cluster.long_tailed",
        "sgdlab.cluster.recorded",
        "sgdlab.cluster.regimes",
    ),
)
"""Laws of the compute times of gradients, with `draw(rows, *, seed) -> float64[T, N]` seconds."""
