"""Shapes of a compiled replay, rounded up, so that programs share one compilation."""

import dataclasses

from sgdlab.replay.lowering import Room


@dataclasses.dataclass(frozen=True)
class Capacity(Room):
    """What a compiled replay has room for. Programs of one capacity share one compilation.

    Attributes:
      rows: gradients that fit.
      slots: versions of the parameters that fit; the only memory that grows with the number of workers.
      width: gradients of a wave that are computed at once.
      kept: gradients that wait for their last block at once; 0 where there is one block.

    Example:
      >>> Capacity(rows=64, slots=4, width=8) | Capacity(rows=32, slots=8, width=8)
      Capacity(rows=64, slots=8, width=8, kept=0)
    """

    rows: int
    slots: int
    width: int
    kept: int = 0
