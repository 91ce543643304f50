"""Methods that are more than a part with its usual partner."""

from sgdlab.jobs.method import Method

_NO_SERVER, _OWN_DATA, _LOCAL = ("No server",), ("For workers' own data",), ("Local steps",)
_STALENESS, _CLOCK, _ONE_LENGTH = ("Staleness, limited or not",), ("Rounds by the clock",), ("Steps of one length",)
_ISLAMOV, _SADIEV, _JIN = "Islamov et al. 2024", "Sadiev et al. 2026", "Jin et al. 2016"


def _local(name: str, protocol: str, rule: str, title: str, source: str, **entries: object) -> Method:
    """A method whose workers make eight steps for each message, unless the entries say otherwise."""
    return Method(name, protocol, rule, title, source, _LOCAL, local={"steps": 8, **entries})


PRESETS = (
    Method("pull_gossip", "gossip", "nag_asgd", "Pull gossip", f"{_JIN}, Alg. 3", _NO_SERVER, {"kind": "pull"}),
    Method("push_gossip", "gossip", "nag_asgd", "Push gossip", f"{_JIN}, Alg. 4", _NO_SERVER, {"kind": "push"}),
    Method(
        "osgp",
        "sgp",
        "nag_asgd",
        "Overlap stochastic gradient push",
        "Assran et al. 2019",
        _NO_SERVER,
        {"overlap": True},
    ),
    Method("dc_s3gd", "delayed_rounds", "dc_s3gd", "DC-S3GD", "Rigazzi 2019", ("Corrections of plain SGD",)),
    Method("ca2fl", "softsync", "ca2fl", "CA2FL", "Wang et al. 2024", _OWN_DATA),
    Method("random_assignment", "assignment", "asgd", "Random assignment", _ISLAMOV, _STALENESS, {"kind": "random"}),
    Method(
        "shuffled_assignment", "assignment", "asgd", "Shuffled assignment", _ISLAMOV, _STALENESS, {"kind": "shuffled"}
    ),
    Method("dropcompute_count", "dropcompute", "nag_asgd", "DropCompute, by count", "Giladi et al. 2023", _CLOCK),
    Method(
        "ringmaster_normalised",
        "ringmaster",
        "normalised_momentum",
        "Ringmaster, normalised momentum",
        _SADIEV,
        _ONE_LENGTH,
    ),
    Method("ringmaster_muon", "ringmaster", "muon", "Ringmaster-Muon", _SADIEV, _ONE_LENGTH),
    _local("local_sgd", "synchronous", "asgd", "Local SGD", "McMahan et al. 2017; Stich 2019", momentum=0.9),
    _local(
        "diloco",
        "synchronous",
        "nag_asgd",
        "DiLoCo",
        "Douillard et al. 2023",
        optimizer="adamw",
        keep_state=True,
        server_learning_rate=0.7,
    ),
    _local(
        "streaming_diloco",
        "synchronous",
        "streaming_nesterov",
        "Streaming DiLoCo",
        "Douillard et al. 2025",
        steps=2,
        optimizer="adamw",
        keep_state=True,
        server_learning_rate=0.7,
        fragments=4,
        overlap=1,
        mix=0.5,
    ),
    _local(
        "async_diloco",
        "asynchronous",
        "delayed_nesterov",
        "Async DiLoCo (DN + DyLU)",
        "Liu et al. 2024",
        optimizer="adamw",
        by_speed=True,
        least_steps=2,
        server_learning_rate=0.7,
    ),
    _local("fedbuff", "softsync", "fedbuff", "FedBuff", "Nguyen et al. 2022", momentum=0.9),
    _local(
        "fadas",
        "softsync",
        "fadas",
        "FADAS",
        "Wang et al. 2024",
        momentum=0.9,
        server_learning_rate=0.01,
    ),
)
"""Those of this package; one's own are registered by `sgdlab.jobs.register_method`."""
