"""Data sets that are larger than the device: `batches`, which are decoded ahead of their use."""

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from absl import flags

from sgdlab import arguments
from sgdlab.data.reading import define_flags_of
from sgdlab.data.source import Images, StreamedImages
from sgdlab.errors import UsageError

_MOST_THREADS = 8
_AHEAD = 2
"""Batches that are finished and wait, besides those that are being made."""


def streamed(images: Images) -> StreamedImages:
    """Images in memory as a stream, which gives the same pixels: to test streaming, or to spare the device's memory.

    Args:
      images: the split.

    Example:
      >>> len(streamed(Images(np.zeros((6, 8, 8, 1), np.uint8), np.arange(6, dtype=np.int32))))
      6
    """
    return StreamedImages(images.pixels, images.labels, _as_it_is, images.image_shape, images.white)


def batches(
    split: StreamedImages | Images,
    order: np.ndarray,
    seed: int | None,
    which: Sequence[int] | np.ndarray,
    *,
    workers: int = 0,
) -> "Batches":
    """Batches in a given order, decoded ahead of their use by Grain.

    Image b of batch k depends on (seed, k, b) and its example alone: not on `which`, nor on how many threads or
    processes decode.

    Args:
      split: where the examples are from; images in memory are streamed as they are.
      order: int32[K, B], the examples of each batch, such as `order` draws.
      seed: seed of the augmentation; None for images to evaluate on.
      which: int[.], ascending, the batches to read: k from 0 to K - 1.
      workers: processes that decode; 0: threads of this process, as many as it has cores, at most 8. Processes are
        started anew, in seconds, and import the main module of a script; decoding in Python alone gains by them.

    Returns:
      An iterator over these k of (uint8[B, H, W, C], int32[B]), pixels and labels. Errors of decoding are
      raised where the batch would have been. `close` ends its threads and processes, as does the end of a `with` block;
      where processes decoded, the few threads stay by which Grain frees their memory, once for all iterators.

    Raises:
      ValueError: if a number is out of its range.
      UsageError: if Grain is not installed.

    Example:
      >>> images = Images(np.zeros((6, 8, 8, 1), np.uint8), np.arange(6, dtype=np.int32))
      >>> with batches(images, np.array([[0, 1, 2], [5, 4, 3]]), seed=0, which=[1]) as found:
      ...     [labels.tolist() for pixels, labels in found]
      [[5, 4, 3]]
    """
    split = streamed(split) if isinstance(split, Images) else split
    order = np.asarray(order)
    if order.ndim != 2 or order.size == 0 or not np.issubdtype(order.dtype, np.integer):
        raise ValueError(f"order of shape {order.shape} and dtype {order.dtype} must be integers [K, B]")
    if order.min() < 0 or order.max() >= len(split):
        raise ValueError(f"order from {order.min()} to {order.max()} must be examples from 0 to {len(split) - 1}")
    if seed is not None:
        arguments.whole("seed", seed, least=0)
    which = np.asarray(which, int)
    if (
        which.ndim != 1
        or (np.diff(which) <= 0).any()
        or not np.isin(which[[0, -1][: which.size]], range(len(order))).all()
    ):
        raise ValueError(f"which={which} must be ascending numbers of batches, from 0 to {len(order) - 1}")
    arguments.whole("workers", workers, least=0)
    return Batches(_Decoded(split, order[which], seed, which), workers)


class Batches(Iterator[tuple[np.ndarray, np.ndarray]]):
    """Iterates over batches, reads ahead, and is closed."""

    def __init__(self, decoded: "_Decoded", workers: int):
        grain = _grain()
        self._decoded = decoded
        self._closed = False
        self._copies = workers > 0
        # Process i of n decodes the batches i, i + n, and so on, in one thread.
        threads = 1 if workers else min(os.cpu_count() or 1, _MOST_THREADS)
        ahead = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads + _AHEAD)
        dataset = grain.MapDataset.source(decoded).to_iter_dataset(ahead)
        if workers:
            _set_flags()
            options = grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=_AHEAD)
            dataset = dataset.mp_prefetch(options, worker_init_fn=_end_with_parent)
        self._reader = iter(dataset)
        self._reader.start_prefetch()

    def __next__(self) -> tuple[np.ndarray, np.ndarray]:
        if self._closed:
            raise StopIteration
        try:
            pixels, labels = next(self._reader)
        except BaseException:  # the end of the batches, too
            self.close()
            raise
        if self._copies:
            # Those of other processes lie in memory that is unmapped with the array, whoever still has a view of it.
            return np.array(pixels), np.array(labels)
        return pixels, labels

    def close(self) -> None:
        """Ends threads and processes; more than once does no harm."""
        if not self._closed:
            self._closed = True
            self._reader.close()
            self._reader = None  # some of Grain's close again when they are deleted, which fails at the exit of Python
            # Grain does not wait for threads that are still at their last batch.
            for thread in list(self._decoded.threads):
                if thread is not threading.current_thread():
                    thread.join()

    def __enter__(self) -> "Batches":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Decoded(Sequence):
    """Some batches, decoded at every access."""

    def __init__(self, split: StreamedImages, order: np.ndarray, seed: int | None, which: np.ndarray):
        self._split, self._order, self._seed, self._which = split, order, seed, which
        self.threads: set[threading.Thread] = set()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"threads": set()}  # those of this process are none of the other's

    def __len__(self) -> int:
        return len(self._order)

    # pyrefly: ignore[bad-override]  # Grain asks for no slices
    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        self.threads.add(threading.current_thread())
        chosen = self._order[index]
        if self._split.decode is _as_it_is:  # all at once, where there is nothing to decode
            return self._split.source[chosen], self._split.labels[chosen]
        pixels = [self._image(int(example), int(self._which[index]), b) for b, example in enumerate(chosen)]
        return np.stack(pixels), self._split.labels[chosen]

    def _image(self, example: int, k: int, b: int) -> np.ndarray:
        split = self._split
        seed = None if self._seed is None else np.random.SeedSequence(self._seed, spawn_key=(k, b))
        try:
            image = split.decode(split.source[example], seed)
        except Exception as error:
            raise ValueError(f"example {example} cannot be decoded: {type(error).__name__}: {error}") from error
        if image.shape != tuple(split.image_shape):
            raise ValueError(f"example {example} was decoded to shape {image.shape}, and not to {split.image_shape}")
        return image


def _as_it_is(example: np.ndarray, seed: np.random.SeedSequence | None) -> np.ndarray:
    return example


def _end_with_parent(index: int, number: int) -> None:
    """Makes a process end when the one that has started it is killed, which Grain's would outlive."""

    def wait() -> None:
        multiprocessing.parent_process().join()  # pyrefly: ignore[missing-attribute]  # it has a parent
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _grain() -> Any:
    try:
        import grain  # noqa: PLC0415 (an optional requirement, and it takes a second to import)
    except ImportError as error:
        raise UsageError(
            "streamed data sets need Grain, which is not installed: pip install 'sgdlab[stream]'"
        ) from error
    for module in ("config", "profiler"):
        define_flags_of(f"grain._src.core.{module}")
    return grain


def _set_flags() -> None:
    """Makes Grain's flags readable where nothing has parsed flags, as in a notebook: processes are sent them."""
    for name in flags.FLAGS:
        if name.startswith("grain_"):
            flags.FLAGS[name].present = True
