"""The part `wikitext103`: WikiText-103 by words, prepared from an archive that is given by hand."""

import functools
from typing import Any

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count
from sgdlab.data import preparing
from sgdlab.data.family import DATASETS
from sgdlab.data.text import Text, Tokens


@DATASETS.register(
    title="WikiText-103",
    source="Merity et al. 2016",
    tfds="wikitext103",
    by_hand=("wikitext-103-v1.zip",),
    where="https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-103-v1.zip, or a mirror of it",
)
def wikitext103(*, data_dir: str | None = None, segment: Count = 150, test: str = "test") -> Text:
    """WikiText-103 by words: 103,227,021 tokens to train on, a vocabulary of 267,735 in the order of frequency.

    Lines end with <eos>. It is prepared once, in some ten minutes, from wikitext-103-v1.zip, the archive of tokens, not
    that of raw text; the numbers of its words and tokens are checked. The tokens are then a memory map on the disk.

    Args:
      data_dir: TFDS directory; None is TFDS_DATA_DIR, or ~/tensorflow_datasets.
      segment: tokens in a segment.
      test: split to test on, test or validation.

    Returns:
      The `Text`.

    Raises:
      ValueError: if an argument is out of its range, or it is missing and cannot be prepared; the message begins with
        the argument.
    """
    arguments.one_of("test", test, ("test", "validation"))
    streams, vocabulary = _read(str(preparing.directory(data_dir)))
    return Text(Tokens(streams["train"], segment), Tokens(streams[test], segment), vocabulary)


@functools.lru_cache(maxsize=2)
def _read(data_dir: str) -> tuple[dict[str, np.ndarray], int]:
    def make_builder() -> type:
        from sgdlab.data.wikitext_builder import Wikitext103  # noqa: PLC0415 (it imports TFDS, which takes seconds)

        return Wikitext103

    facts = DATASETS["wikitext103"].facts
    builder = preparing.prepared(facts.tfds, data_dir, make_builder, facts.by_hand, facts.where)
    streams: dict[str, Any] = {}
    for split in builder.info.splits:
        streams[split] = preparing.load_array(builder, f"{split}_tokens", memory_map=True)
        if streams[split] is None:
            tokens = np.concatenate([example["tokens"] for example in preparing.source(builder, split)])
            preparing.save_array(builder, f"{split}_tokens", tokens)
            streams[split] = tokens
    return streams, len(builder.info.metadata["vocabulary"])
