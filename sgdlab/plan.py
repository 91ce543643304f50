"""From a configuration to what a run needs before its first gradient: a schedule and learning rates."""

import dataclasses
import functools
import math

import numpy as np
from ml_collections import ConfigDict

from sgdlab import data, learning_rates, protocols, replay, validate
from sgdlab.errors import UsageError
from sgdlab.machines import MACHINES
from sgdlab.methods import METHODS, Method
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.waiting import AnySchedule


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that a run needs before its first gradient; made on the host, in milliseconds.

    Attributes:
      config: the configuration.
      schedule: who computes what, and when.
      rates: float64[U], the learning rate of each update; of each gradient, where there is no server.
      num_gradients: gradients to use.
      batches_per_epoch: gradients that use one epoch of data.
      speedup: used gradients per second, over those of synchronous SGD on the same cluster.
    """

    config: ConfigDict
    schedule: AnySchedule
    rates: np.ndarray
    num_gradients: int
    batches_per_epoch: int
    speedup: float

    @functools.cached_property
    def program(self) -> replay.Program | replay.BlockProgram | replay.PeerProgram:
        """The lowered schedule, with a pause for every look."""
        lower = replay.lower_peers if isinstance(self.schedule, PeerSchedule) else replay.lower
        return lower(self.schedule, every=math.ceil(self.num_gradients / self.config.evaluations))


@functools.cache
def dataset(name: str) -> tuple[data.Images, data.Images]:
    """Train and test split, read once per process."""
    return data.load(name, "train"), data.load(name, "test")


def check(config: ConfigDict) -> None:
    """Raises where a configuration cannot be run; prepares its data set where need be.

    Raises:
      ConfigError: it names the flag.
    """
    validate.config(config)
    validate.batch_size(config, len(dataset(config.dataset)[0]))


def make_plan(config: ConfigDict) -> Plan:
    """Checks a configuration and makes its schedule and learning rates.

    Raises:
      ConfigError: where an entry is impossible; it names the flag.
    """
    check(config)
    method, workers = METHODS[config.method], config.cluster.num_workers
    per_epoch = len(dataset(config.dataset)[0]) // config.batch_size
    num_gradients = math.ceil(config.epochs * per_epoch)
    try:
        schedule = _schedule(config, method, num_gradients)
    except (protocols.NotEnoughRuntimes, UsageError):
        raise
    except ValueError as error:
        raise validate.ConfigError(f"--config.protocol: {error}") from error
    optimizer, per_update = config.optimizer, gradients_per_update(schedule)
    rates = learning_rates.rates(
        config.schedule,
        peak=(optimizer.adam_learning_rate if method.is_adam else optimizer.learning_rate)
        * (per_update if method.averages else 1),
        num_workers=workers,
        epochs=config.epochs,
        updates_per_epoch=per_epoch / per_update,
    )
    synchronous = _schedule(config, METHODS["synchronous"], num_gradients)
    speedup = schedule.gradients_per_second() / synchronous.gradients_per_second()
    return Plan(config, schedule, rates, num_gradients, per_epoch, speedup)


def gradients_per_update(schedule: AnySchedule) -> float:
    """How many gradients are used for one update of a block; peers make a step of each."""
    if isinstance(schedule, PeerSchedule):
        return 1.0
    return float(schedule.used().sum(axis=0).mean()) / max(schedule.num_updates, 1)


def _schedule(config: ConfigDict, method: Method, num_gradients: int) -> AnySchedule:
    return protocols.with_enough_rows(
        method.protocol(config, num_gradients),
        lambda rows: MACHINES[config.cluster.kind](config, rows),
        rows=2 * num_gradients // config.cluster.num_workers + 2,
    )
