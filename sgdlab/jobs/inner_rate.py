"""`InnerRate`, the warm-up and decay of the learning rate of workers that make several local steps."""

import dataclasses

import numpy as np
from ml_collections import ConfigDict

from sgdlab.jobs.datasets import AnyDataset, batches_per_epoch
from sgdlab.jobs.rates import rates
from sgdlab.jobs.run_times import local_in, num_workers


@dataclasses.dataclass(frozen=True)
class InnerRate:
    r"""What the steps of workers are multiplied by: `config.rate` over the steps of a worker of mean speed.

    .. math:: c_j = \eta(j / J) / \eta_{peak}, \qquad j = \lfloor v u \rfloor + h, \qquad u = J / U

    for step h = 0, 1, ... of a message that began on version v, with eta of `sgdlab.jobs.rates`, J the steps of a
    worker of mean speed in an epoch, and U the updates in an epoch, as planned.

    In rounds of H steps u is H, and j counts each worker's own steps, as DiLoCo does. Where workers are of unequal
    speeds, the authors of asynchronous DiLoCo count the steps that were made on each share of the data, which workers
    take in turn: shares, and not workers, go at one pace. Here workers go by the version that they have read, so that
    slow ones, and those that join, end their decay with the run too, and all know it without another message.

    Attributes:
      factors: c, float64[S]; the last holds for all further steps.
      steps_per_update: u, a worker's steps for each update, on average.

    Source: Douillard et al. 2023 (DiLoCo), a warm-up and a cosine over inner steps; Liu et al. 2024 in their notebook,
    `local_updates` of each share. That versions stand for steps is sgdlab's own.

    Example:
      Rounds of two steps, ten steps for each worker in an epoch.

      >>> entries = ConfigDict({"warmup_epochs": 0.0, "decay": "linear"})
      >>> rate = InnerRate.of(entries, num_workers=4, epochs=1.0, steps_per_epoch=10.0, steps_per_update=2.0)
      >>> rate.factors[:3].round(6), rate.place(np.array([0, 1, 4]))
      (array([1. , 0.9, 0.8]), array([0, 2, 8], dtype=int32))
    """

    factors: np.ndarray
    steps_per_update: float

    @classmethod
    def of(
        cls, rate: ConfigDict, *, num_workers: int, epochs: float, steps_per_epoch: float, steps_per_update: float
    ) -> "InnerRate":
        """The rate of a configuration.

        Args:
          rate: its `rate` entry; what it counts in updates is counted in steps of a worker.
          num_workers: N; the warm-up begins at the N-th part.
          epochs: length of the run.
          steps_per_epoch: J.
          steps_per_update: u.

        Raises:
          ValueError: where an entry of the rate is out of its range.
        """
        found = rates(rate, peak=1.0, num_workers=num_workers, epochs=epochs, updates_per_epoch=steps_per_epoch)
        # Of few sizes, so that runs of about equal length share a compiled program.
        size = 1 << max(found.size - 1, 0).bit_length()
        return cls(np.pad(found, (0, size - found.size), mode="edge"), steps_per_update)

    def place(self, version: np.ndarray | int) -> np.ndarray:
        """int32, of the shape of `version`: the place in `factors` of the first step on that version."""
        # Rounds of H steps must give multiples of H: a product just below a whole number is that number.
        steps = np.floor(np.asarray(version) * self.steps_per_update * (1 + 1e-12))
        return np.minimum(steps, self.factors.size - 1).astype(np.int32)


def inner_rate_of(config: ConfigDict, dataset: AnyDataset, steps_per_update: float) -> InnerRate | None:
    """The rate of a configuration's workers; None where it is constant, or workers make no local steps.

    Args:
      config: of the run.
      dataset: what it trains on.
      steps_per_update: u, as planned.
    """
    if not local_in(config).follow_rate:
        return None
    return InnerRate.of(
        config.rate,
        num_workers=num_workers(config),
        epochs=config.epochs,
        steps_per_epoch=batches_per_epoch(config, dataset) / num_workers(config),
        steps_per_update=steps_per_update,
    )
