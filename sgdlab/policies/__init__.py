"""Protocols, decided event by event: for `simulate`, and for real processes.

Makers of policies are `maker(*, num_workers, **own) -> Policy`, with the names, entries and defaults of `protocols`.
"""

from sgdlab.policies.base import Base
from sgdlab.policies.bounded_staleness import BoundedStaleness, bounded_staleness
from sgdlab.policies.collect import Collect, rennala, ringmaster
from sgdlab.policies.cutoff import Cutoff, cutoff
from sgdlab.policies.elastic_averaging import ElasticAveraging, elastic_averaging
from sgdlab.policies.gossip import Gossip, gossip
from sgdlab.policies.peer_recorder import PeerRecorder
from sgdlab.policies.peers import Mix, PeerBase, PeerPolicy, Source, Step
from sgdlab.policies.policy import Action, Begin, Close, Drop, Interrupt, Policy, Take, Wake
from sgdlab.policies.recorder import Recorder
from sgdlab.policies.register import forget, register
from sgdlab.policies.rounds import Rounds, backup_workers, synchronous, timeout
from sgdlab.policies.simulate import simulate
from sgdlab.policies.simulate_peers import simulate_peers
from sgdlab.policies.softsync import Softsync, asynchronous, softsync
from sgdlab.registry import POLICIES

__all__ = [
    "POLICIES",
    "Action",
    "Base",
    "Begin",
    "BoundedStaleness",
    "Close",
    "Collect",
    "Cutoff",
    "Drop",
    "ElasticAveraging",
    "Gossip",
    "Interrupt",
    "Mix",
    "PeerBase",
    "PeerPolicy",
    "PeerRecorder",
    "Policy",
    "Recorder",
    "Rounds",
    "Softsync",
    "Source",
    "Step",
    "Take",
    "Wake",
    "asynchronous",
    "backup_workers",
    "bounded_staleness",
    "cutoff",
    "elastic_averaging",
    "forget",
    "gossip",
    "register",
    "rennala",
    "ringmaster",
    "simulate",
    "simulate_peers",
    "softsync",
    "synchronous",
    "timeout",
]
