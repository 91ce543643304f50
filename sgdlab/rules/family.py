"""What the server does with a gradient: the registry of rules."""

from sgdlab.registry import Registry

RULES = Registry(
    "rule",
    given={
        "learning_rate": "optimizer.learning_rate",
        "max_learning_rate": "",
        "expected_gradients": "",
        "num_workers": "cluster.num_workers",
        "workers": "",
        "momentum": "optimizer.momentum",
        "nesterov": "optimizer.nesterov",
        "weight_decay": "optimizer.weight_decay",
        "fragments": "local.fragments",
    },
    modules=(
        "sgdlab.rules.asgd",
        "sgdlab.rules.linear_scaling",
        "sgdlab.rules.expected_count",
        "sgdlab.rules.vecna",
        "sgdlab.rules.staleness_aware",
        "sgdlab.rules.gap_aware",
        "sgdlab.rules.exponential_penalty",
        "sgdlab.rules.delay_adaptive",
        "sgdlab.rules.ada_delay",
        "sgdlab.rules.delay_compensated",
        "sgdlab.rules.dc_s3gd",
        "sgdlab.rules.dana",
        "sgdlab.rules.dana_delay_compensated",
        "sgdlab.rules.adam",
        "sgdlab.rules.rmsprop",
        "sgdlab.rules.normalised_momentum",
        "sgdlab.rules.muon",
        "sgdlab.rules.ringleader",
        "sgdlab.rules.malenia",
        "sgdlab.rules.ace",
        "sgdlab.rules.aced",
        "sgdlab.rules.rescaled",
        "sgdlab.rules.ca2fl",
        "sgdlab.rules.fedbuff",
        "sgdlab.rules.fedasync",
        "sgdlab.rules.delayed_nesterov",
        "sgdlab.rules.streaming_nesterov",
        "sgdlab.rules.fadas",
    ),
)
"""What the server does with a gradient: `(*, learning_rate, **own) -> ServerRule`."""
