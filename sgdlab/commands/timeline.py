"""Draws a schedule: who computes, waits and is dropped, and which version each gradient read. No training.

    sgdlab timeline --config.method=partial --workdir=runs/timeline

Leaves in the work directory: timeline.png and .svg, the schedule (schedule.npz), and trace.json in the Chrome trace
format: open it at https://ui.perfetto.dev (or chrome://tracing), where every gradient shows what it read and entered.
"""

import pathlib
from collections.abc import Sequence

import numpy as np
from absl import flags

from sgdlab.commands import launch
from sgdlab.errors import UsageError
from sgdlab.jobs.plan import AnySchedule, make_plan
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.results import plots
from sgdlab.results.timeline import timeline
from sgdlab.results.trace import write_trace
from sgdlab.schedule import Schedule

DEFAULT_WORKDIR = "runs/timeline"


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("schedule", None, "A schedule.npz to draw, instead of the configuration's.")
    flags.DEFINE_float("seconds", None, "How much of it to draw. By default three times the slowest worker.")


def main(argv: Sequence[str]) -> None:
    """Draws, and exports."""
    del argv
    given = flags.FLAGS
    if given.seconds is not None and not 0 < given.seconds < np.inf:
        raise UsageError(f"--seconds={given.seconds} must be a finite number above 0")
    workdir = pathlib.Path(launch.WORKDIR.value or DEFAULT_WORKDIR)
    if given.schedule is None:
        plan = make_plan(launch.CONFIG.value)
        title, schedule = plan.choice.method.title, plan.schedule
    else:
        title, schedule = pathlib.Path(given.schedule).stem, _loaded(given.schedule)
    print(schedule)
    idle = schedule.idle_share()
    print(f"idle: mean {100 * idle.mean():.1f} %, from {100 * idle.min():.1f} % to {100 * idle.max():.1f} % by worker")
    if schedule.num_blocks > 1:
        for block in range(schedule.num_blocks):
            print(f"block {block}: mean staleness {schedule.staleness()[:, block].mean():.3g}")
    try:
        plots.save(timeline({title: schedule}, seconds=given.seconds), workdir / "timeline")
        schedule.save(workdir / "schedule.npz")
        write_trace(workdir / "trace.json", schedule)
    except OSError as error:
        raise UsageError(f"--workdir={workdir} must be a directory that can be written: {error}") from error
    print(f"Written: {workdir / 'timeline'}.png, .svg, {workdir / 'schedule.npz'}, {workdir / 'trace.json'}")


def _loaded(path: str) -> AnySchedule:
    try:
        return Schedule.load(path)
    except FileNotFoundError:
        raise UsageError(f"--schedule={path} must be a file") from None
    except ValueError as server:
        try:
            return PeerSchedule.load(path)
        except ValueError as peers:
            error = peers if "worker" in str(server) else server  # which of the two the file was to be
            raise UsageError(f"--schedule={path} must be a schedule: {error}") from None
