"""Every policy with a server, in settings that together use all of their actions."""

import functools

from sgdlab import policies, predictors

SERVER_POLICIES = {
    "asynchronous": policies.asynchronous,
    "synchronous": policies.synchronous,
    "backup_workers": functools.partial(policies.backup_workers, backups=2),
    "timeout": functools.partial(policies.timeout, at_least=3, seconds=1.0),
    "timeout, interrupting": functools.partial(policies.timeout, at_least=3, seconds=1.0, interrupt=True),
    "quorum": policies.quorum,
    "quorum, waiting": functools.partial(policies.quorum, waits=True),
    "softsync": policies.softsync,
    "rennala": policies.rennala,
    "rennala of 16": functools.partial(policies.rennala, gradients_per_update=16),
    "ringmaster": functools.partial(policies.ringmaster, max_delay=4),
    "ringmaster, interrupting": functools.partial(policies.ringmaster, max_delay=4, interrupt=True),
    "bounded_staleness": policies.bounded_staleness,
    "cutoff": functools.partial(policies.cutoff, predictor=predictors.RunningMean(window=4), window=4),
    "ringleader": policies.ringleader,
    "malenia": policies.malenia,
    "mindflayer": policies.mindflayer,
    "vecna": policies.vecna,
    "dropcompute": policies.dropcompute,
    "anytime": policies.anytime,
    "lb_bsp": policies.lb_bsp,
    "ata": policies.ata,
    "growing_ringmaster": policies.growing_ringmaster,
    "assignment": functools.partial(policies.assignment, seed=0),
}
