"""Text as numbers: `Tokens`, one stream, and `Text`, the streams to train and to test on."""

import dataclasses

import numpy as np

from sgdlab import arguments


@dataclasses.dataclass(frozen=True)
class Tokens:
    """A stream of tokens, cut into segments that follow each other.

    Segment i has the inputs `tokens[i * segment : (i + 1) * segment]`, and the same shifted by one as targets.

    Attributes:
      tokens: integers [T], from 0 to the size of the vocabulary less 1. A memory map stays one.
      segment: number of tokens in a segment, for which a gradient has one target each.

    Raises:
      ValueError: if the tokens are not integers [T], or there is not one whole segment.

    Example:
      >>> stream = Tokens(np.arange(11), segment=5)
      >>> len(stream)
      2
    """

    tokens: np.ndarray
    segment: int

    def __post_init__(self) -> None:
        arguments.whole("segment", self.segment)
        if self.tokens.ndim != 1 or not np.issubdtype(self.tokens.dtype, np.integer):
            raise ValueError(
                f"tokens of shape {self.tokens.shape} and dtype {self.tokens.dtype} must be integers [T], one stream"
            )
        if len(self.tokens) <= self.segment:
            raise ValueError(
                f"segment={self.segment} must be at most {len(self.tokens) - 1}: there are {len(self.tokens)} tokens"
            )

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.segment


@dataclasses.dataclass(frozen=True)
class Text:
    """A text to train and to test on: what a part of the family `data` returns for language models.

    Attributes:
      train: the stream that gradients are computed on.
      test: the stream that runs are evaluated on.
      vocabulary: number of different tokens.
      facts: what the text is, for the records: such as its version and SHA-256.

    Raises:
      ValueError: if a token is out of its range.

    Example:
      >>> Text(Tokens(np.array([0, 2, 1]), 2), Tokens(np.array([1, 1]), 1), vocabulary=3).vocabulary
      3
    """

    train: Tokens
    test: Tokens
    vocabulary: int
    facts: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        arguments.whole("vocabulary", self.vocabulary, least=2)
        for name in ("train", "test"):
            tokens = getattr(self, name).tokens
            if tokens.min() < 0 or tokens.max() >= self.vocabulary:
                raise ValueError(
                    f"{name}.tokens from {tokens.min()} to {tokens.max()} must be from 0 to {self.vocabulary - 1}, "
                    f"below vocabulary={self.vocabulary}"
                )
