"""Replay: executes a schedule on a virtual clock, exactly, as one compiled program."""

from sgdlab.replay.block_program import BlockProgram
from sgdlab.replay.blocks import Partition, partition
from sgdlab.replay.capacity import Capacity
from sgdlab.replay.peer_program import PeerCapacity, PeerProgram, lower_peers
from sgdlab.replay.peers import PeerHistory, PeerResult, run_peers
from sgdlab.replay.program import Program, lower
from sgdlab.replay.run import History, Result, run
from sgdlab.replay.watch import Watch

__all__ = [
    "BlockProgram",
    "Capacity",
    "History",
    "Partition",
    "PeerCapacity",
    "PeerHistory",
    "PeerProgram",
    "PeerResult",
    "Program",
    "Result",
    "Watch",
    "lower",
    "lower_peers",
    "partition",
    "run",
    "run_peers",
]
