"""Measures protocols on compute times, float64[T, N] in seconds, and the intervals of the ratio of two of them."""

import dataclasses
import math
import weakref
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from sgdlab.predictors import dropping
from sgdlab.protocols.fast_arrivals import arrivals


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """The measurements of one protocol.

    The gradients per second are the sum over columns of sum(gradients) / sum(seconds). A synchronous protocol has one
    column (M = 1), an asynchronous one has a column for each worker (M = N).

    Attributes:
      gradients: float64[T, M], number of gradients used in each iteration.
      seconds: float64[T, M], duration of each iteration.
      lost: share of the computing worker-seconds whose gradients were discarded.
      idle: share of all worker-seconds in which a worker waits.
      staleness: mean number of updates between reading the parameters and using the gradient.
      updates_per_second: updates of the parameters per second.
      used: float64[N], gradients of each worker that were used, or its rate of them; None of `every_cutoff`.
      largest_staleness: of any gradient.
    """

    gradients: np.ndarray
    seconds: np.ndarray
    lost: float
    idle: float
    staleness: float
    updates_per_second: float
    used: np.ndarray | None = None
    largest_staleness: int = 0

    @property
    def gradients_per_second(self) -> float:
        """Used gradients per second, of the whole cluster."""
        return float((self.gradients.sum(axis=0) / self.seconds.sum(axis=0)).sum())

    def since(self, first: int) -> "Measured":
        """Gradients and seconds of the iterations from one on; the other measurements stay those of all iterations."""
        if not first:
            return self
        return dataclasses.replace(self, gradients=self.gradients[first:], seconds=self.seconds[first:])

    @property
    def iteration_seconds(self) -> float:
        """Mean seconds from one update to the next."""
        return 1 / self.updates_per_second

    @property
    def waited_for(self) -> float:
        """Mean number of gradients in an update."""
        return self.gradients_per_second / self.updates_per_second


def interrupted(runtimes: np.ndarray, cutoff: np.ndarray | int, rejoin_seconds: float = 0.0) -> Measured:
    """Measures a cutoff: every iteration waits for the first c workers and interrupts the others.

    Args:
      runtimes: float64[T, N], seconds; all workers begin iteration t at the same time.
      cutoff: c, from 1 to N; or int[T], a value for each iteration.
      rejoin_seconds: from when a worker is dropped until it takes part again; each iteration takes longer by what its
        dropped workers cost, as `dropping.healing_seconds` says.
    """
    steps, workers = runtimes.shape
    waited = np.broadcast_to(cutoff, steps).astype(int)
    if np.ndim(cutoff):
        seconds = np.sort(runtimes, axis=1)[np.arange(steps), waited - 1]
    else:
        seconds = np.partition(runtimes, waited[0] - 1, axis=1)[:, waited[0] - 1]
    in_time = runtimes <= seconds[:, None]
    for row in np.flatnonzero(in_time.sum(axis=1) > waited):  # of equal ones, those with the lowest numbers count
        equal = np.flatnonzero(runtimes[row] == seconds[row])
        in_time[row, equal[waited[row] - in_time[row].sum() :]] = False
    useful = runtimes.sum(where=in_time)
    thrown = ((workers - waited) * seconds).sum()
    result = Measured(
        gradients=waited[:, None].astype(float),
        seconds=seconds[:, None],
        lost=float(thrown / (useful + thrown)),
        idle=float(1 - (useful + thrown) / (workers * seconds.sum())),
        staleness=0.0,
        updates_per_second=float(steps / seconds.sum()),
        used=in_time.sum(axis=0).astype(float),
    )
    return _healed(result, workers, rejoin_seconds)


def every_cutoff(runtimes: np.ndarray, rejoin_seconds: float = 0.0) -> dict[int, Measured]:
    """`interrupted` for every fixed cutoff, with one sort.

    Returns:
      c -> measurements, for c from 1 to N.
    """
    ordered = np.sort(runtimes, axis=1)
    steps, workers = ordered.shape
    columns = np.ascontiguousarray(ordered.T)
    seconds = columns.sum(axis=1)
    count = np.arange(1, workers + 1)
    useful = np.cumsum(seconds)
    thrown = (workers - count) * seconds
    lost, idle = thrown / (useful + thrown), 1 - (useful + thrown) / (workers * seconds)
    results = {
        int(c): Measured(
            gradients=np.broadcast_to(float(c), (steps, 1)),
            seconds=columns[c - 1][:, None],
            lost=float(lost[c - 1]),
            idle=float(idle[c - 1]),
            staleness=0.0,
            updates_per_second=float(steps / seconds[c - 1]),
        )
        for c in count
    }
    return {c: _healed(result, workers, rejoin_seconds) for c, result in results.items()}


