"""Failures that a recording shows: workers that were missing and came back, and stops of all; what to do about them."""

import collections
import dataclasses
import math
from typing import NamedTuple

import numpy as np

from sgdlab.report.words import counted, listed, sentence
from sgdlab.stragglers.diagnosis import periods
from sgdlab.stragglers.diagnosis.causes import named
from sgdlab.stragglers.estimate import LEVEL, Estimate, duration
from sgdlab.stragglers.recording import SplitRecording
from sgdlab.traces import Recording
from sgdlab.traces.phases import words

EXAMPLE_SECONDS = 60.0
"""Seconds of a checkpoint, where nothing says how long one takes."""

UP = (0.9, 0.99)
"""Shares of the time in which all are up, for which spares are counted."""

_LEAST, _CHANCE = 4, 0.01
"""Fewest steps that a worker that failed was missing; and the most such stretches that missing single times explain."""

_STOP, _STOP_SECONDS = 10, 30.0
"""Usual steps, and seconds, that a stop of all workers lasts at least: shorter ones are pauses."""

_REGULAR = 0.1
"""Most difference of the times between stops, over their mean, that come every n seconds."""


class Outage(NamedTuple):
    """Holds a failure: the row that it precedes, who was missing (nobody: all stood still), and for how long."""

    row: int
    workers: tuple[int, ...]
    seconds: float


@dataclasses.dataclass(frozen=True)
class Failures:
    """Holds the failures of a recording.

    Attributes:
      outages: in order.
      up: seconds in which the job went on.
      workers: N.
      checkpoint_seconds: C, seconds that a checkpoint takes.
      known: where that is from: "flag", "phase", or "" for an example.
    """

    outages: tuple[Outage, ...]
    up: float
    workers: int
    checkpoint_seconds: float
    known: str

    @property
    def between(self) -> Estimate:
        r"""Seconds between failures of any worker, with the exact interval of a Poisson process.

        .. math:: \frac{2 U}{\chi^2_{1 - p/2, 2 n + 2}}, \qquad \frac{2 U}{\chi^2_{p/2, 2 n}}

        after n failures in U seconds (Garwood 1936). After one failure or none there is no upper end: it is at least
        the lower one.
        """
        from scipy import special  # noqa: PLC0415 (SciPy takes a while to import)

        number, tail = len(self.outages), (1 - LEVEL) / 2
        low = float(2 * self.up / special.chdtri(2 * number + 2, tail))
        if number < 2:
            return Estimate(self.up if number else low, low, math.inf)
        return Estimate(self.up / number, low, float(2 * self.up / special.chdtri(2 * number, 1 - tail)))

    @property
    def repair(self) -> Estimate | None:
        """Mean seconds until a worker is back, with the exact interval of exponential ones; None without failures."""
        from scipy import special  # noqa: PLC0415 (as above)

        number, tail = len(self.outages), (1 - LEVEL) / 2
        if not number:
            return None
        total = sum(each.seconds for each in self.outages)
        low, high = (2 * total / special.chdtri(2 * number, p) for p in (tail, 1 - tail))
        return Estimate(total / number, float(low), float(high))

    @property
    def checkpoint_every(self) -> Estimate:
        r"""Young's interval between checkpoints, seconds of work: :math:`\sqrt{2 C M}`, M seconds between failures.

        Source: Young 1974, "A first order approximation to the optimum checkpoint interval".
        """
        return Estimate(*(math.sqrt(2 * self.checkpoint_seconds * seconds) for seconds in self.between))

    def spares(self, share: float) -> Estimate | None:
        r"""Return how many more workers keep N up for a share of the time; None without failures.

        With q the share of the time that a worker is down, the least s for which

        .. math:: \sum_{k \le s} \binom{N + s}{k} q^k (1 - q)^{N + s - k}

        is at least the share: workers fail independently. The interval is that of q, whose odds follow an F law with
        2 n and 2 n degrees of freedom where times up and down are exponential.

        Example:
          >>> Failures((Outage(5, (0,), 10.0),), 990.0, 1, 60.0, "").spares(0.99).value  # down for 1 %: 0.01**2 < 0.01
          1.0
        """
        if not self.outages:
            return None
        from scipy import special  # noqa: PLC0415 (as above; scipy.stats would take a second more)

        freedom, tail = 2 * len(self.outages), (1 - LEVEL) / 2
        down = sum(each.seconds * max(len(each.workers), 1) for each in self.outages)
        stood = sum(each.seconds for each in self.outages if not each.workers)
        odds = down / max(self.workers * (self.up + stood) - down, 1e-9)
        ratios = (1.0, special.fdtri(freedom, freedom, tail), special.fdtri(freedom, freedom, 1 - tail))
        # Workers are looked at one after the other until N are up: so many are down before that.
        least = (special.nbdtrik(share, self.workers, 1 / (1 + odds * each)) for each in ratios)
        return Estimate(*(float(max(math.ceil(number - 1e-9), 0)) for number in least))  # whole, but for rounding


