"""The runs of Figure 4: four methods that train one network on 158 workers, with one rate alpha."""

from collections.abc import Sequence
from typing import Literal

from ml_collections import ConfigDict

from configs import digits
from experiments.harness import Sweep
from sgdlab.results.records import Records
from sgdlab.runs import resolve

Size = Literal["laptop", "gpu", "paper"]
CUTOFF, SYNC, ORDER, WILD = "cutoff", "sync", "order", "wild"
METHODS = {
    CUTOFF: {"method": "cutoff", "predictor.kind": "deep_markov"},
    SYNC: {"method": "synchronous"},
    ORDER: {"method": "cutoff", "predictor.kind": "elfving"},
    WILD: {"method": "asgd"},
}
"""The paper's name of a method -> entries of its configuration."""


def configured(
    clusters: ConfigDict, model: str, updates: int, *, size: Size = "laptop", small: bool = False
) -> ConfigDict:
    """Return what all runs share."""
    config, workers, lag = digits.get_config(), clusters.cluster.num_workers, clusters.widths.lag
    config.batch_size, config.replacement, config.split = 2, True, "drawn"
    config.network.kind = "mlp" if small else "conv"
    if size != "laptop":
        config.data.kind, config.network.kind, config.batch_size, config.split = "mnist", "cnn", 64, "own"
    per_epoch = resolve(config).data.batches_per_epoch
    config.epochs = (updates * workers - 0.5) / per_epoch  # rounded up to this number of gradients
    config.evaluations = 4 if small else 120
    config.network.conv.channels, config.network.mlp.widths = (8, 16), (8,)
    config.cluster.kind, config.cluster.num_workers = "regimes", workers
    config.cluster.regimes = clusters.cluster.regimes
    config.protocol.cutoff.window = lag
    config.predictor.running_mean.window = config.predictor.elfving.window = lag
    config.predictor.running_mean.at_least = 0.0  # as in the paper
    config.predictor.deep_markov.model = model
    config.optimizer.momentum = config.optimizer.weight_decay = 0.0
    config.rate.of, config.rate.warmup_epochs, config.rate.decay = "update", 0.0, "constant"
    return config


def trained(
    base: ConfigDict, pairs: Sequence[tuple[str, float]], seeds: Sequence[int]
) -> dict[tuple[str, float], list[Records]]:
    """Trains methods: method and alpha -> the records of all seeds; wild has the rate alpha / N."""
    share = {WILD: 1 / base.cluster.num_workers}
    over = [
        {**METHODS[method], "optimizer.learning_rate": alpha * share.get(method, 1.0), "seed": seed}
        for method, alpha in pairs
        for seed in seeds
    ]
    found = iter(Sweep(base, over).records())
    return {pair: [next(found)[1] for _ in seeds] for pair in pairs}
