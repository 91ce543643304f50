"""Workers that stopped recording before the end of a trace, which are left out so that the last steps count."""

import dataclasses
import itertools

import numpy as np

from sgdlab.advice.diagnosis.causes import named
from sgdlab.report.words import some
from sgdlab.traces import Recording

_SHARE, _LEAST = 0.1, 4
"""Share and number of the last steps without which a worker has stopped."""

_LONGER = 4
"""Many times its longest gap before: where run-times are often missing, a gap at the end means nothing."""


@dataclasses.dataclass(frozen=True, eq=False)
class StoppedWorkers:
    """Workers that have no run-times in the last steps.

    Attributes:
      left: the recording without them.
      sentence: who stopped and when, and that the results are of the others; empty if nobody stopped.
    """

    left: Recording
    sentence: str = ""


def left_out(recording: Recording) -> StoppedWorkers:
    """Leaves out the workers that stopped, if at least two others did not.

    Only the steps of all workers can be compared: with a worker that stopped, nothing after its last step would be.

    Args:
      recording: whose run-times are NaN where they are missing.

    Example:
      >>> times = np.ones((50, 3))
      >>> times[20:, 1] = np.nan
      >>> left_out(Recording(times, np.arange(50), ("a", "b", "c"))).sentence
      'Worker b has no run-times since step 20: it is left out, and the results are of the other 2 workers.'
    """
    missing = np.isnan(recording.runtimes)
    last = {worker: _last(column) for worker, column in enumerate(missing.T) if column[-1]}
    last = {worker: row for worker, row in last.items() if row is not None}
    left = len(recording.workers) - len(last)
    if not last or left < 2:
        return StoppedWorkers(recording)
    kept = [worker for worker in range(len(recording.workers)) if worker not in last]
    groups = []
    for row, pairs in itertools.groupby(sorted(last, key=lambda worker: (last[worker], worker)), last.get):
        workers = list(pairs)
        names = named([recording.workers[worker] for worker in workers], workers)
        verb = "have" if len(workers) > 1 else "has"
        # pyrefly: ignore[unsupported-operation]  # those without were left out above
        groups.append(f"{names} {verb} no run-times since step {recording.steps[row + 1]}")
    gone = "it is" if len(last) == 1 else "they are"
    text = f"{some(groups)}: {gone} left out, and the results are of the other {left} workers."
    return StoppedWorkers(recording.select(workers=kept), text[:1].upper() + text[1:])


def fewest(recording: Recording) -> str:
    """Who has the fewest run-times, for messages on too few complete steps; empty if none is missing.

    Args:
      recording: whose run-times are NaN where they are missing.
    """
    if not recording.missing:
        return ""
    known = (~np.isnan(recording.runtimes)).sum(axis=0)
    worker = int(known.argmin())
    name = named([recording.workers[worker]], [worker])
    return f"{name} has run-times in {known[worker]} of {recording.steps.size} steps, fewest of all"


def _last(missing: np.ndarray) -> int | None:
    """The last row with a run-time of a worker that stopped; None if it did not stop, or never began."""
    known = np.flatnonzero(~missing)
    if not known.size:
        return None
    gap = len(missing) - 1 - known[-1]
    longest = int(np.diff(known, prepend=-1).max()) - 1
    return int(known[-1]) if gap >= max(_SHARE * len(missing), _LEAST, _LONGER * longest) else None
