"""The clusters on which predictors of the cutoff are compared, and the deep Markov model of each.

    python -m experiments cutoff.throughput --clusters=two_state,memory
    python -m experiments cutoff.throughput --clusters=recorded --trace=mine.parquet
    python -m experiments.cutoff.train --config=configs/cutoff.py:two_state --workdir=runs/two_state

For a simulated cluster the model is trained on one run of `cluster.train_steps` iterations in full synchrony, and the
predictors are compared on other runs. For `recorded`, set `cluster.recorded.trace` to a file of recorded compute times:
the model is trained on its first half, and the predictors are compared on the second. Teng and Wood trained on one hour
of their cluster, about 1,720 iterations of this one; `cutoff.sample_efficiency` shows what difference that makes.
"""

from ml_collections import ConfigDict, config_dict

from sgdlab import cluster, registry  # noqa: F401 (registers the clusters)

CLUSTERS = ("two_state", "memory", "large", "identical", "recorded")


def get_config(name: str = "two_state") -> ConfigDict:
    """Returns the configuration of a cluster; every entry can be set by a flag.

    Args:
      name: one of `CLUSTERS`.

    Raises:
      ValueError: if there is no such cluster.
    """
    if name not in CLUSTERS:
        raise ValueError(f"name={name!r} must be one of {', '.join(CLUSTERS)}, as in --config=configs/cutoff.py:memory")
    config = ConfigDict()
    config.name = name
    config.seed = 0  # of the model's initial parameters, its batches and draws
    config.cluster = ConfigDict(
        {
            "kind": "regimes",  # or recorded
            "regimes": registry.CLUSTERS["regimes"].entries(slow_factor=1.8, slow_share=0.15, slow_steps=20.0),
            "recorded": {"trace": ""},  # file of recorded compute times; kind=recorded needs it
        }
    )
    config.cluster.num_workers = 158
    config.cluster.train_steps = 4000  # iterations that the model is trained on, 2.33 hours in full synchrony
    config.cluster.train_seed = 1000
    config.cluster.test_steps = 1000  # iterations of each run that predictors are compared on; seeds 0, 1, ...

    config.widths = ConfigDict()  # of the networks: sgdlab/deep_markov/model.py
    config.widths.lag = 20
    config.widths.state = 16
    config.widths.gate = 32
    config.widths.emission = 32
    config.widths.scale = 32
    config.widths.recurrent = 64
    config.widths.literal = False  # True: the guide exactly as printed in the paper

    config.fitting = ConfigDict()  # of the model: sgdlab/deep_markov/fitting.py
    config.fitting.steps = 5000
    config.fitting.batch = 32
    config.fitting.learning_rate = 6e-3
    config.fitting.clip = 1.0
    config.fitting.annealing = 500
    config.fitting.blind_share = 0.5
    config.fitting.validation_share = 0.15
    config.fitting.every = 250
    config.fitting.patience = 8
    config.samples = 64  # draws from the posterior for one prediction
    {
        "two_state": _two_state,
        "memory": _memory,
        "large": _large,
        "identical": _identical,
        "recorded": _recorded,
    }[name](config)
    return config


def _two_state(config: ConfigDict) -> None:
    """158 workers on 4 nodes; each node is slow for 15 % of the time, 20 iterations at a time."""


def _memory(config: ConfigDict) -> None:
    """Longer dynamics: 5 iterations of warning before a node is slow, a periodic contention, a worker that drifts."""
    config.cluster.train_steps = 8000  # 4.7 hours
    regimes = config.cluster.regimes
    regimes.slow_share, regimes.slow_steps = 0.12, 15.0
    regimes.warning_steps, regimes.warning_rise = 5, 0.3
    regimes.contention.update(period=6, steps=2, factor=1.6, nodes=1)
    regimes.drift.update(period=200, factor=1.8, workers=1)
    regimes.node_share = 0.05
    config.widths.state = 24
    config.fitting.steps = 8000


def _large(config: ConfigDict) -> None:
    """2175 workers on 32 nodes; about three nodes are slow at any time, by a factor of 2.2."""
    config.cluster.num_workers = 2175
    config.cluster.test_steps = 400
    regimes = config.cluster.regimes
    regimes.num_nodes = 32
    regimes.slow_factor, regimes.slow_share = 2.2, 0.1
    config.widths.state = 64
    config.widths.gate = config.widths.emission = config.widths.scale = 64
    config.widths.recurrent = 128


def _identical(config: ConfigDict) -> None:
    """158 independent workers with the same normal distribution, clipped at 0.05 s."""
    regimes = config.cluster.regimes
    regimes.num_nodes, regimes.slow_share, regimes.node_share = 1, 0.0, 0.0
    regimes.minimum = 0.05
    config.widths.state = 4


def _recorded(config: ConfigDict) -> None:
    """A recorded job of 4 data-parallel workers; the file is `cluster.recorded.trace`."""
    config.cluster.kind = "recorded"
    config.cluster.num_workers = 4
    config.cluster.train_steps = config_dict.placeholder(int)  # None: the first half of the recorded steps
    config.widths.state, config.widths.emission, config.widths.scale, config.widths.recurrent = 4, 8, 8, 16
    config.fitting.validation_share, config.fitting.steps = 0.0, 1000
