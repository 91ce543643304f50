"""The data of a run: how many batches that makes, what a network is given of it, and who has which examples."""

import dataclasses
import functools
from typing import Any

import numpy as np

from sgdlab.data import Dataset, MeasuredDataset, Text, streams_of
from sgdlab.data.batches import order
from sgdlab.data.folds import fold, fold_of_pairs
from sgdlab.data.shares import Shares, label_shares, own_order
from sgdlab.errors import UsageError, said_of
from sgdlab.runs.methods import UsedPart

AnyDataset = Dataset | Text

FOLDS = 5
"""Parts that all examples of a data set are divided into, for `config.split`."""


@dataclasses.dataclass(frozen=True)
class Participants:
    """The number of a cluster's workers, and how many of them take part, the first ones; None: all."""

    cluster: int
    first: int | None

    @property
    def entry(self) -> str:
        """Return the entry of `config.cluster` that says how many take part."""
        return "num_workers" if self.first is None else "first_workers"

    @property
    def number(self) -> int:
        """Return N, of the workers that take part."""
        return self.cluster if self.first is None else self.first


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """The data of a run, and how they are cut into batches."""

    used: UsedPart
    workers: Participants  # who draw from it
    batch_size: int  # B, examples of a gradient
    micro_batches: int  # parts of a batch, whose mean is the gradient; 1: the whole at once
    replacement: bool  # examples are drawn with replacement, instead of a permutation each epoch
    seed: int  # of the order of the examples
    # concentration of the labels of workers that have examples of their own. None: all draw from all of them
    alpha: float | None
    shares_seed: int  # of who has which
    # M, gradients that a worker's batch is divided into, in the order of its examples; 1: it is one gradient's
    pieces: int = 1
    # on which the run is tested, and trained on the others: which of `FOLDS`, and of which division of all examples.
    # None: the data set's own test set
    fold: tuple[int, int] | None = None

    @property
    def kind(self) -> str:
        """Return what `config.data.kind` calls it."""
        return self.used.name

    @property
    def off(self) -> set[str]:
        """Return the names of its entries on the first level of a configuration that are off."""
        off = {"heterogeneity": self.alpha is None, "micro_batches": self.micro_batches == 1}
        return {name for name, is_off in off.items() if is_off}

    @functools.cached_property
    def dataset(self) -> AnyDataset:
        """Return what is trained and tested on."""
        dataset = self.used.make()
        if self.fold is None:
            return dataset
        index, division = self.fold
        if isinstance(dataset, Text):
            raise UsageError(f"--config.split must be own with --config.data.kind={self.kind}: it is a text")
        if self.kind == "digit_pairs":  # its examples share digits: these are divided
            return fold_of_pairs(index, FOLDS, division=division, **self.used.entries)
        with said_of(f"--config.split with --config.data.kind={self.kind}: "):
            return fold(dataset, index, FOLDS, seed=division)

    @property
    def whole_batch(self) -> int:
        """Return the examples of a worker's batch, of all its pieces."""
        return self.batch_size * self.pieces

    @property
    def batches_per_epoch(self) -> int:
        """Return the gradients of one epoch; raises a `UsageError` where a batch is larger than the data."""
        size, examples = self.whole_batch, len(self.dataset.train)
        if size > examples:
            raise UsageError(
                f"--config.batch_size={size} must be at most {examples}, the training examples of {self.kind}"
            )
        return examples // size * self.pieces

    @functools.cached_property
    def shares(self) -> Shares | None:
        """Return who has which of the training examples; None where every worker draws from all of them."""
        if (alpha := self.alpha) is None:
            return None
        if isinstance(self.dataset, Text):
            raise UsageError(
                f"--config.heterogeneity.alpha={alpha} must be left out: {self.kind} is a text; it has no labels, and "
                "each worker reads a part of its own anyway"
            )
        if isinstance(self.dataset, MeasuredDataset):
            raise UsageError(
                f"--config.heterogeneity.alpha={alpha} must be left out: the labels of {self.kind} are real numbers, "
                "and workers have unlike shares of classes"
            )
        workers, examples = self.workers.number, len(self.dataset.train)
        if workers > (most := examples // self.whole_batch):
            raise UsageError(
                f"--config.cluster.{self.workers.entry}={workers} must be at most {most} with "
                f"--config.heterogeneity.alpha={alpha}: each worker needs a batch of {self.whole_batch} of its own, "
                f"and there are {examples:,} examples"
            )
        with said_of("--config.heterogeneity."):
            return label_shares(self.dataset.train.labels, num_workers=workers, alpha=alpha, seed=self.shares_seed)

    def network_arguments(self, network: UsedPart) -> dict[str, Any]:
        """Return what a network is given of the data; raises a `UsageError` where it is for data of another kind."""
        wanted, dataset = network.part.given, self.dataset
        if isinstance(dataset, Text):
            given = {"vocabulary": dataset.vocabulary}
        else:
            given = {"image_shape": dataset.image_shape, "num_classes": dataset.num_classes}
            if "levels" in wanted:
                with said_of(f"--config.data.kind={self.kind}: "):
                    given["levels"] = dataset.levels
        if missing := sorted(wanted - given.keys() - {"rngs"}):
            raise UsageError(
                f"--config.network.kind={network.name} is a network for {network.facts.task} and needs "
                f"{' and '.join(missing)}, which --config.data.kind={self.kind} does not have"
            )
        return given

    def check(self, network: UsedPart, task: UsedPart, *, stream: bool) -> None:
        """Raise a `UsageError` where network or task do not take the data, or they cannot be divided or streamed."""
        self.network_arguments(network)
        if isinstance(self.dataset, MeasuredDataset):
            if task.facts.targets == "labels" and not task.part.is_foreign:
                raise UsageError(
                    f"--config.data.kind={self.kind} has labels that are real numbers, and "
                    f"--config.task.kind={task.name} needs classes: name a task of your own"
                )
            if stream:
                raise UsageError(f"--config.stream=True must be left out: {self.kind} has labels that are real numbers")
        if isinstance(self.dataset, Text):
            with said_of("--config."):
                streams_of(self.dataset.train, num_workers=self.workers.number, batch_size=self.batch_size)
            if stream:
                raise UsageError(f"--config.stream=True has no effect: {self.kind} is a text, which is on the device")
        _ = self.shares

    def order(self, num_batches: int) -> np.ndarray:
        """Return int32[K, B], the examples of every gradient, where all workers draw from all of them."""
        whole = order(len(self.dataset.train), num_batches=-(-num_batches // self.pieces), **self._drawn)
        return whole.reshape(-1, self.batch_size)[:num_batches]

    @property
    def _drawn(self) -> dict[str, Any]:
        return {"batch_size": self.whole_batch, "seed": self.seed, "replacement": self.replacement}

    def own_order(self, shares: Shares, worker: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Return int32[K, B], the examples of gradients of workers that have their own.

        A single worker has all examples, and draws them as a run without shares does. Each gradient is that of a
        worker, int[K], which has a number among its own, int[K], from 0 on.
        """
        number = np.asarray(number)
        if shares.num_workers == 1:
            return self.order(int(number.max(initial=0)) + 1)[number]
        whole = own_order(shares, worker, number // self.pieces, **self._drawn)
        pieces = whole.reshape(number.size, self.pieces, self.batch_size)
        return pieces[np.arange(number.size), number % self.pieces]


def words(shares: Shares, labels: np.ndarray) -> str:
    """Return how unlike the shares are, for the report.

    Example:
      >>> words(Shares(np.arange(4, dtype=np.int32), np.array([0, 2, 4])), np.array([0, 0, 0, 1]))
      'each worker has 2 examples of its own, with 1.5 labels (0.5 to 1 of one label)'
    """
    counts = shares.counts(labels)
    largest = counts.max(axis=1) / shares.sizes
    least, most = int(shares.sizes.min()), int(shares.sizes.max())
    amount = f"{least:,}" if least == most else f"{least:,} or {most:,}"
    return (
        f"each worker has {amount} examples of its own, with {(counts > 0).sum(axis=1).mean():.3g} labels "
        f"({largest.min():.2g} to {largest.max():.2g} of one label)"
    )
