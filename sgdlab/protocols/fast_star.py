"""Array programs of asynchronous and synchronous SGD on a star whose links serve one message after the other.

All shared stations (the incoming link, the server, the outgoing link) serve messages in one order, that in which they
reach the server. So no event needs a clock: each station is a running maximum and sum, of the very operations of
`CostlyRun`, in their order, and schedules are equal to the bit.
"""

from collections.abc import Callable

import numpy as np

from sgdlab.failures.outages import Outages
from sgdlab.ordering import by_time
from sgdlab.protocols.recorder import schedule_of
from sgdlab.runtimes import NotEnoughRuntimes, too_short
from sgdlab.schedule import PENDING, Schedule
from sgdlab.transports.links import Fifo
from sgdlab.transports.star import Star


def asynchronous(runtimes: np.ndarray, star: Star, num_gradients: int | None) -> Schedule:
    """Return the schedule of asynchronous SGD, in waves: messages that nothing still to come can overtake.

    A worker that reaches the server's link at r is back no earlier than r and its own way (in, server, out, twice the
    latency, its next compute time). The least of these over the workers bounds a wave; within it, the order is known.

    Args:
      runtimes: float64[T, N], seconds.
      star: what messages cost.
      num_gradients: how many gradients to use. None: until a worker has to begin without a compute time.

    Raises:
      NotEnoughRuntimes: where a worker runs out of rows first.
    """
    rows, workers = runtimes.shape
    wanted = runtimes.size if num_gradients is None else num_gradients
    ways, latency = _Ways(star), np.array(star.latency)
    following = np.vstack([runtimes, np.full(workers, np.inf)])  # who has no compute time left never comes
    every, row = np.arange(workers), np.zeros(workers, np.int64)
    version, asked = np.zeros(workers, np.int64), np.zeros(workers)
    started = ways.down(asked) + latency
    sent = started + runtimes[0]
    _check_moves(started, sent, row, every, runtimes)
    reach, done, ended = sent + latency, 0, False
    waves: list[tuple[np.ndarray, ...]] = []
    while done < wanted and not ended:
        back = reach + (2 * latency + ways.least) + following[np.minimum(row + 1, rows), every]
        ready = np.flatnonzero(reach < back.min() * (1 - 1e-14))
        ready = ready[by_time(reach[ready])] if ready.size else reach.argmin()[None]
        out_of_times = np.flatnonzero(row[ready] + 1 == rows)
        ended = out_of_times.size > 0
        ready = ready[: min(wanted - done, out_of_times[0] + 1 if ended else ready.size)]
        into, served = ways.up(reach[ready])
        waves.append((ready, version[ready], asked[ready], started[ready], sent[ready], into, served))
        version[ready], asked[ready] = np.arange(done, done + ready.size) + 1, served
        done += ready.size
        row[ready] += 1
        started[ready] = ways.down(served) + latency[ready]
        sent[ready] = started[ready] + following[row[ready], ready]
        _check_moves(started[ready], sent[ready], row[ready], ready, runtimes)
        reach[ready] = sent[ready] + latency[ready]
    if num_gradients is not None and done < num_gradients:
        raise NotEnoughRuntimes.after(num_gradients, rows=rows, done=done, spare=True)
    begun = every[every != ready[-1]]  # with the last gradient the run is over
    flying = begun, version[begun], asked[begun], started[begun], sent[begun], ways.alone(reach[begun])
    names = ("worker", "read", "asked", "started", "sent", "arrived")
    whole = [np.concatenate(column) for column in zip(*(wave[:-1] for wave in waves), flying, strict=True)]
    update = np.concatenate([np.arange(done), np.full(begun.size, PENDING)])
    applied = np.concatenate([wave[-1] for wave in waves])
    columns = dict(zip(names, whole, strict=True)) | {"update": update}
    return schedule_of(columns, applied, workers, star.traffic)[0]


