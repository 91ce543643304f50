"""A worker time-line: who was busy on what was used, busy on what was dropped, and idle; and what each one read."""

from collections.abc import Mapping
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sgdlab.peer_schedule import PeerSchedule
from sgdlab.results.plots import STYLE
from sgdlab.schedule import Schedule

USED, LOST, UNDECIDED, IDLE = "#4c9a6a", "#d9534f", "#b8b8b8", "#f3efe6"

LABELLED_WORKERS = 32
"""With more, rows are too narrow for words."""


class _Work(NamedTuple):
    """What is drawn of a schedule; arrays, one entry a gradient."""

    worker: np.ndarray
    started: np.ndarray
    ended: np.ndarray
    colour: np.ndarray  # of `_COLOURS`.
    label: list[str]  # what it was computed on.
    ticks: np.ndarray  # seconds of updates.
    links: np.ndarray  # [., 3]: seconds, from whom, to whom.


_COLOURS = (USED, LOST, UNDECIDED)


def timeline(
    schedules: Mapping[str, Schedule | PeerSchedule], *, seconds: float | None = None, clock: str = "virtual time"
) -> Figure:
    """Draws what every worker did from the start of a run, one panel for each schedule.

    Args:
      schedules: title -> schedule, all of the same workers.
      seconds: how long. None: three times as long as the slowest worker's first gradient.
      clock: whose seconds they are.

    Returns:
      The figure. A number in a bar is the version that the gradient was computed on (of several blocks, the oldest and
      the newest). A tick at the foot of a panel is an update; a thin line is one node averaging another's parameters.
    """
    works = {title: _work(schedule) for title, schedule in schedules.items()}
    if seconds is None:
        seconds = 3.0 * max(_first_ends(work).max() for work in works.values())
    workers = max(schedule.num_workers for schedule in schedules.values())
    with mpl.rc_context(STYLE):
        height = 0.7 + len(schedules) * (0.75 + min(0.17 * workers, 9.0))
        figure = mpl.figure.Figure(figsize=(10.4, height))
        panels = figure.subplots(len(schedules), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (title, schedule) in zip(panels, schedules.items(), strict=True):
            _draw(axes, works[title], schedule.num_workers, seconds)
            axes.set_title(f"{title}: {schedule.gradients_per_second():.3g} gradients/s over the whole run", loc="left")
        panels[-1].set_xlabel(f"{clock}, s (numbers: versions that were read; ticks: updates)")
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


def _work(schedule: Schedule | PeerSchedule) -> _Work:
    if isinstance(schedule, PeerSchedule):
        return _work_of_peers(schedule)
    used, dropped = schedule.used().any(axis=1), schedule.dropped().all(axis=1)
    oldest, newest = schedule.read.min(axis=1).tolist(), schedule.read.max(axis=1).tolist()
    return _Work(
        worker=schedule.worker,
        started=schedule.started,
        ended=schedule.ended(),
        colour=np.select([used, dropped], [0, 1], 2),
        label=[str(a) if a == b else f"{a}-{b}" for a, b in zip(oldest, newest, strict=True)],
        ticks=np.unique(schedule.applied[np.isfinite(schedule.applied)]),
        links=np.empty((0, 3)),
    )


def _work_of_peers(schedule: PeerSchedule) -> _Work:
    rows = np.flatnonzero(schedule.node < schedule.num_nodes)
    to = schedule.node[schedule.event]
    other = (schedule.source != to) & (schedule.source < schedule.num_nodes) & (to < schedule.num_nodes)
    center = schedule.source == schedule.num_nodes  # drawn from the foot of the panel
    linked = np.flatnonzero(other | (center & (to < schedule.num_nodes)))
    links = np.column_stack([schedule.started[schedule.event[linked]], schedule.source[linked], to[linked]])
    return _Work(
        worker=schedule.node[rows],
        started=schedule.started[rows],
        ended=schedule.finished[rows],
        colour=np.zeros(rows.size, int),
        label=[str(number) for number in schedule.number()[rows].tolist()],
        ticks=np.empty(0),
        links=links,
    )


def _draw(axes: mpl.axes.Axes, work: _Work, workers: int, seconds: float) -> None:
    shown = np.flatnonzero(work.started < seconds)
    lengths = np.minimum(work.ended, seconds) - work.started
    width = 0.6 if workers <= LABELLED_WORKERS else 0.0
    for worker in range(workers):
        axes.broken_barh([(0, seconds)], (worker - 0.4, 0.8), facecolor=IDLE, linewidth=0)
        for kind, colour in enumerate(_COLOURS):
            rows = shown[(work.worker[shown] == worker) & (work.colour[shown] == kind)]
            spans = list(zip(work.started[rows], lengths[rows], strict=True))
            axes.broken_barh(spans, (worker - 0.4, 0.8), facecolor=colour, edgecolor="white", linewidth=width)
    if workers <= LABELLED_WORKERS:
        for row in shown:
            if lengths[row] > 0.011 * len(work.label[row]) * seconds:
                place = work.started[row] + lengths[row] / 2, work.worker[row]
                axes.text(*place, work.label[row], ha="center", va="center", fontsize=6, color="white", clip_on=True)
    for when, source, target in work.links[work.links[:, 0] < seconds]:
        axes.plot([when, when], [min(source, workers - 0.5), target], color="black", linewidth=0.4, alpha=0.6)
        axes.plot(when, target, ".", color="black", markersize=2.5)
    updates = work.ticks[work.ticks <= seconds]
    axes.plot(updates, np.full(updates.shape, workers - 0.35), "|", color="black", markersize=5)
    axes.set_xlim(0, seconds)
    axes.set_ylim(workers - 0.1, -0.6)
    if workers <= LABELLED_WORKERS:
        axes.set_yticks(range(workers))
    axes.set_ylabel("worker")
    axes.grid(visible=False)


def _first_ends(work: _Work) -> np.ndarray:
    first = np.full(int(work.worker.max()) + 1, np.inf)
    np.minimum.at(first, work.worker, work.ended)
    return first[np.isfinite(first)]
