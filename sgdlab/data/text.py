"""Text as numbers: `Tokens`, one stream, `Text`, those to train and to test on, and the parts that return one."""

import dataclasses
import functools
import hashlib
import pathlib
import platform
import sysconfig
import zlib
from typing import Any

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count
from sgdlab.data import preparing
from sgdlab.data.family import DATASETS

_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__"}
_TEST_SHARE = 20
"""One file in so many is tested on."""


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

    Raises:
      ValueError: if an argument is out of its range, or it is missing and cannot be prepared; the message begins with
        the argument.
    """
    arguments.one_of("test", test, ("test", "validation"))
    streams, vocabulary = _wikitext(str(preparing.directory(data_dir)))
    return Text(Tokens(streams["train"], segment), Tokens(streams[test], segment), vocabulary)


@functools.lru_cache(maxsize=2)
def _wikitext(data_dir: str) -> tuple[dict[str, np.ndarray], int]:
    facts = DATASETS["wikitext103"].facts
    builder = preparing.prepared(facts, data_dir, "sgdlab.data.wikitext_builder:Wikitext103")
    streams: dict[str, Any] = {}
    for split in builder.info.splits:
        streams[split] = preparing.load_array(builder, f"{split}_tokens", memory_map=True)
        if streams[split] is None:
            tokens = np.concatenate([example["tokens"] for example in preparing.source(builder, split)])
            preparing.save_array(builder, f"{split}_tokens", tokens)
            streams[split] = tokens
    return streams, len(builder.info.metadata["vocabulary"])


@DATASETS.register(title="Python's standard library")
def stdlib_text(*, segment: Count = 128, max_bytes: int | None = None) -> Text:
    """The source text of the running Python's standard library, by bytes: about 10 MB that need no download.

    All *.py files but tests, idlelib and lib2to3, in the order of their names. A file is tested on if the CRC-32 of its
    name is divisible by 20. Every version of Python, and every distribution of it, has another text: `facts` holds the
    version and the SHA-256, and figures can be compared within one of them alone.

    Args:
      segment: tokens in a segment.
      max_bytes: bytes to use at most of each of the two streams; None uses all.

    Returns:
      The `Text`, with a vocabulary of 256.

    Raises:
      ValueError: if an argument is out of its range, or this Python has no source text.

    Example:
      >>> text = stdlib_text(segment=100, max_bytes=1000)
      >>> len(text.train), text.vocabulary, sorted(text.facts)
      (9, 256, ['files', 'python', 'sha256'])
    """
    if max_bytes is not None:
        arguments.whole("max_bytes", max_bytes, least=segment + 1)
    train, test, facts = _stdlib(sysconfig.get_paths()["stdlib"])
    return Text(Tokens(train[:max_bytes], segment), Tokens(test[:max_bytes], segment), 256, dict(facts))


@functools.lru_cache(maxsize=1)
def _stdlib(folder: str) -> tuple[np.ndarray, np.ndarray, dict[str, str]]:
    root = pathlib.Path(folder)
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    files = {name: path for name, path in sorted(files.items()) if not _LEFT_OUT & set(name.split("/")[:-1])}
    parts: dict[bool, list[bytes]] = {False: [], True: []}
    digest = hashlib.sha256()
    for name, path in files.items():
        content = path.read_bytes()
        digest.update(content)
        parts[zlib.crc32(name.encode()) % _TEST_SHARE == 0].append(content)
    if not all(parts.values()):
        raise ValueError(f"the standard library in {root} must have its source text: {len(files)} files were found")
    train, test = (np.frombuffer(b"".join(parts[part]), np.uint8) for part in (False, True))
    facts = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "files": str(len(files)),
        "sha256": digest.hexdigest(),
    }
    return train, test, facts
