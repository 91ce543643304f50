"""Trains one run of one method on a simulated cluster.

    sgdlab train --config.method=gap_aware --workdir=runs/one

Leaves in the work directory: the configuration, the metrics (JSON lines, appended during the run), parameters.npz,
schedule.npz, and pictures. A finished run is shown, not run again; an interrupted one continues from a checkpoint.
"""

import functools
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import flags

from sgdlab import files, hosts, results, runs
from sgdlab.commands import launch, shared_flags
from sgdlab.errors import failures_of
from sgdlab.report.words import number

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from sgdlab.runs.experiment import Experiment

DEFAULT_WORKDIR = "runs/one"
NAME = "run"


def define_flags() -> None:
    """Defines the flags of this command."""
    define_run()
    shared_flags.define_hosts()


def define_run() -> None:
    """Defines the flags that `execute` and `store_of` follow."""
    flags.DEFINE_bool("rerun", False, "Does a finished run again; its old records are archived.")
    flags.DEFINE_list("writers", [], "Further destinations of the records: tensorboard, wandb.")
    flags.DEFINE_float(
        "checkpoint_seconds",
        60.0,
        "Least seconds between two checkpoints, from which an interrupted run continues.",
        lower_bound=0.0,
    )


def main(argv: Sequence[str]) -> None:
    """Trains, or shows what is there; over many processes, the first one writes and prints."""
    del argv
    given = flags.FLAGS
    results.writers.check(given.writers)
    mesh = shared_flags.mesh()
    workdir = launch.workdir(DEFAULT_WORKDIR)
    plan = runs.plan.make_plan(launch.CONFIG.value)
    experiment = plan.experiment
    runs.configuration.check_used(launch.given_entries(), [experiment.taken])
    hosts.check_shared(workdir)
    say = functools.partial(print, flush=True) if hosts.is_first() else lambda line: None
    store, finished = store_of(workdir, experiment, rerun=given.rerun, say=say)
    if finished:
        return
    notes = runs.parts.notes(experiment.rule.part, experiment.not_taken)
    say("\n".join([*notes, *plan.waste, plan.schedule.describe(experiment.local.unit)]))
    run = execute(plan, store, experiment.method.name, say, mesh)
    if hosts.is_first():
        leave_results(store, run)
        show(run.records[-1])


def store_of(
    workdir: pathlib.Path, experiment: "Experiment", *, rerun: bool, say: Callable[[str], None]
) -> tuple["runs.store.Store", bool]:
    """Return where the run stands, and whether it is there already, which the first process finds out for all.

    Raises:
      UsageError: where the directory holds a run of another configuration, or other files.
    """
    store = runs.store.Store.of(workdir, writes=hosts.is_first())
    if not store.writes:
        return store, json.loads(hosts.gather("whether the run has finished", "")[0])
    runs.store.check_ours(workdir)
    if rerun:
        store.put_aside(NAME)
    there = store.read(NAME)
    changed = runs.digests.changed(there, experiment) if there else []
    if there:
        runs.store.check_same(workdir, there[0]["config"], experiment.identity, changed)
    if changed:
        say(f"The {' and '.join(changed)} of the run in {workdir} has changed (code or files); it is rerun.")
    elif there:
        say(f"{workdir} holds this run already; nothing had to be run.")
        show(there[-1])
    finished = bool(there) and not changed
    hosts.gather("whether the run has finished", json.dumps(finished))
    return store, finished


def execute(
    plan: "runs.plan.Plan", store: "runs.store.Store", what: str, say: Callable[[str], None], mesh: "Mesh | None" = None
) -> "runs.train.Run":
    """Train with the writers and checkpoints that flags ask for; errors name `what` was trained."""
    given = flags.FLAGS
    with failures_of(what), hosts.stopping():
        place = runs.train.Place(store, NAME, given.writers, mesh, hosts.stop_requested)
        seconds, report = given.checkpoint_seconds, _progress(plan, say)
        return runs.train.train_and_record(plan, place, checkpoint_seconds=seconds, report=report, say=say)


def leave_results(store: "runs.store.Store", run: "runs.train.Run", beside: Callable[[], None] = lambda: None) -> None:
    """Write the parameters, what a command has beside them, the schedule, the pictures and, at last, the metrics."""
    path = store.workdir
    runs.store.write_config(path, run.records[0]["config"])
    with files.replacing(path / "parameters.npz") as file:
        np.savez(file, **runs.train.leaves(run.result.params))
    beside()
    run.schedule.save(path / "schedule.npz")
    results.plots.save(results.plots.training(run.records), path / "plots" / "training")
    title, clock = run.records[0]["title"], "time" if run.records[0].get("live") else "virtual time"
    messages = [title] if results.facts.unit(run.records[-1]) == "message" else []
    timeline = results.timeline.timeline({title: run.schedule}, clock=clock, messages=messages)
    results.plots.save(timeline, path / "plots" / "timeline")
    store.write(NAME, run.records)
    store.tidy()


def _progress(plan: Any, say: Callable[[str], None]) -> Callable[[Mapping[str, Any]], None]:
    """Return a function that says each evaluation in a line."""
    what = runs.records.what(plan)
    metric, live, unit = results.metric.Metric.of(what), what.get("live"), plan.experiment.local.unit

    def report(record: Mapping[str, Any]) -> None:
        if record["kind"] == "evaluation":
            seconds = f"{record['seconds']:>9,.1f} s" if live else f"{number(record['seconds']):>9} s of virtual time"
            say(f"{record['gradients']:>7} of {plan.program.num_rows} {unit}s, {seconds}: {metric.beside_loss(record)}")

    return report


def show(summary: Mapping[str, Any]) -> None:
    """Prints how a run ended."""
    metric = results.metric.Metric.of(summary)
    outcome = "diverged" if summary["diverged"] else f"{metric.title} {metric.text(summary[metric.test])}"
    workers = f"{summary['num_workers']} worker{'s' * (summary['num_workers'] > 1)}"
    if summary.get("live"):
        seconds, on = f"{summary['seconds']:,.1f} s", "on the recorded compute times"
    else:
        seconds, on = f"{number(summary['seconds'])} s of virtual time", "at the same number of workers"
    unit = results.facts.unit(summary)
    line = f"{summary['title']}, {workers}: {outcome} after {summary['gradients']} {unit}s and {seconds}"
    if summary["speedup"] is not None and not np.isnan(summary["speedup"]):
        counted = "gradients" if unit == "gradient" else "local steps"
        line += f"; {summary['speedup']:.2f} times the {counted} per second of synchronous SGD {on}"
    print(line)


COMMAND = launch.Command(main=main, usage=__doc__, define=define_flags, unlisted=shared_flags.OF_HOSTS)
