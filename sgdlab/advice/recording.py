"""Reads a recorded trace and splits it into steps for tuning and steps for evaluation."""

import dataclasses
import os

import numpy as np

from sgdlab import cluster
from sgdlab.advice.words import counted
from sgdlab.cluster import Recording
from sgdlab.errors import UsageError

LEAST_STEPS = 4
"""Smallest number of tuning steps, and of evaluation steps."""


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """A recording, split into tuning and evaluation steps.

    Attributes:
      name: name of the file without its ending.
      recording: the whole recording; missing run-times are NaN.
      complete: the steps in which no run-time is missing.
      train: float64[T1, N], seconds: the tuning steps, which are the first complete steps.
      test: float64[T2, N], seconds: the evaluation steps, which are the other complete steps.
    """

    name: str
    recording: Recording
    complete: Recording
    train: np.ndarray
    test: np.ndarray

    @property
    def left_out(self) -> int:
        """Number of steps that are excluded because a run-time is missing."""
        return self.recording.steps.size - self.complete.steps.size

    @property
    def workers(self) -> tuple[str, ...]:
        """Names of the workers."""
        return self.complete.workers

    def facts(self) -> list[tuple[str, str]]:
        """Pairs of a name and a description: size, run-times, gaps, missing values and the split."""
        recording, steps = self.recording, self.complete.steps
        first, last = recording.steps[0], recording.steps[-1]
        times = recording.runtimes[~np.isnan(recording.runtimes)]
        quantiles = np.quantile(times, [0.5, 0.99])
        split = len(self.train)
        return [
            ("recorded", f"{recording.steps.size} steps x {len(self.workers)} workers, steps {first} to {last}"),
            (
                "run-times",
                f"mean {times.mean():.4g} s, median {quantiles[0]:.4g} s, 99 % below {quantiles[1]:.4g} s, "
                f"longest {times.max():.4g} s",
            ),
            ("sampling", self._gaps()),
            ("missing run-times", self._missing()),
            ("tuning steps", f"{split} steps, {steps[0]} to {steps[split - 1]}"),
            ("evaluation steps", f"{len(self.test)} steps, {steps[split]} to {steps[-1]}"),
        ]

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
        return f"{self.recording.missing} of {self.recording.runtimes.size}; {excluded}"


def read(path: str | os.PathLike[str], *, train_share: float) -> Parts:
    """Reads a trace and splits it.

    Args:
      path: a file that `sgdlab.cluster.recorded` can read.
      train_share: share of the complete steps, from the first on, that are tuning steps.

    Raises:
      UsageError: if the file is not a trace, or has too few steps or workers.
    """
    if not 0 < train_share < 1:
        raise UsageError(f"--train_share={train_share:g} must be a number above 0 and below 1")
    try:
        recording = cluster.recorded(path)
        complete = recording.complete()
    except (ValueError, OSError) as error:
        message, argument = " ".join(str(error).split()), f"path={str(path)!r}"
        message = message.removeprefix(argument) if message.startswith(argument) else f": {message}"
        raise UsageError(f"--trace={path}{message}") from error
    if len(recording.workers) < 2:
        raise UsageError(f"--trace={path} has one worker, {recording.workers[0]}; there must be at least 2")
    steps = complete.steps.size
    split = round(train_share * steps)
    if min(split, steps - split) < LEAST_STEPS:
        raise UsageError(
            f"--trace={path} with --train_share={train_share:g} has {split} tuning steps and {steps - split} "
            f"evaluation steps without missing run-times; there must be at least {LEAST_STEPS} of each"
        )
    name = os.path.splitext(os.path.basename(path))[0]
    return Parts(name, recording, complete, complete.runtimes[:split], complete.runtimes[split:])
