"""The registry of failures, which say when workers are down, and what that does to their work."""

from sgdlab.registry import Registry

FAILURES = Registry(
    "failures",
    given={"num_workers": "cluster.num_workers", "seed": "seed"},
    modules=("sgdlab.failures.drawn", "sgdlab.failures.trace"),
)
"""Failures of workers: `(*, num_workers, seed, **own) -> Outages`."""
