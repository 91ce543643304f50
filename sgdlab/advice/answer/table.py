"""The measurements as tables: for the terminal, as Markdown, for the page, and in full as CSV."""

import csv
import dataclasses
import io
import textwrap
from collections.abc import Sequence

from tabulate import tabulate

from sgdlab.advice.comparison.comparison import (
    CEILING,
    FINISHING,
    HINDSIGHT,
    INTERRUPTED,
    BackupSweep,
    Comparison,
    Protocol,
)
from sgdlab.advice.comparison.measured import Measured
from sgdlab.advice.comparison.uncertainty import Resamples
from sgdlab.advice.words import figure, interval
from sgdlab.predictors import OBJECTIVES

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

SWEEP_COLUMNS = ("backups b", "waits for", "interrupted: x full synchrony", "finishing: x full synchrony", "tuned")
SHOWN_BACKUPS = 5
"""Best numbers of backup workers in the small table, which also has full synchrony and the tuned numbers."""


@dataclasses.dataclass(frozen=True)
class ProtocolRow:
    """One row of the CSV: a protocol with an objective. The names are its columns."""

    protocol: str
    setting: str
    role: str
    objective: str
    backups: int | None
    gradients_per_second: float
    relative: float
    low: float
    high: float
    share_of_oracle: float
    iteration_seconds: float
    waited_for: float
    lost_work: float
    idle: float
    staleness: float


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """The measurements with their confidence intervals.

    Attributes:
      comparison: the measurements.
      resamples: bootstrap resamples of the iterations.
      first: evaluation step from which on protocols are compared; rows of the table are of all evaluation steps.
    """

    comparison: Comparison
    resamples: Resamples
    first: int = 0

    def since(self, first: int) -> "Table":
        """The same table, whose protocols are compared from an evaluation step on.

        Args:
          first: number of the evaluation steps before it.
        """
        steps = len(self.comparison.synchrony.seconds)
        return self if not first else Table(self.comparison, Resamples(steps - first, seed=0), first)

    def ratio(self, one: Measured, other: Measured) -> tuple[float, float, float]:
        """Gradients per second of one relative to those of another, with the ends of the interval."""
        one, other = one.since(self.first), other.since(self.first)
        return one.gradients_per_second / other.gradients_per_second, *self.resamples.interval(one, other)

    def line(self, protocol: Protocol, objective: str) -> ProtocolRow:
        """The row of a protocol with an objective."""
        result = protocol.measured[objective]
        ceiling = self.comparison.by_role(CEILING)[0].measured[objective]
        return ProtocolRow(
            protocol.title,
            protocol.setting,
            protocol.role,
            objective,
            protocol.backups,
            result.gradients_per_second,
            *self.relative(result),
            result.gradients_per_second / ceiling.gradients_per_second,
            result.iteration_seconds,
            result.waited_for,
            result.lost,
            result.idle,
            result.staleness,
        )

    def relative(self, result: Measured) -> tuple[float, float, float]:
        """Gradients per second relative to full synchrony, with the ends of the interval."""
        return self.ratio(result, self.comparison.synchrony)

    def lines(self) -> list[ProtocolRow]:
        """Rows for every protocol with both objectives, then for the other numbers of backup workers."""
        protocols = self.comparison.protocols
        swept = [result for sweep in self.comparison.sweeps for result in sweep.test.values()]
        self.resamples.prepare([*(result for p in protocols for result in p.measured.values()), *swept])
        lines = [self.line(protocol, objective) for protocol in protocols for objective in OBJECTIVES]
        listed = {(protocol.title, protocol.backups) for protocol in protocols}
        for sweep in self.comparison.sweeps:
            others = {b: result for b, result in sweep.test.items() if b and (sweep.title, b) not in listed}
            rows = (
                Protocol.fixed(sweep.title, f"b = {b}", HINDSIGHT, result, backups=b) for b, result in others.items()
            )
            lines += [self.line(protocol, objective) for protocol in rows for objective in OBJECTIVES]
        return lines

    def shown(self) -> list[Protocol]:
        """The protocols of the table: all but backup workers tuned to none, which is full synchrony."""
        sweeps = (INTERRUPTED, FINISHING)
        return [row for row in self.comparison.protocols if not (row.title in sweeps and row.backups == 0)]

    def rows(self) -> list[list[str]]:
        """The cells of the table of protocols, a row for each of `shown`, with the columns `COLUMNS`."""
        return [self._row(protocol) for protocol in self.shown()]

    def sweep_rows(self) -> list[list[str]]:
        """The cells of the table of numbers of backup workers, with the columns `SWEEP_COLUMNS`."""
        sweeps = self.comparison.sweeps
        workers = max(sweeps[0].test) + 1
        return [
            [str(b), f"{workers - b} of {workers}", *(self._swept(sweep, b) for sweep in sweeps), _marks(sweeps, b)]
            for b in shown_backups(sweeps)
        ]

    def _row(self, protocol: Protocol) -> list[str]:
        line = self.line(protocol, OBJECTIVES[0])
        return [
            line.protocol,
            line.setting,
            "1" if protocol.backups == 0 and not protocol.without else interval(line.relative, line.low, line.high),
            figure(line.gradients_per_second),
            figure(line.iteration_seconds),
            figure(line.waited_for),
            f"{100 * line.lost_work:.1f} %",
            f"{100 * line.idle:.1f} %",
        ]

    def _swept(self, sweep: BackupSweep, b: int) -> str:
        if b not in sweep.test:
            return "not simulated"
        return "1" if b == 0 else interval(*self.relative(sweep.test[b]))


