"""Thresholds of claims: numbers that a paper does not give, each with its date and its reason.

A threshold is set before the numbers are seen that it judges. Where it was set after, or where that is not known, it is
marked (`seen`), and so are the claims that rest on it.
"""

import datetime
import functools
from collections.abc import Mapping
from typing import Any


class Threshold(float):
    """A number that a claim is judged by.

    Args:
      value: the number.
      because: the reason for it, in a few words.
      since: the day when it was set, such as "2026-11-26".
      seen: whether numbers that it judges were seen before it was set.

    Raises:
      ValueError: where the day is none.

    Example:
      >>> close = Threshold(0.05, "a twentieth", "2026-11-26")
      >>> -close, (100 * close).because
      (-0.05, 'a twentieth')
    """

    because: str
    since: str
    seen: bool
    origin: float
    """The number as it was set, in the units of the reason."""

    def __new__(cls, value: float, because: str, since: str, *, seen: bool = False) -> "Threshold":
        """Return the number with what is known of it."""
        made = super().__new__(cls, value)
        made.because, made.since, made.seen = because, datetime.date.fromisoformat(since).isoformat(), seen
        made.origin = float(value)
        return made

    def __neg__(self) -> "Threshold":
        return self.rewritten(-float(self))

    def __mul__(self, factor: Any) -> Any:
        scaled = float(self) * factor
        return self.rewritten(scaled) if isinstance(factor, (int, float)) else scaled

    __rmul__ = __mul__

    def rewritten(self, value: float) -> "Threshold":
        """Return the same threshold in other units, such as its logarithm; a factor is taken by `*`."""
        made = Threshold(value, self.because, self.since, seen=self.seen)
        made.origin = self.origin
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(Threshold, seen=self.seen), (float(self), self.because, self.since)

    def facts(self) -> dict[str, Any]:
        """Return it as JSON, as it was set."""
        return {"value": self.origin, "because": self.because, "since": self.since, "seen": self.seen}

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> "Threshold":
        """Return a threshold of its JSON."""
        return cls(facts["value"], facts["because"], facts["since"], seen=facts["seen"])


def chosen(*numbers: float) -> tuple[Threshold, ...]:
    """Return those of some numbers that are thresholds.

    Example:
      >>> len(chosen(0.0, Threshold(0.05, "a twentieth", "2026-11-26")))
      1
    """
    return tuple(number for number in numbers if isinstance(number, Threshold))
