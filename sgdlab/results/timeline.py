"""A worker time-line: who was busy on what was used, busy on what was dropped, and idle."""

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sgdlab.results.plots import STYLE
from sgdlab.schedule import Schedule

USED, LOST, UNDECIDED, IDLE = "#4c9a6a", "#d9534f", "#b8b8b8", "#f3efe6"


def timeline(schedules: Mapping[str, Schedule], *, seconds: float | None = None) -> Figure:
    """Draws what every worker did from the start of a run, one panel for each schedule.

    Args:
      schedules: title -> schedule, all of the same workers.
      seconds: how long. None: three times as long as the slowest worker's first gradient.

    Returns:
      The figure. A tick at the foot of a panel is an update.
    """
    if seconds is None:
        seconds = 3.0 * max(_first_arrivals(schedule).max() for schedule in schedules.values())
    workers = max(schedule.num_workers for schedule in schedules.values())
    with mpl.rc_context(STYLE):
        height = 0.7 + len(schedules) * (0.75 + 0.17 * workers)
        figure = mpl.figure.Figure(figsize=(10.4, height))
        panels = figure.subplots(len(schedules), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (title, schedule) in zip(panels, schedules.items(), strict=True):
            _draw(axes, schedule, seconds)
            axes.set_title(f"{title}: {schedule.gradients_per_second():.3g} gradients/s over the whole run", loc="left")
        panels[-1].set_xlabel("virtual time, s")
        figure.legend(
            handles=[
                Patch(color=USED, label="gradient that was used"),
                Patch(color=LOST, label="gradient that was dropped"),
                Patch(color=UNDECIDED, label="under way when the run ended"),
                Patch(facecolor=IDLE, edgecolor="#999999", label="idle"),
            ],
            loc="outside lower center",
            ncols=4,
        )
    return figure


def _draw(axes: mpl.axes.Axes, schedule: Schedule, seconds: float) -> None:
    ended = schedule.arrived.max(axis=1)
    used, dropped = schedule.used().any(axis=1), schedule.dropped().all(axis=1)
    for worker in range(schedule.num_workers):
        axes.broken_barh([(0, seconds)], (worker - 0.4, 0.8), facecolor=IDLE, linewidth=0)
    for rows, colour in ((used, USED), (dropped, LOST), (~used & ~dropped, UNDECIDED)):
        for row in np.flatnonzero(rows & (schedule.started < seconds)):
            begun = schedule.started[row]
            length = min(ended[row], seconds) - begun
            axes.broken_barh(
                [(begun, length)],
                (schedule.worker[row] - 0.4, 0.8),
                facecolor=colour,
                edgecolor="white",
                linewidth=0.6,
            )
    updates = schedule.applied[schedule.applied <= seconds]
    axes.plot(updates, np.full(updates.shape, schedule.num_workers - 0.35), "|", color="black", markersize=5)
    axes.set_xlim(0, seconds)
    axes.set_ylim(schedule.num_workers - 0.1, -0.6)
    axes.set_yticks(range(schedule.num_workers))
    axes.set_ylabel("worker")
    axes.grid(visible=False)


def _first_arrivals(schedule: Schedule) -> np.ndarray:
    first = np.full(schedule.num_workers, np.inf)
    np.minimum.at(first, schedule.worker, schedule.arrived.max(axis=1))
    return first[np.isfinite(first)]
