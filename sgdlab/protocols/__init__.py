"""Protocols: whom to wait for. A protocol is its policy, which decides event by event, in simulation and on processes.

Here `rennala(runtimes, ...)` is the schedule that the policy makes of compute times, float64[T, N] seconds: a
`Schedule` or a `PeerSchedule`. All are `protocol(runtimes, *, num_gradients=None, **own)`, and all of a protocol's own
arguments have defaults. `sgdlab.policies.rennala(num_workers=...)` is the policy itself.

All raise a ValueError that names the argument and its value where a number is out of its range, or a compute time is
not positive and finite; and `NotEnoughRuntimes` where times end first, which says how many rows would be enough.
"""

from sgdlab.protocols.cutoff import cutoff_with_record
from sgdlab.protocols.effective_speedup import best_threshold, effective_speedup, expected_speedup
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.protocols.partial import blocks_behind
from sgdlab.runtimes import NotEnoughRuntimes, with_enough_rows

a2cid2 = PROTOCOLS["a2cid2"].make
ad_psgd = PROTOCOLS["ad_psgd"].make
all_reduce = PROTOCOLS["all_reduce"].make
anytime = PROTOCOLS["anytime"].make
assignment = PROTOCOLS["assignment"].make
asynchronous = PROTOCOLS["asynchronous"].make
ata = PROTOCOLS["ata"].make
backup_workers = PROTOCOLS["backup_workers"].make
bounded_staleness = PROTOCOLS["bounded_staleness"].make
cutoff = PROTOCOLS["cutoff"].make
d_psgd = PROTOCOLS["d_psgd"].make
delayed_rounds = PROTOCOLS["delayed_rounds"].make
dropcompute = PROTOCOLS["dropcompute"].make
elastic_averaging = PROTOCOLS["elastic_averaging"].make
gossip = PROTOCOLS["gossip"].make
growing_ringmaster = PROTOCOLS["growing_ringmaster"].make
layerwise = PROTOCOLS["layerwise"].make
lb_bsp = PROTOCOLS["lb_bsp"].make
malenia = PROTOCOLS["malenia"].make
mindflayer = PROTOCOLS["mindflayer"].make
partial = PROTOCOLS["partial"].make
quorum = PROTOCOLS["quorum"].make
rennala = PROTOCOLS["rennala"].make
ringleader = PROTOCOLS["ringleader"].make
ringmaster = PROTOCOLS["ringmaster"].make
sgp = PROTOCOLS["sgp"].make
simulated_staleness = PROTOCOLS["simulated_staleness"].make
softsync = PROTOCOLS["softsync"].make
synchronous = PROTOCOLS["synchronous"].make
timeout = PROTOCOLS["timeout"].make
vecna = PROTOCOLS["vecna"].make

__all__ = [
    "PROTOCOLS",
    "NotEnoughRuntimes",
    "best_threshold",
    "blocks_behind",
    "cutoff_with_record",
    "effective_speedup",
    "expected_speedup",
    "with_enough_rows",
]
__all__ += list(PROTOCOLS)
