"""Units of the text that a Transformer-XL is tested on: bytes, words and punctuation marks."""

import re

import numpy as np
from ml_collections import ConfigDict

from sgdlab.runs import resolve


def bytes_per_word(config: ConfigDict) -> float:
    """Bytes of the text that is tested on, for each word or punctuation mark in it; spaces count as bytes only."""
    text = tested(config).tobytes()
    return len(text) / max(len(re.findall(rb"\w+|[^\w\s]", text)), 1)


def byte_frequencies(config: ConfigDict) -> float:
    """Perplexity of a byte for a model that knows how frequent each is in the training text, plus one of each."""
    counts = np.bincount(resolve(config).data.dataset.train.tokens, minlength=256) + 1.0
    return float(np.exp(-np.log(counts / counts.sum())[tested(config)].mean()))


def tested(config: ConfigDict) -> np.ndarray:
    """uint8[bytes], what is predicted in a test."""
    test, most = resolve(config).data.dataset.test, config.test_examples
    return np.asarray(test.tokens)[1 : None if most is None else most * test.segment + 1].astype(np.uint8)
