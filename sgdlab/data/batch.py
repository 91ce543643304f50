"""A batch of examples, as data sets give it to tasks."""

from typing import NamedTuple

import jax


class Batch(NamedTuple):
    """Holds what a gradient is computed on, and all that it depends on besides the parameters.

    Randomness travels in the batch, so that a gradient is the same whenever and with whichever others it is computed.
    """

    inputs: jax.Array  # [B, ...]: images [B, H, W, C], floating, or pixel levels; or tokens int[B, L].
    targets: jax.Array  # labels int[B] or real [B, k], pixel levels int[B, H, W, C], or the next tokens int[B, L].
    key: jax.Array | None = None  # of dropout, derived from the number of the gradient; None: no randomness.
    weight: jax.Array | None = None  # [B], or that of each target; 0 for padding, 1 for examples. None: 1.
    begins: jax.Array | None = None  # bool[]: its texts begin here, and what was remembered is forgotten; None: no.
