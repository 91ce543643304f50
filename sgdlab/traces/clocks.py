"""When steps began, by the starts that rows have."""

import numpy as np

from sgdlab.traces.column_names import start_per_second
from sgdlab.traces.columns import ColumnLayout


def began(
    starts: np.ndarray, step: np.ndarray, steps: int, layout: ColumnLayout, notes: list[str]
) -> np.ndarray | None:
    """When the first worker began each step.

    Args:
      starts: float64[R], of each row; NaN where it is missing.
      step: int[R], index of its step.
      steps: T, how many there are.
      layout: which says what the column is called.
      notes: where a sentence is added if the starts are those of no clock.

    Returns:
      float64[T], seconds, NaN where unknown; None where no start is known, or steps began before earlier ones, as
      where the clock begins anew in each step.
    """
    name = layout.columns["start"]
    known = np.flatnonzero(np.isfinite(starts))
    if not known.size:
        return None
    scale = start_per_second(name, float(starts[known[0]]), layout.per_second)
    first = np.full(steps, np.inf)
    np.minimum.at(first, step[known], starts[known])
    first = np.where(np.isfinite(first), first / scale, np.nan)
    if (np.diff(first[np.isfinite(first)]) <= 0).any():
        notes.append(f"column {name!r} was left out: steps begin no later than steps before them, so it is no clock")
        return None
    return first
