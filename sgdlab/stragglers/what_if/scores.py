"""Scores of each worker: against the fleet, against itself, what it costs the others, and whom to leave out first."""

import dataclasses

import numpy as np

from sgdlab import arrays

_WINDOWS = 20
"""Windows into which the steps are cut to compare a worker with itself."""

_LEAST_WINDOW, _LONGEST_WINDOW = 5, 100
"""Shortest and longest window, in steps."""

_BEST = 0.1
"""Quantile of a worker's windows that counts as its own best."""

_NEARLY = 1.01
"""Fewer workers are left out if to leave out more gives less than this many times the gradients per second."""


@dataclasses.dataclass(frozen=True, eq=False)
class WorkerScores:
    r"""Tells how slow each of N workers is, and what that costs; above 1 is slower.

    Attributes:
      against_fleet: float64[N], median of the worker's compute times over the median of all workers' medians.
      against_itself: float64[N], its median in the last window of steps over its own best, the 10 % quantile of its
        medians in all windows; it is above 1 too where the work of all workers has grown.
      slowdown: float64[N], S_w, the time of full synchrony if only this worker kept its compute times and every other
        took at most the median of the step, over the time if all did.
      last: float64[N], share of the steps in which the worker finishes last.
      waited: float64[N], seconds that full synchrony waits for this worker alone: the sum over the steps in which it
        is last of its compute time less the second longest. So much is saved by repairing it, and by leaving it out.
      repaired: float64[N], how many times the gradients per second if it were as fast as the median of the others.
      left_out: float64[N], how many times the gradients per second of full synchrony without it.

    Source: S_w is equation 4 of Lin et al. 2025, "Understanding Stragglers in Large Model Training Using What-if
    Analysis", with the step's median as the ideal. The first two are the two scores of NVIDIA's Resiliency Extension
    (relative and individual performance), inverted, with medians in the place of the best worker.
    """

    against_fleet: np.ndarray
    against_itself: np.ndarray
    slowdown: np.ndarray
    last: np.ndarray
    waited: np.ndarray
    repaired: np.ndarray
    left_out: np.ndarray

    @property
    def order(self) -> np.ndarray:
        """Indices of the workers, those whose repair saves most first; of equals, the slower one first."""
        return np.lexsort((-self.slowdown, -self.waited))


def score_workers(runtimes: np.ndarray, transfer: np.ndarray | float = 0.0) -> WorkerScores:
    """Computes the scores.

    Args:
      runtimes: float64[T, N], seconds, N of one waits for nobody.
      transfer: float64[T], seconds of communication; a number is that of every step.

    Example:
      >>> scores = score_workers(np.array([[1.0, 1.0, 3.0], [1.0, 1.0, 3.0]]))
      >>> scores.against_fleet.tolist(), scores.waited.tolist(), scores.repaired.tolist(), scores.left_out.tolist()
      ([1.0, 1.0, 3.0], [0.0, 0.0, 4.0], [1.0, 1.0, 3.0], [0.6666666666666666, 0.6666666666666666, 2.0])
    """
    steps, workers = runtimes.shape
    medians = arrays.median(runtimes, axis=0)
    step = arrays.median(runtimes, axis=1)
    waited = waited_for(runtimes)
    seconds = (runtimes.max(axis=1) + transfer).sum()
    ideal = (step + transfer).sum()
    return WorkerScores(
        against_fleet=medians / np.median(medians),
        against_itself=_against_itself(runtimes),
        slowdown=1 + above_median(runtimes, step) / ideal,
        last=np.bincount(runtimes.argmax(axis=1), minlength=workers) / steps,
        waited=waited,
        repaired=seconds / (seconds - waited),
        left_out=(workers - 1) / workers * seconds / (seconds - waited),
    )


def above_median(runtimes: np.ndarray, medians: np.ndarray | None = None) -> np.ndarray:
    """Seconds of each worker above the median of the step, which may be known, summed over the steps: float64[N]."""
    excess = runtimes - (arrays.median(runtimes, axis=1) if medians is None else medians)[:, None]
    return np.maximum(excess, 0.0, out=excess).sum(axis=0)


def waited_for(runtimes: np.ndarray) -> np.ndarray:
    """Seconds that full synchrony waits for each worker alone, float64[N]: those after the second longest."""
    if runtimes.shape[1] < 2:
        return np.zeros(runtimes.shape[1])
    second, longest = np.partition(runtimes, -2, axis=1)[:, -2:].T
    return np.bincount(runtimes.argmax(axis=1), longest - second, minlength=runtimes.shape[1])


def drained(runtimes: np.ndarray, transfer: np.ndarray | float = 0.0) -> list[tuple[int, float]]:
    r"""Find whom to leave out first: the fewest of the slowest workers without whom the others have most.

    Slow workers hide each other: without one of them nothing is gained. So the workers are ordered by their seconds
    above the median of the step, full synchrony is measured without the first k, for every k below N, and as many are
    named as nearly give the most gradients per second.

    .. math:: \frac{N - k}{N} \; \frac{\sum_t \tau_t}{\sum_t \tau_t^{(k)}}

    Args:
      runtimes: float64[T, N], seconds.
      transfer: float64[T], seconds of communication; a number is that of every step.

    Returns:
      Pairs of a worker and of how many times the gradients per second full synchrony has without it and without those
      before it; empty if leaving out gains nothing.

    Example:
      >>> drained(np.array([[1.0, 1.0, 1.0, 1.0, 4.0, 4.0]]))
      [(4, 0.8333333333333334), (5, 2.6666666666666665)]
    """
    workers = runtimes.shape[1]
    order = np.argsort(-above_median(runtimes), kind="stable")
    slowest = np.maximum.accumulate(runtimes[:, order[::-1]], axis=1)  # of the first, the first two, ... from the end
    seconds = (slowest + np.reshape(transfer, (-1, 1))).sum(axis=0)[::-1]  # with nobody, one, two, ... left out
    rates = (workers - np.arange(workers)) / workers * seconds[0] / seconds
    best = rates.max()
    if best <= 1:
        return []
    count = int(np.argmax(rates >= max(best / _NEARLY, np.nextafter(1, 2))))
    return [(int(order[k]), float(rates[k + 1])) for k in range(count)]


def _against_itself(runtimes: np.ndarray) -> np.ndarray:
    steps, workers = runtimes.shape
    window = min(max(steps // _WINDOWS, _LEAST_WINDOW, 1), _LONGEST_WINDOW, steps)
    count = steps // window
    kept = runtimes[steps - count * window :].reshape(count, window, workers)  # the last window ends with the last step
    medians = arrays.median(kept, axis=1)
    return medians[-1] / np.quantile(medians, _BEST, axis=0)
