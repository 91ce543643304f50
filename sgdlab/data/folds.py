"""`fold` and `fold_of_pairs`: other divisions of all examples, since one test set says too little of a method."""

import dataclasses
import functools
from typing import cast

import numpy as np

from sgdlab import arguments
from sgdlab.data.digits import read
from sgdlab.data.measured import MeasuredDataset
from sgdlab.data.source import Dataset, Images


def fold(dataset: Dataset, index: int, number: int = 5, *, seed: int = 0) -> Dataset:
    """Return the data set that is tested on one of several folds and trained on the others.

    The examples to train on and to test on are put together and divided at random, alike for each seed, into folds of
    about equal size that have the same shares of every class, where labels are classes.

    Args:
      dataset: with both splits in memory.
      index: of the fold to test on, from 0 to `number` - 1.
      number: of folds.
      seed: of the division.

    Raises:
      ValueError: where the images are not held in memory, a number is out of its range, or a class has fewer examples
        than there are folds.

    Example:
      >>> split = Images(np.zeros((20, 8, 8, 1), np.uint8), np.arange(20, dtype=np.int32) % 4)
      >>> found = fold(Dataset(split, split, num_classes=4), 0)
      >>> len(found.train), len(found.test), np.bincount(found.test.labels).tolist()
      (32, 8, [2, 2, 2, 2])
    """
    arguments.whole("number", number, least=2)
    arguments.whole("index", index, least=0, most=number - 1)
    splits = dataset.train, dataset.test
    if not all(isinstance(split, Images) for split in splits):
        raise ValueError("dataset must be held in memory, as Images, to be divided into folds")
    pixels, labels = (np.concatenate([getattr(split, name) for split in splits]) for name in ("pixels", "labels"))
    if isinstance(dataset, MeasuredDataset):
        if len(labels) < number:
            raise ValueError(f"number={number} must be at most {len(labels)}, the examples")
        numbers = _drawn_folds(len(labels), number, seed)
    else:
        smallest = int(np.unique(labels, return_counts=True)[1].min())
        if smallest < number:
            raise ValueError(f"number={number} must be at most {smallest}, the examples of the smallest class")
        numbers = _stratified_folds(labels, number, seed)
    tested = numbers == index
    train, test = (
        dataclasses.replace(cast(Images, split), pixels=pixels[rows], labels=labels[rows])
        for split, rows in zip(splits, (~tested, tested), strict=True)
    )
    return dataclasses.replace(dataset, train=train, test=test)


def _drawn_folds(count: int, number: int, seed: int) -> np.ndarray:
    """Return the fold of each example, int[count]: those of scikit-learn's `KFold` with `shuffle`, to the bit."""
    order = np.arange(count)
    np.random.RandomState(seed).shuffle(order)
    folds = np.empty(count, int)
    folds[order] = np.sort(np.arange(count) % number)
    return folds


def _stratified_folds(labels: np.ndarray, number: int, seed: int) -> np.ndarray:
    """Return the fold of each example, int[examples]: those of scikit-learn's `StratifiedKFold`, to the bit.

    Dealt out one by one in the order of their classes, all folds get the same shares of each; which examples of a class
    these are is then drawn, class by class in the order in which they come first.
    """
    rng = np.random.RandomState(seed)
    _, first = np.unique(labels, return_index=True)
    folds, dealt = np.empty(labels.size, int), 0
    for label in labels[np.sort(first)]:
        members = labels == label
        count = np.count_nonzero(members)
        drawn = np.sort(np.arange(dealt, dealt + count) % number)
        rng.shuffle(drawn)
        folds[members], dealt = drawn, dealt + count
    return folds


@functools.lru_cache(maxsize=4)
def fold_of_pairs(
    index: int,
    number: int = 5,
    *,
    classes: int = 100,
    num_examples: int = 4096,
    num_test: int = 2048,
    seed: int = 0,
    division: int = 0,
) -> Dataset:
    """Return `digit_pairs` of another division of the digits: pairs to test on are of one fold of them alone.

    Args:
      index: of the fold to test on, from 0 to `number` - 1.
      number: of folds.
      classes: as of `digit_pairs`, and so are the others.
      num_examples: number of pairs to train on.
      num_test: number of pairs to test on.
      seed: of the pairs and, with the number of the division, of the division of the digits.
      division: its number.
    """
    single, found = fold(read(), index, number, seed=seed + division), []
    for part, count in ((single.train, num_examples), (single.test, num_test)):
        split = cast(Images, part)
        drawn = np.random.default_rng((seed, part is single.test)).integers(len(split), size=(count, 2))
        pixels = np.concatenate([split.pixels[drawn[:, side]] for side in (0, 1)], axis=2)
        labels = split.labels[drawn] @ np.array([10, 1], split.labels.dtype) // (100 // classes)
        found.append(Images(pixels, labels, split.white))
    return Dataset(*found, num_classes=classes)
