"""The methods by name: whom each one waits for, and what it does with a gradient."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from sgdlab import protocols, rules
from sgdlab.schedule import Schedule


@dataclasses.dataclass(frozen=True)
class Method:
    """A protocol and a rule that are compared under one name.

    Attributes:
      title: the field's name for it.
      source: where it is described.
      rule: one of `sgdlab.rules`.
      hyperparameters: the entries of `config.optimizer` that the rule takes, besides rate and weight decay.
      synchronous: updates average gradients, so that the rate grows with their number.
      backups: whether some workers are not waited for.
      per_worker: the rule keeps state for each worker.
    """

    title: str
    source: str
    rule: Callable[..., rules.ServerRule]
    hyperparameters: tuple[str, ...] = ("momentum",)
    synchronous: bool = False
    backups: bool = False
    per_worker: bool = False

    @property
    def is_adam(self) -> bool:
        """Whether the rate is Adam's."""
        return "b1" in self.hyperparameters

    @property
    def measures_gap(self) -> bool:
        """Whether the rule divides by the gap."""
        return "granularity" in self.hyperparameters

    def gradients_per_update(self, config: ConfigDict) -> int:
        """How many gradients one update averages."""
        return config.cluster.num_workers - self.num_backups(config) if self.synchronous else 1

    def num_backups(self, config: ConfigDict) -> int:
        """How many workers an update does not wait for."""
        return config.cluster.backups if self.backups else 0

    def protocol(self, config: ConfigDict, num_gradients: int) -> Callable[[np.ndarray], Schedule]:
        """Run-times -> a schedule with at least `num_gradients` used gradients."""
        if self.synchronous:
            updates = -(-num_gradients // self.gradients_per_update(config))
            return functools.partial(_synchronous, updates=updates, backups=self.num_backups(config))
        return functools.partial(protocols.asynchronous, num_gradients=num_gradients)

    def make_rule(self, config: ConfigDict, rates: np.ndarray, num_workers: int) -> rules.ServerRule:
        """The rule with the configuration's hyperparameters and one learning rate per update."""
        optimizer = config.optimizer
        arguments: dict[str, Any] = {name: optimizer[name] for name in self.hyperparameters}
        if self.measures_gap:
            arguments["max_learning_rate"] = float(rates.max())
        if self.per_worker:
            arguments["num_workers"] = num_workers
        return self.rule(learning_rate=rules.tabulated(rates), weight_decay=optimizer.weight_decay, **arguments)


def _synchronous(runtimes: np.ndarray, *, updates: int, backups: int) -> Schedule:
    if runtimes.shape[0] < updates:
        raise protocols.NotEnoughRuntimes(f"{updates} updates need as many rows of runtimes", updates)
    return protocols.backup_workers(runtimes[:updates], backups=backups)


_BARKAI = "Barkai et al. 2020"
_ADAM = ("b1", "b2")

METHODS = {
    "synchronous": Method("Synchronous SGD", "Chen et al. 2016", rules.nag_asgd, synchronous=True),
    "backup_workers": Method(
        "Backup workers", "Chen et al. 2016, Alg. 3-4", rules.nag_asgd, synchronous=True, backups=True
    ),
    "asgd": Method("ASGD", f"{_BARKAI}, Alg. 2", rules.asgd, ()),
    "nag_asgd": Method("NAG-ASGD", f"{_BARKAI}, Alg. 2", rules.nag_asgd),
    "staleness_aware": Method("Staleness-Aware", f"{_BARKAI}, Alg. 3", rules.staleness_aware),
    "staleness_aware_gradient": Method("SA-Gradient", f"{_BARKAI}, Alg. 5", rules.staleness_aware_gradient),
    "gap_aware": Method("Gap-Aware", f"{_BARKAI}, Alg. 4", rules.gap_aware, ("momentum", "granularity")),
    "dana": Method("DANA", f"{_BARKAI}, Alg. 6", rules.dana, per_worker=True),
    "dana_staleness_aware": Method("DANA-SA", f"{_BARKAI}, Alg. 7", rules.dana_staleness_aware, per_worker=True),
    "dana_gap_aware": Method(
        "DANA-GA", f"{_BARKAI}, Alg. 8", rules.dana_gap_aware, ("momentum", "granularity"), per_worker=True
    ),
    "adam": Method("Adam", f"{_BARKAI}, Alg. 9", rules.adam, _ADAM),
    "adam_staleness_aware": Method("Adam-SA", f"{_BARKAI}, Alg. 10", rules.adam_staleness_aware, _ADAM),
    "adam_gap_aware": Method("Adam-GA", f"{_BARKAI}, Alg. 11", rules.adam_gap_aware, (*_ADAM, "granularity")),
}
"""Every method that configurations can name."""

BASELINES = {"nag_asgd": "Single worker (NAG)", "adam": "Single worker (Adam)"}
"""The methods that, at one worker, are the serial runs the others are compared with."""
