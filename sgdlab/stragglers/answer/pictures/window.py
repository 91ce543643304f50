"""The time-line of the recommended protocol beside full synchrony, in typical steps."""

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np
from matplotlib.figure import Figure

from sgdlab.protocols.rounds import rounds_in_arrays
from sgdlab.report.words import number
from sgdlab.results import timeline
from sgdlab.schedule import Schedule
from sgdlab.stragglers.answer.pictures import style
from sgdlab.stragglers.comparison.measured import Measured, interrupted
from sgdlab.stragglers.comparison.protocol import Protocol
from sgdlab.stragglers.comparison.sweeps import FINISHING
from sgdlab.stragglers.recording import SplitRecording

STEPS = 10
"""Steps of full synchrony that are drawn; the other protocol is drawn for as long."""

MOST_WORKERS = 24

_SPARE = 1.2
"""Steps that follow a window and may be needed by the other protocol, over those that it needs on average."""


def schedule_window(
    parts: SplitRecording, chosen: Protocol, *, besides: Protocol | None = None, named: Collection[int] = ()
) -> Figure | None:
    """Full synchrony and a protocol in the same steps, which are typical: its gain there is nearest to that of all.

    All begin with the first of these steps, all workers at once; the protocol goes on with the steps that follow, for
    as long as full synchrony takes.

    Args:
      parts: the recording.
      chosen: the protocol, measured on the evaluation steps.
      besides: another one to draw below.
      named: indices of workers that are drawn in any case, and whose names are emphasised.

    Returns:
      The figure; None where there is nothing but full synchrony of all workers.
    """
    others = [one for one in (chosen, besides) if one is not None and one.backups != 0]
    if not others:
        return None
    workers = len(parts.workers)
    synchrony = interrupted(parts.test, workers)
    first, steps, gain, needed = _typical_window(parts, synchrony, others)
    runtimes = parts.test[first : first + needed + 1]
    window = runtimes[:steps]
    made = {"Full synchrony": rounds_in_arrays(window, at_least=workers, seconds=0.0, interrupt=False)}
    for one in others:
        made[_name(one, workers)] = schedule(one, runtimes, one.result.gradients[first : first + len(runtimes)])
    duration = min(drawn.wall_clock() for drawn in made.values())
    late = np.bincount(window.argmax(axis=1), minlength=workers)
    often = [int(worker) for worker in np.argsort(-late, kind="stable") if late[worker]]
    shown = workers_shown(workers, [*named, *often])
    figure = timeline.window(
        {_title(name, drawn, duration): drawn for name, drawn in made.items()},
        seconds=duration,
        rows=timeline.WorkerRows(shown, [style.short(parts.workers[worker]) for worker in shown], named),
    )
    numbers = parts.test_steps[first : first + steps]
    overall = others[0].result.gradients_per_second / synchrony.gradients_per_second
    where = f"from {numbers[0]} to {numbers[-1]}, gain {gain:.2f} times (all: {overall:.2f} times)"
    figure.suptitle(f"Typical evaluation steps: {where}", fontsize="medium", x=0.01, ha="left")
    return figure


def typical_steps(parts: SplitRecording, chosen: Protocol) -> tuple[int, int]:
    """The first step, by the recorder's number, and the number of steps of the window that is drawn of a protocol."""
    first, steps, *_ = _typical_window(parts, interrupted(parts.test, len(parts.workers)), [chosen])
    return int(parts.test_steps[first]), steps


def _typical_window(
    parts: SplitRecording, synchrony: Measured, others: Sequence[Protocol]
) -> tuple[int, int, float, int]:
    """Row and length of the window that is typical of the first protocol; its gain, and how many rows all may need."""
    recorded, fastest = len(parts.test), max(one.result.updates_per_second for one in others)
    ahead = _SPARE * max(1.0, fastest / synchrony.updates_per_second)
    steps = max(1, min(STEPS, int((recorded - 1) / ahead)))
    needed = int(np.ceil(ahead * steps))
    first, gain = typical(others[0].result, synchrony, parts.test_pauses, steps, last=max(0, recorded - needed))
    return first, steps, gain, needed


def typical(
    measured: Measured, synchrony: Measured, paused: np.ndarray, steps: int, *, last: int | None = None
) -> tuple[int, float]:
    """The first of so many consecutive steps in which a protocol's gain is nearest to that in all, and the gain there.

    Args:
      measured: the protocol in all T steps.
      synchrony: full synchrony in the same steps.
      paused: bool[T], steps that a window avoids if it can.
      steps: length of the window.
      last: the last step with which it may begin; by default, T less its length.
    """

    def rates(result: Measured) -> np.ndarray:
        return (_in_windows(result.gradients, steps) / _in_windows(result.seconds, steps)).sum(axis=1)

    gains = (rates(measured) / rates(synchrony))[: None if last is None else last + 1]
    away = np.abs(np.log(gains * synchrony.gradients_per_second / measured.gradients_per_second))
    disturbed = _in_windows(paused.astype(float), steps)[: gains.size] > 0
    if not disturbed.all():
        away[disturbed] = np.inf
    first = int(np.argmin(away))
    return first, float(gains[first])


def _in_windows(values: np.ndarray, steps: int) -> np.ndarray:
    """Sums over all windows of some steps, float64[T - steps + 1, ...]."""
    sums = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])
    return sums[steps:] - sums[:-steps]


def schedule(chosen: Protocol, runtimes: np.ndarray, gradients: np.ndarray) -> Schedule:
    """The schedule of a protocol, all at once from the start, with times and the gradients that its updates take.

    Args:
      chosen: the protocol.
      runtimes: float64[T, N], seconds.
      gradients: float64[T, 1].
    """
    interrupt = chosen.method != FINISHING and not chosen.without
    kept = np.setdiff1d(np.arange(runtimes.shape[1]), chosen.without)
    counts = gradients[:, 0].astype(int)
    of_kept = rounds_in_arrays(runtimes[:, kept], at_least=counts, seconds=0.0, interrupt=interrupt)
    return dataclasses.replace(of_kept, worker=kept[of_kept.worker], num_workers=runtimes.shape[1])


def workers_shown(workers: int, named: Collection[int], most: int = MOST_WORKERS) -> list[int]:
    """At most `most` workers, evenly chosen, and among them as many of those that are named as there is room for.

    Example:
      >>> workers_shown(3, [1]), workers_shown(100, [7], most=5)
      ([0, 1, 2], [0, 7, 34, 66, 99])
    """
    kept = list(dict.fromkeys(named))[:most]
    others = np.setdiff1d(np.arange(workers), kept)
    return sorted([*kept, *others[timeline.evenly(others.size, most - len(kept))].tolist()])


def _name(protocol: Protocol, workers: int) -> str:
    name = style.plain(f"{protocol.title}, {protocol.setting}" if protocol.setting else protocol.title)
    if not protocol.without:
        name += f" (waits for {protocol.result.waited_for:.3g} of {workers} on average)"
    return name[0].upper() + name[1:]


def _title(name: str, drawn: Schedule, seconds: float) -> str:
    applied, update = drawn.applied[:, 0], drawn.update[:, 0]
    inside = applied[applied <= seconds * (1 + 1e-9)]
    if not inside.size:
        return f"{name}: no update in this time"
    until = inside.max()
    used = np.count_nonzero(applied[update[update >= 0]] <= until)
    return f"{name}: {number(used / until)} gradients per second"
