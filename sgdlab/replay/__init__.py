"""Replay: executes a schedule on a virtual clock, exactly, as one compiled program."""

from sgdlab.replay.block_program import BlockProgram
from sgdlab.replay.blocks import Partition, partition
from sgdlab.replay.capacity import Capacity
from sgdlab.replay.program import Program, lower
from sgdlab.replay.run import History, Result, Watch, run

__all__ = [
    "BlockProgram",
    "Capacity",
    "History",
    "Partition",
    "Program",
    "Result",
    "Watch",
    "lower",
    "partition",
    "run",
]
