"""The recording that is asked about: read, and split into a part to tune and train on and a part to answer on."""

import dataclasses
import os

import numpy as np

from sgdlab import cluster
from sgdlab.cluster import Recording
from sgdlab.errors import UsageError

LEAST_STEPS = 4
"""Of each part: with fewer nothing can be tuned, and nothing can be said."""


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """A recording and its two parts.

    Attributes:
      name: of the file, without its ending.
      recording: as it was read, with what is missing.
      complete: the steps of it in which no worker is missing.
      train: float64[T1, N], seconds: the first complete steps, to tune and train on.
      test: float64[T2, N], seconds: the others, which every answer is about.
    """

    name: str
    recording: Recording
    complete: Recording
    train: np.ndarray
    test: np.ndarray

    @property
    def left_out(self) -> int:
        """Steps with a missing worker."""
        return self.recording.steps.size - self.complete.steps.size

    @property
    def workers(self) -> tuple[str, ...]:
        """Their names."""
        return self.complete.workers

    def facts(self) -> list[tuple[str, str]]:
        """What was recorded, and what is not known of it: pairs of a name and a few words."""
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
            ("tuned and trained on", f"{split} steps, {steps[0]} to {steps[split - 1]}"),
            ("answered on", f"{len(self.test)} steps, {steps[split]} to {steps[-1]}"),
        ]

    def _gaps(self) -> str:
        gaps, steps = self.recording.gaps, self.recording.steps
        if not gaps:
            return "none: the steps are consecutive"
        following = int((np.diff(steps) == 1).sum())
        return (
            f"{gaps} steps between the first and the last were not recorded; {following} of the {steps.size} follow "
            "directly on the one before them"
        )

    def _missing(self) -> str:
        if not self.recording.missing:
            return "none"
        steps = "the step that they are" if self.left_out == 1 else f"the {self.left_out} steps that they are"
        verb = "is" if self.left_out == 1 else "are"
        return f"{self.recording.missing} of {self.recording.runtimes.size}; {steps} missing in {verb} left out"


def read(path: str | os.PathLike[str], *, train_share: float) -> Parts:
    """Reads a trace and splits it.

    Args:
      path: of a file that `sgdlab.cluster.recorded` reads.
      train_share: of the complete steps, the first, that are tuned and trained on.

    Raises:
      UsageError: where the file is no trace, or there are too few steps or workers in it.
    """
    if not 0 < train_share < 1:
        raise UsageError(f"--train_share={train_share:g} must be a number above 0 and below 1")
    try:
        recording = cluster.recorded(path)
        complete = recording.complete()
    except (ValueError, OSError) as error:
        raise UsageError(f"--trace={path} cannot be used: {' '.join(str(error).split())}") from error
    if len(recording.workers) < 2:
        raise UsageError(f"--trace={path} has one worker, {recording.workers[0]}; there must be at least 2 to wait for")
    steps = complete.steps.size
    split = round(train_share * steps)
    if min(split, steps - split) < LEAST_STEPS:
        raise UsageError(
            f"--trace={path} with --train_share={train_share:g} has {split} complete steps to tune and train on and "
            f"{steps - split} to answer on; there must be at least {LEAST_STEPS} of each"
        )
    name = os.path.splitext(os.path.basename(path))[0]
    return Parts(name, recording, complete, complete.runtimes[:split], complete.runtimes[split:])
