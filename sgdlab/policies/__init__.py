"""Protocols, decided event by event: for `simulate`, and for real processes.

Makers of policies are `maker(*, num_workers, **own) -> Policy`, with the names, entries and defaults of `protocols`.
"""

from sgdlab.policies.ad_psgd import Pairs, ad_psgd
from sgdlab.policies.allotments import allotted
from sgdlab.policies.assignment import Assignment, assignment
from sgdlab.policies.ata import TaskAllocation, ata
from sgdlab.policies.base import Base
from sgdlab.policies.bounded_staleness import BoundedStaleness, bounded_staleness
from sgdlab.policies.collect import Collect, rennala, ringmaster
from sgdlab.policies.cutoff import Cutoff, cutoff
from sgdlab.policies.d_psgd import d_psgd
from sgdlab.policies.elastic_averaging import ElasticAveraging, elastic_averaging
from sgdlab.policies.family import POLICIES
from sgdlab.policies.gossip import Gossip, gossip
from sgdlab.policies.graph_rounds import GraphRounds
from sgdlab.policies.growing_ringmaster import GrowingLimit, growing_ringmaster
from sgdlab.policies.lb_bsp import LoadBalancing, lb_bsp
from sgdlab.policies.malenia import Malenia, malenia
from sgdlab.policies.mindflayer import TimedTrials, mindflayer, vecna
from sgdlab.policies.peer_base import PeerBase
from sgdlab.policies.peer_recorder import PeerRecorder
from sgdlab.policies.peers import Keep, Mix, Move, PeerPolicy, Source, Step
from sgdlab.policies.policy import Action, Begin, Close, Drop, Interrupt, Policy, Take, Wake
from sgdlab.policies.quotas import Quotas
from sgdlab.policies.recorder import Recorder
from sgdlab.policies.register import forget, register
from sgdlab.policies.ringleader import Ringleader, ringleader
from sgdlab.policies.rounds import Rounds, backup_workers, synchronous, timeout
from sgdlab.policies.sgp import sgp
from sgdlab.policies.simulate import simulate
from sgdlab.policies.simulate_peers import simulate_peers
from sgdlab.policies.softsync import Softsync, asynchronous, softsync
from sgdlab.policies.threshold import Threshold, anytime, dropcompute
from sgdlab.policies.trials import optimal_trials

__all__ = [
    "POLICIES",
    "Action",
    "Assignment",
    "Base",
    "Begin",
    "BoundedStaleness",
    "Close",
    "Collect",
    "Cutoff",
    "Drop",
    "ElasticAveraging",
    "Gossip",
    "GraphRounds",
    "GrowingLimit",
    "Interrupt",
    "Keep",
    "LoadBalancing",
    "Malenia",
    "Mix",
    "Move",
    "Pairs",
    "PeerBase",
    "PeerPolicy",
    "PeerRecorder",
    "Policy",
    "Quotas",
    "Recorder",
    "Ringleader",
    "Rounds",
    "Softsync",
    "Source",
    "Step",
    "Take",
    "TaskAllocation",
    "Threshold",
    "TimedTrials",
    "Wake",
    "ad_psgd",
    "allotted",
    "anytime",
    "assignment",
    "asynchronous",
    "ata",
    "backup_workers",
    "bounded_staleness",
    "cutoff",
    "d_psgd",
    "dropcompute",
    "elastic_averaging",
    "forget",
    "gossip",
    "growing_ringmaster",
    "lb_bsp",
    "malenia",
    "mindflayer",
    "optimal_trials",
    "register",
    "rennala",
    "ringleader",
    "ringmaster",
    "sgp",
    "simulate",
    "simulate_peers",
    "softsync",
    "synchronous",
    "timeout",
    "vecna",
]
