"""Draws schedules: when workers compute and wait, what is dropped, which version each gradient read. No training.

    sgdlab timeline --config.method=partial --workdir=runs/timeline
    sgdlab timeline --methods=synchronous,backup_workers,asgd --workdir=runs/timelines
    sgdlab timeline steps.csv --first_step=300 --config.method=backup_workers

Compute times are those of the configuration's cluster, or of a recorded trace, from its first step on. Leaves
timeline.png, timeline.svg, schedule.npz, and trace.json for https://ui.perfetto.dev and chrome://tracing.
"""

import math
import pathlib
from collections.abc import Mapping, Sequence

from absl import flags

from sgdlab import results, runs
from sgdlab.commands import launch, replay, schedules, shared_flags, traced
from sgdlab.errors import UsageError

DEFAULT_WORKDIR = "runs/timeline"

STEPS = 40
"""Recorded steps that are drawn unless told otherwise."""


def define_flags() -> None:
    """Defines the flags of this command."""
    schedules.define_flags("draw", methods="draw in one picture", steps=STEPS)
    flags.DEFINE_float(
        "seconds", None, "Seconds to draw (default: three times the duration of the slowest worker's first gradient)."
    )


def main(argv: Sequence[str]) -> None:
    """Makes or loads schedules, prints their idle time and staleness, draws and exports them."""
    given = flags.FLAGS
    if given.seconds is not None and not 0 < given.seconds < math.inf:
        raise UsageError(f"--seconds={given.seconds} must be a finite number above 0")
    trace = schedules.trace(argv)
    workdir = launch.workdir(DEFAULT_WORKDIR)
    clock, seconds, rows, starts, units, lines, down = "virtual time", given.seconds, None, {}, {}, {}, {}
    if given.recording is not None:
        recording, clock = replay.load(given.recording), "time"
        drawn = {"": (f"{pathlib.Path(given.recording).parent.name}, live", recording.schedule)}
        experiment = runs.recorded.configured(recording)
        units = {} if experiment is None else {drawn[""][0]: experiment.local.unit}
        print("; ".join(f"{count} {fate}" for fate, count in recording.ledger().items() if count))
    elif given.schedule is not None:
        drawn = {"": (pathlib.Path(given.schedule).stem, schedules.load(given.schedule))}
    elif trace is not None:
        options = shared_flags.trace_options()
        window = traced.window(trace, options, first_step=given.first_step, steps=given.steps or STEPS)
        made = {name: traced.schedule(one, window.recording) for name, one in schedules.experiments().items()}
        drawn = {name: (one.title, one.schedule) for name, one in made.items()}
        units = {one.title: one.unit for one in made.values()}
        rows, clock = traced.rows(window.recording), f"time from step {window.steps[0]} on"
        print(*window.recording.notes, sep="\n", end="\n" * bool(window.recording.notes))
        starts = {one.title: window.start(one) for one in made.values()}
        lines = {one.title: window.describe(one) for one in made.values()}
        seconds = seconds or max(schedule.wall_clock() - starts[title] for title, schedule in drawn.values())
    else:
        plans = {name: runs.plan.planned(one) for name, one in schedules.experiments().items()}
        units = {plan.experiment.method.title: plan.experiment.local.unit for plan in plans.values()}
        drawn = {name: (plan.experiment.method.title, plan.schedule) for name, plan in plans.items()}
        down = {plan.experiment.method.title: plan.down for plan in plans.values()}
    for title, schedule in drawn.values():
        _print(schedule, f"{title}: " if len(drawn) > 1 else "", units.get(title, "gradient"))
        if lines.get(title):
            print(lines[title])
    try:
        pictured = results.timeline.timeline(
            dict(drawn.values()),
            seconds=seconds,
            clock=clock,
            rows=rows,
            starts=starts,
            messages=[title for title, unit in units.items() if unit == "message"],
            down=down,
        )
        results.plots.save(pictured, workdir / "timeline")
        written = _write({name: schedule for name, (_, schedule) in drawn.items()}, workdir)
    except OSError as error:
        raise UsageError(f"--workdir={workdir} must be a directory that can be written: {error}") from error
    print(f"Written: {workdir / 'timeline'}.png, .svg, {', '.join(map(str, written))}")


def _print(schedule: schedules.AnySchedule, title: str, unit: str) -> None:
    print(f"{title}{schedule.describe(unit)}")
    idle = schedule.idle_share()
    print(f"idle: mean {100 * idle.mean():.1f} %, from {100 * idle.min():.1f} % to {100 * idle.max():.1f} % by worker")
    if isinstance(schedule, schedules.Schedule) and schedule.traffic is not None:
        share, busy = schedule.sending_share().mean(), max(schedule.server_shares().values())
        print(f"messages: {100 * share:.1f} % of a worker's time; server or its links busy {100 * busy:.1f} %")
        print(f"goodput: {100 * schedule.goodput():.1f} %, computing of gradients that were used")
    if schedule.num_blocks > 1:
        for block in range(schedule.num_blocks):
            # pyrefly: ignore[missing-attribute]  # peers have one block
            print(f"block {block}: mean staleness {schedule.staleness()[:, block].mean():.3g}")


def _write(made: Mapping[str, schedules.AnySchedule], workdir: pathlib.Path) -> list[pathlib.Path]:
    """Writes each schedule and its trace; of several, with the method's name."""
    written = []
    for name, schedule in made.items():
        ending = f"_{name}" if name else ""
        saved, trace = workdir / f"schedule{ending}.npz", workdir / f"trace{ending}.json"
        schedule.save(saved)
        results.trace.write_trace(trace, schedule)
        written += [saved, trace]
    return written


COMMAND = launch.Command(
    main=main,
    workdir="Directory for the results; those of an earlier call are replaced.",
    usage=__doc__,
    define=define_flags,
    positional=True,
    unlisted=(*shared_flags.READING, *shared_flags.TRAINING),
)
