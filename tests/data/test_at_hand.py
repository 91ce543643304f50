"""Data sets that need no download: mocked images, pairs of digits, photographs, text; and what all data sets refuse."""

import hashlib
import pathlib
import sys
import sysconfig
import zlib

import numpy as np
import pytest
from sklearn.datasets import load_sample_images

from sgdlab import data
from sgdlab.data.folds import fold_of_pairs
from sgdlab.errors import UsageError
from sgdlab.registry import DATASETS


class TestMock:
    @pytest.mark.parametrize(
        ("shape", "expected"),
        [("mnist", ((28, 28, 1), 10)), ("cifar10", ((32, 32, 3), 10)), ("cifar100", ((32, 32, 3), 100))],
    )
    def test_has_the_shape_of_what_it_stands_for(self, shape, expected):
        found = data.mock(shape=shape, num_examples=200, num_test=100)
        assert (found.image_shape, found.num_classes) == expected
        assert (len(found.train), len(found.test), found.levels) == (200, 100, 256)
        for split in (found.train, found.test):
            counts = np.bincount(split.labels, minlength=found.num_classes)
            assert counts.max() - counts.min() <= 1

    @pytest.mark.parametrize("shape", ["cifar10", "cifar100"])
    def test_can_be_learnt(self, shape):
        """The nearest mean of the training images tells the class of nearly all test images."""
        found = data.mock(shape=shape, num_examples=1000, num_test=100)
        labels = np.arange(found.num_classes)
        means = np.stack([found.train.images[found.train.labels == label].mean(0) for label in labels])
        distances = ((found.test.images[:, None] - means) ** 2).sum((2, 3, 4))
        assert (distances.argmin(1) == found.test.labels).mean() > 0.95

    def test_depends_on_the_seed_and_on_its_own_number_alone(self):
        small = {"image_shape": (6, 5, 2), "num_classes": 3}
        first = data.mock(**small, num_examples=20, num_test=9)
        again = data.mock(**small, num_examples=20, num_test=5)
        np.testing.assert_array_equal(first.train.pixels, again.train.pixels)
        np.testing.assert_array_equal(first.train.labels, again.train.labels)
        other = data.mock(**small, num_examples=20, num_test=9, seed=1)
        assert (first.train.pixels != other.train.pixels).mean() > 0.9
        assert {image.tobytes() for image in first.train.pixels}.isdisjoint(i.tobytes() for i in first.test.pixels)
        assert data.mock(**small, num_examples=9, noise=0.0).train.pixels.std(axis=0).max() > 0
        assert data.mock(**small, augment=True).preprocess != first.preprocess


