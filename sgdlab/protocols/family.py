"""Whom to wait for: the registry of protocols."""

from sgdlab.registry import Registry

PROTOCOLS = Registry(
    "protocol",
    given={
        "runtimes": "",
        "num_gradients": "epochs",
        "gradients_per_epoch": "",
        "predictor": "predictor.kind",
        "seed": "seed",
    },
    modules=(
        "sgdlab.protocols.synchronous",
        "sgdlab.protocols.timeout",
        "sgdlab.protocols.cutoff",
        "sgdlab.protocols.dropcompute",
        "sgdlab.protocols.anytime",
        "sgdlab.protocols.partial",
        "sgdlab.protocols.rennala",
        "sgdlab.protocols.softsync",
        "sgdlab.protocols.bounded_staleness",
        "sgdlab.protocols.delayed_rounds",
        "sgdlab.protocols.ringmaster",
        "sgdlab.protocols.asynchronous",
        "sgdlab.protocols.simulated_staleness",
        "sgdlab.protocols.peers",
        "sgdlab.protocols.a2cid2",
        "sgdlab.policies.ad_psgd",
        "sgdlab.policies.assignment",
        "sgdlab.policies.ata",
        "sgdlab.policies.d_psgd",
        "sgdlab.policies.growing_ringmaster",
        "sgdlab.policies.lb_bsp",
        "sgdlab.policies.malenia",
        "sgdlab.policies.mindflayer",
        "sgdlab.policies.ringleader",
        "sgdlab.policies.sgp",
    ),
)
"""Whom to wait for: `(runtimes, *, num_gradients=None, **own) -> Schedule | PeerSchedule`."""
