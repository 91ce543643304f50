"""Reads a recorded trace and reports the cost of stragglers and the fastest protocol for that cluster.

    sgdlab advise --trace=trace.parquet

The trace is a Parquet or CSV file with a row for each worker and step (columns worker, step and duration in seconds), a
CSV or .npy file with a column for each worker, or a table of single operations; see `sgdlab.cluster.recorded`. Steps
may be sampled. Steps in which a run-time is missing are excluded.

All protocols are compared on the last steps of the trace (the evaluation steps): full synchrony, every number of backup
workers, a deadline of median + k MAD, running mean, Elfving, Kalman filter, the deep Markov cutoff and asynchrony, with
an oracle as the upper bound. Parameters are tuned and models are trained on the steps before them (the tuning steps).
This takes from half a minute to several minutes, most of it for training; a smaller --steps shortens it.

    sgdlab advise --recording=runs/live/recording.npz

reads the run-times of a live run instead (`sgdlab live`), and writes them to runtimes.csv in the work directory: row t
holds each worker's t-th gradient, as long as the server waited for it. A gradient that was interrupted or lost is
missing.

Results in the work directory (default: runs/advise/<name>): advice.html, a self-contained page; advice.md
and advice.csv, the tables; plots as PNG and SVG; model/, the trained deep Markov model.
"""

import pathlib
from collections.abc import Sequence

import numpy as np
from absl import flags

from sgdlab import advice, cluster
from sgdlab.commands import launch, replay
from sgdlab.errors import UsageError

CONFIGURED = False


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("trace", None, "File of recorded run-times (this or --recording is required).")
    flags.DEFINE_string("recording", None, "recording.npz of a run of `sgdlab live`, in the place of a trace.")
    flags.DEFINE_float("train_share", 0.5, "Share of the complete steps, from the first on, used for tuning.")
    flags.DEFINE_integer("steps", 3000, "Most steps of the optimiser that trains the deep Markov model.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Of training, of the predictors' random draws and of the intervals.", lower_bound=0)


def main(argv: Sequence[str]) -> None:
    """Reads the trace, compares the protocols, prints and writes the results.

    Args:
      argv: the command line without its flags.

    Raises:
      UsageError: if a flag is out of range, the trace cannot be used, or the work directory cannot be written.
    """
    del argv
    given = flags.FLAGS
    if (given.trace is None) == (given.recording is None):
        raise UsageError(
            "--trace must name a file of recorded run-times, as in --trace=trace.csv; or --recording a run of `sgdlab "
            "live`, as in --recording=runs/live/recording.npz"
        )
    path = given.trace or given.recording
    name = pathlib.Path(path).stem if given.trace else pathlib.Path(path).absolute().parent.name
    workdir = pathlib.Path(launch.WORKDIR.value or f"runs/advise/{name}")
    trace = given.trace or _as_trace(given.recording, workdir)
    parts = advice.recording.read(trace, train_share=given.train_share)
    print("\n".join(f"{name:<22}{value}" for name, value in parts.facts()), flush=True)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        findings = advice.findings.find(
            parts, workdir / "model", most_steps=given.steps, seed=given.seed, report=_report
        )
        commands = advice.next_steps.commands(parts, findings.verdict.chosen, trace, str(workdir))
        print(f"\n{advice.publish.terminal_text(findings, commands)}")
        page = advice.publish.write(workdir, findings, commands)
    except OSError as error:
        raise UsageError(f"--workdir={workdir} must be a directory that can be written: {error}") from error
    print(f"\nReport: {page}")


def _as_trace(path: str, workdir: pathlib.Path) -> str:
    """Writes the run-times of a live run as a trace, and returns its path.

    Raises:
      UsageError: where too few rows are complete.
    """
    recording = replay.load(path)
    times = recording.runtimes()
    least, complete = 2 * advice.recording.LEAST_STEPS, int((~np.isnan(times)).all(axis=1).sum())
    if complete < least:
        counts = (~np.isnan(times)).sum(axis=0)
        slowest = int(counts.argmin())
        raise UsageError(
            f"--recording={path} is too short: {complete} rows hold a run-time of every worker; {least} are needed. "
            f"Worker {slowest} has {counts[slowest]} known run-times, fewest of all; a longer run would do, or a "
            "protocol that interrupts nobody"
        )
    trace = workdir / "runtimes.csv"
    names = tuple(f"worker {number}" for number in range(times.shape[1]))
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        cluster.Recording(times, np.arange(len(times)), names).save(trace)
    except OSError as error:
        raise UsageError(f"--workdir={workdir} must be a directory that can be written: {error}") from error
    return str(trace)


def _report(line: str) -> None:
    print(line, flush=True)
