"""The recommendation: the simplest protocol such that no other is measurably faster."""

import dataclasses

from sgdlab.advice.comparison import BY_RATE, DEPLOYABLE, FINISHING, INTERRUPTED, Protocol
from sgdlab.advice.table import Table

NOTICEABLE = 0.01
"""Relative gain from which a more complicated protocol is preferred, if its whole interval lies above 1 as well."""

_EFFORT = {"full synchrony": 0, FINISHING: 1, INTERRUPTED: 1, "median + k MAD": 2, "running mean": 2, "Elfving": 2}
_MOST = 3
"""Complexity of the other protocols. The scale: 0 nothing to set, 1 a fixed number, 2 a formula, 3 a model."""


@dataclasses.dataclass(frozen=True, eq=False)
class Verdict:
    """The recommendation.

    Attributes:
      chosen: the recommended protocol, with the objective that is recommended for it.
      fastest: the deployable protocol with the most gradients per second.
      over_chosen: gradients per second of `fastest` divided by those of `chosen`, with the ends of the interval; None
        if they are the same protocol.
    """

    chosen: Protocol
    fastest: Protocol
    over_chosen: tuple[float, float, float] | None

    def is_of(self, protocol: Protocol) -> bool:
        """Whether a protocol of the table is the recommended one, with either objective."""
        return (protocol.title, protocol.role) == (self.chosen.title, self.chosen.role)


def decide(table: Table) -> Verdict:
    """Chooses the simplest protocol that no other is clearly faster than; of equally simple ones, the fastest."""
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
