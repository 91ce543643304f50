"""Causes of slow steps planted in drawn fleets: how often the diagnosis names the right one first, and a false one."""

from experiments.benchmarks.planted.figures import DRAWS, figures

__all__ = ["DRAWS", "figures"]