def find_failures(parts: SplitRecording, checkpoint_seconds: float | None = None) -> Failures | None:
    """Find the failures that a recording shows; None of a live run, whose rows are no steps of all workers.

    A worker has failed where it is missing for at least 4 steps that others recorded, for longer than chance explains
    that makes it miss single steps, and then comes back; those that begin in the same step are one failure. All have
    stood still where the clock goes on for 10 usual steps and 30 s more than the steps take, unless that comes every
    n-th step or every n seconds, as evaluations and checkpoints do. Steps that nobody recorded, workers that did not
    come back, and what is missing of more than half of the workers at once (as where some log less) are no failures.

    Args:
      parts: the recording.
      checkpoint_seconds: that a checkpoint takes. None: as a phase of it says, or else a minute.

    Source: own definition.
    """
    if parts.live:
        return None
    recording = parts.recording
    slowest = np.fmax.reduce(recording.runtimes, axis=1)
    kept = np.flatnonzero(np.isfinite(slowest))
    busy = slowest[kept] + recording.transfer()[kept]
    clock = _clock(recording, kept, busy)
    away = _absences(recording, kept, clock)
    begins = {each.row for each in away}
    # Who is lost while the others stand still is one failure with the stop.
    stops = [each for each in _stops(recording, kept, clock, busy) if each.row not in begins]
    outages = tuple(sorted([*away, *stops], key=lambda each: each.row))
    up = clock[-1] - clock[0] + busy[-1] - sum(each.seconds for each in stops)
    costs = {"flag": checkpoint_seconds, "phase": _checkpoint(recording), "": EXAMPLE_SECONDS}
    known, seconds = next((known, seconds) for known, seconds in costs.items() if seconds is not None)
    return Failures(outages, float(up), len(recording.workers), seconds, known)


def _clock(recording: Recording, kept: np.ndarray, busy: np.ndarray) -> np.ndarray:
    """When each of the kept rows began, seconds: by the recorder's clock, or by the steps' usual duration."""
    steps = recording.steps[kept].astype(float)
    began = None if recording.began is None else recording.began[kept]
    if began is None or not np.isfinite(began).sum() > len(began) / 2:
        return (steps - steps[0]) * float(np.median(busy))
    known = np.isfinite(began)
    usual = (
        float(np.median(np.diff(began[known]) / np.diff(steps[known]))) if known.sum() > 1 else float(np.median(busy))
    )
    inside = np.interp(steps, steps[known], began[known])
    first, last = steps[known][[0, -1]]
    return inside + usual * (np.minimum(steps - first, 0) + np.maximum(steps - last, 0))


def _absences(recording: Recording, kept: np.ndarray, clock: np.ndarray) -> list[Outage]:
    """The failures of workers that came back; those that begin in one row are one."""
    if not recording.missing:
        return []
    missing = np.isnan(recording.runtimes[kept])
    seconds: dict[int, dict[int, float]] = collections.defaultdict(dict)
    for worker in np.flatnonzero(missing.any(axis=0)).tolist():
        known = np.flatnonzero(~missing[:, worker])
        lengths = np.diff(known) - 1
        # Where single times are missing at random, a stretch of L has the probability of a missing time to the L.
        chance = min((np.count_nonzero(lengths) + 1) / (known.size + 1), 1 - 1e-9)
        least = math.log(_CHANCE / missing.size) / math.log(chance)
        for index in np.flatnonzero(lengths >= max(_LEAST, least)).tolist():
            first, back = known[index] + 1, known[index + 1]
            seconds[int(kept[first])][worker] = float(clock[back] - clock[first])
    return [
        Outage(row, tuple(of_row), float(np.mean(list(of_row.values()))))
        for row, of_row in seconds.items()
        if 2 * len(of_row) <= len(recording.workers)
    ]


