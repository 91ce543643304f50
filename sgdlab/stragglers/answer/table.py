"""The measurements as tables: for the terminal, as Markdown, for the page, and in full as CSV."""

import dataclasses
from collections.abc import Callable

from sgdlab.predictors import OBJECTIVES
from sgdlab.report.table import Table, in_csv
from sgdlab.report.words import figure, interval, percent
from sgdlab.stragglers.comparison.comparison import Comparison
from sgdlab.stragglers.comparison.measured import Measured, Resamples
from sgdlab.stragglers.comparison.protocol import CEILING, DRAINED, HINDSIGHT, STALE, Protocol
from sgdlab.stragglers.comparison.sweeps import FINISHING, INTERRUPTED, BackupSweep

COLUMNS = {
    "protocol": "which workers an update waits for",
    "parameters": "chosen on the tuning steps; of rows that say so, on the evaluation steps themselves (in hindsight)",
    "x full synchrony": "used gradients per second relative to full synchrony of all workers, with a 90 % interval",
    "gradients per second": "used gradients per second of the whole cluster",
    "seconds per update": "mean seconds from one update to the next",
    "gradients per update": "mean number of gradients in an update",
    "work lost": "share of the computing worker-seconds whose gradients were discarded",
    "waiting": "share of all worker-seconds in which a worker waits",
}
"""The columns of the page and of the terminal, with their meaning; advice.csv has more."""

_KINDS = {DRAINED: "drained", HINDSIGHT: "aside", STALE: "aside", CEILING: "aside"}
"""Of rows of a page."""

_SWEEPS = ("interrupted", "finishing")

_SHOWN_BACKUPS = 5
"""Best numbers of backup workers in the small table."""


@dataclasses.dataclass(frozen=True, eq=False)
class Measurements:
    """The measurements with their confidence intervals.

    Attributes:
      comparison: the measurements.
      resamples: bootstrap resamples of the iterations.
      first: evaluation step from which on protocols are compared; rows of the table are of all evaluation steps.
    """

    comparison: Comparison
    resamples: Resamples
    first: int = 0

    def since(self, first: int) -> "Measurements":
        """The same table, whose protocols are compared from an evaluation step on."""
        steps = len(self.comparison.synchrony.seconds)
        return self if not first else Measurements(self.comparison, Resamples(steps - first, seed=0), first)

    def ratio(self, one: Measured, other: Measured) -> tuple[float, float, float]:
        """Gradients per second of one relative to those of another, with the ends of the interval."""
        one, other = one.since(self.first), other.since(self.first)
        return one.gradients_per_second / other.gradients_per_second, *self.resamples.interval(one, other)

    def relative(self, result: Measured) -> tuple[float, float, float]:
        """Gradients per second relative to full synchrony, with the ends of the interval."""
        return self.ratio(result, self.comparison.synchrony)

    def comma_separated(self) -> str:
        """Every protocol with both objectives, then the other numbers of backup workers, as CSV in full precision."""
        protocols = list(self.comparison.protocols)
        swept = [result for sweep in self.comparison.sweeps for result in sweep.test.values()]
        self.resamples.prepare([*(one.result for p in protocols for one in (p, p.by_rate) if one), *swept])
        listed = {(protocol.title, protocol.backups) for protocol in protocols}
        protocols += [
            Protocol(sweep.title, f"b = {b}", HINDSIGHT, result, backups=b)
            for sweep in self.comparison.sweeps
            for b, result in sweep.test.items()
            if b and (sweep.title, b) not in listed
        ]
        by = [(one, (one, one.by_rate or one)) for one in protocols]
        return in_csv(self._plain(one, *pair) for one, both in by for pair in zip(OBJECTIVES, both, strict=True))

    def shown(self) -> list[Protocol]:
        """The protocols of the table: all but backup workers tuned to none, which is full synchrony."""
        sweeps = (INTERRUPTED, FINISHING)
        return [row for row in self.comparison.protocols if not (row.title in sweeps and row.backups == 0)]

    def table(self, recommended: Callable[[Protocol], bool] = lambda protocol: False) -> Table:
        """The table of protocols, a row for each of `shown`, with the columns `COLUMNS`."""
        shown = self.shown()
        kinds = ["chosen" if recommended(one) else _KINDS.get(one.role, "") for one in shown]
        return Table(COLUMNS, [self._row(protocol) for protocol in shown], left=2, kinds=kinds)

    def sweep_table(self) -> Table:
        """The table of numbers of backup workers: 0, the best numbers, and the tuned ones."""
        sweeps = self.comparison.sweeps
        workers = max(sweeps[0].test) + 1
        numbers = [b for b in sweeps[-1].test if b]  # of very many workers, those that were simulated
        best = sorted(numbers, key=lambda b: -max(sweep.test[b].gradients_per_second for sweep in sweeps))
        rows = []
        for b in sorted({0, *best[:_SHOWN_BACKUPS], *(sweep.tuned for sweep in sweeps)}):
            tuned = [name for name, sweep in zip(_SWEEPS, sweeps, strict=True) if sweep.tuned == b]
            rows.append([str(b), f"{workers - b} of {workers}", *(self._swept(sweep, b) for sweep in sweeps)])
            rows[-1].append(" and ".join(tuned))
        headings = ("backups b", "waits for", *(f"{name}: x full synchrony" for name in _SWEEPS), "tuned")
        return Table(dict.fromkeys(headings, ""), rows, left=len(headings))

    def share_of_oracle(self, result: Measured) -> float:
        """Gradients per second over those of the best number of workers in every step."""
        ceiling = self.comparison.by_role(CEILING)[0].result
        return result.gradients_per_second / ceiling.gradients_per_second

    def _plain(self, protocol: Protocol, objective: str, with_objective: Protocol) -> dict[str, object]:
        result = with_objective.result
        relative, low, high = self.relative(result)
        return {
            "protocol": protocol.title,
            "setting": protocol.setting,
            "role": protocol.role,
            "objective": objective,
            "backups": protocol.backups,
            "gradients_per_second": result.gradients_per_second,
            "relative": relative,
            "low": low,
            "high": high,
            "share_of_oracle": self.share_of_oracle(result),
            "iteration_seconds": result.iteration_seconds,
            "waited_for": result.waited_for,
            "lost_work": result.lost,
            "idle": result.idle,
            "staleness": result.staleness,
        }

    def _row(self, protocol: Protocol) -> list[str]:
        result = protocol.result
        alone = protocol.backups == 0 and not protocol.without
        return [
            protocol.title,
            protocol.setting,
            "1" if alone else interval(*self.relative(result)),
            figure(result.gradients_per_second),
            figure(result.iteration_seconds),
            figure(result.waited_for),
            percent(result.lost),
            percent(result.idle),
        ]

    def _swept(self, sweep: BackupSweep, b: int) -> str:
        if b not in sweep.test:
            return "not simulated"
        return "1" if b == 0 else interval(*self.relative(sweep.test[b]))
