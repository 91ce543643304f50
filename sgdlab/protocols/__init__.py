"""Whom to wait for: protocols turn run-times [T, N] into a `Schedule` or a `PeerSchedule`. Nothing is learned here."""

from sgdlab.protocols.asynchronous import asynchronous
from sgdlab.protocols.bounded_staleness import bounded_staleness
from sgdlab.protocols.cutoff import cutoff
from sgdlab.protocols.partial import blocks_behind, partial
from sgdlab.protocols.peers import all_reduce, elastic_averaging, gossip
from sgdlab.protocols.ringmaster import rennala, ringmaster
from sgdlab.protocols.simulated_staleness import simulated_staleness
from sgdlab.protocols.softsync import softsync
from sgdlab.protocols.synchronous import backup_workers, synchronous
from sgdlab.protocols.timeout import timeout
from sgdlab.runtimes import NotEnoughRuntimes, with_enough_rows

__all__ = [
    "NotEnoughRuntimes",
    "all_reduce",
    "asynchronous",
    "backup_workers",
    "blocks_behind",
    "bounded_staleness",
    "cutoff",
    "elastic_averaging",
    "gossip",
    "partial",
    "rennala",
    "ringmaster",
    "simulated_staleness",
    "softsync",
    "synchronous",
    "timeout",
    "with_enough_rows",
]
