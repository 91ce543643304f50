"""Causes of slow steps: a worker, a node, all workers since a step, pauses, or chance."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from sgdlab.report.words import counted, node_named, some
from sgdlab.stragglers.diagnosis.history import Episode, among
from sgdlab.stragglers.repairs import Repair
from sgdlab.traces import Recording

SLOW_WORKER, SLOW_NODE, ALL_SLOWER = "slow worker", "slow node", "all slower"
PAUSES, DRIFT, HEAVY_TAIL = "pauses", "drift", "heavy tail"
SILENT, HANGS = "silent worker", "no steps"
"""Of a trace that grows alone."""

_NOUNS = ("worker", "rank", "gpu", "device", "host", "node", "process")
"""Beginnings of names that say what a worker is."""


@dataclasses.dataclass(frozen=True)
class Cause:
    """One cause of slow steps.

    Attributes:
      kind: one of the constants of this module.
      workers: indices of the workers to look at; empty where all workers are slow, or no machine is to blame.
      node: name of the slow node, if it is one.
      since: first row (of the complete steps) in which it shows; None where it has no beginning (pauses, chance).
      until: last row in which it shows; None if it lasts to the end, or has no end.
      factor: how many times slower while it lasts.
      share: share of full synchrony's time that would vanish if this alone were mended.
      evidence: half a sentence with numbers.
      episodes: the stretches of slow steps; more than one if it comes and goes.
      last_share: share of full synchrony's time that would vanish by mending it after all the other causes.
      stages: of the step in which most of it is; empty where that is unknown, or it is in many.
      repair: from compute times, float64[..., T, N], to those without it; None where nobody has said what it would be.
    """

    kind: str
    workers: tuple[int, ...]
    node: str | None
    since: int | None
    until: int | None
    factor: float
    share: float
    evidence: str
    episodes: tuple[Episode, ...] = ()
    last_share: float = 0.0
    stages: tuple[str, ...] = ()
    repair: Repair | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def lasting(self) -> bool:
        """Return whether it is a machine that is still slow in the last steps."""
        return bool(self.workers) and self.until is None

    @property
    def over(self) -> bool:
        """Return whether it no longer shows in the last steps."""
        return self.until is not None

    def among(self, rows: int) -> np.ndarray:
        """Return bool[T], in which of the T rows it shows."""
        whole = Episode(self.since or 0, rows - 1 if self.until is None else self.until, self.factor)
        return among([self.episodes or (whole,)], rows)[:, 0]

    def began(self, steps: np.ndarray) -> int | None:
        """Return the number of the step since which it shows; None if it always does, or comes and goes."""
        return int(steps[self.since]) if self.since and len(self.episodes) <= 1 else None

    def intensity(self, steps: int) -> float:
        """Return what it costs while it lasts: the share of the time of its own steps, of so many in all."""
        return (self.share + self.last_share) / 2 * steps / int(self.among(steps).sum())

    def when(self, steps: np.ndarray) -> str:
        """Return in brackets when it shows, in steps of these numbers; nothing if it always does."""
        if len(self.episodes) > 1:
            return f" ({len(self.episodes)} times)"
        if self.until is not None:
            return f" (steps {steps[self.since or 0]} to {steps[self.until]})"
        return f" (since step {steps[self.since]})" if self.since else ""

    def headline(self, recording: Recording) -> str:
        """Return a sentence, without its full stop, that names who is slow, since when and how much."""
        if self.kind in (PAUSES, HEAVY_TAIL):
            return self.evidence[0].upper() + self.evidence[1:]
        who, several = self._who(recording)
        steps, first = recording.steps, self.since or 0
        have, are, were = ("have", "are", "were") if several else ("has", "is", "was")
        if self.kind == DRIFT:
            since = f" {_since(steps, first)}" if first else ""
            return f"{who} {have} become gradually slower{since} ({self.evidence})"
        slow = f"slow{'er' * (self.kind == ALL_SLOWER)}{' together' * (several and bool(self.workers))}"
        if len(self.episodes) > 1:
            rows = [episode.rows for episode in self.episodes]
            length = counted(round(float(np.median(rows))), "step")
            over = "" if self.until is None else f", the last time in step {steps[self.until]}"
            often = f"{len(rows)} times, for {length} at the median, {100 * sum(rows) / len(steps):.2g} % of the steps"
            return f"{who} {are if self.until is None else were} {slow} at times ({self.evidence}; {often}{over})"
        if self.until is None:
            return f"{who} {have} been {slow} {_since(steps, first) if first else 'all along'} ({self.evidence})"
        when = f"from step {steps[first]} to" if first else "until"
        again = f"normal again since step {steps[min(self.until + 1, len(steps) - 1)]}"
        return f"{who} {were} {slow} {when} step {steps[self.until]} ({self.evidence}), and {again}"

    def _who(self, recording: Recording) -> tuple[str, bool]:
        """Return the subject of the sentence, and whether it is plural."""
        if not self.workers:
            return "All workers", True
        names = named(recording.workers, self.workers)
        if self.kind == SLOW_NODE or self.node:
            name = node_named(self.node)  # pyrefly: ignore[bad-argument-type]  # of a slow node
            return f"{name[:1].upper()}{name[1:]} ({names})", False
        on = dict.fromkeys(recording.nodes[worker] for worker in self.workers) if recording.nodes else ()
        where = f" on {node_named(next(iter(on)))}" if len(on) == 1 else ""
        if names.startswith("worker"):
            names = f"W{names[1:]}"
        return f"{names}{where}", len(self.workers) > 1


def named(workers: Sequence[str], indices: Sequence[int]) -> str:
    """Name some workers as a sentence does: the noun is added to names that do not begin with one.

    Args:
      workers: names of all workers.
      indices: of those to name, rising.

    Example:
      >>> numbers = [str(number) for number in range(12)]
      >>> named(numbers, [5]), named(numbers, [5, 9]), named(numbers, [8, 9, 10])
      ('worker 5', 'workers 5 and 9', 'workers 8 to 10')
      >>> named(["worker 0"], [0]), named(["rank0", "rank1", "rank2"], [0, 1, 2])
      ('worker 0', 'rank0 to rank2')
    """
    names = [workers[index] for index in indices]
    several = len(names) > 1
    noun = "" if names[0].lower().startswith(_NOUNS) else f"worker{'s' * several} "
    if len(names) >= 3 and indices[-1] - indices[0] == len(indices) - 1:
        return f"{noun}{names[0]} to {names[-1]}"
    return f"{noun}{some(names)}"


def _since(steps: np.ndarray, row: int) -> str:
    if row and steps[row] - steps[row - 1] > 1:
        return f"since a step between {steps[row - 1]} and {steps[row]} (those between were not recorded)"
    return f"since step {steps[row]}"
