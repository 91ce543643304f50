"""Image data sets: the parts `digits`, `npz` and `tfds`, splits held in memory, and the batches of a run.

What needs jax, TFDS or scikit-learn is imported at its first use.
"""

import lazy_loader

# ruff: isort: skip_file
# In the order in which `--help` lists them: a data set registers itself when its module is imported.
from sgdlab.data.digits import digits
from sgdlab.data.npz import npz
from sgdlab.data.tfds import tfds
from sgdlab.data.source import Dataset, Images, load, prepare

__getattr__, _, _ = lazy_loader.attach(
    __name__, submod_attrs={"batches": ["batch_fn", "order"], "digits_builder": ["Digits"]}
)
__all__ = ["Dataset", "Digits", "Images", "batch_fn", "digits", "load", "npz", "order", "prepare", "tfds"]


def __dir__() -> list[str]:
    return list(__all__)