def _healed(result: Measured, workers: int, rejoin_seconds: float) -> Measured:
    """The measurements of a cutoff, whose iterations take longer by what their dropped workers cost."""
    if not rejoin_seconds:
        return result
    price = dropping.healing_seconds(workers, rejoin_seconds)
    seconds = result.seconds + price[result.gradients.astype(int) - 1]
    rate = float(len(seconds) / seconds.sum())
    return dataclasses.replace(result, seconds=seconds, updates_per_second=rate)


def finishing(runtimes: np.ndarray, numbers: Sequence[int], rejoin_seconds: float = 0.0) -> dict[int, Measured]:
    """Measures backup workers: an update takes the first N - b gradients; late workers finish theirs, which is dropped.

    What `protocols.backup_workers` gives, without its schedules, which for many workers take most of the time.

    Args:
      runtimes: float64[T, N], seconds.
      numbers: of backup workers, each from 0 to N - 1; of many workers, several at once take a third of the time.
      rejoin_seconds: as of `interrupted`.

    Returns:
      b -> measurements.
    """
    workers, numbers = runtimes.shape[1], list(numbers)
    together = max(_TOGETHER // workers, 1)
    found = [
        result
        for first in range(0, len(numbers), together)
        for result in _finishing(runtimes, np.array(numbers[first : first + together]))
    ]
    return {b: _healed(result, workers, rejoin_seconds) for b, result in zip(numbers, found, strict=True)}


_TOGETHER = 1 << 14
"""Most workers, of all numbers of backup workers, that are simulated in one array: it stays in a core's cache."""


def _finishing(runtimes: np.ndarray, backups: np.ndarray) -> Iterator[Measured]:
    """Measure each of several numbers of backup workers, int64[B], in arrays [B, N]."""
    steps, workers = runtimes.shape
    wanted, every, numbers = workers - backups, np.arange(workers), np.arange(len(backups))
    shape = len(backups), workers
    flat = np.ascontiguousarray(runtimes).reshape(-1)
    position = np.tile(every, (len(backups), 1))  # of each worker's next compute time
    free = np.zeros(shape)  # when each worker has finished the gradient that it began last
    late = np.zeros(shape)  # seconds of its last gradient that was not finished when its update closed
    used, applied = np.zeros(shape), np.empty((len(backups), steps))  # gradients, and when updates close
    seconds, ends, in_order = np.empty((3, *shape))
    taken, begins, other = np.empty((3, *shape), bool)
    moved = np.empty(shape, int)
    now, dropped = np.zeros((len(backups), 1)), np.zeros(len(backups))
    for update in range(steps):  # in arrays that are there: most of the time is that of the calls
        flat.take(position, out=seconds, mode="clip")
        np.add(np.maximum(free, now, out=ends), seconds, out=ends)
        np.copyto(in_order, ends)
        for row, last in zip(in_order, wanted.tolist(), strict=True):
            row.partition(last - 1)
        now = in_order[numbers, wanted - 1, None]
        applied[:, update] = now[:, 0]
        np.less_equal(ends, now, out=taken)
        # A worker that is still busy when the update closes begins no gradient on this version.
        np.less(free, now, out=begins)
        tied = np.equal(free, now, out=other)
        beyond = np.count_nonzero(taken, axis=1) - wanted
        for row in np.flatnonzero((beyond > 0) | tied.any(axis=1)):  # ties by the number of the worker
            equal = np.flatnonzero(ends[row] == now[row])
            taken[row, equal[equal.size - beyond[row] :]] = False
            begins[row] |= tied[row] & (every < equal[equal.size - beyond[row] - 1])
        used += taken
        missed = np.greater(begins, taken, out=other)
        np.copyto(late, seconds, where=missed)
        dropped += np.multiply(seconds, missed, out=seconds).sum(axis=1)
        # As copies with `where=begins`, which take several times as long: who begins ends later than before.
        np.maximum(free, np.multiply(ends, begins, out=ends), out=free)
        position += np.multiply(begins, workers, out=moved)
    pending = (free > now) | ((free == now) & ~taken)
    for one in numbers:
        begun = np.add.reduce(runtimes, axis=None, where=np.arange(steps)[:, None] < position[one] // workers)
        busy = begun - (free[one] - now[one])[pending[one]].sum()
        yield Measured(
            gradients=np.broadcast_to(float(wanted[one]), (steps, 1)),
            seconds=np.diff(applied[one], prepend=0.0)[:, None],
            lost=float(max(dropped[one] - late[one, pending[one]].sum(), 0.0) / busy),
            idle=float(max(1 - busy / (workers * now[one, 0]), 0.0)),
            staleness=0.0,
            updates_per_second=float(steps / now[one, 0]),
            used=used[one],
        )


def asynchronous(runtimes: np.ndarray) -> Measured:
    """Measures asynchronous SGD, in which no worker waits.

    Gradients per second are those of an infinite run that repeats the compute times, that is the sum of the workers'
    mean rates, so that they do not depend on the gradients in flight at the end. The staleness is that of the schedule
    up to the first worker that runs out of compute times.
    """
    gradients = arrivals(runtimes, None)
    staleness = np.arange(gradients.count) - gradients.seen[: gradients.count]
    rates = len(runtimes) / runtimes.sum(axis=0)
    return Measured(
        gradients=np.broadcast_to(1.0, runtimes.shape),
        seconds=runtimes,
        lost=0.0,
        idle=0.0,
        staleness=float(staleness.mean()),
        updates_per_second=float(rates.sum()),
        used=rates,
        largest_staleness=int(staleness.max()),
    )


LEVEL = 0.9
"""Confidence level of the intervals."""

_MOST_DRAWN = 10_000_000
"""Steps that are drawn in all resamples together, of which there are then fewer; but at least a hundred."""

_AT_ONCE = 256
"""Columns that are resampled at once."""


def ends_of(draws: np.ndarray) -> tuple[float, float]:
    """Return the ends of the interval of a number, by its value in each resample.

    Example:
      >>> [round(end, 6) for end in ends_of(np.arange(101.0))]
      [5.0, 95.0]
    """
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


class Resamples:
    """A circular block bootstrap: T iterations drawn out of T with replacement, many times.

    Iterations are drawn in blocks of about the cube root of T, so that part of the dependence between consecutive
    iterations is preserved. The intervals do not cover behaviour of the cluster that these T iterations do not show.

    Args:
      num_steps: T, the number of iterations.
      seed: of the draws.
      count: number of resamples. None: 1000, and fewer of long recordings.

    Source: Politis and Romano 1992.

    Example:
      >>> Resamples(8, seed=0, count=5).weights.sum(axis=1)
      array([8., 8., 8., 8., 8.])
    """

    def __init__(self, num_steps: int, *, seed: int, count: int | None = None):
        count = min(1000, max(100, _MOST_DRAWN // num_steps)) if count is None else count
        block = math.ceil(num_steps ** (1 / 3))
        starts = np.random.default_rng(seed).integers(num_steps, size=(count, -(-num_steps // block)))
        steps = (starts[:, :, None] + np.arange(block)) % num_steps
        steps = steps.reshape(count, -1)[:, :num_steps]
        self.weights = np.zeros((count, num_steps))  # how often each step was drawn
        np.add.at(self.weights, (np.arange(count)[:, None], steps), 1.0)
        self._rates: weakref.WeakKeyDictionary[Measured, np.ndarray] = weakref.WeakKeyDictionary()

    def rates(self, measured: Measured) -> np.ndarray:
        """Gradients per second of a protocol in each resample, float64[count]; computed once."""
        found = self._rates.get(measured)
        if found is None:
            self._rates[measured] = found = (self._gradients(measured) / (self.weights @ measured.seconds)).sum(axis=1)
        return found

    def prepare(self, results: Iterable[Measured]) -> None:
        """Computes the rates of many protocols at once, many times faster than one by one.

        Args:
          results: measurements; those of asynchronous protocols are left for later.
        """
        single = [one for one in dict.fromkeys(results) if one.seconds.shape[1] == 1 and one not in self._rates]
        for first in range(0, len(single), _AT_ONCE):
            some = single[first : first + _AT_ONCE]
            seconds = self.weights @ np.concatenate([one.seconds for one in some], axis=1)
            for one, column in zip(some, seconds.T, strict=True):
                self._rates[one] = self._gradients(one)[:, 0] / column

    def interval(self, measured: Measured, base: Measured) -> tuple[float, float]:
        """The ends of the interval of the gradients per second of `measured` divided by those of `base`."""
        return ends_of(self.rates(measured) / self.rates(base))

    def _gradients(self, measured: Measured) -> np.ndarray:
        """float64[count, M], gradients in each resample, or [1, M] where every iteration has the same number."""
        values = measured.gradients
        if values.strides[0] == 0:  # one row, repeated
            return len(values) * values[:1]
        return self.weights @ values
