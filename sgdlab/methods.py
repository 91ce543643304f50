"""The methods by name: whom each one waits for, and what it does with a gradient."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from sgdlab import rules, waiting


@dataclasses.dataclass(frozen=True)
class Method:
    """A protocol and a rule that are compared under one name.

    Attributes:
      title: the field's name for it.
      source: where it is described.
      rule: one of `sgdlab.rules`.
      hyperparameters: what the rule takes besides rate and weight decay: entries of `config.optimizer`, or
        "num_workers".
      protocol: one of `sgdlab.waiting`.
      averages: updates average gradients, so that the rate grows with their number. It is that of one gradient for all
        others; peers take it for each node's own steps, which move the nodes' average by the N-th part.
      per_worker: the rule keeps state for each worker.
      peers: there is no server; the rule is each node's own optimiser.
    """

    title: str
    source: str
    rule: Callable[..., rules.ServerRule]
    hyperparameters: tuple[str, ...] = ("momentum",)
    protocol: Callable[[ConfigDict, int], waiting.Protocol] = waiting.asynchronous
    averages: bool = False
    per_worker: bool = False
    peers: bool = False

    @property
    def is_adam(self) -> bool:
        """Whether the rate is Adam's."""
        return "b1" in self.hyperparameters

    @property
    def measures_gap(self) -> bool:
        """Whether the rule divides by the gap."""
        return "granularity" in self.hyperparameters

    @property
    def never_waits(self) -> bool:
        """Whether every gradient of every worker is an update of its own."""
        return self.protocol is waiting.asynchronous

    def make_rule(self, config: ConfigDict, rates: np.ndarray, num_workers: int) -> rules.ServerRule:
        """The rule with the configuration's hyperparameters and one learning rate per update.

        Args:
          config: the configuration.
          rates: float64[U].
          num_workers: how many to keep state for, where it is kept per worker.
        """
        known = {**config.optimizer, "num_workers": config.cluster.num_workers}
        arguments: dict[str, Any] = {name: known[name] for name in self.hyperparameters}
        if self.measures_gap:
            arguments["max_learning_rate"] = float(rates.max())
        if self.per_worker:
            arguments["num_workers"] = num_workers
        return self.rule(learning_rate=rules.tabulated(rates), weight_decay=config.optimizer.weight_decay, **arguments)


_BARKAI = "Barkai et al. 2020"
_ADAM = ("b1", "b2")

_CHEN = "Chen et al. 2016"
_JIN = "Jin et al. 2016"

METHODS = {
    "synchronous": Method("Synchronous SGD", _CHEN, rules.nag_asgd, protocol=waiting.synchronous, averages=True),
    "backup_workers": Method(
        "Backup workers", f"{_CHEN}, Alg. 3-4", rules.nag_asgd, protocol=waiting.backup_workers, averages=True
    ),
    "timeout": Method("Time-out", f"{_CHEN}, section 6", rules.linear_scaling, protocol=waiting.timeout),
    "cutoff": Method(
        "Cutoff SGD", "Teng and Wood 2018, Alg. 1", rules.nag_asgd, protocol=waiting.cutoff, averages=True
    ),
    "partial": Method("PSP-SGD", "Weak synchronization, Alg. 1", rules.linear_scaling, protocol=waiting.partial),
    "rennala": Method(
        "Rennala SGD", "Tyurin and Richtarik 2023", rules.nag_asgd, protocol=waiting.rennala, averages=True
    ),
    "softsync": Method("Softsync", "Zhang et al. 2015b", rules.nag_asgd, protocol=waiting.softsync, averages=True),
    "bounded_staleness": Method(
        "Bounded staleness", "Ho et al. 2013", rules.nag_asgd, protocol=waiting.bounded_staleness
    ),
    "ringmaster": Method("Ringmaster ASGD", "Maranjyan et al. 2025", rules.asgd, (), protocol=waiting.ringmaster),
    "layerwise": Method("ASGD by layers", f"{_CHEN}, section 2", rules.asgd, (), protocol=waiting.layerwise),
    "simulated_staleness": Method(
        "Simulated staleness", f"{_CHEN}, section 2.1", rules.asgd, (), protocol=waiting.simulated_staleness
    ),
    "asgd": Method("ASGD", f"{_BARKAI}, Alg. 2", rules.asgd, ()),
    "nag_asgd": Method("NAG-ASGD", f"{_BARKAI}, Alg. 2", rules.nag_asgd),
    "staleness_aware": Method("Staleness-Aware", f"{_BARKAI}, Alg. 3", rules.staleness_aware),
    "staleness_aware_gradient": Method("SA-Gradient", f"{_BARKAI}, Alg. 5", rules.staleness_aware_gradient),
    "gap_aware": Method("Gap-Aware", f"{_BARKAI}, Alg. 4", rules.gap_aware, ("momentum", "granularity")),
    "exponential_penalty": Method(
        "Exponential penalty", "Chan and Lane 2014", rules.exponential_penalty, ("momentum", "penalty")
    ),
    "delay_adaptive": Method("Delay-adaptive", "Mishchenko et al. 2022", rules.delay_adaptive, ("num_workers",)),
    "delay_compensated": Method(
        "DC-ASGD", "Zheng et al. 2017", rules.delay_compensated, ("variance_control", "adaptive")
    ),
    "dana": Method("DANA", f"{_BARKAI}, Alg. 6", rules.dana, per_worker=True),
    "dana_staleness_aware": Method("DANA-SA", f"{_BARKAI}, Alg. 7", rules.dana_staleness_aware, per_worker=True),
    "dana_gap_aware": Method(
        "DANA-GA", f"{_BARKAI}, Alg. 8", rules.dana_gap_aware, ("momentum", "granularity"), per_worker=True
    ),
    "adam": Method("Adam", f"{_BARKAI}, Alg. 9", rules.adam, _ADAM),
    "adam_staleness_aware": Method("Adam-SA", f"{_BARKAI}, Alg. 10", rules.adam_staleness_aware, _ADAM),
    "adam_gap_aware": Method("Adam-GA", f"{_BARKAI}, Alg. 11", rules.adam_gap_aware, (*_ADAM, "granularity")),
    "all_reduce": Method("All-reduce", f"{_JIN}, Alg. 1", rules.nag_asgd, protocol=waiting.synchronous, averages=True),
    "pull_gossip": Method(
        "Pull gossip",
        f"{_JIN}, Alg. 3",
        rules.nag_asgd,
        protocol=functools.partial(waiting.gossip, kind="pull"),
        peers=True,
    ),
    "push_gossip": Method(
        "Push gossip",
        f"{_JIN}, Alg. 4",
        rules.nag_asgd,
        protocol=functools.partial(waiting.gossip, kind="push"),
        peers=True,
    ),
    "elastic_averaging": Method(
        "Elastic averaging", f"{_JIN}, Alg. 2", rules.nag_asgd, protocol=waiting.elastic_averaging, peers=True
    ),
}
"""Every method that configurations can name."""

BASELINES = {"nag_asgd": "Single worker (NAG)", "adam": "Single worker (Adam)"}
"""The methods that, at one worker, are the serial runs the others are compared with."""
