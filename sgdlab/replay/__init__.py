"""Replay: executes a schedule on a virtual clock, exactly, as one compiled program."""

from sgdlab.replay.program import Capacity, Program, lower
from sgdlab.replay.run import History, Result, Watch, run

__all__ = ["Capacity", "History", "Program", "Result", "Watch", "lower", "run"]
