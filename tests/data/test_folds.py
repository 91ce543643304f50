"""Folds: every example is tested on once, classes keep their shares, and nobody is tested on what he was trained on."""

import numpy as np
import pytest

from sgdlab.data import Dataset, Images, digits
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


def test_refusals():
    split = Images(np.zeros((4, 1, 1, 1), np.uint8), np.array([0, 0, 0, 1]))
    dataset = Dataset(split, split, num_classes=2)
    with pytest.raises(ValueError, match=r"number=5 must be at most 2, the examples of the smallest class"):
        fold(dataset, 0)
    with pytest.raises(ValueError, match=r"index=5 must be"):
        fold(dataset, 5)