class TestDigitPairs:
    @pytest.mark.parametrize("seed", [0, 3])
    def test_are_two_digits_of_the_same_split(self, seed):
        found, single = data.digit_pairs(num_examples=300, num_test=200, seed=seed), data.digits()
        for split, digits in ((found.train, single.train), (found.test, single.test)):
            known = {image.tobytes(): int(label) for image, label in zip(digits.pixels, digits.labels, strict=True)}
            halves = np.ascontiguousarray(split.pixels[:, :, :8]), np.ascontiguousarray(split.pixels[:, :, 8:])
            left, right = ([known[image.tobytes()] for image in half] for half in halves)
            np.testing.assert_array_equal(split.labels, 10 * np.array(left) + np.array(right))
            assert len({*left}) == len({*right}) == 10

    def test_ten_classes_are_the_left_digit_of_the_same_images(self):
        both, left = (data.digit_pairs(classes=classes, num_examples=100, num_test=50) for classes in (100, 10))
        for split in ("train", "test"):
            np.testing.assert_array_equal(getattr(left, split).pixels, getattr(both, split).pixels)
            np.testing.assert_array_equal(getattr(left, split).labels, getattr(both, split).labels // 10)
        assert (both.num_classes, left.num_classes) == (100, 10)

    def test_a_split_depends_on_its_own_number_and_on_the_seed(self):
        found, longer = data.digit_pairs(num_examples=100, num_test=50), data.digit_pairs(num_examples=100, num_test=60)
        np.testing.assert_array_equal(found.train.pixels, longer.train.pixels)
        other = data.digit_pairs(num_examples=100, num_test=50, seed=1)
        assert (found.train.pixels != other.train.pixels).any()
        assert (found.train.labels[:50] != found.test.labels).any()

    def test_of_folds_share_no_digit_and_every_digit_is_tested_on_once(self):
        single = data.digits()
        whole = {image.tobytes() for split in (single.train, single.test) for image in split.pixels}
        tested = []
        for index in range(5):
            found = fold_of_pairs(index, 5, classes=10, num_examples=3000, num_test=3000)
            halves = [
                {half.tobytes() for image in split.pixels for half in (image[:, :8], image[:, 8:])}
                for split in (found.train, found.test)
            ]
            # The UCI digits have a few images twice.
            assert len(halves[0] & halves[1]) <= 0.01 * len(whole)
            assert found.num_classes == 10
            left = {
                image.tobytes(): label
                for split in (single.train, single.test)
                for image, label in zip(split.pixels, split.labels, strict=True)
            }
            assert [left[image[:, :8].tobytes()] for image in found.test.pixels[:99]] == found.test.labels[:99].tolist()
            tested.append(halves[1])
        other = fold_of_pairs(0, 5, classes=10, num_examples=1, num_test=3000, seed=1).test.pixels
        assert len({image[:, :8].tobytes() for image in other} & tested[0]) < 0.5 * len(tested[0])  # about a fifth
        assert set().union(*tested) == whole
        assert sum(map(len, tested)) == pytest.approx(len(whole), rel=0.01)


class TestPhotographs:
    @pytest.mark.parametrize(("size", "stride"), [(32, 32), (16, 24), (40, 7)])
    def test_are_patches_split_by_place(self, size, stride):
        found = data.photographs(size=size, stride=stride, test_share=0.3)
        cut = round(640 * 0.7)
        for split, begin, end in ((found.train, 0, cut), (found.test, cut, 640)):
            expected = [
                (image[row : row + size, column : column + size], label)
                for label, image in enumerate(load_sample_images().images)
                for row in range(0, 427 - size + 1, stride)
                for column in range(begin, end - size + 1, stride)
            ]
            assert len(split) == len(expected)
            np.testing.assert_array_equal(split.pixels, np.stack([patch for patch, _ in expected]))
            np.testing.assert_array_equal(split.labels, [label for _, label in expected])

    def test_say_what_to_install(self, monkeypatch):
        sys.modules["sgdlab.data.photographs"]._images.cache_clear()
        monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
        with pytest.raises(UsageError, match=r"^--config.data.kind=photographs needs scikit-learn.*'sgdlab\[photo"):
            data.photographs()

    @pytest.mark.parametrize("levels", [2, 8, 256])
    def test_levels(self, levels):
        whole, found = data.photographs(stride=64), data.photographs(stride=64, levels=levels)
        assert found.levels == levels
        np.testing.assert_array_equal(found.train.pixels, whole.train.pixels.astype(int) * levels // 256)


class TestStandardLibrary:
    def test_is_its_text_split_by_file(self):
        root = pathlib.Path(sysconfig.get_paths()["stdlib"])
        left_out = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__"}
        names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))
        names = [name for name in names if left_out.isdisjoint(name.split("/")[:-1])]
        found = data.stdlib_text(segment=100)
        for split, tested in ((found.train, False), (found.test, True)):
            files = [name for name in names if (zlib.crc32(name.encode()) % 20 == 0) == tested]
            assert split.tokens.tobytes() == b"".join((root / name).read_bytes() for name in files)
            assert len(split) == (len(split.tokens) - 1) // 100
        whole = b"".join((root / name).read_bytes() for name in names)
        assert found.facts["sha256"] == hashlib.sha256(whole).hexdigest()
        assert found.vocabulary == 256
        assert 0.02 < len(found.test.tokens) / len(whole) < 0.1

    def test_entries(self):
        short = data.stdlib_text(segment=10, max_bytes=95)
        assert (len(short.train.tokens), len(short.train)) == (95, 9)


