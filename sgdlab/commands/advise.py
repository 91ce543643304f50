"""Reads a recorded trace and reports the cost of stragglers and the fastest protocol for that cluster.

    sgdlab advise --trace=trace.parquet

The trace is a Parquet or CSV file with a row for each worker and step (columns worker, step and duration in seconds), a
CSV or .npy file with a column for each worker, or a table of single operations; see `sgdlab.cluster.recorded`. Steps
may be sampled. Steps in which a run-time is missing are excluded.

All protocols are compared on the last steps of the trace (the evaluation steps): full synchrony, every number of backup
workers, a deadline of median + k MAD, running mean, Elfving, Kalman filter, the deep Markov cutoff and asynchrony, with
an oracle as the upper bound. Parameters are tuned and models are trained on the steps before them (the tuning steps).
This takes from half a minute to several minutes, most of it for training; a smaller --steps shortens it.

Results in the work directory (default: runs/advise/<name of the trace>): advice.html, a self-contained page; advice.md
and advice.csv, the tables; plots as PNG and SVG; model/, the trained deep Markov model.
"""

import pathlib
from collections.abc import Sequence

from absl import flags

from sgdlab import advice
from sgdlab.commands import launch
from sgdlab.errors import UsageError

CONFIGURED = False


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("trace", None, "File of recorded run-times (required).")
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
    if given.trace is None:
        raise UsageError("--trace must name a file of recorded run-times, as in --trace=trace.csv")
    parts = advice.recording.read(given.trace, train_share=given.train_share)
    workdir = pathlib.Path(launch.WORKDIR.value or f"runs/advise/{parts.name}")
    print("\n".join(f"{name:<22}{value}" for name, value in parts.facts()), flush=True)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        findings = advice.findings.find(
            parts, workdir / "model", most_steps=given.steps, seed=given.seed, report=_report
        )
        commands = advice.next_steps.commands(parts, findings.verdict.chosen, given.trace, str(workdir))
        print(f"\n{advice.publish.terminal_text(findings, commands)}")
        page = advice.publish.write(workdir, findings, commands)
    except OSError as error:
        raise UsageError(f"--workdir={workdir} must be a directory that can be written: {error}") from error
    print(f"\nReport: {page}")


def _report(line: str) -> None:
    print(line, flush=True)