def shown_backups(sweeps: Sequence[BackupSweep]) -> list[int]:
    """Numbers of backup workers for the small table: 0, the best numbers, and the tuned ones."""
    numbers = [b for b in sweeps[-1].test if b]  # of very many workers, those that were simulated
    best = sorted(numbers, key=lambda b: -max(sweep.test[b].gradients_per_second for sweep in sweeps))
    return sorted({0, *best[:SHOWN_BACKUPS], *(sweep.tuned for sweep in sweeps)})


def _marks(sweeps: Sequence[BackupSweep], b: int) -> str:
    names = ("interrupted", "finishing")
    tuned = [name for name, sweep in zip(names, sweeps, strict=True) if sweep.tuned == b]
    return " and ".join(tuned)


def text(table: Table) -> str:
    """The table of protocols, for the terminal."""
    return tabulate(
        table.rows(),
        headers=[_in_two_lines(column) for column in COLUMNS],
        tablefmt="simple",
        disable_numparse=True,
    )


def _in_two_lines(head: str) -> str:
    first, _, rest = head.partition(" ")
    return f"{first}\n{rest}"


def legend(width: int) -> str:
    """The meaning of the columns, for the terminal.

    Args:
      width: characters per line.
    """
    return "\n".join(
        textwrap.fill(f"{column:<22}{meaning}", width, subsequent_indent=22 * " ")
        for column, meaning in COLUMNS.items()
    )


def sweep_text(table: Table) -> str:
    """The table of numbers of backup workers, for the terminal."""
    return tabulate(table.sweep_rows(), headers=SWEEP_COLUMNS, tablefmt="simple", disable_numparse=True)


def markdown(rows: list[list[str]], columns: Sequence[str]) -> str:
    """A table in GitHub's Markdown."""
    return tabulate(rows, headers=list(columns), tablefmt="github", disable_numparse=True)


def comma_separated(lines: Sequence[ProtocolRow]) -> str:
    """All rows as CSV, with numbers in full precision."""
    output = io.StringIO()
    writer = csv.DictWriter(output, [field.name for field in dataclasses.fields(ProtocolRow)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(dataclasses.asdict(line) for line in lines)
    return output.getvalue()
