"""Data: TFDS builders of our own, sources without TensorFlow, and batches on the device."""

from sgdlab.data.batches import batch_fn, order
from sgdlab.data.digits import Digits, digits
from sgdlab.data.source import Dataset, Images, load, prepare

__all__ = ["Dataset", "Digits", "Images", "batch_fn", "digits", "load", "order", "prepare"]
