"""The batches of a run: the order of the examples, drawn on the host, and what becomes of them in the compiled loop."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import arguments
from sgdlab.data.batch import Batch
from sgdlab.data.preprocess import Preprocess
from sgdlab.data.source import Images
from sgdlab.data.text import Tokens


def order(num_examples: int, *, batch_size: int, num_batches: int, seed: int, replacement: bool = False) -> np.ndarray:
    """Draws the examples of every batch; batch g depends on the seed and g alone, not on `num_batches`.

    Without replacement every epoch is a new permutation, cut into batches; the examples that remain after the last
    whole batch of an epoch are not used in it.

    Args:
      num_examples: n.
      batch_size: B, at most n.
      num_batches: K.
      seed: seed of the permutations.
      replacement: whether every example of every batch is drawn independently.

    Returns:
      int32[K, B], indices of examples.

    Raises:
      ValueError: if a number is out of its range.

    Example:
      >>> sorted(order(6, batch_size=3, num_batches=2, seed=0).ravel().tolist())
      [0, 1, 2, 3, 4, 5]
    """
    arguments.whole("batch_size", batch_size, most=num_examples, why="the number of examples")
    arguments.whole("num_batches", num_batches)
    if replacement:
        return np.random.default_rng(seed).integers(0, num_examples, (num_batches, batch_size), dtype=np.int32)
    per_epoch = num_examples // batch_size
    epochs = [
        np.random.default_rng([seed, epoch]).permutation(num_examples)[: per_epoch * batch_size]
        for epoch in range(-(-num_batches // per_epoch))
    ]
    return np.concatenate(epochs).astype(np.int32).reshape(-1, batch_size)[:num_batches]


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Finish:
    """Makes a batch of pixels and labels: `(pixels, labels, key) -> Batch`; traced, and static data of the program.

    Attributes:
      preprocess: what happens to pixels.
      white: the value of a white pixel.
      levels: whether the levels of the pixels are inputs and targets, as in density estimation.
      train: whether images are augmented.
    """

    preprocess: Preprocess = Preprocess()  # noqa: RUF009 (frozen)
    white: int = 255
    levels: bool = False
    train: bool = True

    def __call__(self, pixels: jax.Array, labels: jax.Array, key: jax.Array | None = None) -> Batch:
        """The batch; traced."""
        if self.levels:
            levels = pixels.astype(jnp.int32)
            return Batch(levels, levels, key)
        if not self.train:
            return Batch(self.preprocess.test(pixels, self.white), labels)
        augmentation, dropout = (None, None) if key is None else (jax.random.fold_in(key, use) for use in (0, 1))
        return Batch(self.preprocess.train(pixels, self.white, augmentation), labels, dropout)


def batch_fn(
    data: Images,
    indices: np.ndarray,
    *,
    preprocess: Preprocess | None = None,
    levels: bool = False,
    seed: int | None = None,
) -> Callable[[jax.Array], Batch]:
    """Makes the `batch_fn` of replay: the index g of a gradient -> the examples `indices[g]`; traced.

    Images and indices are arguments of the compiled program, not constants of it: another order compiles nothing. The
    pixels stay as they are on the device, and become inputs inside the loop.

    Args:
      data: the images to draw from.
      indices: int32[K, B], the examples of each batch, such as `order` draws.
      preprocess: what happens to pixels; None: what `Preprocess()` does.
      levels: whether the levels of the pixels are inputs and targets, as in density estimation.
      seed: of the keys of augmentation and dropout, which depend on it and on g alone. None: no randomness.

    Returns:
      `(g) -> Batch`.

    Example:
      >>> images = Images(np.zeros((6, 8, 8, 1), np.float32), np.arange(6, dtype=np.int32))
      >>> batch_fn(images, np.array([[0, 1, 2], [5, 4, 3]]))(1).targets
      Array([5, 4, 3], dtype=int32)
    """
    finish = Finish(preprocess or Preprocess(), data.white, levels)
    arrays = (jnp.asarray(data.pixels), jnp.asarray(data.labels), jnp.asarray(indices))
    return jax.tree_util.Partial(_batch, finish, *arrays, key_of(seed))


def key_of(seed: int | None) -> jax.Array | None:
    """The key from which those of all gradients are derived.

    Its generator is threefry, the same on all devices and, other than rbg, the same for one gradient as for several at
    once.
    """
    return None if seed is None else jax.random.key(seed, impl="threefry2x32")


def finished(
    finish: Finish, key: jax.Array | None, pixels_and_labels: tuple[jax.Array, jax.Array], g: jax.Array
) -> Batch:
    """The batch of gradient g, of pixels and labels that the host has read: `finish` of a `sgdlab.replay.Feed`."""
    return finish(*pixels_and_labels, None if key is None else jax.random.fold_in(key, g))


def _batch(
    finish: Finish,
    pixels: jax.Array,
    labels: jax.Array,
    indices: jax.Array,
    key: jax.Array | None,
    g: jax.Array,
) -> Batch:
    chosen = indices[g]
    return finished(finish, key, (pixels[chosen], labels[chosen]), g)


def text_batch_fn(
    text: Tokens, worker: np.ndarray, *, num_workers: int, batch_size: int, seed: int | None = None
) -> Callable[[jax.Array], Batch]:
    """Makes the `batch_fn` of replay for text: every worker reads B streams of its own, segment after segment.

    The text is cut into N B streams of one length, and worker w has those from w B on. Its k-th gradient reads their
    k-th segments: what it remembers is of the segment before. After the last segment of a stream comes its first, and
    what was remembered is forgotten (`Batch.begins`).

    Args:
      text: the tokens, T of them, and the length L of a segment.
      worker: int[R], the worker of each gradient that is computed, such as `sgdlab.replay.lower(schedule).worker`. A
        gradient that is not among them moves nothing.
      num_workers: N.
      batch_size: B.
      seed: of the keys of dropout, which depend on it and on g alone. None: no randomness.

    Returns:
      `(g) -> Batch` with inputs and targets int32[B, L].

    Raises:
      ValueError: if the text has less than one segment for each stream.

    Example:
      >>> batches = text_batch_fn(Tokens(np.arange(17), 2), np.array([0, 1, 0, 0, 0]), num_workers=2, batch_size=1)
      >>> [(batches(g).inputs.tolist(), bool(batches(g).begins)) for g in range(5)]
      [([[0, 1]], True), ([[8, 9]], True), ([[2, 3]], False), ([[4, 5]], False), ([[0, 1]], True)]
    """
    length, segments = streams_of(text, num_workers=num_workers, batch_size=batch_size)
    streams = num_workers * batch_size
    rank = ranks(np.asarray(worker)) % segments
    row = np.stack([np.asarray(worker) * batch_size, rank * text.segment], axis=1).astype(np.int32)
    tokens = jnp.asarray(text.tokens[: streams * length].reshape(streams, length), jnp.int32)
    return jax.tree_util.Partial(_text, _Segment(batch_size, text.segment), tokens, jnp.asarray(row), key_of(seed))


def streams_of(text: Tokens, *, num_workers: int, batch_size: int) -> tuple[int, int]:
    """The tokens, and the segments, of each of the N B streams of a text.

    Raises:
      ValueError: if there is less than one segment for each stream.

    Example:
      >>> streams_of(Tokens(np.arange(17), 2), num_workers=2, batch_size=1)
      (8, 3)
    """
    streams = num_workers * batch_size
    length = len(text.tokens) // streams
    segments = (length - 1) // text.segment
    if segments < 1:
        raise ValueError(
            f"batch_size={batch_size} must be smaller, or segment={text.segment}: {len(text.tokens):,} tokens for "
            f"{streams:,} streams ({num_workers} workers with {batch_size} each) leave {length} for each, and a "
            "segment needs one more than its length"
        )
    return length, segments


def ranks(worker: np.ndarray) -> np.ndarray:
    """Return the number of gradients that each gradient's worker has computed before it.

    Example:
      >>> ranks(np.array([0, 1, 0, 0, 1]))
      array([0, 0, 1, 2, 1])
    """
    order = np.argsort(worker, kind="stable")
    first = np.searchsorted(worker[order], worker)
    found = np.empty(worker.size, int)
    found[order] = np.arange(worker.size)
    return found - first


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Segment:
    batch_size: int
    length: int


def _text(segment: _Segment, tokens: jax.Array, row: jax.Array, key: jax.Array | None, g: jax.Array) -> Batch:
    piece = jax.lax.dynamic_slice(tokens, row[g], (segment.batch_size, segment.length + 1))
    dropout = None if key is None else jax.random.fold_in(key, g)
    return Batch(piece[:, :-1], piece[:, 1:], dropout, begins=row[g, 1] == 0)
