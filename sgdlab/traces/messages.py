"""Messages of known size: what a step's collectives carry, and the least time that each of them took."""

import dataclasses

import numpy as np
from jaxtyping import Float64

from sgdlab import arguments

DTYPES = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8}
"""Bits of a number, by its dtype."""


@dataclasses.dataclass(frozen=True, eq=False)
class Messages:
    """Holds the equal messages of a recording: those of one collective and size.

    Attributes:
      collective: its name, such as "all_reduce".
      size: bytes that each worker hands to it.
      bits: of one number of them.
      members: number of workers that take part.
      seconds: float64[T, K], of each of the K in a step: the least over the workers of the seconds inside it, since who
        comes last waits for nobody; NaN where there is none, or it was not measured.

    Raises:
      ValueError: where a number is out of its range.

    Example:
      >>> Messages("all_reduce", 4e6, 32.0, 8, np.array([[0.25, 0.5], [0.25, np.nan], [0.5, 0.25]])).per_step
      2
    """

    collective: str
    size: float
    bits: float
    members: int
    seconds: Float64[np.ndarray, "T K"]

    def __post_init__(self) -> None:
        arguments.real("size", self.size, above=0)
        arguments.real("bits", self.bits, above=0)
        arguments.whole("members", self.members, least=2)

    @property
    def per_step(self) -> int:
        """Number of them in the usual step."""
        return int(np.median(np.isfinite(self.seconds).sum(axis=1)))
