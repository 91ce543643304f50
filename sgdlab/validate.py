"""Checks a configuration before anything runs: every refusal names the flag, its value and what would be right."""

import itertools
import math
import numbers
from collections.abc import Iterable
from typing import Any

from ml_collections import ConfigDict

from sgdlab import machines, waiting
from sgdlab.cutoff import OBJECTIVES
from sgdlab.data import BUILDERS
from sgdlab.errors import UsageError
from sgdlab.learning_rates import DECAYS
from sgdlab.methods import METHODS
from sgdlab.rules.gap import GRANULARITIES

NETWORKS = ("conv", "mlp")


class ConfigError(UsageError):
    """A value of the configuration is impossible."""


def config(config: ConfigDict) -> None:
    """Raises `ConfigError` at the first entry that cannot be."""
    _one_of(config, "method", METHODS)
    _one_of(config, "dataset", BUILDERS)
    _one_of(config, "network.kind", NETWORKS)
    _one_of(config, "optimizer.granularity", GRANULARITIES)
    _one_of(config, "schedule.decay", DECAYS)
    if config.mode is not None:
        _one_of(config, "mode", ("event", "wave"))
    for name, least in (("seed", 0), ("batch_size", 1), ("evaluations", 1), ("cluster.num_workers", 1)):
        _whole(config, name, least)
    _one_of(config, "cluster.kind", machines.MACHINES)
    if config.cluster.kind == "regimes":
        machines.law(config.cluster)
    if config.cluster.kind == "recorded" and not config.cluster.trace:
        _refuse("cluster.trace", config.cluster.trace, "a recorded trace, where cluster.kind is recorded")
    _backups(config)
    _protocol(config)
    _cutoff(config)
    _number(config, "epochs", above=0)
    _number(config, "target_accuracy", above=0, most=1)
    _number(config, "average_decay", least=0, below=1)
    for name in ("learning_rate", "adam_learning_rate"):
        _number(config, f"optimizer.{name}", above=0)
    _number(config, "optimizer.momentum", above=-1, below=1)
    for name in ("b1", "b2"):
        _number(config, f"optimizer.{name}", least=0, below=1)
    for name in ("weight_decay", "penalty", "variance_control"):
        _number(config, f"optimizer.{name}", least=0)
    _number(config, "schedule.warmup_epochs", least=0)
    _number(config, "schedule.factor", above=0)
    _number(config, "schedule.period", above=0)
    steps = tuple(config.schedule.steps)
    numeric = all(isinstance(step, numbers.Real) and math.isfinite(step) and step >= 0 for step in steps)
    if not numeric or any(later <= earlier for earlier, later in itertools.pairwise(steps)):
        _refuse("schedule.steps", steps, "rising epochs, finite and at least 0")
    if config.network.batch_norm and config.network.kind != "conv":
        _refuse("network.batch_norm", config.network.batch_norm, "False for a network without BatchNorm (mlp)")
    widths = config.network.widths
    if not widths or any(not isinstance(width, int) or width < 1 for width in widths):
        _refuse("network.widths", tuple(widths), "whole numbers of at least 1")
    if config.network.kind == "conv" and len(widths) != 2:
        _refuse("network.widths", tuple(widths), "two numbers of channels for the conv net")


def batch_size(config: ConfigDict, num_examples: int) -> None:
    """Raises `ConfigError` where a batch is larger than the data."""
    if config.batch_size > num_examples:
        _refuse("batch_size", config.batch_size, f"at most {num_examples}, the training examples of {config.dataset}")


def _backups(config: ConfigDict) -> None:
    _whole(config, "cluster.backups", 0)
    backups, workers = config.cluster.backups, config.cluster.num_workers
    if METHODS[config.method].protocol is waiting.backup_workers and backups >= workers:
        _refuse("cluster.backups", backups, f"below cluster.num_workers={workers}: an update needs a gradient")


