"""Data sets without content: what is known of a data set before it is prepared, which is enough to plan its runs."""

import contextlib
import dataclasses
import importlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
from ml_collections import ConfigDict

from sgdlab.data import preparing
from sgdlab.data.source import Images
from sgdlab.registry import DATASETS


@dataclasses.dataclass(frozen=True)
class Known:
    """Holds what is known of a data set that is read from the disk.

    Attributes:
      train: number of examples (tokens of a text) to train on.
      test: number of examples (tokens) of the split that runs are evaluated on.
      outcomes: number of classes, or size of the vocabulary.
      disk: bytes that it takes there once it is prepared, arrays beside the records included.
      shape: of an image; () for a text.
    """

    train: int
    test: int
    outcomes: int
    disk: float
    shape: tuple[int, ...] = ()


KNOWN = {
    "mnist": Known(60_000, 10_000, 10, 0.08e9, (28, 28, 1)),
    "cifar10": Known(50_000, 10_000, 10, 0.35e9, (32, 32, 3)),
    "cifar100": Known(50_000, 10_000, 100, 0.35e9, (32, 32, 3)),
    "imagenet": Known(1_281_167, 50_000, 1000, 145e9),
    "wikitext103": Known(103_227_021, 245_569, 267_735, 0.8e9),
}
"""The data sets of the papers. Images of `imagenet` are of the size that a configuration asks for. On the disk there
are PNG images or tokens, and arrays of them; of ImageNet, the files of its archives, which are as large again."""


@contextlib.contextmanager
def used() -> Iterator[None]:
    """Gives configurations data sets of the right sizes, all of whose pixels and tokens are 0, within a block.

    That of `mock` is left without content too, since drawing it takes seconds. All other data sets are at hand, or
    custom files, and stay what they are.

    Example:
      >>> with used():
      ...     len(DATASETS.make("cifar10", {}).train), DATASETS.make("imagenet", {"size": 96}).image_shape
      (50000, (96, 96, 3))
    """

    def images(name: str, *_: Any) -> tuple:
        known = KNOWN[name]
        return _images(known.shape, known.train), _images(known.shape, known.test), known.outcomes

    def streamed(*_: Any) -> tuple:
        known = KNOWN["imagenet"]
        return *((range(size), np.zeros(size, np.int32)) for size in (known.train, known.test)), known.outcomes

    def text(*_: Any) -> tuple:
        known = KNOWN["wikitext103"]
        tokens = {"train": _zeros(known.train, dtype=np.int32), "test": _zeros(known.test, dtype=np.int32)}
        return tokens | {"validation": tokens["test"]}, known.outcomes

    def drawn(size: tuple[int, int, int], classes: int, num_examples: int, num_test: int, *_: Any) -> tuple:
        del classes
        return _images(size, num_examples), _images(size, num_test)

    with contextlib.ExitStack() as stack:
        for module, name, reader in (
            ("original", "_splits", images),
            ("imagenet", "_splits", streamed),
            ("text", "_wikitext", text),
            ("mock", "_drawn", drawn),
        ):  # by name: the package's attributes are the parts, and not their modules
            stack.enter_context(mock.patch.object(importlib.import_module(f"sgdlab.data.{module}"), name, reader))
        yield


def missing(config: ConfigDict) -> str | None:
    """Return the name of the data set that a configuration trains on, if `sgdlab data` has to prepare it first."""
    kind = config.data.kind
    name = DATASETS[kind].facts.tfds
    return None if name is None or preparing.version(name, config.data[kind].get("data_dir")) else kind


def _images(shape: tuple[int, ...], number: int) -> Images:
    return Images(_zeros(number, *shape, dtype=np.uint8), np.zeros(number, np.int32))


def _zeros(*shape: int, dtype: type) -> np.ndarray:
    """Return an array of zeros that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)
