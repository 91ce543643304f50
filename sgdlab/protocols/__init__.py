"""Protocols: functions that turn run-times, float64[T, N] seconds, into a `Schedule` or a `PeerSchedule`.

All are `protocol(runtimes, *, num_gradients=None, **own)`, and all of a protocol's own arguments have defaults.
"""

from sgdlab.protocols.a2cid2 import a2cid2
from sgdlab.protocols.anytime import anytime
from sgdlab.protocols.asynchronous import asynchronous, layerwise
from sgdlab.protocols.bounded_staleness import bounded_staleness
from sgdlab.protocols.cutoff import cutoff, cutoff_with_record
from sgdlab.protocols.delayed_rounds import delayed_rounds
from sgdlab.protocols.dropcompute import dropcompute
from sgdlab.protocols.effective_speedup import best_threshold, effective_speedup, expected_speedup
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.protocols.partial import blocks_behind, partial
from sgdlab.protocols.peers import all_reduce, elastic_averaging, gossip
from sgdlab.protocols.rennala import rennala
from sgdlab.protocols.ringmaster import ringmaster
from sgdlab.protocols.simulated_staleness import simulated_staleness
from sgdlab.protocols.softsync import softsync
from sgdlab.protocols.synchronous import backup_workers, synchronous
from sgdlab.protocols.timeout import timeout
from sgdlab.runtimes import NotEnoughRuntimes, with_enough_rows

__all__ = [
    "PROTOCOLS",
    "NotEnoughRuntimes",
    "a2cid2",
    "all_reduce",
    "anytime",
    "asynchronous",
    "backup_workers",
    "best_threshold",
    "blocks_behind",
    "bounded_staleness",
    "cutoff",
    "cutoff_with_record",
    "delayed_rounds",
    "dropcompute",
    "effective_speedup",
    "elastic_averaging",
    "expected_speedup",
    "gossip",
    "layerwise",
    "partial",
    "rennala",
    "ringmaster",
    "simulated_staleness",
    "softsync",
    "synchronous",
    "timeout",
    "with_enough_rows",
]
