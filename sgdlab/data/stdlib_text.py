"""The part `stdlib_text`: the source text of the running Python's standard library, byte by byte."""

import functools
import hashlib
import pathlib
import platform
import sysconfig
import zlib

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count
from sgdlab.data.family import DATASETS
from sgdlab.data.text import Text, Tokens

_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__"}
_TEST_SHARE = 20
"""One file in so many is tested on."""


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
    train, test, facts = _read(sysconfig.get_paths()["stdlib"])
    return Text(Tokens(train[:max_bytes], segment), Tokens(test[:max_bytes], segment), 256, dict(facts))


@functools.lru_cache(maxsize=1)
def _read(folder: str) -> tuple[np.ndarray, np.ndarray, dict[str, str]]:
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