@pytest.mark.parametrize(
    ("part", "given", "match"),
    [
        ("mock", {"shape": "svhn"}, "shape='svhn' must be one of"),
        ("mock", {"image_shape": (8, 8)}, r"image_shape=\(8, 8\) must be height, width and channels"),
        ("mock", {"image_shape": (8, 0, 1)}, "image_shape=0 must be"),
        ("mock", {"num_classes": 0}, "num_classes=0 must be"),
        ("mock", {"num_examples": 0}, "num_examples=0 must be"),
        ("mock", {"num_test": 2.5}, "num_test=2.5 must be"),
        ("mock", {"noise": -1.0}, "noise=-1.0 must be"),
        ("digit_pairs", {"classes": 20}, "classes=20 must be 10 or 100"),
        ("digit_pairs", {"num_examples": 0}, "num_examples=0 must be"),
        ("digit_pairs", {"num_test": 1.5}, "num_test=1.5 must be"),
        ("digit_pairs", {"seed": -1}, "seed=-1 must be"),
        ("photographs", {"size": 161}, "size=161 must be at most 160"),
        ("photographs", {"stride": 0}, "stride=0 must be"),
        ("photographs", {"levels": 3}, "levels=3 must be a power of 2"),
        ("photographs", {"levels": 512}, "levels=512 must be"),
        ("photographs", {"test_share": 1.0}, "test_share=1.0 must be"),
        ("stdlib_text", {"segment": 0}, "segment=0 must be"),
        ("stdlib_text", {"segment": 10, "max_bytes": 10}, "max_bytes=10 must be a whole number of at least 11"),
        ("wikitext103", {"segment": 0}, "segment=0 must be"),
        ("wikitext103", {"test": "valid"}, "test='valid' must be one of test, validation"),
        ("imagenet", {"crops": "centre"}, "crops='centre' must be one of area, shortest_side"),
        ("imagenet", {"crops": "shortest_side", "sides": (200, 480)}, r"sides=\(200, 480\) must be"),
        ("imagenet", {"crops": "shortest_side", "sides": (480, 256)}, r"sides=\(480, 256\) must be"),
        ("imagenet", {"test_side": 100}, "test_side=100 must be"),
        ("imagenet", {"colour_noise": -0.1}, "colour_noise=-0.1 must be"),
    ],
)
def test_impossible_entries(part, given, match):
    with pytest.raises(UsageError, match=f"^--config.data.{part}.{match}"):
        DATASETS.make(part, given)


@pytest.mark.parametrize(
    ("tokens", "segment", "match"),
    [
        (np.zeros((3, 4), int), 2, r"tokens of shape \(3, 4\) and dtype int64 must be integers \[T\]"),
        (np.zeros(5), 2, "dtype float64 must be integers"),
        (np.zeros(5, int), 5, "segment=5 must be at most 4: there are 5 tokens"),
        (np.zeros(5, int), 0, "segment=0 must be"),
    ],
)
def test_streams_that_are_refused(tokens, segment, match):
    with pytest.raises(ValueError, match=match):
        data.Tokens(tokens, segment)


def test_tokens_outside_of_the_vocabulary():
    stream, wrong = data.Tokens(np.arange(5), 2), data.Tokens(np.arange(-1, 4), 2)
    with pytest.raises(ValueError, match=r"train.tokens from 0 to 4 must be from 0 to 3, below vocabulary=4"):
        data.Text(stream, stream, vocabulary=4)
    with pytest.raises(ValueError, match=r"test.tokens from -1 to 3 must be"):
        data.Text(stream, wrong, vocabulary=5)
