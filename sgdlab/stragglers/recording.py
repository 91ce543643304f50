"""Reads a recorded trace and splits it into steps for tuning and steps for evaluation."""

import dataclasses
import functools
import itertools
import os
import pathlib
from typing import NamedTuple

import numpy as np

from sgdlab import traces
from sgdlab.errors import UsageError, said_of
from sgdlab.report.words import counted, some
from sgdlab.stragglers.diagnosis import causes, pauses
from sgdlab.stragglers.diagnosis.pauses import Pauses
from sgdlab.traces import Options, Recording

LEAST_STEPS = 4
"""Smallest number of tuning steps, and of evaluation steps."""

NOTE = "note"
"""Name of the facts that say what was decided when the file was read."""


class SplitTimes(NamedTuple):
    """The compute times of a split recording alone.

    Attributes:
      train: float64[T1, N], seconds of the tuning steps.
      test: float64[T2, N], seconds of the evaluation steps.
    """

    train: np.ndarray
    test: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class SplitRecording:
    """A recording, split into tuning and evaluation steps.

    What a step costs a worker here is its own work and the transfer of the collectives, which is the same for all
    workers of the step: every protocol counts it in the same way, and full synchrony takes the time that was recorded.

    Attributes:
      name: name of the file without its ending.
      recording: the whole recording, without workers that stopped; missing compute times are NaN.
      complete: the steps in which no compute time is missing, or is filled in (`usable`).
      pauses: the complete steps that were slow for all workers.
      train_steps: number of the complete steps, from the first on, that are tuning steps, common pauses included.
      live: whether it is a run of `sgdlab live`, whose server measured the compute times.
      stopped: a sentence on the workers that stopped recording and are left out, and one on the steps that are left out
        if these are many; empty if none are.
    """

    name: str
    recording: Recording
    complete: Recording
    pauses: Pauses
    train_steps: int
    live: bool = False
    stopped: str = ""

    @functools.cached_property
    def runtimes(self) -> np.ndarray:
        """float64[T, N], seconds of the complete steps: own work and transfer."""
        return self.complete.runtimes + self.complete.transfer()[:, None]

    @functools.cached_property
    def paused(self) -> np.ndarray:
        """bool[T]: which of the complete steps paused at least half of the workers."""
        common = 2 * np.asarray(self.pauses.workers) >= len(self.workers)
        result = np.zeros(self.complete.steps.size, bool)
        result[np.asarray(self.pauses.rows, int)[common]] = True
        return result

    @functools.cached_property
    def train(self) -> np.ndarray:
        """float64[T1, N], seconds of the tuning steps, without common pauses."""
        return self.runtimes[: self.train_steps][~self.paused[: self.train_steps]]

    @property
    def test(self) -> np.ndarray:
        """float64[T2, N], seconds of the evaluation steps, common pauses included."""
        return self.runtimes[self.train_steps :]

    @property
    def test_pauses(self) -> np.ndarray:
        """bool[T2]: which of the evaluation steps are common pauses."""
        return self.paused[self.train_steps :]

    @property
    def test_steps(self) -> np.ndarray:
        """int64[T2], the recorder's numbers of the evaluation steps."""
        return self.complete.steps[self.train_steps :]

    @property
    def left_out(self) -> int:
        """Number of steps that are excluded because a compute time is missing."""
        return self.recording.steps.size - self.complete.steps.size

    @property
    def workers(self) -> tuple[str, ...]:
        """Names of the workers."""
        return self.complete.workers

    @functools.cached_property
    def transfer_share(self) -> float | None:
        """Share of full synchrony's time that is transfer, in all complete steps; None where it was not recorded."""
        if not self.complete.collectives:
            return None
        return float(self.complete.transfer().sum() / self.runtimes.max(axis=1).sum())

    def facts(self) -> list[tuple[str, str]]:
        """Pairs of a name and a description: size, times, phases, gaps, missing values, pauses and the split."""
        recording, steps = self.recording, self.complete.steps
        pairs = [
            (
                "recorded",
                f"{recording.steps.size} steps x {len(self.workers)} workers{self._nodes()}, steps "
                f"{recording.steps[0]} to {recording.steps[-1]}",
            ),
            ("compute times", self._runtimes()),
            ("phases", self._phases()),
            ("communication", self._communication()),
            ("sampling", self._gaps()),
            ("missing compute times", self._missing()),
            ("pauses of all", self.pauses.describe(steps) if self.pauses.rows.size else "none"),
            ("tuning steps", self._tuning()),
            ("evaluation steps", f"{len(self.test)} steps, {steps[self.train_steps]} to {steps[-1]}"),
            *((NOTE, note) for note in (self.stopped, *recording.notes)),
        ]
        return [(name, text) for name, text in pairs if text]

    def _nodes(self) -> str:
        nodes = len(set(self.complete.nodes))
        return f" on {counted(nodes, 'node')}" if nodes else ""

    def _runtimes(self) -> str:
        times = self.recording.runtimes
        middle, most = np.nanquantile(times, [0.5, 0.99])
        return (
            f"mean {np.nanmean(times):.4g} s, median {middle:.4g} s, 99 % below {most:.4g} s, longest "
            f"{np.nanmax(times):.4g} s"
        )

    def _phases(self) -> str:
        total = self.complete.runtimes.sum()
        shares = {name: seconds.sum() / total for name, seconds in self.complete.phases.items()}
        largest = sorted(shares.items(), key=lambda pair: -pair[1])
        return some([f"{name} {100 * share:.0f} %" for name, share in largest]) if shares else ""

    def _communication(self) -> str:
        share = self.transfer_share
        if share is None:
            return ""
        names = some(sorted(self.complete.communication))
        return f"{names}: the transfer itself takes {100 * share:.1f} % of full synchrony's time"

    def _gaps(self) -> str:
        gaps, steps = self.recording.gaps, self.recording.steps
        if not gaps:
            return "none: the steps are consecutive"
        following = int((np.diff(steps) == 1).sum())
        return (
            f"{gaps} steps between the first and the last were not recorded; {following} of the {steps.size} recorded "
            "steps directly follow another"
        )

    def _missing(self) -> str:
        if not self.recording.missing:
            return "none"
        excluded = f"{counted(self.left_out, 'incomplete step')} {'is' if self.left_out == 1 else 'are'} excluded"
        count = _filled_in(self.recording, self.complete)
        filled = f"{count} of them {'is' if count == 1 else 'are'} filled in; " * bool(count)
        return f"{self.recording.missing} of {self.recording.runtimes.size}; {filled}{excluded}"

    def _tuning(self) -> str:
        steps, without = self.complete.steps, int(self.paused[: self.train_steps].sum())
        pauses_of_all = f", {counted(without, 'pause')} of all left out" if without else ""
        return f"{len(self.train)} steps, {steps[0]} to {steps[self.train_steps - 1]}{pauses_of_all}"


