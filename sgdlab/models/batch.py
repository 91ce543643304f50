"""A batch of labelled images, as data sets give it to networks."""

from typing import NamedTuple

import jax


class Batch(NamedTuple):
    """Labelled images."""

    images: jax.Array  # [B, H, W, C], floating.
    labels: jax.Array  # int[B].