def _protocol(config: ConfigDict) -> None:
    """What a protocol can only refuse when it knows the workers, it refuses itself."""
    for name in ("push_at_least", "pull_at_least"):
        value = _value(config, f"protocol.{name}")
        number = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
        if not number or not (0 < value <= 1 or (value > 1 and value == int(value))):
            _refuse(f"protocol.{name}", value, "a whole number of at least 1, or a share above 0.0 and at most 1.0")
    workers, blocks = config.cluster.num_workers, config.protocol.num_blocks
    protocol = METHODS[config.method].protocol
    if protocol in (waiting.timeout, waiting.partial) and config.protocol.push_at_least > max(workers, 1):
        _refuse("protocol.push_at_least", config.protocol.push_at_least, f"at most cluster.num_workers={workers}")
    if protocol is waiting.partial and config.protocol.pull_at_least > max(blocks, 1):
        _refuse("protocol.pull_at_least", config.protocol.pull_at_least, f"at most protocol.num_blocks={blocks}")
    if protocol is waiting.elastic_averaging and config.protocol.beta is not None:
        _number(config, "protocol.beta", least=0, most=1 / workers if config.protocol.rounds else 1)
    for name in ("num_blocks", "gradients_per_update", "period"):
        _whole(config, f"protocol.{name}", 1)
    _whole(config, "protocol.bound", 0)
    if config.protocol.max_delay is not None:
        _whole(config, "protocol.max_delay", 1)
    for name in ("push_timeout", "pull_timeout", "ramp_epochs"):
        _number(config, f"protocol.{name}", least=0)
    for name in ("average_staleness", "beta"):
        if _value(config, f"protocol.{name}") is not None:
            _number(config, f"protocol.{name}", least=0)
    _one_of(config, "protocol.reads", ("start", "forward"))
    _one_of(config, "protocol.pushes", ("end", "backward"))
    _number(config, "protocol.backward_share", above=0, most=1)
    for name in ("base_seconds", "late_seconds"):
        _number(config, f"cluster.delays.{name}", least=0)
    _number(config, "cluster.delays.base_shape", above=0)
    _number(config, "cluster.delays.late_share", least=0, most=1)


def _cutoff(config: ConfigDict) -> None:
    workers = config.cluster.num_workers
    _one_of(config, "protocol.predictor", waiting.PREDICTORS)
    _one_of(config, "protocol.objective", OBJECTIVES)
    _whole(config, "protocol.warm_up", 1)
    _whole(config, "protocol.predictor_window", 1)
    _number(config, "protocol.deviations")
    if METHODS[config.method].protocol is not waiting.cutoff:
        return
    if config.protocol.predictor == "deep_markov" and not config.protocol.model:
        _refuse(
            "protocol.model",
            config.protocol.model,
            "a directory with a trained model; experiments.cutoff.train makes one",
        )
    given = config.protocol.cutoff
    if config.protocol.predictor == "static" and (given is None or not 1 <= given <= workers):
        _refuse("protocol.cutoff", given, f"from 1 to cluster.num_workers={workers}")


def _value(config: ConfigDict, name: str) -> Any:
    for part in name.split("."):
        config = config[part]
    return config


def _one_of(config: ConfigDict, name: str, known: Iterable[str]) -> None:
    if _value(config, name) not in known:
        _refuse(name, _value(config, name), f"one of {', '.join(known)}")


def _whole(config: ConfigDict, name: str, least: int) -> None:
    value = _value(config, name)
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        _refuse(name, value, f"a whole number of at least {least}")


def _number(
    config: ConfigDict,
    name: str,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> None:
    value = _value(config, name)
    finite = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    if not finite or not (least <= value <= most and above < value < below):
        bounds = {"at least": least, "above": above, "below": below, "at most": most}
        words = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound))
        _refuse(name, value, f"a finite number {words}")


def _refuse(name: str, value: Any, right: str) -> None:
    raise ConfigError(f"--config.{name}={value} must be {right}")