def read(
    path: str | os.PathLike[str], options: Options | None = None, *, train_share: float, flag: str = "trace"
) -> SplitRecording:
    """Reads a trace and splits it.

    Args:
      path: a file, directory or pattern that `sgdlab.traces.read` can read.
      options: how to read it.
      train_share: share of the complete steps, from the first on, that are tuning steps.
      flag: the flag that names the path in messages.

    Raises:
      UsageError: if the file is not a trace, or has too few steps or workers; if the share is not above 0 and below 1.
    """
    if not 0 < train_share < 1:
        raise UsageError(f"--train_share={train_share:g} must be a number above 0 and below 1")
    try:
        recording = traces.read(path, options or Options(), name=f"--{flag}")
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
    with said_of(f"--{flag}={path} "):
        return split(recording, name=named(path), train_share=train_share, live=is_live(path))


def named(path: str | os.PathLike[str]) -> str:
    """Return the name of a trace's results: the file's without its endings; of a live run, its directory's.

    Example:
      >>> named("logs/trace.csv.gz"), named("runs/live/recording.npz"), named("runs/live/states/run")
      ('trace', 'live', 'live')
    """
    path = pathlib.Path(path)
    if path.name == "recording.npz":
        return path.absolute().parent.name
    if path.parts[-2:] == ("states", "run"):
        return path.absolute().parents[1].name
    stem = path.name.lstrip(".").partition(".")[0].strip("*?[]-_ ")
    return stem or path.absolute().parent.name or "trace"


