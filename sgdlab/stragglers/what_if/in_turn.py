"""The order in which the causes of waiting are mended, so that a table of what each of them saves adds up."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np

from sgdlab.report.words import some
from sgdlab.stragglers import repairs
from sgdlab.stragglers.diagnosis.diagnosis import Diagnosis
from sgdlab.stragglers.diagnosis.pauses import Pauses
from sgdlab.stragglers.what_if import candidates
from sgdlab.stragglers.what_if.candidates import NODE, PERIOD, WORKER, WORKERS, Repair, Times
from sgdlab.stragglers.what_if.scores import above_median, waited_for
from sgdlab.traces.recording import Recording

MATTERS = 0.01
"""Share of the recorded time from which a cause matters."""

NOTHING = 0.001
"""Share of the recorded time below which nothing is left of a worker's cause, once another repair has mended it."""

_ENOUGH = 0.8
"""The repair of fewer workers is preferred if it saves this share of what that of more saves."""

_HIDDEN = 1.25
"""Causes hide each other if to mend them together saves this multiple of the sum of what each saves alone."""

_MOST_PHASES = 8
"""Most phases that have a row of their own: those whose repair saves most."""


def order(complete: Recording, pauses: Pauses, diagnosis: Diagnosis, times: Times) -> Iterator[tuple[Repair, Times]]:
    """Make the repairs one after the other: at each turn that which saves most of what is left.

    Workers, nodes, steps and communication come first, then the phases of the work, then waiting for the slowest, since
    the repairs of a phase and of all waiting would include those of the workers.

    Args:
      complete: the complete steps.
      pauses: of these steps.
      diagnosis: of these steps. Where it names no worker, or no node, the slowest one has a row all the same.
      times: of the recording.

    Yields:
      The repairs in their order, each with the times after it.
    """
    named = list(candidates.of_diagnosis(complete, diagnosis))
    waiting = [
        *named,
        *candidates.of_pauses(complete, pauses),
        *candidates.of_periods(complete, pauses),
        *candidates.of_communication(complete),
    ]
    blamed = {worker for repair in named for worker in repair.workers}
    lacking = ({NODE} if blamed else {WORKER, NODE}) - {repair.kind for repair in named}
    recorded = seconds = float(times.steps.sum())
    mended: set[int] = set()
    while True:
        slowest = list(_slowest(complete, times, blamed | mended, lacking)) if lacking else []
        saved = {repair: seconds - float(repair.apply(times).steps.sum()) for repair in (*waiting, *slowest)}
        for repair in [r for r in waiting if r.workers and mended.issuperset(r.workers)]:
            if saved[repair] < NOTHING * recorded:
                waiting.remove(repair)
                del saved[repair]
        saved |= _together([repair for repair in waiting if repair in named and repair.workers], saved, times, seconds)
        if not saved:
            break
        # A cause comes before what is merely the slowest of equals, as long as it saves something.
        causes = {r: gain for r, gain in saved.items() if r.evident and gain >= NOTHING * recorded}
        chosen = _preferred(causes or saved)
        times, seconds = chosen.apply(times), seconds - saved[chosen]
        yield chosen, times
        mended |= set(chosen.workers)
        lacking -= {chosen.kind} if chosen in slowest else set()
        waiting = [repair for repair in waiting if repair is not chosen]
    yield from _phases(complete, times)


def _together(named: Sequence[Repair], saved: dict[Repair, float], times: Times, seconds: float) -> dict[Repair, float]:
    """The repairs of several causes that hide each other, with the seconds they save."""
    found: dict[Repair, float] = {}
    for count in range(2, len(named) + 1):
        parts = tuple(named[:count])
        workers = tuple(sorted({worker for part in parts for worker in part.workers}))
        if len(workers) == times.seconds.shape[1]:
            break
        since = {part.since for part in parts}
        repair = Repair(
            WORKERS,
            f"{some([part.title for part in parts])} together",
            parts[0].mended,
            functools.partial(repairs.in_turn, made=[part.apply for part in parts]),
            workers,
            since.pop() if len(since) == 1 else None,
            all(part.over for part in parts),
        )
        gain = seconds - float(repair.apply(times).steps.sum())
        if gain > _HIDDEN * sum(saved[part] for part in parts):
            found[repair] = gain
    return found


def _preferred(saved: dict[Repair, float]) -> Repair:
    """The repair that saves most; of those that save nearly as much, one of fewer workers, or of every n-th step."""
    best = max(saved, key=lambda repair: saved[repair])
    whole, enough = set(best.workers), _ENOUGH * saved[best]
    alike = [r for r, seconds in saved.items() if seconds >= enough and r.workers and whole.issuperset(r.workers)]
    return min(alike, key=lambda repair: (len(repair.workers), repair.kind != PERIOD, -saved[repair]), default=best)


def _phases(complete: Recording, times: Times) -> Iterator[tuple[Repair, Times]]:
    """Mends the phases of what is left, then all waiting for the slowest."""
    shares = np.divide(times.seconds, complete.runtimes, out=np.ones_like(times.seconds), where=complete.runtimes > 0)
    times = dataclasses.replace(times, scale=shares)
    phases = candidates.of_phases(complete)
    before, whole = float(times.steps.sum()), complete.runtimes.sum()
    gains = {name: before - float(repair.apply(times).steps.sum()) for name, repair in phases.items()}
    for _ in range(min(len(phases), _MOST_PHASES)):
        name = min(phases, key=lambda name, times=times: float(phases[name].apply(times).steps.sum()))
        work = complete.phases[name].sum() / whole
        repair = dataclasses.replace(phases.pop(name), evident=_outweighs(gains[name], sum(gains.values()), work))
        times = repair.apply(times)
        yield repair, times
    chance = candidates.of_chance()
    yield chance, chance.apply(times)


def _outweighs(gain: float, gains: float, work: float) -> bool:
    """Return whether a phase costs more than its part of the work: twice, or the others cost half of theirs."""
    return gains > 0 and (gain / gains >= 2 * work or 1 - gain / gains <= (1 - work) / 2)


def _slowest(recording: Recording, times: Times, left_out: set[int], kinds: set[str]) -> Iterator[Repair]:
    """The slowest worker, or node of several workers, or both, as the times now are, though they be no causes."""
    excess = above_median(times.seconds)
    rest = np.setdiff1d(np.arange(excess.size), list(left_out))
    if not rest.size:
        return
    saved = waited_for(times.seconds) + 1e-9 * excess  # of equals, the slower one
    found = [np.array([rest[saved[rest].argmax()]])] if WORKER in kinds else []
    names, of = np.unique(recording.nodes or ["one"] * excess.size, return_inverse=True)
    possible = np.flatnonzero((np.bincount(of) > 1) & (np.bincount(of[rest], minlength=names.size) > 0))
    if NODE in kinds and names.size > 1 and possible.size:
        by_node = np.argsort(of, kind="stable")
        first = np.searchsorted(of[by_node], np.arange(names.size))
        waited = waited_for(np.maximum.reduceat(times.seconds[:, by_node], first, axis=1))
        found.append(np.flatnonzero(of == possible[waited[possible].argmax()]))
    rank = "next slowest" if left_out else "slowest"
    for workers in found:
        repair = candidates.of_workers(recording, workers)
        yield dataclasses.replace(repair, title=f"{repair.title} ({rank})", evident=False)
