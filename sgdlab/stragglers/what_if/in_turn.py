"""The order in which the causes of waiting are mended, so that a table of what each of them saves adds up."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from sgdlab.report.words import some
from sgdlab.stragglers.diagnosis.diagnosis import Diagnosis
from sgdlab.stragglers.diagnosis.pauses import Pauses
from sgdlab.stragglers.what_if import candidates
from sgdlab.stragglers.what_if.candidates import NODE, PERIOD, WORKER, WORKERS, Repair, Times, node_of, of_workers
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

_MOST_OF_A_KIND = 4
"""Most slow workers, and most slow nodes, that are mended one after the other without a diagnosis."""

_MOST_PHASES = 8
"""Most phases that have a row of their own: those whose repair saves most."""

_DEVIATIONS = 4.0
"""Standard deviations above chance from which a worker is last too often."""


@dataclasses.dataclass(frozen=True, eq=False)
class Mended:
    """A repair that was made.

    Attributes:
      repair: what was mended.
      times: after it.
      evident: whether it is a cause, and not merely the slowest of equals.
    """

    repair: Repair
    times: Times
    evident: bool


def order(complete: Recording, pauses: Pauses, diagnosis: Diagnosis | None, times: Times) -> Iterator[Mended]:
    """Makes the repairs one after the other: at each turn that which saves most of what is left.

    Workers, nodes, steps and communication come first, then the phases of the work, then waiting for the slowest, since
    the repairs of a phase and of all waiting would include those of the workers.

    Args:
      complete: the complete steps.
      pauses: of these steps.
      diagnosis: of these steps. Without it, workers and nodes are causes if they are last more often than by chance.
      times: of the recording.

    Yields:
      The repairs in their order.
    """
    named = list(candidates.of_diagnosis(complete, diagnosis))
    waiting = [
        *named,
        *candidates.of_pauses(complete, pauses),
        *candidates.of_periods(complete, pauses),
        *candidates.of_communication(complete),
    ]
    recorded = seconds = float(times.seconds().sum())
    machines = _Slowest(complete, recorded, named, alone=diagnosis is None)
    while True:
        slow = machines.candidates(times)
        saved = {repair: seconds - float(repair.apply(times).seconds().sum()) for repair in (*waiting, *slow)}
        for repair in [r for r in waiting if machines.mended.issuperset(r.workers) and saved[r] < NOTHING * recorded]:
            if repair.workers:
                waiting.remove(repair)
                del saved[repair]
        saved |= _together([repair for repair in waiting if repair in named and repair.workers], saved, times, seconds)
        if not saved:
            break
        # A cause comes before what is merely the slowest of equals, as long as it saves something.
        causes = {r: gain for r, gain in saved.items() if slow.get(r, True) and gain >= NOTHING * recorded}
        chosen = _preferred(causes or saved)
        times, seconds = chosen.apply(times), seconds - saved[chosen]
        yield Mended(chosen, times, chosen not in slow or slow[chosen])
        machines.mended |= set(chosen.workers)
        if chosen in slow:
            machines.found[chosen.kind] += 1
        waiting = [repair for repair in waiting if repair is not chosen and repair not in chosen.parts]
    yield from _phases(complete, times)


class _Slowest:
    """The slowest worker and the slowest node: a row each in any case, and more of them without a diagnosis."""

    def __init__(self, complete: Recording, recorded: float, named: Sequence[Repair], *, alone: bool):
        self.complete, self.recorded, self.alone = complete, recorded, alone
        self.mended: set[int] = set()
        self.left_out = frozenset(worker for repair in named for worker in repair.workers)
        self.found = {
            WORKER: int(bool(self.left_out)),
            NODE: sum(repair.kind == NODE for repair in named),
            WORKERS: 0 if alone else _MOST_OF_A_KIND,
        }

    def candidates(self, times: Times) -> dict[Repair, bool]:
        """The repairs, and whether they stand out."""
        left_out = self.left_out | frozenset(self.mended)
        found = {}
        for repair in find_slowest(self.complete, times, left_out):
            evident = self.alone and self._stands_out(repair, times, left_out)
            if evident:
                found[repair] = True
            elif self.found[repair.kind] == 0 and repair.kind != WORKERS:
                rank = "next slowest" if left_out else "slowest"
                found[dataclasses.replace(repair, title=f"{repair.title} ({rank})")] = False
        return {repair: evident for repair, evident in found.items() if self.found[repair.kind] < _MOST_OF_A_KIND}

    def _stands_out(self, repair: Repair, times: Times, left_out: frozenset[int]) -> bool:
        """Return whether workers are last more often than equal ones by chance, by an amount that matters."""
        if (times.seconds() - repair.apply(times).seconds()).sum() < MATTERS * self.recorded:
            return False
        steps, workers = times.runtimes.shape
        members = set(repair.workers) - left_out
        chance = min(len(members) / max(workers - len(left_out), 1), 1.0)
        last = np.isin(times.runtimes.argmax(axis=1), repair.workers).mean()
        return bool(last > chance + _DEVIATIONS * math.sqrt(chance * (1 - chance) / steps))


def _together(named: Sequence[Repair], saved: dict[Repair, float], times: Times, seconds: float) -> dict[Repair, float]:
    """The repairs of several causes that hide each other, with the seconds they save."""
    found: dict[Repair, float] = {}
    for count in range(2, len(named) + 1):
        parts = tuple(named[:count])
        workers = tuple(sorted({worker for part in parts for worker in part.workers}))
        if len(workers) == times.runtimes.shape[1]:
            break
        since = {part.since for part in parts}
        repair = Repair(
            WORKERS,
            f"{some([part.title for part in parts])} together",
            parts[0].mended,
            functools.partial(_all_of, parts=parts),
            workers,
            since.pop() if len(since) == 1 else None,
            all(part.over for part in parts),
            parts,
        )
        gain = seconds - float(repair.apply(times).seconds().sum())
        if gain > _HIDDEN * sum(saved[part] for part in parts):
            found[repair] = gain
    return found


def _all_of(times: Times, parts: Sequence[Repair]) -> Times:
    for part in parts:
        times = part.apply(times)
    return times


def _preferred(saved: dict[Repair, float]) -> Repair:
    """The repair that saves most; of those that save nearly as much, one of fewer workers, or of every n-th step."""
    best = max(saved, key=lambda repair: saved[repair])
    whole = set(best.workers)
    narrower = [
        repair
        for repair, seconds in saved.items()
        if seconds >= _ENOUGH * saved[best]
        and repair.workers
        and whole.issuperset(repair.workers)
        and (repair.kind == PERIOD or len(repair.workers) < len(whole))
    ]
    return min(narrower, key=lambda repair: (len(repair.workers), repair.kind != PERIOD, -saved[repair]), default=best)


def _phases(complete: Recording, times: Times) -> Iterator[Mended]:
    """Mends the phases of what is left, then all waiting for the slowest."""
    shares = np.divide(times.runtimes, complete.runtimes, out=np.ones_like(times.runtimes), where=complete.runtimes > 0)
    times = dataclasses.replace(times, scale=shares)
    phases = list(candidates.of_phases(complete))
    before = float(times.seconds().sum())
    gains = {repair: before - float(repair.apply(times).seconds().sum()) for repair in phases}
    whole = complete.runtimes.sum()
    while phases:
        chosen = min(phases, key=lambda repair, times=times: float(repair.apply(times).seconds().sum()))
        times = chosen.apply(times)
        work = complete.phases[chosen.phase].sum() / whole
        yield Mended(chosen, times, _outweighs(gains[chosen], sum(gains.values()), work))
        phases.remove(chosen)
        if len(gains) - len(phases) == _MOST_PHASES:
            break
    chance = candidates.of_chance()
    times = chance.apply(times)
    yield Mended(chance, times, evident=False)


def _outweighs(gain: float, gains: float, work: float) -> bool:
    """Return whether a phase costs more than its part of the work: twice, or the others cost half of theirs."""
    return gains > 0 and (gain / gains >= 2 * work or 1 - gain / gains <= (1 - work) / 2)


_ALIKE, _OUTLYING = 0.5, 4.0
"""Workers are slow together whose excess is this share of the largest at least, and this multiple of the median one."""


def find_slowest(recording: Recording, times: Times, left_out: frozenset[int]) -> Iterator[Repair]:
    """The slowest worker, the workers that are slow together, and the slowest node, as the times now are."""
    runtimes = times.runtimes
    excess = above_median(runtimes)
    saved = waited_for(runtimes) + 1e-9 * excess  # of equals, the slower one
    rest = np.setdiff1d(np.arange(excess.size), list(left_out))
    if not rest.size:
        return
    yield of_workers(recording, [rest[saved[rest].argmax()]])
    least = max(_ALIKE * excess[rest].max(), _OUTLYING * np.median(excess[rest]), np.finfo(float).tiny)
    together = rest[excess[rest] >= least]
    if 2 <= together.size <= len(recording.workers) // 2 and node_of(recording, tuple(together.tolist())) is None:
        yield of_workers(recording, together)
    node = _slowest_node(recording, runtimes, left_out)
    if node is not None:
        yield of_workers(recording, node)


def _slowest_node(recording: Recording, runtimes: np.ndarray, left_out: frozenset[int]) -> np.ndarray | None:
    """The workers of the node for which the others wait longest; None if no node has several, or all are left out."""
    names, of = np.unique(recording.nodes, return_inverse=True)
    if names.size < 2:
        return None
    order = np.argsort(of, kind="stable")
    longest = np.maximum.reduceat(runtimes[:, order], np.searchsorted(of[order], np.arange(names.size)), axis=1)
    saved = waited_for(longest)
    rest = np.bincount(of, [worker not in left_out for worker in range(of.size)], minlength=names.size)
    saved[(np.bincount(of) < 2) | (rest == 0)] = -1.0
    return np.flatnonzero(of == saved.argmax()) if saved.max() >= 0 else None
