"""`ByTicket`, one number for each gradient of a run, in 8 bytes."""

import array
import math

import numpy as np


class ByTicket:
    """Numbers by ticket; NaN where there is none.

    Example:
      >>> losses = ByTicket()
      >>> losses[2] = 0.5
      >>> losses[2], losses[7], losses.of(np.array([1, 2]))
      (0.5, nan, array([nan, 0.5]))
    """

    def __init__(self) -> None:
        self._values = array.array("d")

    def __getitem__(self, ticket: int) -> float:
        return self._values[ticket] if ticket < len(self._values) else math.nan

    def __setitem__(self, ticket: int, value: float) -> None:
        missing = ticket + 1 - len(self._values)
        if missing > 0:
            self._values.extend([math.nan] * missing)
        self._values[ticket] = value

    def set_first(self, ticket: int, value: float) -> None:
        """Sets a number that is not there; one that is there stays, as where a message comes twice."""
        if math.isnan(self[ticket]):
            self[ticket] = value

    def of(self, tickets: np.ndarray) -> np.ndarray:
        """float64[G]: the numbers of these tickets."""
        values = np.full(int(tickets.max(initial=-1)) + 1, np.nan)
        known = min(values.size, len(self._values))
        values[:known] = self._values[:known]
        return values[tickets]
