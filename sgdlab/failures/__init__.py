"""Failures: when workers are down, for how long, and what that does to what they compute.

A protocol takes them as `outages=`, such as `protocols.asynchronous(runtimes, outages=independent(...))`.
"""

from sgdlab.failures.drawn import Recovery, independent, none, spot
from sgdlab.failures.family import FAILURES
from sgdlab.failures.outages import Outages
from sgdlab.failures.rollback import CheckpointCosts, rolled_back
from sgdlab.failures.trace import trace

__all__ = ["FAILURES", "CheckpointCosts", "Outages", "Recovery", "independent", "none", "rolled_back", "spot", "trace"]
