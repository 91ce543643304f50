"""Rennala SGD and Ringmaster ASGD: nobody waits, and gradients that are too old are dropped."""

import dataclasses
import itertools

import numpy as np

from sgdlab.bounds import Count
from sgdlab.knobs import Knob
from sgdlab.protocols.fast_arrivals import Arrivals, arrivals
from sgdlab.protocols.policy import Action, Drop, Interrupt, Take
from sgdlab.protocols.register import register
from sgdlab.protocols.softsync import Softsync, half_of
from sgdlab.runtimes import NotEnoughRuntimes, too_short
from sgdlab.schedule import DROPPED, PENDING, Schedule


@dataclasses.dataclass
class Collect(Softsync):
    """Softsync of gradients with a delay (staleness + 1) of at most `max_delay`; others are dropped.

    Who is lost or joins changes nothing for the others.

    Attributes:
      size: number of gradients per update.
      max_delay: largest delay of a gradient that is used, in updates.
      interrupt: whether a worker gives up its gradient as soon as it is too old, rather than when it has come.
      count: how many gradients the open update has.
    """

    max_delay: int = 1
    interrupt: bool = False

    def limit(self, update: int) -> int:
        """The largest delay of a gradient that enters this update."""
        return self.max_delay

    def arrival(self, now: float, worker: int, version: int, seconds: float) -> list[Action]:
        """Takes a gradient that is young enough; workers that its update makes too late are interrupted before it."""
        if self.version - version >= self.limit(self.version):
            return [Drop(worker), *self.begin([worker])]
        actions: list[Action] = [Take(worker, self.version)]
        late: list[int] = []
        self.count += 1
        if self.count == self.size:
            self.count = 0
            if self.interrupt:
                after = self.version + 1
                oldest = self.limit(after)
                # Workers stand in the order in which they began, and so in that of the versions that they have read.
                late = [w for w, _ in itertools.takewhile(lambda item: after - item[1] >= oldest, self.busy.items())]
                for other in late:
                    del self.busy[other]
            actions += [*map(Interrupt, sorted(late)), self.close()]
        return actions + self.begin(sorted([worker, *late]))


