"""Data sets: labelled images and texts, in memory or streamed, what is done to them, and the batches of a run.

A part refuses an argument that is out of its range by a `ValueError` that begins with it. What needs jax or
TFDS is imported at its first use.
"""

from sgdlab import lazy
from sgdlab.data.digits import digit_pairs, digits
from sgdlab.data.family import DATASETS
from sgdlab.data.imagenet import imagenet
from sgdlab.data.measured import MeasuredDataset, MeasuredImages
from sgdlab.data.mock import mock
from sgdlab.data.npz import npz
from sgdlab.data.original import cifar10, cifar100, mnist
from sgdlab.data.photographs import photographs
from sgdlab.data.preprocess import Preprocess
from sgdlab.data.reading import load, prepare
from sgdlab.data.shares import Shares, label_shares
from sgdlab.data.source import Dataset, Images
from sgdlab.data.text import Text, Tokens, stdlib_text, wikitext103
from sgdlab.data.tfds import tfds

__getattr__, _, _ = lazy.attach(
    __name__,
    names={
        "batch": ["Batch"],
        "batches": ["Finish", "batch_fn", "finished", "key_of", "order", "ranks", "streams_of", "text_batch_fn"],
        "digits_builder": ["Digits"],
    },
)
__all__ = [
    "DATASETS", "Batch", "Dataset", "Digits", "Finish", "Images", "MeasuredDataset", "MeasuredImages", "Preprocess",
    "Shares", "Text", "Tokens", "batch_fn", "cifar10", "cifar100", "digit_pairs", "digits", "imagenet",
    "label_shares", "load", "mnist", "mock", "npz", "order", "photographs", "prepare", "stdlib_text",
    "text_batch_fn", "tfds", "wikitext103",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)
