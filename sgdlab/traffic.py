"""`Traffic`: the size of messages, and the seconds for which they and updates occupy the server."""

import dataclasses

import numpy as np

from sgdlab import arguments


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traffic:
    """Holds what every message of a run costs; how often, its `Schedule` knows.

    Attributes:
      gradient_bytes: size of what a worker sends.
      parameter_bytes: size of what the server answers.
      gradient_seconds: seconds for which a gradient occupies the server's incoming link.
      parameter_seconds: seconds for which parameters occupy its outgoing link.
      receive_seconds: seconds that the server works for each gradient.
      update_seconds: seconds that the server works for each update.

    Raises:
      ValueError: where one is negative or not finite.

    Example:
      >>> Traffic(gradient_bytes=4e6, gradient_seconds=0.032).gradient_seconds
      0.032
    """

    gradient_bytes: float = 0.0
    parameter_bytes: float = 0.0
    gradient_seconds: float = 0.0
    parameter_seconds: float = 0.0
    receive_seconds: float = 0.0
    update_seconds: float = 0.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = arguments.real(field.name, getattr(self, field.name), least=0)
            object.__setattr__(self, field.name, value)

    def array(self) -> np.ndarray:
        """Return float64[6], its fields in order, as a file holds them."""
        return np.array(dataclasses.astuple(self))

    @classmethod
    def of(cls, array: np.ndarray) -> "Traffic":
        """Return what `array` made an array of.

        Raises:
          ValueError: where the array has another number of entries.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        values = np.asarray(array, float).ravel().tolist()
        return cls(**dict(zip(names, values, strict=True)))
