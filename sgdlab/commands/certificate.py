"""Prints the staleness of a schedule, the participation of its workers, and bounds on the time. Nothing is trained.

    sgdlab certificate --methods=synchronous,rennala,ringmaster,asgd
    sgdlab certificate --methods=all --config.cluster.num_workers=32 --variance=100
    sgdlab certificate steps.csv --methods=synchronous,backup_workers,asgd
    sgdlab certificate --recording=runs/live/recording.npz

R is the largest distance in the computation tree of Birch SGD: with it a theorem gives the number of gradients to a
point with a small gradient, for L, D, sigma^2 and epsilon (1 unless flags say otherwise). Compute times are those of
the configuration's cluster or of a recorded trace. Leaves certificate.json, .csv and .md in the work directory.
"""

import pathlib
from collections.abc import Sequence

import numpy as np
from absl import flags

from sgdlab import files, runs, theory
from sgdlab.commands import launch, replay, schedules, shared_flags, traced
from sgdlab.errors import UsageError, said_of
from sgdlab.peer_schedule import AnySchedule
from sgdlab.theory import certificate_table
from sgdlab.theory.certificate_table import Certified

DEFAULT_WORKDIR = "runs/certificate"


def define_flags() -> None:
    """Defines the flags of this command."""
    schedules.define_flags("certify", methods="compare (or all)", steps=None)
    flags.DEFINE_float("smoothness", 1.0, "L, Lipschitz constant of the gradient.")
    flags.DEFINE_float("descent", 1.0, "Delta, initial loss minus the infimum of the loss.")
    flags.DEFINE_float("variance", 1.0, "sigma^2, variance of one stochastic gradient.")
    flags.DEFINE_float("accuracy", 1.0, "epsilon, target for the squared norm of the gradient.")
    flags.DEFINE_bool("json", False, "Prints JSON instead of the table.")


def main(argv: Sequence[str]) -> None:
    """Makes or loads schedules, prints and writes their certificates."""
    given = flags.FLAGS
    with said_of("--"):
        problem = theory.Problem(
            smoothness=given.smoothness, descent=given.descent, variance=given.variance, accuracy=given.accuracy
        )
    workdir = launch.workdir(DEFAULT_WORKDIR)
    known = _named(schedules.trace(argv), problem)
    as_json = certificate_table.as_json(known)
    try:
        files.write_text(workdir / "certificate.json", as_json)
        files.write_text(workdir / "certificate.csv", certificate_table.comma_separated(known))
        files.write_text(workdir / "certificate.md", certificate_table.table(known).markdown())
    except OSError as error:
        raise UsageError(f"--workdir={workdir} must be a directory that can be written: {error}") from error
    if given.json:
        print(as_json, end="")
        return
    print(certificate_table.table(known).text())
    print(f"\nWritten: {workdir / 'certificate'}.json, .csv, .md")


def _named(trace: str | None, problem: theory.Problem) -> Certified:
    """The certificates of the schedules that the flags name."""
    given = flags.FLAGS
    if given.recording is not None:
        return _recorded(given.recording, problem)
    if given.schedule is not None:
        return _alone(pathlib.Path(given.schedule).stem, schedules.load(given.schedule), problem)
    experiments = schedules.experiments().values()
    balanced = frozenset(one.method.title for one in experiments if one.rule.facts.balances_workers)
    local = frozenset(one.method.title for one in experiments if one.local.active)
    if trace is not None:
        options = shared_flags.trace_options()
        window = traced.window(trace, options, first_step=given.first_step, steps=given.steps)
        here = window.recording.select(rows=slice(window.first, None))
        made = [traced.schedule(experiment, here) for experiment in experiments]
        found = {one.title: theory.certificate(one.schedule, steps=one.edges) for one in made}
        seconds = (here.runtimes + here.transfer()[:, None]).mean(axis=0)
        return Certified(found, problem, seconds, balanced, local)
    plans = [runs.plan.planned(experiment) for experiment in experiments]
    found = {plan.experiment.method.title: plan.certificate for plan in plans}
    seconds = plans[0].worker_seconds
    whole = None if seconds is None else seconds * plans[0].experiment.cluster.pieces  # of a gradient, not of its parts
    return Certified(found, problem, whole, balanced, local)


def _recorded(path: str, problem: theory.Problem) -> Certified:
    """The certificate of a run on processes, with what its own configuration says of it, if it has one."""
    title, recording = f"{pathlib.Path(path).absolute().parent.name}, live", replay.load(path)
    experiment, schedule = runs.recorded.configured(recording), recording.schedule
    if experiment is None:
        return _alone(title, schedule, problem)
    steps = experiment.steps[: schedule.num_workers] if experiment.local.active else np.ones(schedule.num_workers, int)
    found = theory.certificate(schedule, steps=runs.local_steps.edges(schedule, steps))
    seconds = _seconds(schedule)
    return Certified(
        {title: found},
        problem,
        None if seconds is None else seconds / steps,
        balanced={title} if experiment.rule.facts.balances_workers else (),
        local={title} if experiment.local.active else (),
    )


def _alone(title: str, schedule: AnySchedule, problem: theory.Problem) -> Certified:
    return Certified({title: theory.certificate(schedule)}, problem, _seconds(schedule))


def _seconds(schedule: AnySchedule) -> np.ndarray | None:
    """None where gradients were dropped: some may have been interrupted, and would seem shorter than they are."""
    return None if schedule.figures()["dropped"] else theory.seconds_per_gradient(schedule)


COMMAND = launch.Command(
    main=main,
    workdir="Directory for the results; those of an earlier call are replaced.",
    usage=__doc__,
    define=define_flags,
    positional=True,
    # How a trace is read, and what only a training needs.
    unlisted=(*shared_flags.READING, "first_step", "steps", *shared_flags.TRAINING),
)
