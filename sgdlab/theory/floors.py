r"""Times that no method can beat on workers of given speeds, up to a constant.

With :math:`\tau_1 \le \ldots \le \tau_N` the seconds that each worker takes for a gradient, no method with a server
finds the wanted point of every smooth non-convex problem sooner than in

.. math:: T_{hom} = \Theta\left(\min_m \Big(\frac{1}{m} \sum_{i \le m} \frac{1}{\tau_i}\Big)^{-1}
        \Big(\frac{L \Delta}{\epsilon} + \frac{\sigma^2 L \Delta}{m \epsilon^2}\Big)\right), \qquad
    T_{het} = \Theta\left(\tau_N \frac{L \Delta}{\epsilon}
        + \Big(\frac{1}{N} \sum_i \tau_i\Big) \frac{\sigma^2 L \Delta}{N \epsilon^2}\right)

where all workers have data of one distribution, and where each has its own. Rennala SGD and Ringmaster ASGD reach the
first, Malenia SGD the second. Gradients are computed one after the other and messages take no time.

Source: Tyurin and Richtarik 2023 (arXiv 2305.12387); the formulas were verified in Tyurin 2026, "Bridging the gap
between homogeneous and heterogeneous asynchronous optimization is surprisingly difficult", equations 2 and 3, which
quotes them. Constants are left out there too.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sgdlab.arguments import real
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.schedule import Schedule
from sgdlab.theory.problem import Problem


class Floor(NamedTuple):
    """A least time.

    Attributes:
      seconds: up to a constant.
      workers: how many of the fastest workers are enough for it.
    """

    seconds: float
    workers: int


def homogeneous(seconds: ArrayLike, problem: Problem) -> Floor:
    """Return the least time where all workers have data of one distribution.

    Args:
      seconds: float[N], of a gradient of each worker, in any order; infinite for one that never ends.
      problem: its four numbers.

    Raises:
      ValueError: where there is no worker, or the seconds of one are not above 0.

    Example:
      >>> homogeneous([1.0, 1.0, 1000.0], Problem(variance=10.0))
      Floor(seconds=6.0, workers=2)
    """
    times = np.sort(_checked(seconds))
    workers = np.arange(1, times.size + 1)
    with np.errstate(divide="ignore"):
        candidates = (workers * problem.exact_steps + problem.noise_steps) / np.cumsum(1 / times)
    best = int(candidates.argmin())
    return Floor(float(candidates[best]), best + 1)


def heterogeneous(seconds: ArrayLike, problem: Problem) -> Floor:
    """Return the least time where each worker has data of its own: all of them must be heard.

    Arguments and errors are those of `homogeneous`.

    Example:
      >>> heterogeneous([1.0, 1.0, 4.0], Problem(variance=9.0))
      Floor(seconds=10.0, workers=3)
    """
    times = _checked(seconds)
    count = times.size
    # Without noise the mean does not count, not even that of a worker which never ends.
    of_noise = times.mean() * problem.noise_steps / count if problem.noise_steps else 0.0
    return Floor(float(times.max() * problem.exact_steps + of_noise), count)


def without_waiting(seconds: ArrayLike, gradients: float) -> float:
    r"""Return the seconds in which all workers together compute so many gradients, if none of them ever waits.

    .. math:: T = \frac{K}{\sum_i 1 / \tau_i}

    Where noise dominates, `homogeneous` is this time with K the gradients that a single worker needs: the workers share
    them out perfectly, and no gradient is lost, late or stale. A method that needs fewer gradients than the single
    worker can still be faster.

    Args:
      seconds: float[N], of a gradient of each worker; infinite for one that never ends.
      gradients: K, at least 0.

    Raises:
      ValueError: where there is no worker, the seconds of one are not above 0, or there are less than 0 gradients.

    Example:
      >>> without_waiting([1.0, 2.0, 2.0], 100)
      50.0
    """
    needed, rate = real("gradients", gradients, least=0), float((1 / _checked(seconds)).sum())
    if not needed:
        return 0.0
    return needed / rate if rate else math.inf


def seconds_per_gradient(schedule: Schedule | PeerSchedule) -> np.ndarray:
    """Return float64[N], each worker's mean seconds of a gradient until it arrives; infinite where it ended none.

    A gradient that the server interrupted is as long as it took until then: of protocols that interrupt, this is less
    than a whole gradient takes.

    Example:
      >>> from sgdlab import protocols
      >>> seconds_per_gradient(protocols.synchronous(np.array([[1.0, 2.0], [3.0, 2.0]])))
      array([2., 2.])
    """
    if isinstance(schedule, PeerSchedule):
        ended = schedule.takes_gradient()
        worker, seconds = schedule.node, schedule.finished - schedule.started
    else:
        ended = ~schedule.pending().all(axis=1)
        worker, seconds = schedule.worker, schedule.arrived.max(axis=1) - schedule.started
    count = np.bincount(worker[ended], minlength=schedule.num_workers)
    total = np.bincount(worker[ended], weights=seconds[ended], minlength=schedule.num_workers)
    return np.where(count > 0, total / np.maximum(count, 1), np.inf)


def _checked(seconds: ArrayLike) -> np.ndarray:
    times = np.asarray(seconds, np.float64)
    if times.ndim != 1 or not times.size:
        raise ValueError(f"seconds of shape {times.shape} must have shape [N], with N at least 1")
    bad = np.flatnonzero(~(times > 0))
    if bad.size:
        raise ValueError(f"seconds[{bad[0]}]={times[bad[0]]} must be above 0")
    return times
