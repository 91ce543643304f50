"""sgdlab: whom to wait for, and what to do with a gradient that comes late."""

from sgdlab import lazy

__version__ = "1.0.0"

# Packages are imported at their first use: an optax transform needs neither NumPyro nor PyArrow.
__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    modules=(
        "cluster", "compressions", "cutoff", "data", "deep_markov", "failures", "graphs", "hosts", "jobs", "live",
        "networks", "policies", "predictors", "protocols", "registry", "replay", "results", "rollouts", "rules",
        "runs", "stragglers", "tasks", "theory", "transports",
    ),
    names={
        "peer_schedule": ["PeerSchedule"], "runs.compare": ["compare"], "schedule": ["DROPPED", "PENDING", "Schedule"],
    },
)  # fmt: skip
