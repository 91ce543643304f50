"""Trains one run of one method on a simulated cluster.

    sgdlab train --config.method=gap_aware --workdir=runs/one

Leaves in the work directory: the configuration, the metrics (JSON lines, appended during the run), the parameters
(parameters.npz, one array a leaf), the schedule (schedule.npz), and pictures of training and workers. A finished run of
the same configuration and code is shown, not run again; one that was interrupted continues from its last checkpoint.
"""

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from sgdlab import files, jobs, results
from sgdlab.commands import launch
from sgdlab.errors import failures_of

DEFAULT_WORKDIR = "runs/one"
NAME = "run"


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_bool("rerun", False, "Run anew what is there; its records are put aside.")
    flags.DEFINE_list("writers", [], "Where records go besides: tensorboard, wandb.")
    flags.DEFINE_float(
        "checkpoint_seconds",
        60.0,
        "Between two checkpoints, at least, from which an interrupted run continues.",
        lower_bound=0.0,
    )


def main(argv: Sequence[str]) -> None:
    """Trains, or shows what is there."""
    del argv
    given, workdir = flags.FLAGS, pathlib.Path(launch.WORKDIR.value or DEFAULT_WORKDIR)
    results.writers.check(given.writers)
    config = launch.CONFIG.value
    plan = jobs.plan.make_plan(config)
    own = jobs.configuration.identity(config)
    jobs.configuration.check_used(launch.given_entries(), [own])
    if given.rerun:
        results.directory.put_aside(workdir, [NAME])
    there = results.directory.read_records(workdir / "metrics" / f"{NAME}.jsonl")
    changed = jobs.digests.changed(there, config) if there else []
    made = jobs.provenance.made_with()
    directory = results.directory.RunDirectory(workdir, own, made=made, superseding=[NAME] if changed else ())
    finished = None if changed else directory.read(NAME, identity=own)
    if finished is not None:
        print(f"{workdir} holds this run already; nothing had to be run.")
        _show(finished[-1])
        return
    if changed:
        print(f"The {' and '.join(changed)} of the run in {workdir} has changed (code or files); it is run anew.")
    print(plan.schedule, flush=True)
    with failures_of(plan.choice.method.name):
        run = jobs.train.train_and_record(
            plan,
            directory,
            NAME,
            writers=given.writers,
            checkpoint_seconds=given.checkpoint_seconds,
            report=_progress(plan),
            say=functools.partial(print, flush=True),
        )
    directory.claim()
    with files.replacing(directory.path / "parameters.npz") as file:
        np.savez(file, **jobs.train.leaves(run.result.params))
    run.schedule.save(directory.path / "schedule.npz")
    results.plots.save(results.plots.training(run.records), directory.path / "plots" / "training")
    timeline = results.timeline.timeline({run.records[0]["title"]: run.schedule})
    results.plots.save(timeline, directory.path / "plots" / "timeline")
    directory.write(NAME, run.records)
    directory.tidy()
    _show(run.records[-1])


def _progress(plan: Any) -> Any:
    metric = results.metric.Metric.of(jobs.records.what(plan))

    def show(record: Mapping[str, Any]) -> None:
        if record["kind"] == "evaluation":
            print(
                f"{record['gradients']:>7} of {plan.program.num_rows} gradients, {record['seconds']:>9,.0f} s of "
                f"virtual time: test loss {record['test_loss']:.4f}, {metric.title} {metric.text(record[metric.test])}",
                flush=True,
            )

    return show


def _show(summary: Mapping[str, Any]) -> None:
    metric = results.metric.Metric.of(summary)
    outcome = "diverged" if summary["diverged"] else f"{metric.title} {metric.text(summary[metric.test])}"
    workers = f"{summary['num_workers']} worker{'s' * (summary['num_workers'] > 1)}"
    print(
        f"{summary['title']}, {workers}: {outcome} after {summary['gradients']} gradients and "
        f"{summary['seconds']:,.0f} s of virtual time; "
        f"{summary['speedup']:.2f} times the gradients per second of synchronous SGD at the same number of workers"
    )
