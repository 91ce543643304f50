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
    # Not at the top: it takes a second to import, and few runs need it.
    from sklearn.model_selection import KFold, StratifiedKFold  # noqa: PLC0415

    arguments.whole("number", number, least=2)
    arguments.whole("index", index, least=0, most=number - 1)
    splits = dataset.train, dataset.test
    if not all(isinstance(split, Images) for split in splits):
        raise ValueError("dataset must be held in memory, as Images, to be divided into folds")
    pixels, labels = (np.concatenate([getattr(split, name) for split in splits]) for name in ("pixels", "labels"))
    kind, examples, of = StratifiedKFold, int(np.unique(labels, return_counts=True)[1].min()), " of the smallest class"
    if isinstance(dataset, MeasuredDataset):
        kind, examples, of = KFold, len(labels), ""
    if examples < number:
        raise ValueError(f"number={number} must be at most {examples}, the examples{of}")
    folds = kind(number, shuffle=True, random_state=seed)
    train, test = (
        dataclasses.replace(cast(Images, split), pixels=pixels[rows], labels=labels[rows])
        for split, rows in zip(splits, list(folds.split(pixels, labels))[index], strict=True)
    )
    return dataclasses.replace(dataset, train=train, test=test)


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
