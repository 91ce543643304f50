"""Policies, which decide a protocol event by event: another name for what is in `sgdlab.protocols`.

Here `rennala(num_workers=...)` makes the policy whose schedule `protocols.rennala(runtimes)` is.
"""

from sgdlab.protocols.ad_psgd import Pairs, ad_psgd
from sgdlab.protocols.allotments import allotted
from sgdlab.protocols.assignment import Assignment, assignment
from sgdlab.protocols.ata import TaskAllocation, ata
from sgdlab.protocols.bounded_staleness import BoundedStaleness, bounded_staleness
from sgdlab.protocols.collect import Collect, rennala, ringmaster
from sgdlab.protocols.cutoff import Cutoff, cutoff
from sgdlab.protocols.d_psgd import d_psgd
from sgdlab.protocols.elastic_averaging import ElasticAveraging, elastic_averaging
from sgdlab.protocols.gossip import Gossip, gossip
from sgdlab.protocols.graph_rounds import GraphRounds
from sgdlab.protocols.growing_ringmaster import GrowingLimit, growing_ringmaster
from sgdlab.protocols.lb_bsp import LoadBalancing, lb_bsp
from sgdlab.protocols.malenia import Malenia, malenia
from sgdlab.protocols.mindflayer import TimedTrials, mindflayer, optimal_trials, vecna
from sgdlab.protocols.peer_policy import Keep, Mix, Move, PeerBase, PeerPolicy, Source, Step
from sgdlab.protocols.policy import Action, Base, Begin, Close, Drop, Interrupt, Policy, Take, Wake
from sgdlab.protocols.quorum import Quorum, quorum
from sgdlab.protocols.quotas import Quotas
from sgdlab.protocols.recorder import Recorder
from sgdlab.protocols.register import forget, register
from sgdlab.protocols.ringleader import Ringleader, ringleader
from sgdlab.protocols.rounds import Rounds, backup_workers, synchronous, timeout
from sgdlab.protocols.sgp import sgp
from sgdlab.protocols.simulate import simulate
from sgdlab.protocols.simulate_peers import PeerRecorder, simulate_peers
from sgdlab.protocols.softsync import Softsync, asynchronous, softsync
from sgdlab.protocols.threshold import Threshold, anytime, dropcompute

__all__ = [
    "Action", "Assignment", "Base", "Begin", "BoundedStaleness", "Close", "Collect", "Cutoff", "Drop",
    "ElasticAveraging", "Gossip", "GraphRounds", "GrowingLimit", "Interrupt", "Keep", "LoadBalancing", "Malenia",
    "Mix", "Move", "Pairs", "PeerBase", "PeerPolicy", "PeerRecorder", "Policy", "Quorum", "Quotas", "Recorder",
    "Ringleader", "Rounds", "Softsync", "Source", "Step", "Take", "TaskAllocation", "Threshold", "TimedTrials", "Wake",
    "ad_psgd", "allotted", "anytime", "assignment", "asynchronous", "ata", "backup_workers", "bounded_staleness",
    "cutoff", "d_psgd", "dropcompute", "elastic_averaging", "forget", "gossip", "growing_ringmaster", "lb_bsp",
    "malenia", "mindflayer", "optimal_trials", "quorum", "register", "rennala", "ringleader", "ringmaster", "sgp",
    "simulate", "simulate_peers", "softsync", "synchronous", "timeout", "vecna",
]  # fmt: skip
