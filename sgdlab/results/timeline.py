"""A worker time-line: who was busy on what was used, busy on what was dropped, and idle; and what each one read."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sgdlab.peer_schedule import PeerSchedule
from sgdlab.report.words import number
from sgdlab.results.plots import STYLE
from sgdlab.schedule import Schedule

USED, LOST, UNDECIDED, LAST, IDLE = "#4c9a6a", "#d9534f", "#b8b8b8", "#d9a400", "#f3efe6"
SENDING, DOWN = "#a9c8e8", "#3b3b4f"

MOST_WORKERS = 64
"""Workers that are drawn; of more, evenly chosen ones."""

LABELLED_WORKERS = 32
"""With more, rows are too narrow for words."""

_DOTS = 2000
"""Of the time axis: what happens twice in one of them is drawn once."""

_MOST_SHAPES = 10_000
"""More bars are dots in an SVG file, which no program would open otherwise."""


class _Work(NamedTuple):
    """Holds what is drawn of a schedule; arrays, one entry a gradient, a message that costs time, or an outage."""

    worker: np.ndarray
    started: np.ndarray
    ended: np.ndarray
    colour: np.ndarray  # of `_COLOURS`.
    versions: np.ndarray  # [., 2]: the oldest and the newest that it was computed on.
    ticks: np.ndarray  # seconds of updates.
    links: np.ndarray  # [., 3]: seconds, from whom, to whom.
    end: float  # of the run.


_COLOURS = (USED, LOST, UNDECIDED, LAST, SENDING, DOWN)
_LAST, _SENDING, _DOWN = 3, 4, 5
_COLUMNS = ("worker", "started", "ended", "colour", "versions")


class WorkerRows(NamedTuple):
    """The rows of a window: some of the workers, by name."""

    workers: Sequence[int]  # indices of the workers to draw, from top to bottom
    names: Sequence[str]  # what they are called
    marked: Collection[int] = ()  # indices of those whose names are emphasised

    @classmethod
    def evenly(cls, workers: int, most: int = MOST_WORKERS) -> "WorkerRows":
        """Choose at most `most` workers over all ranks, which are their names.

        Example:
          >>> WorkerRows.evenly(10_001, 3).names
          ['0', '5,000', '10,000']
        """
        shown = evenly(workers, most).tolist()
        return cls(shown, [f"{worker:,}" for worker in shown])


def evenly(count: int, most: int = MOST_WORKERS) -> np.ndarray:
    """Return at most `most` of so many indices, evenly spaced, and the first and the last among them.

    Example:
      >>> evenly(3).tolist(), evenly(101, 5).tolist()
      ([0, 1, 2], [0, 25, 50, 75, 100])
    """
    return np.linspace(0, count - 1, min(count, most)).round().astype(int)


def timeline(
    schedules: Mapping[str, Schedule | PeerSchedule],
    *,
    seconds: float | None = None,
    clock: str = "virtual time",
    rows: WorkerRows | None = None,
    starts: Mapping[str, float] = MappingProxyType({}),
    messages: Collection[str] = (),
    down: Mapping[str, np.ndarray | None] = MappingProxyType({}),
) -> Figure:
    """Draws what every worker did from the start of a run, one panel for each schedule.

    Args:
      schedules: title -> schedule, all of the same workers.
      seconds: how long, at most to the end of the longest run. None: three times as long as the slowest worker's first
        gradient.
      clock: whose seconds they are.
      rows: which workers, and their names. None: all, by number; of more than 64, as many evenly chosen ones.
      starts: title -> second of the schedule at which its panel begins; where it is not given, with the run.
      messages: titles of schedules whose workers send messages of several local steps in the place of gradients.
      down: title -> float64[D, 3], a worker, and the seconds from and until which it is down (`Plan.down`).

    Returns:
      The figure. A number in a bar is the version that the gradient was computed on (of several blocks, the oldest and
      the newest). A tick at the foot of a panel is an update; a thin line is one node averaging another's parameters.
    """
    works = {title: _with_down(_work(schedule), down.get(title)) for title, schedule in schedules.items()}
    works = {title: _from(work, starts.get(title, 0.0)) for title, work in works.items()}
    if seconds is None:
        seconds = 3.0 * max(_first_ends(work).max() for work in works.values())
    seconds = min(seconds, max(work.end for work in works.values()))
    chosen = rows or WorkerRows.evenly(max(schedule.num_workers for schedule in schedules.values()))
    few = len(chosen.workers) <= LABELLED_WORKERS
    with mpl.rc_context(STYLE):
        height = 0.7 + len(schedules) * (0.75 + min(0.17 * len(chosen.workers), 9.0))
        figure = mpl.figure.Figure(figsize=(10.4, height))
        panels = figure.subplots(len(schedules), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (title, schedule) in zip(panels, schedules.items(), strict=True):
            work = works[title] = _only(works[title], chosen.workers, schedule.num_workers)
            _draw(axes, work, chosen, schedule.num_workers, seconds)
            if few and rows is None:
                axes.tick_params(axis="y", labelsize="medium")
            over = "in these steps" if starts.get(title) else "over the whole run"
            unit = "messages" if title in messages else "gradients"
            rate = number(_rate(schedule, starts.get(title, 0.0)))
            axes.set_title(f"{title}: {rate} {unit}/s {over}", loc="left")
        marks = {
            "numbers: versions that were read": few,
            "ticks: updates": any(work.ticks.size for work in works.values()),
            "lines: averaging, by the node with the dot": any(work.links.size for work in works.values()),
        }
        words = "; ".join(mark for mark, drawn in marks.items() if drawn)
        panels[-1].set_xlabel(f"{clock}, s" + f" ({words})" * bool(words))
        units = dict.fromkeys("message" if title in messages else "gradient" for title in schedules)
        unit = " or ".join(sorted(units))
        handles = [
            Patch(color=USED, label=f"{unit} that was used"),
            Patch(color=LOST, label=f"{unit} that was dropped"),
            Patch(color=UNDECIDED, label="under way when the run ended"),
            Patch(facecolor=IDLE, edgecolor="#999999", label="idle"),
        ]
        for kind, label in ((_SENDING, "message under way"), (_DOWN, "down")):
            if any(((work.colour == kind) & (work.ended > work.started)).any() for work in works.values()):
                handles.insert(-1, Patch(color=_COLOURS[kind], label=label))
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def window(schedules: Mapping[str, Schedule], *, seconds: float, rows: WorkerRows) -> Figure:
    """Draws what some of the workers did, and for whom all the others waited, one panel for each schedule.

    Args:
      schedules: title -> schedule of one block, all of the same workers.
      seconds: how long, from the start of the schedules.
      rows: which workers.

    Returns:
      The figure. In gold: the last gradient of an update of several, whose worker the others waited for. A thin line is
      an update.
    """
    with mpl.rc_context(STYLE):
        height = 0.6 + len(schedules) * (0.55 + max(0.9, 0.15 * len(rows.workers)))
        figure = mpl.figure.Figure(figsize=(8.4, height))
        panels = figure.subplots(len(schedules), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (title, schedule) in zip(panels, schedules.items(), strict=True):
            work = _only(_waited_for(_work(schedule), schedule), rows.workers, schedule.num_workers)
            _draw(axes, work, rows, schedule.num_workers, seconds, numbers=False)
            updates = schedule.applied[:, 0]
            axes.vlines(updates[updates <= seconds], -0.5, len(rows.workers) - 0.5, color="black", linewidth=0.6)
            for tick, worker in zip(axes.get_yticklabels(), rows.workers, strict=True):
                tick.set(**{"color": LOST, "weight": "bold"} if worker in rows.marked else {})
            axes.set_title(title, loc="left")
        panels[-1].set_xlabel("time, s (thin lines: updates of the parameters)")
        kinds = {
            USED: "gradient that is used",
            LAST: "used, the last: others wait for it",
            LOST: "discarded",
            UNDECIDED: "under way at the end",
            IDLE: "waiting",
        }
        figure.legend(
            handles=[Patch(facecolor=colour, edgecolor="#999999", label=label) for colour, label in kinds.items()],
            loc="outside lower center",
            ncols=len(kinds),
        )
    return figure


def _rate(schedule: Schedule | PeerSchedule, start: float) -> float:
    """Gradients per second from some second on."""
    if start == 0:
        return schedule.gradients_per_second()
    if isinstance(schedule, PeerSchedule):
        done = schedule.finished[schedule.takes_gradient()]
    else:
        update = schedule.update[:, 0]
        done = schedule.applied[update[update >= 0], 0]
    return np.count_nonzero(done > start) / (schedule.wall_clock() - start)


def _from(work: _Work, start: float) -> _Work:
    """Return what ends later than `start`, which is the new origin of time."""
    if start == 0:
        return work
    later = _taken(work, np.flatnonzero(work.ended > start))
    return later._replace(
        started=np.maximum(later.started - start, 0.0),
        ended=later.ended - start,
        ticks=work.ticks[work.ticks > start] - start,
        links=work.links[work.links[:, 0] > start] - np.array([start, 0, 0]),
        end=work.end - start,
    )


def _taken(work: _Work, gradients: np.ndarray) -> _Work:
    """Some of the gradients."""
    return work._replace(**{name: getattr(work, name)[gradients] for name in _COLUMNS})


def _with_down(work: _Work, down: np.ndarray | None) -> _Work:
    """Return the work with the times in which workers are down, which are drawn over all else."""
    if down is None:
        return work
    kind, nothing = np.full(len(down), _DOWN), np.zeros((len(down), 2), int)
    others = down[:, 0].astype(int), down[:, 1], down[:, 2], kind, nothing
    added = zip(_COLUMNS, others, strict=True)
    joined: dict[str, Any] = {name: np.concatenate([getattr(work, name), other]) for name, other in added}
    return work._replace(**joined)


def _waited_for(work: _Work, schedule: Schedule) -> _Work:
    """The last gradient of each update of several in its own colour; updates are not ticked, since lines show them."""
    update = schedule.update[:, 0]
    entered = np.flatnonzero(update >= 0)
    sizes = np.bincount(update[entered], minlength=schedule.num_updates)
    last = np.zeros(schedule.num_updates, int)
    last[update[entered]] = entered  # rows are in the order of arrival, and the last one of an update stays
    colour = work.colour.copy()
    colour[last[sizes > 1]] = _LAST
    return work._replace(colour=colour, ticks=np.empty(0))


def _only(work: _Work, workers: Sequence[int], num_workers: int) -> _Work:
    """The rows of some workers, numbered from the top; links only between them."""
    place = np.full(num_workers + 1, -1)  # the last is a center
    for row, worker in enumerate(workers):
        if worker < num_workers:  # of several schedules, one may have fewer
            place[worker] = row
    place[num_workers] = len(workers)
    kept = _taken(work, np.flatnonzero(place[work.worker] >= 0))
    ends = place[work.links[:, 1:].astype(int)]
    linked = (ends >= 0).all(axis=1)
    return kept._replace(worker=place[kept.worker], links=np.column_stack([work.links[linked, :1], ends[linked]]))


def _work(schedule: Schedule | PeerSchedule) -> _Work:
    if isinstance(schedule, PeerSchedule):
        return _work_of_peers(schedule)
    used, dropped = schedule.used().any(axis=1), schedule.dropped().all(axis=1)
    ended = schedule.ended()
    spans = [(schedule.started, ended, np.select([used, dropped], [0, 1], 2))]
    sending = np.full(ended.shape, _SENDING)
    if schedule.asked is not None:
        spans.append((schedule.asked, schedule.started, sending))
    if schedule.sent is not None:
        spans.append((schedule.sent.max(axis=1), schedule.arrived.max(axis=1), sending))
    started, ended, colour = (np.concatenate(column) for column in zip(*spans, strict=True))
    versions = np.column_stack([schedule.read.min(axis=1), schedule.read.max(axis=1)])
    return _Work(
        worker=np.tile(schedule.worker, len(spans)),
        started=started,
        ended=ended,
        colour=colour,
        versions=np.tile(versions, (len(spans), 1)),
        ticks=np.unique(schedule.applied[np.isfinite(schedule.applied)]),
        links=np.empty((0, 3)),
        end=schedule.wall_clock() or float(ended.max()),  # it ended before the first update
    )


def _work_of_peers(schedule: PeerSchedule) -> _Work:
    rows = np.flatnonzero(schedule.takes_gradient())
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
        versions=np.column_stack([schedule.gradient_number()] * 2),
        ticks=np.empty(0),
        links=links,
        end=schedule.wall_clock(),
    )


def _draw(
    axes: mpl.axes.Axes, work: _Work, rows: WorkerRows, num_workers: int, seconds: float, *, numbers: bool = True
) -> None:
    """Draws what the workers of the rows did, who are some of so many."""
    count, takes_part = len(rows.workers), np.unique(work.worker)  # who takes no part is not idle
    until = min(seconds, work.end)  # and nobody is, once the run is over
    work = _until(work, until)
    row = np.concatenate([takes_part, work.worker])
    left = np.concatenate([np.zeros(takes_part.size), work.started])
    right = np.concatenate([np.full(takes_part.size, until), work.ended])
    corners = [(left, row - 0.4), (left, row + 0.4), (right, row + 0.4), (right, row - 0.4)]
    points = axes.figure.get_figwidth() * 72 * (work.ended - work.started) / seconds
    bars = PolyCollection(
        np.stack([np.column_stack(corner) for corner in corners], axis=1),
        facecolors=[IDLE] * takes_part.size + [_COLOURS[colour] for colour in work.colour],
        edgecolors="white",
        linewidths=[*np.zeros(takes_part.size), *np.minimum(0.6, 0.15 * points)],  # no edge hides its bar
        rasterized=row.size > _MOST_SHAPES,
    )
    axes.add_collection(bars, autolim=False)
    if numbers and count <= LABELLED_WORKERS:
        _write_versions(axes, work, seconds)
    when, source, target = work.links[_once(work.links[:, 0] * _DOTS / seconds, *work.links[:, 1:].T)].T
    if when.size:
        axes.vlines(when, np.minimum(source, count - 0.5), target, color="black", linewidth=0.4, alpha=0.6)
        axes.plot(when, target, ".", color="black", markersize=2.5)
    updates = work.ticks[_once(work.ticks * _DOTS / seconds)]
    axes.plot(updates, np.full(updates.shape, count - 0.35), "|", color="black", markersize=5)
    axes.set_xlim(0, seconds)
    axes.set_ylim(count - 0.1, -0.6)
    axes.set_yticks(range(count), rows.names, fontsize="x-small")
    axes.set_ylabel("worker" if count == num_workers else f"{count} of {num_workers:,} workers")
    axes.grid(visible=False)


def _until(work: _Work, end: float) -> _Work:
    """Return what begins earlier than `end`, as far as it."""
    earlier = _taken(work, np.flatnonzero(work.started < end))
    return earlier._replace(
        ended=np.minimum(earlier.ended, end),
        ticks=work.ticks[work.ticks <= end],
        links=work.links[work.links[:, 0] < end],
    )


def _write_versions(axes: mpl.axes.Axes, work: _Work, seconds: float) -> None:
    """Writes into each bar that is wide enough what it was computed on."""
    lengths = work.ended - work.started
    for row in np.flatnonzero((lengths > 0.011 * seconds) & (work.colour < _SENDING)):
        oldest, newest = work.versions[row]
        label = f"{oldest}" if oldest == newest else f"{oldest}-{newest}"
        if lengths[row] > 0.011 * len(label) * seconds:
            place = work.started[row] + lengths[row] / 2, work.worker[row]
            axes.text(*place, label, ha="center", va="center", fontsize=6, color="white", clip_on=True)


def _once(*columns: np.ndarray) -> np.ndarray:
    """Return the index of one entry of those that are the same but for fractions."""
    return np.unique(np.floor(np.column_stack(columns)), axis=0, return_index=True)[1]


def _first_ends(work: _Work) -> np.ndarray:
    first, computing = np.full(int(work.worker.max()) + 1, np.inf), work.colour < _SENDING
    np.minimum.at(first, work.worker[computing], work.ended[computing])
    return first[np.isfinite(first)]
