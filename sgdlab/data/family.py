"""Data sets: their registry."""

import dataclasses

from sgdlab.registry import Facts, Registry


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetFacts(Facts):
    """Holds the facts of a data set for `sgdlab data`.

    Attributes:
      tfds: its name in TFDS; None: it is made without.
      by_hand: original files that a person may give by hand.
      where: the page that has them.
      downloaded: whether they are downloaded where they are missing.
    """

    tfds: str | None = None
    by_hand: tuple[str, ...] = ()
    where: str = ""
    downloaded: bool = False


DATASETS = Registry(
    "data",
    facts=DatasetFacts,
    given={},
    listed="sgdlab data",
    modules=(
        "sgdlab.data.digits",
        "sgdlab.data.mock",
        "sgdlab.data.original",
        "sgdlab.data.imagenet",
        "sgdlab.data.photographs",
        "sgdlab.data.text",
        "sgdlab.data.npz",
        "sgdlab.data.tfds",
    ),
)
"""Data sets: `(**own) -> Dataset`."""
