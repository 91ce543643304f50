"""Draws a schedule: who computes, waits and is dropped, and which version each gradient read. Nothing is trained.

    sgdlab timeline --config.method=partial --workdir=runs/timeline

Results in the work directory: timeline.png and timeline.svg, the schedule (schedule.npz), and trace.json in the Chrome
trace format. https://ui.perfetto.dev and chrome://tracing open it and show, for each gradient, the version that it read
and the update that used it.
"""

import math
import pathlib
from collections.abc import Sequence

from absl import flags

from sgdlab import jobs, results
from sgdlab.commands import launch, replay
from sgdlab.errors import UsageError
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.schedule import Schedule

DEFAULT_WORKDIR = "runs/timeline"


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("recording", None, "A recording.npz of `sgdlab live` to draw: what its workers really did.")
    flags.DEFINE_string("schedule", None, "A schedule.npz to draw instead of the configuration's schedule.")
    flags.DEFINE_float("seconds", None, "Seconds to draw (default: three times the slowest worker's first gradient).")


def main(argv: Sequence[str]) -> None:
    """Makes or loads a schedule, prints its idle time and staleness, draws it and exports it.

    Args:
      argv: the command line without its flags.

    Raises:
      UsageError: if a flag is out of range, or a file cannot be read or written.
    """
    del argv
    given = flags.FLAGS
    if given.seconds is not None and not 0 < given.seconds < math.inf:
        raise UsageError(f"--seconds={given.seconds} must be a finite number above 0")
    if given.recording is not None and given.schedule is not None:
        raise UsageError(f"--schedule={given.schedule} must be left out: --recording has a schedule")
    workdir = pathlib.Path(launch.WORKDIR.value or DEFAULT_WORKDIR)
    clock = "virtual time"
    if given.recording is not None:
        recording, clock = replay.load(given.recording), "time"
        title, schedule = f"{pathlib.Path(given.recording).parent.name}, live", recording.schedule
        print("; ".join(f"{count} {fate}" for fate, count in recording.ledger().items() if count))
    elif given.schedule is None:
        plan = jobs.plan.make_plan(launch.CONFIG.value)
        jobs.configuration.check_used(launch.given_entries(), [jobs.configuration.identity(plan.config)])
        title, schedule = plan.choice.method.title, plan.schedule
    else:
        title, schedule = pathlib.Path(given.schedule).stem, _load(given.schedule)
    print(schedule)
    idle = schedule.idle_share()
    print(f"idle: mean {100 * idle.mean():.1f} %, from {100 * idle.min():.1f} % to {100 * idle.max():.1f} % by worker")
    if schedule.num_blocks > 1:
        for block in range(schedule.num_blocks):
            print(f"block {block}: mean staleness {schedule.staleness()[:, block].mean():.3g}")
    try:
        drawing = results.timeline.timeline({title: schedule}, seconds=given.seconds, clock=clock)
        results.plots.save(drawing, workdir / "timeline")
        schedule.save(workdir / "schedule.npz")
        results.trace.write_trace(workdir / "trace.json", schedule)
    except OSError as error:
        raise UsageError(f"--workdir={workdir} must be a directory that can be written: {error}") from error
    print(f"Written: {workdir / 'timeline'}.png, .svg, {workdir / 'schedule.npz'}, {workdir / 'trace.json'}")


def _load(path: str) -> Schedule | PeerSchedule:
    try:
        return Schedule.load(path)
    except FileNotFoundError:
        raise UsageError(f"--schedule={path} must be a file") from None
    except ValueError as not_a_schedule:
        try:
            return PeerSchedule.load(path)
        except ValueError as not_a_peer_schedule:
            # A file without the column of workers was meant as a peer schedule.
            error = not_a_peer_schedule if "worker" in str(not_a_schedule) else not_a_schedule
            raise UsageError(f"--schedule={path} must be a schedule: {error}") from None