def _fast(policy: Collect, runtimes: np.ndarray, num_gradients: int | None) -> Schedule | None:
    """Makes the schedule in arrays where workers finish what they have begun: all gradients arrive as in `arrivals`."""
    if policy.interrupt:
        return None
    size = policy.size
    if num_gradients is not None:
        num_gradients = -(-num_gradients // size) * size
    workers = runtimes.shape[1]
    count = None if num_gradients is None else num_gradients + workers
    while True:
        try:
            gradients = arrivals(runtimes, count)
        except NotEnoughRuntimes:
            count, gradients = None, arrivals(runtimes, None)
        update = _updates(gradients, size, policy.max_delay, num_gradients)
        used = np.count_nonzero(update >= 0)
        if count is None or used == num_gradients:
            break
        count *= 2
    _check_advance(runtimes, gradients, update.size)
    wanted = used // size * size if num_gradients is None else num_gradients
    if used < wanted or wanted == 0:
        raise NotEnoughRuntimes.after(num_gradients or size, rows=runtimes.shape[0], done=used, spare=True)
    last = np.flatnonzero(update >= 0)[wanted - 1]
    end, update = last + 1, update[: last + 1]
    # In flight at the end are the later gradients that were begun after at most so many arrivals.
    rest = end + np.flatnonzero(gradients.seen[end:] <= end)
    rest = rest[gradients.started[rest] < gradients.arrived[last]]
    rows = np.concatenate([np.arange(end), rest])
    made = np.append(0, np.cumsum(update >= 0)) // size  # updates after so many arrivals
    applied = gradients.arrived[:end][np.diff(made) > 0]
    return Schedule(
        worker=gradients.worker[rows],
        read=made[gradients.seen[rows], None],
        update=np.append(update, np.full(rest.size, PENDING))[:, None],
        started=gradients.started[rows],
        arrived=gradients.arrived[rows, None],
        applied=applied[:, None],
        num_workers=workers,
    )


def _updates(gradients: Arrivals, size: int, max_delay: int, num_gradients: int | None) -> np.ndarray:
    """int64[.]: the update that each gradient enters, in order of arrival, until `num_gradients` have been used."""
    made, update, used, updates = [0], [], 0, 0  # made[k]: the number of updates after k arrivals
    for seen in gradients.seen[: gradients.count].tolist():
        if updates - made[seen] < max_delay:
            update.append(updates)
            used += 1
            updates = used // size
        else:
            update.append(DROPPED)
        if used == num_gradients:
            break
        made.append(updates)
    return np.array(update)


def _check_advance(runtimes: np.ndarray, gradients: Arrivals, count: int) -> None:
    """Raises a `ValueError` if one of the first `count` gradients took no time."""
    started, arrived = gradients.started[:count], gradients.arrived[:count]
    if (arrived > started).all():
        return
    stuck = np.flatnonzero(~(arrived > started))
    first = stuck[np.lexsort((gradients.worker[stuck], gradients.seen[stuck]))[0]]
    worker = gradients.worker[first]
    row = np.count_nonzero(gradients.worker[:first] == worker)
    raise too_short(row, worker, runtimes[row, worker], started[first])


@register(
    title="Rennala SGD",
    source="Tyurin and Richtarik 2023",
    families=("Synchronous rounds",),
    rule="nag_asgd",
    fast=_fast,
    waste="gradients_per_update",
    tunes=Knob("gradients_per_update", 0.125, 2.0, whole=True, per_worker=True),
)
def rennala(*, num_workers: Count, gradients_per_update: Count | None = None) -> Collect:
    """Every update averages the first n gradients on the newest version, of any workers.

    A worker that has sent one begins another on the same version, so fast workers may fill an update by themselves; a
    gradient on an older version is ignored, and its worker begins again on the newest.

    Args:
      num_workers: N.
      gradients_per_update: n, number of gradients that one update averages. None: N / 2, rounded up.

    Source: Tyurin and Richtarik 2023, Rennala SGD.

    Example:
      >>> from sgdlab import protocols
      >>> schedule = protocols.rennala(np.array([[1.0, 2.5]] * 4), gradients_per_update=2)
      >>> schedule.worker, schedule.update[:, 0]
      (array([0, 0, 1, 0, 0, 1], dtype=int32), array([ 0,  0, -1,  1,  1, -2], dtype=int32))
    """
    return Collect(size=half_of(num_workers) if gradients_per_update is None else gradients_per_update, max_delay=1)


@register(
    title="Ringmaster ASGD",
    source="Maranjyan et al. 2025",
    families=("Limits on staleness",),
    rule="asgd",
    fast=_fast,
    waste="max_delay",
    tunes=Knob("max_delay", 0.25, 8.0, whole=True, per_worker=True),
)
def ringmaster(*, num_workers: Count, max_delay: Count | None = None, interrupt: bool = False) -> Collect:
    """Every gradient is an update of its own, unless its delay (staleness + 1) is more than `max_delay`.

    A worker whose gradient was ignored begins again on the newest version. With `max_delay` of the number of gradients
    or more it is `asynchronous`; with 1 it takes the first gradient on every version.

    Args:
      num_workers: N.
      max_delay: R, the largest delay of a gradient that is used: the paper's condition is staleness < R. None: 2 N,
        twice the mean delay of workers that never wait; the paper's grows with the noise, and its experiments tune it.
      interrupt: whether a worker restarts as soon as its gradient is too old (the paper's Algorithm 5, with calculation
        stops), rather than when it has finished it (Algorithm 4).

    Source: Maranjyan, Tyurin and Richtarik 2025, Algorithms 4 and 5.

    Example:
      >>> from sgdlab import protocols
      >>> schedule = protocols.ringmaster(np.array([[1.0, 2.5]] * 4), max_delay=2)
      >>> schedule.worker, schedule.update[:, 0]
      (array([0, 0, 1, 0, 0, 1], dtype=int32), array([ 0,  1, -1,  2,  3, -2], dtype=int32))
    """
    limit = 2 * num_workers if max_delay is None else max_delay
    return Collect(size=1, max_delay=limit, interrupt=bool(interrupt))
