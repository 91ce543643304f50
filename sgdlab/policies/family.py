"""Whom to wait for, event by event: the registry of policies."""

from sgdlab.registry import Registry

POLICIES = Registry(
    "protocol",
    given={
        "num_workers": "cluster.num_workers",
        "num_gradients": "epochs",
        "predictor": "predictor.kind",
        "seed": "seed",
    },
    absent={
        "partial": "its parameters are spread over several servers",
        "layerwise": "its layers are sent one by one; asynchronous sends them together",
        "simulated_staleness": "its staleness is drawn, and comes from no worker's pace",
        "all_reduce": "there is no server in it; synchronous makes the same parameters",
        "delayed_rounds": "its messages overlap with the next gradients, computed on parameters of each worker's own",
        "a2cid2": "its pairs average by a Poisson clock beside the gradients, which exists in simulation only",
    },
    listed="docs/live.md",
    modules=(
        "sgdlab.policies.rounds",
        "sgdlab.policies.cutoff",
        "sgdlab.policies.threshold",
        "sgdlab.policies.collect",
        "sgdlab.policies.softsync",
        "sgdlab.policies.bounded_staleness",
        "sgdlab.policies.gossip",
        "sgdlab.policies.elastic_averaging",
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
"""Whom to wait for, decided event by event: `(*, num_workers, **own) -> Policy | PeerPolicy` (of parts with the fact
`peers`), with a protocol's name and entries."""
