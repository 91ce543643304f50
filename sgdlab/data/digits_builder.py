"""The TFDS builder `Digits`: the UCI handwritten digits that come with scikit-learn, real images without a download."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

NUM_TEST = 360
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
        # Here, not above: to import scikit-learn takes a run over a second, and what was prepared needs it no more.
        from sklearn.datasets import load_digits  # noqa: PLC0415
        from sklearn.model_selection import train_test_split  # noqa: PLC0415

        digits: Any = load_digits()
        images, labels = digits.images, digits.target
        numbers = np.arange(labels.size)
        train, test = train_test_split(numbers, test_size=NUM_TEST, random_state=0, stratify=labels)
        return {
            "train": self._generate_examples(train, images, labels),
            "test": self._generate_examples(test, images, labels),
        }

    def _generate_examples(
        self, numbers: np.ndarray, images: np.ndarray, labels: np.ndarray
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for number in numbers.tolist():
            # A PIL image: TFDS encodes arrays as PNG through TensorFlow only.
            image = Image.fromarray(images[number].astype(np.uint8), mode="L")
            yield number, {"image": image, "label": int(labels[number])}
