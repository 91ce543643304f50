"""Folds: every example is tested on once, classes keep their shares, and nobody is tested on what he was trained on."""

import numpy as np
import pytest
from sklearn.model_selection import KFold, StratifiedKFold

from sgdlab.data import Dataset, Images, MeasuredDataset, MeasuredImages, digits
from sgdlab.data.folds import fold


def test_every_digit_is_in_the_test_set_of_one_fold():
    whole = digits()
    found = [fold(whole, index) for index in range(5)]
    assert sum(len(one.test) for one in found) == 1797
    tested = np.concatenate([one.test.pixels for one in found])
    pooled = np.concatenate([whole.train.pixels, whole.test.pixels])
    order = lambda pixels: np.unique(pixels.reshape(len(pixels), -1), axis=0, return_counts=True)
    for ours, theirs in zip(order(tested), order(pooled), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    counts = np.array([np.bincount(one.test.labels) for one in found])
    assert np.ptp(counts, axis=0).max() <= 1
    assert all(len(one.train) + len(one.test) == 1797 for one in found)


def test_train_and_test_do_not_meet():
    split = Images(np.arange(40, dtype=np.uint8).reshape(40, 1, 1, 1), np.arange(40) % 4)
    other = Images(np.arange(40, 60, dtype=np.uint8).reshape(20, 1, 1, 1), np.arange(20) % 4)
    for index in range(5):
        found = fold(Dataset(split, other, num_classes=4), index)
        train, test = (set(part.pixels.ravel().tolist()) for part in (found.train, found.test))
        assert train | test == set(range(60))
        assert not train & test
        np.testing.assert_array_equal(found.train.labels, found.train.pixels.ravel() % 4)


@pytest.mark.parametrize("seed", range(40))
def test_are_those_of_scikit_learn_to_the_bit(seed):
    rng = np.random.default_rng(seed)
    classes, number, kind = rng.integers(1, 10), int(rng.integers(2, 11)), rng.choice([np.int32, np.int64, np.uint8])
    drawn = rng.choice(classes, size=rng.integers(1, 300), p=rng.dirichlet(np.full(classes, 2.0)))
    # Each class is in every fold, as both require, and the first to come is any.
    labels = rng.permutation(np.concatenate([drawn, np.repeat(np.arange(classes), number)])).astype(kind)
    pixels = np.arange(labels.size, dtype=float).reshape(-1, 1, 1, 1)
    cut = int(rng.integers(1, labels.size))
    splits = (Images(pixels[part], labels[part].astype(np.int32)) for part in (slice(cut), slice(cut, None)))
    whole, given = Dataset(*splits, num_classes=int(classes)), int(rng.integers(0, 2**32))
    expected = StratifiedKFold(number, shuffle=True, random_state=given).split(labels, labels)
    for index, (train, test) in enumerate(expected):
        found = fold(whole, index, number, seed=given)
        np.testing.assert_array_equal(found.train.pixels.ravel(), train)
        np.testing.assert_array_equal(found.test.pixels.ravel(), test)


@pytest.mark.parametrize("seed", range(5))
def test_of_real_labels_are_those_of_scikit_learn_to_the_bit(seed):
    count, number = 41 + seed, 3 + seed
    rows = np.arange(count, dtype=np.float32)
    parts = (MeasuredImages(rows[part].reshape(-1, 1, 1, 1), rows[part]) for part in (slice(30), slice(30, None)))
    whole = MeasuredDataset(*parts)
    for index, (train, test) in enumerate(KFold(number, shuffle=True, random_state=seed).split(rows)):
        found = fold(whole, index, number, seed=seed)
        np.testing.assert_array_equal(found.train.labels.ravel(), rows[train])
        np.testing.assert_array_equal(found.test.pixels.ravel(), rows[test])
    with pytest.raises(ValueError, match=f"number=99 must be at most {count}, the examples"):
        fold(whole, 0, 99)


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_of_digits_are_those_of_scikit_learn_to_the_bit(seed):
    whole = digits()
    labels = np.concatenate([whole.train.labels, whole.test.labels])
    pixels = np.concatenate([whole.train.pixels, whole.test.pixels])
    for index, rows in enumerate(StratifiedKFold(5, shuffle=True, random_state=seed).split(pixels, labels)):
        found = fold(whole, index, seed=seed)
        for split, expected in zip((found.train, found.test), rows, strict=True):
            np.testing.assert_array_equal(split.pixels, pixels[expected])
            np.testing.assert_array_equal(split.labels, labels[expected])


def test_refusals():
    split = Images(np.zeros((4, 1, 1, 1), np.uint8), np.array([0, 0, 0, 1]))
    dataset = Dataset(split, split, num_classes=2)
    with pytest.raises(ValueError, match=r"number=5 must be at most 2, the examples of the smallest class"):
        fold(dataset, 0)
    with pytest.raises(ValueError, match=r"index=5 must be"):
        fold(dataset, 5)
