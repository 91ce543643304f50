"""Recorded compute times, the parts of which they consist, and the time inside collectives."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from sgdlab import arrays, files
from sgdlab.pipelines.job import PipelineJob
from sgdlab.schedule import Schedule
from sgdlab.traces.messages import Messages
from sgdlab.traces.phases import WAIT

_ROUNDING = 1e-6
"""Seconds below 0 that a phase, which may be a difference, may have."""

_MOST_IN_A_ROW, _MOST_MISSING, _APART = 3, 0.1, 8
"""Most steps in a row, and largest share of a worker's steps, that are filled in from others; and how far these are."""


@dataclasses.dataclass(frozen=True, eq=False)
class Recording:
    """Recorded compute times, NaN where one is missing.

    Attributes:
      runtimes: float64[T, N], seconds of a worker's own work in a step, before it waits for others; NaN where a worker
        is missing in a step.
      steps: int64[T], the recorder's step numbers, rising but not always consecutive.
      workers: names of the N workers.
      nodes: the machine of each worker; empty if that is unknown.
      phases: name -> float64[T, N], seconds: parts of the times, which add up to them; empty if they are unknown.
      communication: collective -> float64[T, N], seconds inside it, the waiting for other workers included; NaN where
        it was not recorded.
      began: float64[T], seconds of the recorder's clock at which the first worker began each step, NaN where that is
        missing; None if it is unknown.
      notes: what was decided or skipped when the file was read, in sentences.
      job: operations of the pipelines of which the times are the longest paths; None where only these are known.
      unseen: what else took time that the trace cannot show, half a sentence; empty where nothing is known.
      messages: what the collectives carry, by collective and size; empty where sizes are unknown.

    Raises:
      ValueError: where the shapes do not fit, a name is no text or number or is there twice, steps do not rise, a
        compute time is not above 0 or not finite, or a phase is below 0 or not finite.
    """

    runtimes: Float64[np.ndarray, "T N"]
    steps: Int64[np.ndarray, " T"]
    workers: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    phases: Mapping[str, Float64[np.ndarray, "T N"]] = dataclasses.field(default_factory=dict)
    communication: Mapping[str, Float64[np.ndarray, "T N"]] = dataclasses.field(default_factory=dict)
    began: Float64[np.ndarray, " T"] | None = None
    notes: tuple[str, ...] = ()
    job: PipelineJob | None = None
    unseen: str = ""
    messages: tuple[Messages, ...] = ()

    def __post_init__(self) -> None:
        self._convert()
        shape = (np.size(self.steps), len(self.workers))
        for message in self.messages:
            if len(message.seconds) != shape[0]:
                raise ValueError(f"messages of {len(message.seconds)} steps must be of the T={shape[0]} steps")
        for name, times in {"runtimes": self.runtimes, **self.phases, **self.communication}.items():
            if times.shape != shape:
                raise ValueError(
                    f"{name} of shape {times.shape} must be of shape {shape}, seconds [T, N] of T={shape[0]} steps "
                    f"and N={shape[1]} workers"
                )
        wrong = [name for name in self.workers if not isinstance(name, str)]
        if wrong or len(set(self.workers)) < shape[1]:
            found = f"{wrong[0]!r} among them" if wrong else f"{self.workers}"
            raise ValueError(f"workers must be texts, each another, such as ('0', '1'), and not {found}")
        if len(self.nodes) not in (0, shape[1]):
            raise ValueError(f"nodes={self.nodes} must be those of {shape[1]} workers, or be left out")
        if (np.diff(self.steps) <= 0).any():
            row = int((np.diff(self.steps) <= 0).argmax())
            raise ValueError(f"steps must rise, and {self.steps[row + 1]} comes after {self.steps[row]}")
        for name, times in {"runtimes": self.runtimes, **self.phases}.items():
            is_whole = times is self.runtimes
            wrong_times = np.argwhere(np.isinf(times) | ((times <= 0) if is_whole else (times < -_ROUNDING)))
            if wrong_times.size:
                row, column = wrong_times[0]
                raise ValueError(
                    f"{name}[{row}, {column}]={times[row, column]:g} must be {'above' if is_whole else 'at least'} 0 "
                    f"and finite, or NaN where it is missing: seconds of worker {self.workers[column]} in step "
                    f"{self.steps[row]} ({len(wrong_times)} such in all)"
                )

    def _convert(self) -> None:
        """Makes arrays of lists, and texts of workers that are numbered."""

        def seconds(name: str, values: Any) -> np.ndarray:
            try:
                return np.asarray(values, float)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name} must be numbers, seconds [T, N]: {error}") from error

        converted = {
            "runtimes": seconds("runtimes", self.runtimes),
            "steps": np.asarray(self.steps),
            "workers": tuple(str(name) if isinstance(name, int | np.integer) else name for name in self.workers),
            "nodes": tuple(self.nodes),
            "phases": {name: seconds(name, times) for name, times in self.phases.items()},
            "communication": {name: seconds(name, times) for name, times in self.communication.items()},
            "began": None if self.began is None else seconds("began", self.began),
        }
        for name, value in converted.items():
            object.__setattr__(self, name, value)  # it is frozen

    @functools.cached_property
    def medians(self) -> np.ndarray:
        """Return float64[T], seconds: the median over the workers of each step, NaN where one is missing in it."""
        return arrays.median(self.runtimes, axis=1)

    @property
    def missing(self) -> int:
        """Number of missing compute times among the T x N."""
        return int(np.isnan(self.runtimes).sum())

    @property
    def collectives(self) -> tuple[str, ...]:
        """Names of the communication whose transfer is told from work: not of stages that contain a wait."""
        return tuple(name for name in self.communication if not name.endswith(WAIT))

    @property
    def gaps(self) -> int:
        """Number of steps between the first and the last that were not recorded."""
        return int(self.steps[-1] - self.steps[0] + 1 - self.steps.size)

    def complete(self) -> "Recording":
        """Return the steps in which no worker is missing.

        Raises:
          ValueError: where there is no such step.
        """
        whole = ~np.isnan(self.runtimes).any(axis=1)
        if not whole.any():
            raise ValueError(
                f"none of the {self.steps.size} recorded steps has compute times of all {len(self.workers)} workers"
            )
        return self if whole.all() else self.select(rows=whole)

    def filled(self) -> "Recording":
        r"""Return the recording with times that a worker lacks in up to three steps in a row, from another step.

        .. math:: x_{ti} = x_{si} \frac{m_t}{m_s}

        s is the nearest step with a time of worker i that is eight steps away or more, of two the earlier one, and m
        the median of a step over the workers that have a time in it. (From the very next step, one slow step would
        become two in a row: in 27 of 400 clean fleets of eight workers that lack 5 % of their times, a slow worker was
        found; in 9 like this, and in 6 where nothing is missing.) Phases are filled in likewise, communication and
        messages are not. Missing stays what lacks in more steps in a row, what a worker lacks more than a tenth of the
        time, what fewer than half of the workers have in a step, and longest paths through pipelines.

        Source: hot-deck imputation, Andridge and Little 2010, International Statistical Review 78(1); the distance and
        the factor are our own.

        Example:
          >>> times = np.ones((20, 3)) * [1.0, 1.0, 2.0]
          >>> times[10:] *= 3.0
          >>> times[10, 2] = np.nan
          >>> Recording(times, np.arange(20), ("a", "b", "c")).filled().runtimes[10]
          array([3., 3., 6.])
        """
        missing = np.isnan(self.runtimes)
        columns = np.flatnonzero((missing.mean(axis=0) <= _MOST_MISSING) & missing.any(axis=0))
        if not columns.size or self.job is not None:
            return self
        lacks, steps = missing[:, columns], len(missing)
        number = np.arange(steps, dtype=np.int32)[:, None]
        before = np.maximum.accumulate(np.where(lacks, -1, number), axis=0)  # the last known step up to each
        after = np.minimum.accumulate(np.where(lacks, steps, number)[::-1], axis=0)[::-1]
        few = (after - before - 1 <= _MOST_IN_A_ROW) & (missing.mean(axis=1) <= 0.5)[:, None]
        row, column = np.nonzero(lacks & few)
        sources = np.stack(
            [before[np.maximum(row - _APART, 0), column], after[np.minimum(row + _APART, steps - 1), column]]
        )
        distance = np.where((sources >= 0) & (sources < steps), np.abs(sources - row), 0)
        distance = np.where(distance < _APART, steps, distance)
        source = np.where(distance[0] <= distance[1], *sources)
        found = distance.min(axis=0) < steps
        row, column, source = row[found], columns[column[found]], source[found]
        medians = arrays.known_medians(self.runtimes)
        factor = medians[row] / medians[source]

        def with_times(values: np.ndarray) -> np.ndarray:
            values = values.copy()
            values[row, column] = values[source, column] * factor
            return values

        phases = {name: with_times(seconds) for name, seconds in self.phases.items()}
        return dataclasses.replace(self, runtimes=with_times(self.runtimes), phases=phases)

    def select(self, rows: Any = None, workers: Any = None) -> "Recording":
        """Return the same recording with fewer steps, or fewer workers.

        Args:
          rows: which of the T rows: a slice, numbers, or bool[T]; None for all.
          workers: which of the N workers: the same; None for all.

        Example:
          >>> whole = Recording(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([5, 6]), ("a", "b"))
          >>> part = whole.select(rows=slice(1, None), workers=[1])
          >>> part.runtimes, part.steps, part.workers
          (array([[4.]]), array([6]), ('b',))
        """
        # A copy is made only where something is left out.
        places = tuple(
            slice(None) if kept is None or (index := np.arange(size)[kept]).size == size else index
            for kept, size in ((rows, self.steps.size), (workers, len(self.workers)))
        )

        def part(times: np.ndarray) -> np.ndarray:
            return times[places[0]][:, places[1]]

        names, nodes = (
            tuple(np.array(names, object)[places[1]]) if names else () for names in (self.workers, self.nodes)
        )
        return dataclasses.replace(
            self,
            runtimes=part(self.runtimes),
            steps=self.steps[places[0]],
            workers=names,
            nodes=nodes,
            phases={name: part(times) for name, times in self.phases.items()},
            communication={name: part(times) for name, times in self.communication.items()},
            began=None if self.began is None else self.began[places[0]],
            job=None if self.job is None else self.job.select(*places),
            messages=tuple(dataclasses.replace(each, seconds=each.seconds[places[0]]) for each in self.messages),
        )

    def transfer(self) -> np.ndarray:
        r"""Return float64[T], the seconds that the collectives of each step take when nobody waits.

        A worker's time inside collective c of step t is its waiting for those who come later, and the transfer. Who
        comes last waits for nobody, so the least over the workers is the transfer itself:

        .. math:: x_t = \sum_c \min_n c_{t n}

        A collective that no worker has recorded in a step counts as no time.

        Example:
          >>> times = {"all_reduce": np.array([[0.75, 0.25], [np.nan, 0.5]])}
          >>> Recording(np.ones((2, 2)), np.arange(2), ("a", "b"), communication=times).transfer()
          array([0.25, 0.5 ])
        """
        total = np.zeros(self.steps.size)
        for times in self.communication.values():
            least = np.fmin.reduce(times, axis=1, initial=np.inf)
            total += np.where(np.isfinite(least), least, 0.0)
        return total

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a long table, Parquet, CSV or JSON lines by the path's ending; missing times have an empty cell.

        `sgdlab.traces.read` reads it back, without any option, except for the notes and the sizes of messages.

        Raises:
          ValueError: where the ending is none of these.
        """
        from sgdlab.traces import writing  # noqa: PLC0415 (it imports this module)

        path = pathlib.Path(path)
        if path.suffix not in writing.WRITERS:
            raise ValueError(f"path={str(path)!r} must end in {' or '.join(writing.WRITERS)}")
        with files.replacing(path) as file:
            writing.WRITERS[path.suffix](self, file)

    def __str__(self) -> str:
        times = self.runtimes[~np.isnan(self.runtimes)]
        sampled = f", sampled: {self.gaps} between them were not recorded" if self.gaps else ""
        missing = f", {self.missing} compute times missing" if self.missing else ", none missing"
        shape = f"{self.steps.size} steps x {len(self.workers)} workers"
        return f"Recording: {shape}, mean {times.mean():.4g} s{sampled}{missing}"


def from_schedule(schedule: Schedule) -> Recording:
    """Return the compute times of a schedule: row t is each worker's t-th gradient.

    Gradients that were interrupted or are pending have no known compute time: they are missing. (A gradient that was
    dropped at the very instant of an update is taken as interrupted.)

    Args:
      schedule: of one block; with several blocks, the first arrival ends a gradient.

    Example:
      >>> from sgdlab import protocols
      >>> runtimes = np.array([[1.0, 3.0], [2.0, 1.0]])
      >>> from_schedule(protocols.synchronous(runtimes)).runtimes
      array([[1., 3.],
             [2., 1.]])
    """
    order = np.lexsort((schedule.started, schedule.worker))
    worker = schedule.worker[order]
    count = np.arange(worker.size) - np.searchsorted(worker, worker)  # each worker's own gradients, from 0
    duration = (schedule.arrived.min(axis=1) - schedule.started)[order]
    interrupted: Any = schedule.dropped().all(axis=1) & np.isin(schedule.arrived, schedule.applied).all(axis=1)
    unknown = (interrupted | schedule.pending().all(axis=1))[order]
    runtimes = np.full((int(count.max(initial=-1)) + 1, schedule.num_workers), np.nan)
    runtimes[count[~unknown], worker[~unknown]] = duration[~unknown]
    names = tuple(str(i) for i in range(schedule.num_workers))
    return Recording(runtimes, np.arange(runtimes.shape[0]), names)
