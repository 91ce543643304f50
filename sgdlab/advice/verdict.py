"""Which protocol to use: the simplest that none is measurably faster than."""

import dataclasses

from sgdlab.advice.comparison import BY_RATE, DEPLOYABLE, FINISHING, INTERRUPTED, Protocol
from sgdlab.advice.table import Table

NOTICEABLE = 0.01
"""A gain that is worth a more complicated protocol; and the whole interval must be a gain."""

_EFFORT = {"full synchrony": 0, FINISHING: 1, INTERRUPTED: 1, "median + k MAD": 2, "running mean": 2, "Elfving": 2}
_MOST = 3
"""What it takes to use one: nothing, a fixed number, a rule, a model."""


@dataclasses.dataclass(frozen=True, eq=False)
class Verdict:
    """The recommendation.

    Attributes:
      chosen: the protocol, by the objective that it is recommended with.
      fastest: that of most gradients per second, of those that can be used and whose gradients are fresh.
      over_chosen: its gradients per second relative to the chosen one's, with the ends of the interval; None where it
        is the chosen one.
    """

    chosen: Protocol
    fastest: Protocol
    over_chosen: tuple[float, float, float] | None

    def is_of(self, protocol: Protocol) -> bool:
        """Whether a protocol of the table is the chosen one, by whichever objective."""
        return (protocol.title, protocol.role) == (self.chosen.title, self.chosen.role)


def decide(table: Table) -> Verdict:
    """Picks the simplest protocol, the faster of two equally simple ones, that none is clearly faster than."""
    usable = table.comparison.by_role(DEPLOYABLE)
    usable += [protocol.by_rate for protocol in usable if protocol.by_rate is not None]
    fastest = max(usable, key=_speed)
    for chosen in sorted(usable, key=lambda protocol: (_effort(protocol), -_speed(protocol))):
        if not any(_clearly_faster(table, other, chosen) for other in usable):
            break
    over = None if chosen is fastest else (_speed(fastest) / _speed(chosen), *_interval(table, fastest, chosen))
    return Verdict(chosen, fastest, over)


def _effort(protocol: Protocol) -> float:
    return _EFFORT.get(protocol.title, _MOST) + 0.5 * protocol.setting.endswith(BY_RATE)


def _speed(protocol: Protocol) -> float:
    return protocol.paper.gradients_per_second


def _interval(table: Table, one: Protocol, other: Protocol) -> tuple[float, float]:
    return table.resamples.interval(one.paper, other.paper)


def _clearly_faster(table: Table, one: Protocol, other: Protocol) -> bool:
    return _speed(one) / _speed(other) > 1 + NOTICEABLE and _interval(table, one, other)[0] > 1
