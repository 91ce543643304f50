"""`Feed`: batches that the host makes, chunk after chunk, while the device computes with those before."""

import concurrent.futures
import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from sgdlab import arguments
from sgdlab.replay.watch import as_pytree
from sgdlab.types import Tree

if TYPE_CHECKING:
    from sgdlab.replay.sharding import MeshLayout


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Chunk:
    """The trees of some gradients: arrays [n m, ...], of which each of n devices has m rows for its own lanes."""

    arrays: Tree


@dataclasses.dataclass(frozen=True)
class Placement:
    """Holds which device computes each gradient, so that a host makes the batches of its own devices alone.

    Attributes:
      layout: of the run.
      device: int[R], the position of its device.
    """

    layout: "MeshLayout"
    device: np.ndarray


@dataclasses.dataclass(frozen=True)
class Feed:
    """Batches that are made on the host: a `batch_fn` for examples that do not fit the device.

    The device computes with one chunk while the host makes the next. What a gradient's batch holds depends on the
    number of the gradient alone; so a run is the same whatever the size of a chunk, continues at any gradient, and each
    of many hosts makes only the batches of the gradients that it computes.

    Attributes:
      read: `(gradients) -> iterator` of the trees of arrays of these gradients, ascending numbers int[.], in order; it
        is called in a thread of its own, and the iterator is closed at the end of the run.
      finish: `(tree, g) -> batch`, traced: the rest of the work, on the device. None: the tree is the batch.
      size: gradients of a chunk; the device holds two or three chunks.

    Raises:
      ValueError: if `read` is not a function, or `size` is not a whole number of at least 1.

    Example:
      >>> feed = Feed(lambda gradients: (np.float32([g]) for g in gradients), size=2)
      >>> [(rows, float(batch_fn(rows[0])[0])) for rows, batch_fn in feed.chunks([(0, 2), (2, 3)])]
      [((0, 2), 0.0), ((2, 3), 2.0)]
    """

    read: Callable[[np.ndarray], Iterator[Tree]]
    finish: Callable[[Tree, jax.Array], Tree] | None = None
    size: int = 32

    def __post_init__(self) -> None:
        arguments.whole("size", self.size)
        if not callable(self.read):
            raise ValueError(f"read must be a function, (gradients) -> iterator; it is a {type(self.read)}")

    def example(self) -> Callable[[jax.Array], Tree]:
        """A `batch_fn` with the first gradient's batch, which has the sizes of all."""
        with contextlib.closing(self.chunks([(0, 1)])) as chunks:
            return next(chunks)[1]

    def chunks(
        self, spans: Sequence[tuple[int, int]], placement: Placement | None = None
    ) -> Generator[tuple[tuple[int, int], Callable[[jax.Array], Tree]], None, None]:
        """Reads the gradients of successive spans, one span ahead.

        Args:
          spans: begin and end of each, at most `size` gradients; each begins where the one before ends.
          placement: which device computes each gradient. None: the one that there is.

        Yields:
          The span, and its `batch_fn`: a function of g, whose arrays are of the same sizes for all spans.

        Raises:
          ValueError: if `read` ends before the last gradient. What `read` raises comes out here.
        """
        if not spans:
            return
        maker = _Maker(self, spans, placement)
        # A thread, since reading waits for files and decoders, which leave the interpreter to others.
        with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="feed") as thread:
            try:
                coming = thread.submit(maker.make, spans[0])
                for number, span in enumerate(spans):
                    made = coming.result()
                    if number + 1 < len(spans):
                        coming = thread.submit(maker.make, spans[number + 1])
                    yield span, jax.tree_util.Partial(_batch, maker.finish, *made, np.int32(span[0]))
            finally:
                coming.cancel()
                thread.submit(maker.close).result()


class _Maker:
    """Makes the chunks of successive spans.

    Args:
      feed: what reads.
      spans: begin and end of each.
      placement: which device computes each gradient.
    """

    def __init__(self, feed: Feed, spans: Sequence[tuple[int, int]], placement: Any):
        self._layout = None if placement is None or placement.layout.mesh is None else placement.layout
        begin, end = spans[0][0], spans[-1][1]
        devices = 1 if self._layout is None else self._layout.num_devices
        self._begin, self._size = begin, feed.size
        self._device = np.zeros(end - begin, int) if self._layout is None else placement.device[begin:end]
        self._own = [0] if self._layout is None else self._layout.own_devices
        # The rows that each device needs: as many for every chunk, so that one program serves all.
        longest = [np.bincount(self._of(span), minlength=devices).max() for span in spans]
        self._rows = feed.size if self._layout is None else int(max(longest))
        self.finish = as_pytree(feed.finish)
        if self._layout is not None:
            self.finish = self._layout.put(self.finish)
        self._source = iter(feed.read(begin + np.flatnonzero(np.isin(self._device, self._own))))
        self._like: Tree = None
        self._feed = feed

    def close(self) -> None:
        """Closes what reads."""
        _close(self._source)

    def make(self, span: tuple[int, int]) -> tuple[Chunk, np.ndarray]:
        """The chunk of a span, and int32[size], the row of each of its gradients within the part of its device."""
        device = self._of(span)
        place = np.zeros(self._size, np.int32)
        by_device: dict[int, list[Tree]] = {own: [] for own in self._own}
        taken = np.zeros(max(device.max(), *self._own) + 1, int)
        for index, of in enumerate(device.tolist()):
            place[index] = taken[of]
            taken[of] += 1
            if of in by_device:
                by_device[of].append(self._next(span[0] + index))
        rows = [tree for found in by_device.values() for tree in self._filled(found)]
        return Chunk(self._on_devices(jax.tree.map(lambda *leaves: np.stack(leaves), *rows))), place

    def _of(self, span: tuple[int, int]) -> np.ndarray:
        return self._device[span[0] - self._begin : span[1] - self._begin]

    def _next(self, gradient: int) -> Tree:
        try:
            self._like = next(self._source)
        except StopIteration:
            message = f"read must give the batches of all gradients; it ended before that of {gradient}"
            raise ValueError(message) from None
        return self._like

    def _filled(self, found: list[Tree]) -> list[Tree]:
        """As many as every device has; those past the end, which nobody uses, repeat another."""
        if self._like is None:  # a process without a gradient so far asks for the sizes
            example = iter(self._feed.read(np.zeros(1, int)))
            self._like = next(example)
            _close(example)
        return found + [found[-1] if found else self._like] * (self._rows - len(found))

    def _on_devices(self, tree: Tree) -> Tree:
        if self._layout is None:
            return jax.device_put(tree)
        place = NamedSharding(self._layout.mesh, PartitionSpec(*self._layout.mesh.axis_names))
        return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(place, leaf), tree)


def _close(source: Iterator[Tree]) -> None:
    getattr(source, "close", lambda: None)()


def _batch(finish: Any, chunk: Chunk, place: jax.Array, begin: jax.Array, g: jax.Array) -> Tree:
    tree = jax.tree.map(lambda leaf: leaf[place[g - begin]], chunk.arrays)
    return tree if finish is None else finish(tree, g)


def spans_of(ends: Sequence[int], begin: int, size: int) -> list[tuple[int, int]]:
    """Cuts rows into spans of at most `size`, each of which ends at one of `ends`.

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
        if last is not None and end - begin > size:
            spans.append((begin, last))
            begin = last
        last = end
    return spans if last is None or last == begin else [*spans, (begin, last)]
