"""Replay of schedules as one compiled program: `run`, `run_many`, `lower`; and step by step: `Steps`."""

from sgdlab.replay.blocks import MAX_BLOCKS, Partition, check_num_blocks, partition
from sgdlab.replay.feed import Feed
from sgdlab.replay.history import History, Result
from sgdlab.replay.local_steps import Span, in_local_steps, state_of_worker
from sgdlab.replay.lowering import lower
from sgdlab.replay.many import run_many
from sgdlab.replay.micro_batches import in_micro_batches
from sgdlab.replay.peer_program import PeerProgram
from sgdlab.replay.program import Capacity, Program
from sgdlab.replay.run import check_rule, run
from sgdlab.replay.server_program import ServerProgram
from sgdlab.replay.steps import Steps
from sgdlab.replay.streaming import in_fragments, state_of_fragments
from sgdlab.replay.watch import Watch

__all__ = [
    "MAX_BLOCKS",
    "Capacity",
    "Feed",
    "History",
    "Partition",
    "PeerProgram",
    "Program",
    "Result",
    "ServerProgram",
    "Span",
    "Steps",
    "Watch",
    "check_num_blocks",
    "check_rule",
    "in_fragments",
    "in_local_steps",
    "in_micro_batches",
    "lower",
    "partition",
    "run",
    "run_many",
    "state_of_fragments",
    "state_of_worker",
]
