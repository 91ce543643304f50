"""Wide tables: a row for each step, a column for each worker."""

import numpy as np

from sgdlab.traces.cells import Cells
from sgdlab.traces.clocks import began
from sgdlab.traces.columns import ColumnLayout
from sgdlab.traces.problems import BadTrace
from sgdlab.traces.recording import Recording


def build(cells: Cells, layout: ColumnLayout, *, skip: bool) -> Recording:
    """The recording of a wide table.

    Args:
      cells: its columns.
      layout: which of them are workers, and which holds the steps.
      skip: whether rows that cannot be used are left out, instead of an error.

    Raises:
      BadTrace: naming all rows that cannot be used.
    """
    rows, notes = cells.rows, [*layout.notes, *cells.notes]
    steps = np.arange(len(rows), dtype=np.float64)
    if column := layout.columns.get("step"):
        steps = cells.wholes(column)
        highest = np.maximum.accumulate(np.where(rows.bad, -np.inf, steps))
        fallen = np.zeros(steps.size, bool)
        fallen[1:] = ~rows.bad[1:] & (steps[1:] <= highest[:-1])
        cells.add_bad("steps that do not rise", column, fallen, "it must rise from row to row")
    for worker in layout.workers:
        cells.durations(worker, zero=False)
    if rows.count:
        if not skip:
            rows.refuse()
        notes.append(rows.note())
    kept = slice(None) if not rows.bad.any() else np.flatnonzero(~rows.bad)
    runtimes = np.stack([cells.numbers[worker][kept] for worker in layout.workers], axis=1)
    if np.isnan(runtimes).all():
        raise BadTrace("must have run-times; all are missing")
    if layout.per_second != 1:
        runtimes /= layout.per_second
    whole = steps[kept].astype(np.int64)
    start, clock = layout.columns.get("start"), None
    if start in cells.numbers:
        clock = began(cells.numbers[start][kept], np.arange(whole.size), whole.size, layout, notes)
    return Recording(runtimes, whole, layout.workers, began=clock, notes=tuple(notes))
