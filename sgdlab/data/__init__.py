"""Data: TFDS builders of our own, sources without TensorFlow, and batches on the device."""

from sgdlab.data.batches import batch_fn, order
from sgdlab.data.digits import Digits
from sgdlab.data.source import BUILDERS, Images, load, prepare

__all__ = ["BUILDERS", "Digits", "Images", "batch_fn", "load", "order", "prepare"]
