"""Data sets: their registry."""

from sgdlab.registry import Registry

DATASETS = Registry(
    "data",
    given={},
    listed="sgdlab data",
    modules=(
        "sgdlab.data.digits",
        "sgdlab.data.digit_pairs",
        "sgdlab.data.mock",
        "sgdlab.data.original",
        "sgdlab.data.imagenet",
        "sgdlab.data.photographs",
        "sgdlab.data.wikitext103",
        "sgdlab.data.stdlib_text",
        "sgdlab.data.npz",
        "sgdlab.data.tfds",
    ),
)
"""Data sets: `(**own) -> Dataset`."""
