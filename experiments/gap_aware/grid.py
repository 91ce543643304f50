"""ASGD with 32 workers over a grid of learning rates and momenta, and its best cell (Barkai et al. 2020, C.12)."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd
from ml_collections import ConfigDict

from configs import cifar10_resnet20, cifar10_wrn, cifar100_wrn, digits
from experiments.gap_aware import printed
from experiments.gap_aware.frameworks import FRAMEWORKS, Size
from experiments.harness import Sweep, goes_by, trains
from sgdlab import networks, replay, rules
from sgdlab.runs import plan, resolve, tasks

Cell = tuple[float, float]
"""A momentum and a learning rate."""
SINGLE_MOMENTUM = 0.9
"""The best one for a single worker."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """The runs of a framework at one size, which the figures and the tuned ASGD of Table 1 share.

    Attributes:
      letter: of the framework: R, W or W100.
      size: laptop, gpu or paper.
      rates: learning rates, eta.
      momenta: momenta, gamma, in (-1, 1).
      num_workers: N.
      share: of the size's epochs.
      nesterov: whether momentum is Nesterov's; the paper does not say.
      at_once: runs in one compiled program.
    """

    letter: str
    size: Size
    rates: Sequence[float] = printed.RATES
    momenta: Sequence[float] = printed.MOMENTA
    num_workers: int = 32
    share: float = 1.0
    nesterov: bool = True
    at_once: int = 10

    @property
    def cells(self) -> list[Cell]:
        """Return all of them, a row of one momentum after the other."""
        return [(float(momentum), float(rate)) for momentum in self.momenta for rate in self.rates]

    def sweep(self, cells: Sequence[Cell], seeds: Sequence[int]) -> Sweep:
        """Return the runs of cells with each of some seeds."""
        base = {"letter": self.letter, "size": self.size, "share": self.share, "num_workers": self.num_workers}
        firsts = range(0, len(cells), self.at_once)
        chunks = [[list(cell) for cell in cells[first : first + self.at_once]] for first in firsts]
        return Sweep(base | {"nesterov": self.nesterov}, {"seed": seeds, "cells": chunks}, work=trained_together)

    def accuracies(self, cells: Sequence[Cell], seeds: Sequence[int]) -> pd.DataFrame:
        """Final test accuracy in %, a row for each cell and a column for each seed; lost runs are as good as a guess.

        Raises as `Sweep.table` does.
        """
        found = self.sweep(cells, seeds).table().test_accuracy.tolist()
        values = 100 * np.concatenate(found).reshape(len(seeds), len(cells)).T
        return pd.DataFrame(values, pd.MultiIndex.from_tuples(cells, names=["momentum", "rate"]), list(seeds))

    def table(self, seed: int = 0) -> pd.DataFrame:
        """Final test accuracy in %: momenta by learning rates, as `printed.grid` has the paper's."""
        return self.accuracies(self.cells, [seed])[seed].unstack("rate").loc[list(self.momenta), list(self.rates)]

    def best(self, seed: int = 0) -> Cell:
        """Return the cell of the highest test accuracy: the tuned ASGD."""
        return best(self.table(seed))


def best(table: pd.DataFrame) -> Cell:
    """Return the momentum and the learning rate of the highest accuracy; of equal ones the first.

    Example:
      >>> [best(printed.grid(letter)) for letter in ("R", "W", "W100")]
      [(0.5, 0.03), (-0.8, 0.3), (-0.5, 0.3)]
    """
    momentum, rate = table.stack().idxmax()
    return float(momentum), float(rate)


