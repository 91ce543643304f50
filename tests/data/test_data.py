"""The digits are real, read without TensorFlow, and come in batches that depend on the seed alone."""

import sys
import zlib

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from sgdlab import data


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("tfds")


def test_digits_are_scikit_learns_split_in_two(directory):
    train, test = (data.load(data.Digits, split, white=16, data_dir=directory) for split in ("train", "test"))
    assert train.images.shape == (1437, 8, 8, 1)
    assert test.images.shape == (360, 8, 8, 1)
    assert train.images.min() == 0
    assert train.images.max() == 1
    both = np.concatenate([train.images, test.images]).reshape(1797, 64) * 16
    labels = np.concatenate([train.labels, test.labels])
    found = sorted(zip(both.astype(int).tolist(), labels.tolist(), strict=True))
    expected = load_digits()
    assert found == sorted(zip(expected.data.astype(int).tolist(), expected.target.tolist(), strict=True))
    _, tested = train_test_split(np.arange(1797), test_size=360, random_state=0, stratify=expected.target)
    images = test.pixels.reshape(360, 64).astype(float)
    assert sorted(images.tolist()) == sorted(expected.data[tested].tolist())
    assert "tensorflow" not in sys.modules


def test_digits_are_stored_as_array_record(directory):
    builder = data.prepare(data.Digits, directory)
    assert builder.info.file_format.value == "array_record"
    assert builder.info.features["image"].np_dtype == np.uint8
    assert {name: split.num_examples for name, split in builder.info.splits.items()} == {"train": 1437, "test": 360}


def test_digits_are_in_the_order_that_they_always_had(directory):
    expected = {"train": "ad96de9e", "test": "d4735bf8"}
    for split, digest in expected.items():
        found = data.load(data.Digits, split, white=16, data_dir=directory)
        assert f"{zlib.crc32(found.labels.tobytes(), zlib.crc32(found.pixels.tobytes())):08x}" == digest


def test_digits_have_the_values_that_they_always_had(directory):
    train = data.load(data.Digits, "train", white=16, data_dir=directory)
    assert (train.pixels.dtype, train.white) == (np.uint8, 16)
    assert train.images.dtype == np.float32
    np.testing.assert_array_equal(train.images, train.pixels.astype(np.float32) / 16)
    assert data.Dataset(train, train, num_classes=10).levels == 17


LABELS = np.array([0, 1], np.int32)


@pytest.mark.parametrize(
    ("pixels", "labels", "white", "match"),
    [
        (np.zeros((2, 8, 8)), LABELS, 255, r"pixels of shape \(2, 8, 8\) and labels of shape \(2,\) must be images"),
        (np.zeros((3, 8, 8, 1)), LABELS, 255, r"pixels of shape \(3, 8, 8, 1\) and labels of shape \(2,\) must be"),
        (np.zeros((0, 8, 8, 1)), LABELS[:0], 255, "at least one"),
        (np.zeros((2, 8, 8, 1), np.int32), LABELS, 255, "pixels of dtype int32 must be uint8, or floating"),
        (np.zeros((2, 8, 8, 1), np.uint8), LABELS, 256, "white=256 must be a whole number from 1 to 255"),
        (np.full((2, 8, 8, 1), 17, np.uint8), LABELS, 16, "white=16 must be at least 17, the largest pixel"),
        *(
            (
                np.array([0, 0, 0, value]).reshape(2, 1, 1, 2),
                LABELS,
                255,
                r"pixels\[1, 0, 0, 1\]=.* finite .*; 1 of 2 ex",
            )
            for value in (np.nan, np.inf, -np.inf, 1e300)
        ),
        (np.zeros((2, 1, 1, 1)), LABELS.astype(float), 255, "labels of dtype float64 must be whole numbers"),
        (np.zeros((2, 1, 1, 1)), LABELS.astype(bool), 255, "labels of dtype bool must be whole numbers"),
    ],
)
def test_splits_that_are_refused(pixels, labels, white, match):
    with pytest.raises(ValueError, match=match):
        data.Images(pixels, labels, white)


def test_a_data_set_whose_parts_contradict_each_other_is_refused():
    images = data.Images(np.zeros((2, 8, 8, 1), np.uint8), LABELS)
    with pytest.raises(ValueError, match=r"train.labels from 0 to 1 must be from 0 to 0, below num_classes=1"):
        data.Dataset(images, images, num_classes=1)
    with pytest.raises(ValueError, match=r"test.image_shape=\(4, 4, 1\) must be that of train, \(8, 8, 1\)"):
        data.Dataset(images, data.Images(np.zeros((2, 4, 4, 1), np.uint8), LABELS), num_classes=2)
    with pytest.raises(ValueError, match=r"test.white=16 must be that of train, 255"):
        data.Dataset(images, data.Images(images.pixels, LABELS, white=16), num_classes=2)
    floating = data.Images(np.zeros((2, 8, 8, 1)), LABELS)
    with pytest.raises(ValueError, match=r"test.pixels of dtype float64 must be uint8 to have levels"):
        _ = data.Dataset(images, floating, num_classes=2).levels


def test_every_epoch_is_a_fresh_permutation():
    batches = data.order(10, batch_size=3, num_batches=9, seed=1)
    epochs = batches.reshape(3, 9)  # 3 whole batches an epoch; one example is left out
    for epoch in epochs:
        assert len(set(epoch.tolist())) == 9
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 3


def test_order_depends_on_the_seed_alone():
    whole = data.order(10, batch_size=3, num_batches=9, seed=1)
    np.testing.assert_array_equal(data.order(10, batch_size=3, num_batches=4, seed=1), whole[:4])
    assert (data.order(10, batch_size=3, num_batches=9, seed=2) != whole).any()


def test_replacement_draws_an_example_twice():
    batches = data.order(4, batch_size=4, num_batches=50, seed=0, replacement=True)
    assert any(len(set(batch)) < 4 for batch in batches.tolist())
    assert set(batches.ravel().tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize(("batch_size", "num_batches"), [(0, 1), (11, 1), (2, 0), (2.0, 1)])
def test_impossible_batches_are_refused(batch_size, num_batches):
    with pytest.raises(ValueError, match="must be a whole number"):
        data.order(10, batch_size=batch_size, num_batches=num_batches, seed=0)


def test_batch_fn_indexes_the_data_and_can_be_traced():
    images = np.random.default_rng(0).random((6, 8, 8, 1))
    source = data.Images(images, np.arange(6, dtype=np.int32))
    indices = data.order(6, batch_size=2, num_batches=3, seed=0)
    batch = jax.jit(lambda f, g: f(g))(data.batch_fn(source, indices), 1)
    np.testing.assert_array_equal(batch.inputs, images[indices[1]])
    np.testing.assert_array_equal(batch.targets, indices[1])
