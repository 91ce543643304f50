"""Trains one run of one method on a simulated cluster.

    sgdlab train --config.method=gap_aware --workdir=runs/one

Leaves in the work directory: the configuration, the metrics (JSON lines), the final parameters (parameters.npz, one
array a leaf), the schedule (schedule.npz), and pictures of the training and of the workers. A directory that holds
the finished run of the same configuration is shown, not run again.
"""

import pathlib
from collections.abc import Sequence

import jax
import numpy as np

from sgdlab import files
from sgdlab.commands import launch
from sgdlab.jobs import provenance
from sgdlab.jobs.configuration import identity
from sgdlab.jobs.plan import make_plan
from sgdlab.jobs.train import train
from sgdlab.results import plots
from sgdlab.results.directory import RunDirectory
from sgdlab.results.timeline import timeline

DEFAULT_WORKDIR = "runs/one"


def define_flags() -> None:
    """Defines the flags of this command."""


def main(argv: Sequence[str]) -> None:
    """Trains, or shows what is there."""
    del argv
    config, workdir = launch.CONFIG.value, pathlib.Path(launch.WORKDIR.value or DEFAULT_WORKDIR)
    plan = make_plan(config)
    own = identity(config)
    directory = RunDirectory(workdir, own, made=provenance.made_with())
    finished = directory.read("run", identity=own)
    if finished is not None:
        print(f"{workdir} holds this run already.")
        _show(finished[-1])
        return
    print(plan.schedule, flush=True)

    def report(found: dict[str, float]) -> None:
        print(
            f"{found['gradients']:>7} of {plan.program.num_rows} gradients, {found['seconds']:>9,.0f} s of virtual "
            f"time: test loss {found['loss']:.4f}, test accuracy {100 * found['accuracy']:.1f} %",
            flush=True,
        )

    run = train(plan, report=report)
    directory.claim()
    with files.replacing(directory.path / "parameters.npz") as file:
        leaves = jax.tree_util.tree_leaves_with_path(run.result.params)
        np.savez(file, **{jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves})
    run.schedule.save(directory.path / "schedule.npz")
    plots.save(plots.training(run.records), directory.path / "plots" / "training")
    plots.save(timeline({run.records[0]["title"]: run.schedule}), directory.path / "plots" / "timeline")
    directory.write("run", run.records)
    _show(run.records[-1])


def _show(summary: dict) -> None:
    outcome = "diverged" if summary["diverged"] else f"test accuracy {100 * summary['test_accuracy']:.1f} %"
    print(
        f"{summary['title']}, {summary['num_workers']} workers: {outcome} after {summary['gradients']} gradients and "
        f"{summary['seconds']:,.0f} s of virtual time; {summary['speedup']:.2f} times the speed of synchronous SGD"
    )