def synchronous(runtimes: np.ndarray, star: Star, num_gradients: int | None) -> Schedule:
    """Return the schedule of synchronous SGD, round by round.

    Args:
      runtimes: float64[T, N], seconds.
      star: what messages cost.
      num_gradients: how many gradients to use; whole rounds. None: T rounds.

    Raises:
      NotEnoughRuntimes: where T rounds are too few.
    """
    rows, workers = runtimes.shape
    wanted = runtimes.size if num_gradients is None else num_gradients
    rounds = -(-wanted // workers)
    if rounds > rows:
        raise NotEnoughRuntimes.after(wanted, rows=rows, done=runtimes.size)
    ways, latency, every = _Ways(star), np.array(star.latency), np.arange(workers)
    columns = {name: np.empty((rounds, workers)) for name in ("asked", "started", "sent", "arrived")}
    worker, applied, now = np.empty((rounds, workers), np.int32), np.empty(rounds), 0.0
    for number in range(rounds):
        asked = np.full(workers, now)
        started = ways.down(asked) + latency
        sent = started + runtimes[number]
        _check_moves(started, sent, np.full(workers, number), every, runtimes)
        reach = sent + latency
        order = by_time(reach)
        into, served = ways.up(reach[order], updates=False)
        now = float(served[-1]) + star.update_seconds
        ways.server = applied[number] = now
        worker[number] = order
        for name, values in {"asked": asked, "started": started[order], "sent": sent[order], "arrived": into}.items():
            columns[name][number] = values
    version = np.repeat(np.arange(rounds), workers)
    flat = {name: column.ravel() for name, column in columns.items()}
    columns = {"worker": worker.ravel(), "read": version, "update": version, **flat}
    return schedule_of(columns, applied, workers, star.traffic)[0]


class _Ways:
    """The stations that all messages pass, and when each is free again."""

    def __init__(self, star: Star):
        out, into = star.links()
        assert isinstance(out, Fifo)
        assert isinstance(into, Fifo)
        self.out, self.into, self.receive, self.update = out, into, star.receive_seconds, star.update_seconds
        self.server = 0.0
        self.least = max(out.seconds, out.own) + max(into.seconds, into.own) + self.receive + self.update

    def down(self, asked: np.ndarray) -> np.ndarray:
        """Return when parameters have crossed the outgoing link that are sent at these times, which rise."""
        through, self.out.free = _station(asked, self.out.free, self.out.seconds)
        return np.maximum(through, asked + self.out.own)

    def up(self, reach: np.ndarray, *, updates: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Return when gradients that reach the incoming link at these times are there, and when they are applied."""
        through, self.into.free = _station(reach, self.into.free, self.into.seconds)
        into = np.maximum(through, reach + self.into.own)
        served, self.server = _station(into, self.server, self.receive, self.update if updates else 0.0)
        return into, served

    def alone(self, reach: np.ndarray) -> np.ndarray:
        """Return when gradients would be there if there were no others."""
        return reach + max(self.into.seconds, self.into.own)


def _station(times: np.ndarray, free: float, first: float, second: float = 0.0) -> tuple[np.ndarray, float]:
    """Return when each message leaves a station, which takes so many seconds for each, and when it is free then."""
    left = np.maximum(times, free) + first + second
    if first or second:
        if (left[:-1] > times[1:]).any():  # some wait for the one before
            left = np.empty_like(times)
            for number, when in enumerate(times.tolist()):
                free = (when if when > free else free) + first + second
                left[number] = free
        elif times[0] < free:
            left[1:] = times[1:] + first + second
    return left, float(left[-1])


def _check_moves(
    started: np.ndarray, sent: np.ndarray, row: np.ndarray, worker: np.ndarray, runtimes: np.ndarray
) -> None:
    """Raise where a compute time does not advance the clock."""
    if not (sent > started).all():
        bad = int(np.argmin(sent > started))
        raise too_short(row[bad], worker[bad], runtimes[row[bad], worker[bad]], started[bad])


_PROGRAMS = {"sgdlab.protocols.softsync.asynchronous": asynchronous, "sgdlab.protocols.rounds.synchronous": synchronous}
"""Programs by the makers of their policies, which do not know of them."""


def program(make: Callable, star: Star | None, outages: Outages | None) -> Callable[..., Schedule] | None:
    """Return the program of a maker of policies; None where there is none, or it does not apply.

    Programs apply where nobody fails, messages cross links one after the other, and none is sent before it is whole.
    No all-reduce makes updates of single gradients, which `simulate` refuses.
    """
    found = _PROGRAMS.get(f"{make.__module__}.{make.__qualname__}")
    if found is None or star is None or not (outages is None or outages.never):
        return None
    if star.collective and found is asynchronous:
        return None
    return found if all(isinstance(link, Fifo) for link in star.links()) and not star.overlap else None