def is_live(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a run of `sgdlab live`: its recording, its work directory, or that of its log."""
    path = pathlib.Path(path)
    inside = ("recording.npz", "log.jsonl", "states/run/log.jsonl")
    return path.name == "recording.npz" or any((path / name).is_file() for name in inside)


def split(recording: Recording, *, name: str = "trace", train_share: float = 0.5, live: bool = False) -> SplitRecording:
    """Splits a recording.

    Args:
      recording: of at least two workers.
      name: of the results.
      train_share: share of the complete steps, from the first on, that are tuning steps.
      live: whether it is a run of `sgdlab live`.

    Raises:
      ValueError: if it has too few steps or workers; the message says what it has, without a subject.
    """
    if len(recording.workers) < 2:
        hint = "" if recording.job is None else "; --what_if says what slows its stages"
        raise ValueError(f"has one worker, {recording.workers[0]}; there must be at least 2{hint}")
    recording, complete, stopped = usable(recording, live=live)
    steps = complete.steps.size
    if live and steps < 2 * LEAST_STEPS:
        raise ValueError(
            f"is too short: {steps} rows hold a compute time of every worker; {2 * LEAST_STEPS} are needed"
            f"{_because(recording)}; a longer run would do, or a protocol that interrupts nobody"
        )
    first = round(train_share * steps)
    found = pauses.find_pauses(complete)
    parts = SplitRecording(name, recording, complete, found, first, live, stopped)
    if min(len(parts.train), steps - first) < LEAST_STEPS:
        raise ValueError(
            f"with --train_share={train_share:g} has {len(parts.train)} tuning steps and {steps - first} evaluation "
            f"steps without missing compute times; there must be at least {LEAST_STEPS} of each{_because(recording)}"
        )
    return parts


_MANY = 0.2
"""Share of the steps that must be incomplete so that times are filled in, or their being left out is said first."""


def usable(recording: Recording, *, live: bool = False) -> tuple[Recording, Recording, str]:
    """Return the steps that can be compared: those of all workers but the ones that stopped.

    Where a fifth of the steps or more lack a worker, single times are filled in first (`Recording.filled`).

    Args:
      recording: as it was read.
      live: whether it is a run of `sgdlab live`, in which row t is each worker's t-th gradient: a slow worker has
        fewer, and those that lack were interrupted, so that nobody is left out and nothing is filled in.

    Returns:
      The recording of the workers that are kept, with a note on what is filled in; its complete steps; and sentences
      on who stopped and on the steps that are not looked at, if they are many.

    Raises:
      ValueError: if no step is complete; the message has no subject.
    """
    recording, stopped = (recording, "") if live else left_out(recording)
    steps, said = recording.steps.size, [stopped]
    are_many = lambda complete: not live and steps - complete >= _MANY * steps
    is_filled = are_many(np.count_nonzero(~np.isnan(recording.runtimes).any(axis=1)))
    try:
        complete = (recording.filled() if is_filled else recording).complete()
    except ValueError as error:
        raise ValueError(f"cannot be used: {error}; {fewest(recording)}") from error
    if count := _filled_in(recording, complete):
        note = (
            f"{counted(count, 'missing compute time')} of {recording.runtimes.size} in all "
            f"{'is' if count == 1 else 'are'} filled in, each with the time of the same worker in a step nearby, in "
            "proportion to the medians of the two steps"
        )
        recording = dataclasses.replace(recording, notes=(*recording.notes, note))
    if are_many(complete.steps.size):
        said.append(
            f"Only {complete.steps.size} of the {steps} steps have compute times of all workers, and nothing is said "
            f"of the others: {fewest(recording)}; a trace without it would show what was slow in them."
        )
    return recording, complete, " ".join(filter(None, said))


def _filled_in(recording: Recording, complete: Recording) -> int:
    """Return the number of compute times of the complete steps that the recording lacks."""
    return int(np.isnan(recording.runtimes[np.isin(recording.steps, complete.steps)]).sum())


def _because(recording: Recording) -> str:
    who = fewest(recording)
    return f". {who[:1].upper()}{who[1:]}" if who else ""


_SHARE, _LEAST = 0.1, 4
"""Share and number of the last steps without which a worker has stopped."""

_LONGER = 4
"""Many times its longest gap before: where compute times are often missing, a gap at the end means nothing."""


def left_out(recording: Recording) -> tuple[Recording, str]:
    """Leaves out the workers that have no compute times in the last steps, if at least two others have.

    Only the steps of all workers can be compared: with a worker that stopped, nothing after its last step would be.
    Beside the recording without them stands a sentence: who stopped and when, and that the results are of the others,
    or who is a step behind at the end of the trace; it is empty if nobody stopped.

    Example:
      >>> times = np.ones((50, 3))
      >>> times[20:, 1] = np.nan
      >>> left_out(Recording(times, np.arange(50), ("a", "b", "c")))[1]
      'Worker b has no compute times since step 20: it is left out, and the results are of the other 2 workers.'
    """
    missing = np.isnan(recording.runtimes)
    last = {worker: _last(column) for worker, column in enumerate(missing.T) if column[-1]}
    last = {worker: row for worker, row in last.items() if row is not None}
    left = len(recording.workers) - len(last)
    if not last or left < 2:
        return recording, _short(recording)
    kept = [worker for worker in range(len(recording.workers)) if worker not in last]
    groups = []
    for row, pairs in itertools.groupby(sorted(last, key=lambda worker: (last[worker], worker)), last.get):
        workers = list(pairs)
        names = causes.named(recording.workers, workers)
        verb = "have" if len(workers) > 1 else "has"
        # pyrefly: ignore[unsupported-operation]  # those without were left out above
        groups.append(f"{names} {verb} no compute times since step {recording.steps[row + 1]}")
    gone = "it is" if len(last) == 1 else "they are"
    text = f"{some(groups)}: {gone} left out, and the results are of the other {left} workers."
    return recording.select(workers=kept), text[:1].upper() + text[1:]


_SHORT = 3
"""Most steps at the end of a trace that a worker of a job that hangs lacks."""


def _short(recording: Recording) -> str:
    """Say that the trace ends with one worker behind all others, as that of a job that hangs does; else nothing.

    Example:
      >>> times = np.ones((50, 3))
      >>> times[49, 1] = np.nan
      >>> _short(Recording(times, np.arange(50), ("a", "b", "c")))
      'The trace ends with worker b 1 step behind the others: if the job hung, look at it first.'
    """
    missing = np.isnan(recording.runtimes)
    (workers,) = np.nonzero(missing[-1])
    steps = int(missing.sum())
    if workers.size != 1 or not 0 < steps <= _SHORT or not missing[-steps:, workers[0]].all():
        return ""
    name = causes.named(recording.workers, [int(workers[0])])
    return f"The trace ends with {name} {counted(steps, 'step')} behind the others: if the job hung, look at it first."


def fewest(recording: Recording) -> str:
    """Name who has the fewest compute times, for messages on too few complete steps; empty if none is missing."""
    if not recording.missing:
        return ""
    known = (~np.isnan(recording.runtimes)).sum(axis=0)
    worker = int(known.argmin())
    name = causes.named(recording.workers, [worker])
    return f"{name} has compute times in {known[worker]} of {recording.steps.size} steps, fewest of all"


def _last(missing: np.ndarray) -> int | None:
    """The last row with a compute time of a worker that stopped; None if it did not stop, or never began."""
    known = np.flatnonzero(~missing)
    if not known.size:
        return None
    gap = len(missing) - 1 - known[-1]
    longest = int(np.diff(known, prepend=-1).max()) - 1
    return int(known[-1]) if gap >= max(_SHARE * len(missing), _LEAST, _LONGER * longest) else None