def _stops(recording: Recording, kept: np.ndarray, clock: np.ndarray, busy: np.ndarray) -> list[Outage]:
    """The stretches in which all stood still, by the recorder's clock; not behind the first step, which compiles."""
    if recording.began is None or kept.size < 2:
        return []
    steps, passed = recording.steps[kept], np.diff(clock)
    numbers = np.diff(steps)
    usual = float(np.median(passed / numbers))
    idle = passed - (numbers - 1) * usual - np.maximum(busy[:-1], usual)
    rows = np.flatnonzero(idle > np.maximum(np.maximum(_STOP, numbers) * usual, _STOP_SECONDS))
    rows = rows[rows > 0]
    # Of an evaluation every n-th step, none is seen behind the first step and the last.
    if periods.common(steps[rows], steps[1:-1]) is not None or _regular(
        clock[rows] - np.cumsum(idle[rows]) + idle[rows]
    ):
        return []
    return [Outage(int(kept[row + 1]), (), float(idle[row])) for row in rows]


def _regular(times: np.ndarray) -> bool:
    """Tell whether times come about every n seconds, as checkpoints may."""
    between = np.diff(times)
    return bool(between.size > 1 and np.ptp(between) <= _REGULAR * between.mean())


def _checkpoint(recording: Recording) -> float | None:
    """Seconds of a checkpoint, by a phase of that name: the median of the steps with one, of the slowest worker."""
    for name, times in recording.phases.items():
        if {"checkpoint", "checkpoints", "checkpointing", "ckpt"} & set(words(name)):
            slowest = np.fmax.reduce(times, axis=1)
            most = np.nanmax(slowest, initial=0.0)
            return float(np.median(slowest[slowest > most / 2])) if most > 0 else None
    return None


_MOST_TOLD = 3
_KNOWN = {"flag": "", "phase": " (as its phase says)", "": " (an example: --checkpoint_seconds says another)"}


def said(failures: Failures | None, parts: SplitRecording) -> str:
    """Say who failed, how often, and what to do about it; empty where nobody did and no checkpoint was asked about."""
    if failures is None or not (failures.outages or failures.known == "flag"):
        return ""
    number, repair = len(failures.outages), failures.repair
    told = listed([_outage(each, parts) for each in failures.outages], _MOST_TOLD)
    happened = f"{counted(number, 'failure')} in {duration(failures.up)}: {told}"
    repaired = f", and a repair takes {repair.worded(duration)}" if repair else ""
    text = [
        f"{happened if number else f'No failure in {duration(failures.up)}'}. The mean time between failures is "
        f"{failures.between.worded(duration)}{repaired}.",
        f"With {duration(failures.checkpoint_seconds)} for a checkpoint{_KNOWN[failures.known]}, the least time is "
        f"lost with {failures.checkpoint_every.worded(duration)} of work between two (Young's interval).",
    ]
    if number:
        spares = [(share, found) for share in UP if (found := failures.spares(share)) is not None]
        counts = [f"{found.worded('{:.0f}'.format)} for {100 * share:.0f} % of the time" for share, found in spares]
        text.append(f"Spare workers that keep all {failures.workers} up, if they fail independently: {listed(counts)}.")
        text.append("Workers that stopped and did not come back are not counted." if parts.stopped else "")
        text.append(
            "A log that was interrupted looks the same; intervals are of 95 %, for failures that come at random."
        )
    return sentence(" ".join(filter(None, text)))


def _outage(outage: Outage, parts: SplitRecording) -> str:
    recording = parts.recording
    who = f"{named(recording.workers, outage.workers)} missing" if outage.workers else "all stood still"
    return f"{who} from step {recording.steps[outage.row]} on for {duration(outage.seconds)}"
