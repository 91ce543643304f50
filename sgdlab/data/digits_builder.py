"""The TFDS builder `Digits`: the UCI handwritten digits, which come with this package: real images, no download."""

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

_FILE = pathlib.Path(__file__).with_name("digits.npz")
"""Holds scikit-learn's copy: `images` of values from 0 to 16, `labels`, and which examples are to test on: a fifth of
each class, as scikit-learn's `train_test_split` draws 360 with random_state=0."""
_CITATION = """@misc{alpaydin1998optical,
  title={Optical Recognition of Handwritten Digits}, author={Alpaydin, E. and Kaynak, C.},
  howpublished={UCI Machine Learning Repository}, year={1998}, doi={10.24432/C50P49}}"""


class Digits(tfds.core.GeneratorBasedBuilder):
    """UCI handwritten digits: 1797 images of 8x8 pixels with 17 levels, 1437 to train on and 360 to test.

    The split is stratified by class and fixed.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "scikit-learn's copy, a stratified split."}  # noqa: RUF012 (read by TFDS)

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.__doc__,
            homepage="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
            citation=_CITATION,
            supervised_keys=("image", "label"),
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(8, 8, 1), dtype=np.uint8, encoding_format="png"),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator[Any]]:
        with np.load(_FILE) as held:
            images, labels, is_test = held["images"], held["labels"], held["is_test"]
        return {
            "train": self._generate_examples(np.flatnonzero(~is_test), images, labels),
            "test": self._generate_examples(np.flatnonzero(is_test), images, labels),
        }

    def _generate_examples(
        self, numbers: np.ndarray, images: np.ndarray, labels: np.ndarray
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for number in numbers.tolist():
            # A PIL image: TFDS encodes arrays as PNG through TensorFlow only.
            image = Image.fromarray(images[number], mode="L")
            yield number, {"image": image, "label": int(labels[number])}
