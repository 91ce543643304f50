"""`Feed`: batches that the host makes, chunk after chunk, while the device computes with those before."""

import concurrent.futures
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from sgdlab import arguments
from sgdlab.replay.watch import as_pytree

Tree = Any


@dataclasses.dataclass(frozen=True)
class Feed:
    """Batches that are made on the host: a `batch_fn` for examples that do not fit the device.

    The device computes with one chunk while the host makes the next. What a gradient's batch holds depends on the
    number of the gradient alone; so a run is the same whatever the size of a chunk, and continues at any gradient.

    Attributes:
      read: `(begin, end) -> iterator` of the trees of arrays of gradients `begin` to `end` (not included), in order; it
        is called in a thread of its own, and the iterator is closed at the end of the run.
      finish: `(tree, g) -> batch`, traced: the rest of the work, on the device. None: the tree is the batch.
      size: gradients of a chunk; the device holds two or three chunks.

    Raises:
      ValueError: if `read` is not a function, or `size` is not a whole number of at least 1.

    Example:
      >>> feed = Feed(lambda begin, end: (np.float32([g]) for g in range(begin, end)), size=2)
      >>> [(rows, float(batch_fn(rows[0])[0])) for rows, batch_fn in feed.chunks([(0, 2), (2, 3)])]
      [((0, 2), 0.0), ((2, 3), 2.0)]
    """

    read: Callable[[int, int], Iterator[Tree]]
    finish: Callable[[Tree, jax.Array], Tree] | None = None
    size: int = 32

    def __post_init__(self) -> None:
        arguments.whole("size", self.size)
        if not callable(self.read):
            raise ValueError(f"read must be a function, (begin, end) -> iterator; it is a {type(self.read)}")

    def example(self) -> Callable[[jax.Array], Tree]:
        """A `batch_fn` with the first gradient's batch, which has the sizes of all."""
        with contextlib.closing(self.chunks([(0, 1)])) as chunks:
            return next(chunks)[1]

    def chunks(self, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], Callable[[jax.Array], Tree]]]:
        """Reads the gradients of successive spans, one span ahead.

        Args:
          spans: begin and end of each, at most `size` gradients; each begins where the one before ends.

        Yields:
          The span, and its `batch_fn`: a function of g, whose arrays are of the same sizes for all spans.

        Raises:
          ValueError: if `read` ends before the last gradient. What `read` raises comes out here.
        """
        if not spans:
            return
        source = iter(self.read(spans[0][0], spans[-1][1]))
        # A thread, since reading waits for files and decoders, which leave the interpreter to others.
        with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="feed") as thread:
            try:
                coming = thread.submit(self._chunk, source, spans[0])
                for number, span in enumerate(spans):
                    chunk = coming.result()
                    if number + 1 < len(spans):
                        coming = thread.submit(self._chunk, source, spans[number + 1])
                    yield span, jax.tree_util.Partial(_batch, as_pytree(self.finish), chunk, np.int32(span[0]))
            finally:
                coming.cancel()
                thread.submit(getattr(source, "close", lambda: None)).result()

    def _chunk(self, source: Iterator[Tree], span: tuple[int, int]) -> Tree:
        """The arrays [size, ...] of one span on the device; those past its end repeat the last gradient's."""
        begin, end = span
        found = []
        for g in range(begin, end):
            try:
                found.append(next(source))
            except StopIteration:
                raise ValueError(f"read must give the batches of all gradients; it ended before that of {g}") from None
        found += [found[-1]] * (self.size - len(found))
        return jax.device_put(jax.tree.map(lambda *leaves: np.stack(leaves), *found))


def _batch(finish: Any, chunk: Tree, begin: jax.Array, g: jax.Array) -> Tree:
    tree = jax.tree.map(lambda leaf: leaf[g - begin], chunk)
    return tree if finish is None else finish(tree, g)


def spans_of(ends: Sequence[int], begin: int, size: int | None) -> list[tuple[int, int]]:
    """Cuts rows into spans of at most `size`, each of which ends at one of `ends`; without a size, of all of them.

    Args:
      ends: ascending numbers of rows at which a span may end; the last one is where the last span ends.
      begin: the first row.
      size: at least the largest distance of two successive ends.

    Example:
      >>> spans_of([2, 3, 6, 8], 0, 4)
      [(0, 3), (3, 6), (6, 8)]
    """
    spans = []
    last = None
    for end in ends:
        if size is not None and last is not None and end - begin > size:
            spans.append((begin, last))
            begin = last
        last = end
    return spans if last is None or last == begin else [*spans, (begin, last)]
