"""`spans` and `span_fn`: which batches each gradient of several local steps has, for a replay."""

from typing import Any

import jax
import numpy as np

from sgdlab import replay


def spans(steps: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """int32[size] twice: the number of the first batch of each gradient, and its steps; padded.

    Args:
      steps: int[R], of each gradient that is computed.
      size: gradients to make room for.

    Example:
      >>> spans(np.array([2, 1, 3]), 4)
      (array([0, 2, 3, 0], dtype=int32), array([2, 1, 3, 1], dtype=int32))
    """
    first, padded = np.zeros(size, np.int32), np.ones(size, np.int32)
    first[1 : steps.size] = np.cumsum(steps[:-1])
    padded[: steps.size] = steps
    return first, padded


def span_fn(first: np.ndarray, steps: np.ndarray, anew: Any = None, place: Any = None) -> Any:
    """`(row) -> Span`, the `batch_fn` of a replay whose gradients have local steps.

    Args:
      first: int32[size], number of the first batch of each gradient.
      steps: int32[size], of each.
      anew: int32[R], of a recorded run: the version from which its worker begins anew, or -1. None: workers go on.
      place: int32[R], of the first step in the factors of the learning rate. None: without them.
    """
    if anew is not None:
        anew = jax.numpy.asarray(np.pad(anew, (0, first.size - anew.size), constant_values=-1))
    if place is not None:
        place = jax.numpy.asarray(np.pad(place, (0, first.size - place.size)))
    return jax.tree_util.Partial(_span, jax.numpy.asarray(first), jax.numpy.asarray(steps), anew, place)


def _span(
    first: jax.Array, steps: jax.Array, anew: jax.Array | None, place: jax.Array | None, row: jax.Array
) -> replay.Span:
    own = {name: each[row] for name, each in (("anew", anew), ("place", place)) if each is not None}
    return replay.Span(first[row], steps[row], **own)
