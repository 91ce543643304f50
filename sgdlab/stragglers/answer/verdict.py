"""The recommendation: a machine to take out, or the simplest protocol such that no other is measurably faster."""

import dataclasses
from collections.abc import Callable, Sequence

from sgdlab.stragglers.answer import rules
from sgdlab.stragglers.answer.table import Measurements
from sgdlab.stragglers.comparison.protocol import DEPLOYABLE, DRAINED, HINDSIGHT, Protocol
from sgdlab.stragglers.diagnosis.diagnosis import Diagnosis

NOTICEABLE = 0.01
"""Relative gain from which a more complicated protocol is preferred, if its whole interval lies above 1 as well."""

PRICE = 0.15
"""Relative gain that is required besides for each gradient of a whole batch that enters no update: with a quarter of
the batch fewer, an update is worth less, which has to be measured, and 1 % more gradients per second do not pay it."""

_LEAST_STEPS = 20
"""Fewest evaluation steps on which the choice is made; with fewer since the last change it is made on all."""


@dataclasses.dataclass(frozen=True, eq=False)
class Verdict:
    """The recommendation.

    Attributes:
      table: the measurements on which this was chosen: of the evaluation steps since the last in which a cause begins,
        or after which one is over.
      chosen: the recommended protocol, with the objective that is recommended for it.
      fastest: the deployable protocol with the most gradients per second.
      over_chosen: gradients per second of `fastest` divided by those of `chosen`, with the ends of the interval; None
        if they are the same protocol.
      drained: full synchrony without the workers to blame, if that is as fast as `chosen` and faster than full
        synchrony of all; then these workers are to be taken out, and `chosen` is for the time until then. Else None.
      fixed: a fixed number of workers that would have been as fast as `chosen`, a formula or a model, but was found in
        the evaluation steps; else None.
    """

    table: Measurements
    chosen: Protocol
    fastest: Protocol
    over_chosen: tuple[float, float, float] | None
    drained: Protocol | None = None
    fixed: Protocol | None = None

    def is_of(self, protocol: Protocol) -> bool:
        """Return whether a protocol of the table is recommended, with either objective."""
        best = self.chosen if self.drained is None else self.drained
        return (protocol.title, protocol.role, protocol.without) == (best.title, best.role, best.without)


def decide(table: Measurements, diagnosis: Diagnosis, train_steps: int) -> Verdict:
    """Chooses the simplest protocol that no other is clearly faster than; of equally simple ones, the fastest.

    Args:
      table: the measurements.
      diagnosis: what is wrong; only machines that are slow up to the end of the recording are to be taken out, and only
        the steps since the last change decide.
      train_steps: number of the complete steps before the evaluation steps.
    """
    table = table.since(_first(table, diagnosis, train_steps))
    usable = table.comparison.by_role(DEPLOYABLE)
    usable += [protocol.by_rate for protocol in usable if protocol.by_rate is not None]
    fastest = max(usable, key=lambda protocol: _speed(table, protocol))
    chosen = simplest(table, usable, rules.effort)
    over = None if chosen is fastest else table.ratio(fastest.result, chosen.result)
    return Verdict(table, chosen, fastest, over, _drained(table, diagnosis, chosen), _fixed(table, chosen))


def _first(table: Measurements, diagnosis: Diagnosis, train_steps: int) -> int:
    """The first evaluation step since which nothing has changed: causes that are over do not show, the others do."""
    rows = [train_steps]
    for cause in diagnosis.causes:
        if cause.until is not None:
            rows.append(cause.until + 1)
        elif cause.since is not None and len(cause.episodes) <= 1:
            rows.append(cause.since)
    first = max(rows) - train_steps
    return first if len(table.comparison.synchrony.seconds) - first >= _LEAST_STEPS else 0


def simplest(table: Measurements, usable: Sequence[Protocol], effort: Callable[[Protocol], float]) -> Protocol:
    """The first in the order of effort that none of the others is clearly faster than."""
    for chosen in sorted(usable, key=lambda protocol: (effort(protocol), -_speed(table, protocol))):
        if not any(clearly_faster(table, other, chosen) for other in usable):
            break
    return chosen


def _drained(table: Measurements, diagnosis: Diagnosis, chosen: Protocol) -> Protocol | None:
    still = {worker for cause in diagnosis.machines for worker in cause.workers}
    rows = [row for row in table.comparison.by_role(DRAINED) if still.issuperset(row.without)]
    whole = table.comparison.protocols[0]
    rows = [row for row in rows if clearly_faster(table, row, whole) and not clearly_faster(table, chosen, row)]
    return simplest(table, rows, lambda row: len(row.without)) if rows else None


def _fixed(table: Measurements, chosen: Protocol) -> Protocol | None:
    if chosen.backups is not None:
        return None
    rows = [row for row in table.comparison.by_role(HINDSIGHT) if row.backups]
    best = max(rows, key=lambda row: _speed(table, row), default=None)
    return best if best is not None and not clearly_faster(table, chosen, best) else None


def _speed(table: Measurements, protocol: Protocol) -> float:
    return protocol.result.since(table.first).gradients_per_second


def clearly_faster(table: Measurements, one: Protocol, other: Protocol) -> bool:
    """Return whether a protocol has noticeably more gradients per second, with its whole interval above 1.

    A gain is noticeable above `NOTICEABLE` and `PRICE` times the share of the batch by which its updates are smaller.
    """
    workers = table.comparison.synchrony.waited_for
    smaller = max((other.result.waited_for - one.result.waited_for) / workers, 0.0)
    gain, low, _ = table.ratio(one.result, other.result)
    return gain > 1 + NOTICEABLE + PRICE * smaller and low > 1
