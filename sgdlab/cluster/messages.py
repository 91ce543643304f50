"""Delays of messages between servers and workers: a small one, to which a large one is rarely added."""

import dataclasses

import numpy as np

from sgdlab import arguments


@dataclasses.dataclass(frozen=True)
class MessageDelays:
    r"""Small random delays, to some of which a large constant is added.

    .. math:: t = \Gamma(k,\; base / k) + late \cdot [u < p]

    Attributes:
      base_seconds: mean of the small delay, seconds; 0 for none.
      base_shape: k, shape of the small delay's gamma distribution; larger means less variable.
      late_share: p, share of messages that are late.
      late_seconds: additional delay of late messages, seconds.

    Source: the weak-synchronization paper, section 4.2: 0.16 % of the responses to pulls arrive 4 s later.

    Example:
      >>> import numpy as np
      >>> delays = MessageDelays(base_seconds=0.0, late_share=0.5, late_seconds=4.0)
      >>> sorted(set(delays.draw((100,), np.random.default_rng(0)).tolist()))
      [0.0, 4.0]
    """

    base_seconds: float = 0.05
    base_shape: float = 2.0
    late_share: float = 0.0016
    late_seconds: float = 4.0

    def __post_init__(self) -> None:
        arguments.real("base_seconds", self.base_seconds, least=0)
        arguments.real("base_shape", self.base_shape, above=0)
        arguments.real("late_share", self.late_share, least=0, most=1)
        arguments.real("late_seconds", self.late_seconds, least=0)

    def draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
        """float64[shape], seconds; more rows, along the first axis, do not change the earlier ones."""
        small, late = generator.spawn(2)
        base = small.gamma(self.base_shape, self.base_seconds / self.base_shape, shape)
        return base + self.late_seconds * (late.random(shape) < self.late_share)
