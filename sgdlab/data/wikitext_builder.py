"""The TFDS builder `Wikitext103`: the words of WikiText-103 as numbers, from an archive that is given by hand."""

import collections
import io
import pathlib
import zipfile
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds

FILE = "wikitext-103-v1.zip"
_MEMBERS = {"train": "wiki.train.tokens", "validation": "wiki.valid.tokens", "test": "wiki.test.tokens"}
_PIECE = 1 << 16
_END, _UNKNOWN = "<eos>", "<unk>"


class Wikitext103(tfds.core.GeneratorBasedBuilder):
    """WikiText-103 by words: 103,227,021 tokens of Wikipedia articles to train on, 267,735 different ones.

    Every line ends with the token <eos>. Tokens are numbered by falling frequency in the training split, and of equal
    frequency in alphabetical order. Examples are pieces of 65,536 tokens in the order of the text.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "Words of wikitext-103-v1.zip, by frequency."}  # noqa: RUF012 (read by TFDS)
    MANUAL_DOWNLOAD_INSTRUCTIONS = f"manual_dir must hold {FILE}."
    TOKENS: ClassVar[dict[str, int]] = {"train": 103_227_021, "validation": 217_646, "test": 245_569}
    WORDS: ClassVar[int] = 267_735

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.__doc__,
            homepage="https://www.salesforce.com/products/einstein/ai-research/the-wikitext-dependency-language-modeling-dataset/",
            citation="@article{merity2016pointer, title={Pointer Sentinel Mixture Models}, author={Merity, Stephen and "
            "Xiong, Caiming and Bradbury, James and Socher, Richard}, journal={arXiv:1609.07843}, year={2016}}",
            disable_shuffling=True,  # the pieces must stay in order
            features=tfds.features.FeaturesDict({"tokens": tfds.features.Tensor(shape=(None,), dtype=np.int32)}),
            metadata=tfds.core.MetadataDict(),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator[Any]]:
        # Where a directory is missing, TFDS's own property raises several lines.
        path = pathlib.Path(dl_manager.download_dir) / "manual" / FILE
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing")
        counts: collections.Counter[str] = collections.Counter()
        lengths = {}
        try:
            for split in _MEMBERS:
                before = counts.total()
                for line in _lines(path, split):
                    counts.update(line)
                lengths[split] = counts.total() - before
                if split == "train":
                    words = sorted(counts, key=lambda word: (-counts[word], word))
        except (zipfile.BadZipFile, KeyError, UnicodeDecodeError, EOFError, OSError) as error:
            raise OSError(f"{path} is cut off or another file: {type(error).__name__}: {error}") from error
        if (lengths, len(words)) != (self.TOKENS, self.WORDS):
            raise OSError(
                f"{path} is another file: it has {len(words):,} words, and tokens {lengths}, instead of "
                f"{self.WORDS:,} and {self.TOKENS}"
            )
        self.info.metadata["vocabulary"] = words
        numbers = {word: number for number, word in enumerate(words)}
        return {split: self._generate_examples(path, split, numbers) for split in _MEMBERS}

    def _generate_examples(
        self, path: pathlib.Path, split: str, numbers: dict[str, int]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        unknown = numbers.get(_UNKNOWN, 0)
        waiting: list[int] = []
        index = 0
        for line in _lines(path, split):
            waiting += [numbers.get(word, unknown) for word in line]
            while len(waiting) >= _PIECE:
                yield index, {"tokens": np.array(waiting[:_PIECE], np.int32)}
                waiting, index = waiting[_PIECE:], index + 1
        if waiting:
            yield index, {"tokens": np.array(waiting, np.int32)}


def _lines(path: pathlib.Path, split: str) -> Iterator[list[str]]:
    with zipfile.ZipFile(path) as archive, archive.open(f"wikitext-103/{_MEMBERS[split]}") as file:
        for line in io.TextIOWrapper(file, "utf-8"):
            yield [*line.split(), _END]
