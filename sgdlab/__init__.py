"""sgdlab: whom to wait for, and what to do with a gradient that comes late."""

from sgdlab import cluster, cutoff, protocols, replay, rules
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.schedule import DROPPED, PENDING, Schedule

__version__ = "0.3.0"
__all__ = ["DROPPED", "PENDING", "PeerSchedule", "Schedule", "cluster", "cutoff", "protocols", "replay", "rules"]