def parts(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of negative momenta and of all others, if they are there."""
    found = {"negative": table[table.index < 0], "not negative": table[table.index >= 0]}
    return {name: part for name, part in found.items() if len(part)}


def single_cell(table: pd.DataFrame, rate: float) -> Cell | None:
    """Return the cell of a single worker's hyperparameters; None where its momentum is not there.

    Args:
      table: momenta by learning rates.
      rate: of the single worker; that of the grid which is nearest to it in ratio takes its place.

    Example:
      >>> single_cell(printed.grid("R"), 0.1), single_cell(printed.grid("R"), 0.02)
      ((0.9, 0.1), (0.9, 0.03))
    """
    if SINGLE_MOMENTUM not in table.index:
        return None
    return SINGLE_MOMENTUM, float(min(table.columns, key=lambda other: abs(math.log(other / rate))))


def explained(table: pd.DataFrame, letter: str) -> float:
    """Return per cent of the accuracies' variance that a cubic of the logarithm of the effective rate explains.

    Cells count that are better than a guess by half.

    Args:
      table: momenta by learning rates, in %.
      letter: of the framework.

    Example:
      >>> [round(explained(printed.grid(letter), letter)) for letter in ("R", "W", "W100")]
      [93, 85, 89]
    """
    momentum, rate = (
        np.asarray(values, float) for values in zip(*itertools.product(table.index, table.columns), strict=True)
    )
    accuracy = table.to_numpy().ravel()
    learned = accuracy > 1.5 * 100 / FRAMEWORKS[letter].classes
    if learned.sum() < 6:
        return math.nan
    x, y = np.log(rate / (1 - momentum))[learned], accuracy[learned]
    rest = y - np.polyval(np.polyfit(x, y, 3), x)
    return float(100 * (1 - rest.var() / y.var()))


def configuration(*, letter: str, size: Size, share: float, num_workers: int, nesterov: bool) -> ConfigDict:
    """The configuration of a framework's ASGD with momentum, which is evaluated at its end; as `Grid` has them."""
    config = FRAMEWORKS[letter].config(size, share=share)
    config.method, config.cluster.num_workers, config.evaluations = "nag_asgd", num_workers, 1
    config.optimizer.nesterov = nesterov
    return config


@goes_by(
    cifar10_resnet20.get_config,
    cifar10_wrn.get_config,
    cifar100_wrn.get_config,
    digits.get_config,
    networks.ConvNet,
    networks.CifarResNet,
    networks.WideResNet,
    rules.nag_asgd,
)
def trained_together(
    *,
    letter: str,
    size: Size,
    share: float,
    num_workers: int,
    nesterov: bool,
    seed: int,
    cells: Sequence[Sequence[float]],
) -> dict[str, Any]:
    """Trains the runs of several cells as one compiled program: gradient g of all of them, then gradient g + 1.

    They share parameters at the start, schedule and batches; learning rates and momenta are data of the program.

    The arguments are those of `Grid`; a cell is the momentum and the learning rate of a run.

    Returns:
      `test_accuracy` and `test_loss`, lists: those of each run at its end.
    """
    config = configuration(letter=letter, size=size, share=share, num_workers=num_workers, nesterov=nesterov)
    config.seed = config.data.digit_pairs.seed = seed
    made = plan.make_plan(config)
    task = tasks.task_of(made.experiment)
    found = []
    for momentum, rate in cells:
        own = config.copy_and_resolve_references()
        own.optimizer.momentum = momentum
        rates = made.rates * (rate / config.optimizer.learning_rate)
        found.append(dataclasses.replace(made, experiment=resolve(own)).rule(rates, made.schedule.num_workers))
    results = replay.run_many(
        [made.program] * len(cells),
        found,
        task,
        tasks.batches_of(made, made.program.capacity.rows),
        lanes=config.lanes or ("map" if jax.default_backend() == "cpu" else "vmap"),
        watch=replay.Watch(evaluate=tasks.evaluation_of(made.experiment, task, "test", config.test_examples)),
    )
    last = [result.history.evaluations[-1] for result in results]
    return {f"test_{name}": [float(values[name]) for values in last] for name in ("accuracy", "loss")}


def configurations(*, seed: int, cells: Sequence[Sequence[float]], **about: Any) -> list[ConfigDict]:
    """Return the configurations that `trained_together` trains; its arguments are those of `trained_together`."""
    found = []
    for momentum, rate in cells:
        config = configuration(**about)
        config.seed = config.data.digit_pairs.seed = seed
        config.optimizer.momentum, config.optimizer.learning_rate = momentum, rate
        found.append(config)
    return found


trains(configurations)(trained_together)
