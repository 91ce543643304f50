"""Recorded times as a cluster: the trace is replayed and, if it is too short, can be extended by blocks of it."""

import dataclasses
import functools
import os
import pathlib

import numpy as np

from sgdlab import arguments
from sgdlab.cluster.family import CLUSTERS
from sgdlab.traces import read
from sgdlab.traces.options import Options
from sgdlab.traces.recording import Recording

_DEFAULT = Options()


@CLUSTERS.register("recorded", title="recorded compute times", files=("trace",))
@dataclasses.dataclass(frozen=True)
class Recorded:
    r"""The compute times of a trace: row t is its t-th complete step, in which no worker is missing.

    A trace is one of synchronous steps, each of which all workers begin together. In a replay, row t is each worker's
    t-th gradient, which it begins as soon as it has ended the one before, unless the protocol makes it wait. If it does
    not wait, what slowed all workers of a step together (a network, a file system) slows them at different times, and
    it is unknown how workers would have slowed each other in the new order.

    A run may need more steps than were recorded. `extend="bootstrap"` appends blocks of b consecutive complete steps,
    each drawn with replacement, which preserves the dependence between workers of a step and between near-by steps:

    .. math:: t_{T + k b + i} = t_{s_k + i}, \quad 0 \le i < b, \qquad s_k \sim U\{0, \dots, T - b\}

    Attributes:
      num_workers: N, number of workers, which must be that of the trace.
      trace: path of the file of recorded compute times; `sgdlab.cluster.recorded` describes the formats.
      extend: what follows the recorded steps: nothing (None), or blocks of them drawn anew ("bootstrap").
      block: b, number of consecutive steps in a block of `extend="bootstrap"`.

    Raises:
      ValueError: where the trace cannot be read or has another number of workers, or a number is out of its range.

    Source: Kuensch 1989, "The jackknife and the bootstrap for general stationary observations": blocks that overlap.

    Example:
      >>> import tempfile
      >>> file = pathlib.Path(tempfile.mkdtemp()) / "trace.csv"
      >>> _ = file.write_text("a,b\n1.5,2.5\n,9.0\n1.0,2.0\n")
      >>> Recorded(num_workers=2, trace=str(file)).draw(2, seed=0)
      array([[1.5, 2.5],
             [1. , 2. ]])
      >>> law = Recorded(num_workers=2, trace=str(file), extend="bootstrap", block=2)
      >>> law.draw(6, seed=0)[2:].tolist()  # two blocks, which can begin only at the first step
      [[1.5, 2.5], [1.0, 2.0], [1.5, 2.5], [1.0, 2.0]]
      >>> print(law)
      recorded compute times of trace.csv, 2 steps x 2 workers, mean 1.75 s, extended by blocks of 2 consecutive steps
      drawn anew (bootstrap)
    """

    num_workers: int
    trace: str = ""
    extend: str | None = None
    block: int = 10

    def __post_init__(self) -> None:
        arguments.whole("num_workers", self.num_workers)
        if self.extend not in (None, "bootstrap"):
            raise ValueError(f"extend={self.extend!r} must be None or 'bootstrap'")
        arguments.whole("block", self.block)
        steps, workers = self.recording.runtimes.shape
        if self.num_workers != workers:
            raise ValueError(f"num_workers={self.num_workers} must be {workers}, the workers of {self.trace}")
        if self.extend:
            arguments.whole("block", self.block, most=steps, why=f"{self.trace} has {steps} complete steps")

    @functools.cached_property
    def recording(self) -> Recording:
        """The complete steps of the trace."""
        if not self.trace:
            raise ValueError(f"trace={self.trace!r} must be a file of recorded compute times, steps x workers")
        path = pathlib.Path(self.trace)
        return _complete(self.trace, path.stat().st_mtime_ns if path.is_file() else 0)

    @property
    def num_rows(self) -> int | None:
        """Return how many rows can be drawn; None for any number."""
        return None if self.extend else len(self.recording.runtimes)

    def draw(self, rows: int, *, seed: int) -> np.ndarray:
        """float64[rows, N], seconds; more rows do not change the earlier ones.

        Raises:
          ValueError: where fewer complete steps were recorded, and `extend` is None.
        """
        arguments.whole("rows", rows)
        generator = np.random.default_rng(arguments.whole("seed", seed, least=0))
        recorded_steps = len(self.recording.runtimes)
        if self.num_rows is not None and rows > self.num_rows:
            raise ValueError(
                f"trace={self.trace!r} must have at least {rows} complete steps, not {recorded_steps}; a shorter "
                "run or extend='bootstrap' would do"
            )
        blocks = -(-max(rows - recorded_steps, 0) // self.block)
        starts = generator.integers(max(recorded_steps - self.block, 0) + 1, size=blocks)
        steps = np.concatenate([np.arange(recorded_steps), (starts[:, None] + np.arange(self.block)).ravel()])
        return self.recording.runtimes[steps[:rows]]

    def __str__(self) -> str:
        runtimes = self.recording.runtimes
        steps, workers = runtimes.shape
        extended = f", extended by blocks of {self.block} consecutive steps drawn anew (bootstrap)" * bool(self.extend)
        return (
            f"recorded compute times of {pathlib.Path(self.trace).name}, {steps} steps x {workers} workers, mean "
            f"{runtimes.mean():.4g} s{extended}"
        )


@functools.cache
def _complete(trace: str, modified: int) -> Recording:
    """The complete steps of a trace, read again only if the file was `modified` since."""
    try:
        recording = read(trace, name="trace")
    except FileNotFoundError as error:
        raise ValueError(str(error)) from error
    try:
        recording = recording.complete()
    except ValueError as error:
        raise ValueError(f"trace={trace!r}: {error}") from error
    recording.runtimes.flags.writeable = False  # all laws of this trace share them
    return recording


def recorded(path: str | os.PathLike[str], options: Options = _DEFAULT) -> Recording:
    r"""Reads recorded times; the format, the columns and the units are recognised, and `docs/traces.md` lists them.

    * CSV (also with semicolons or tabs), JSON lines or Parquet in long form: columns `worker`, `step` and `duration`
      (seconds), or what usual logs call them; optionally `phase`, `node` and `start`. The phases of one worker's step
      are added up, except for communication.
    * The same with one file for each worker, in a directory or of a pattern.
    * CSV or Parquet of the operations of pipelines: `dp_rank`, `stage`, `step`, `optype`, `duration` and `start_ts`,
      as in the traces of real language-model jobs. A data-parallel worker's compute time is its longest path to its
      last backward computation; without `start_ts` the sum of its `*-compute` operations in a stage, the largest over
      the stages, a lower bound.
    * Wide CSV, JSON lines or Parquet, one row per step and one column per worker; a column `step` numbers the steps.
      The first line of a CSV names the workers, unless one of its cells is a number with a fraction or an exponent.
    * `.npy`: an array of steps x workers.
    * What profilers write: PyTorch's, JAX's, Chrome's trace events, the flight recorder of NCCL.

    An empty cell, NaN or NA is a compute time that is missing. Nothing is unpickled. Errors name all bad rows, by the
    line of a text file, from 1 in Parquet, from 0 in an array.

    Arguments and errors are those of `sgdlab.traces.read`.

    Example:
      >>> import tempfile
      >>> file = pathlib.Path(tempfile.mkdtemp()) / "trace.csv"
      >>> _ = file.write_text("worker,step,duration\na,7,1.5\nb,7,2.5\na,9,1.0\n")
      >>> recording = recorded(file)
      >>> recording.runtimes, recording.steps, recording.gaps, recording.missing
      (array([[1.5, 2.5],
             [1. , nan]]), array([7, 9]), 1, 1)
    """
    return read(path, options)
