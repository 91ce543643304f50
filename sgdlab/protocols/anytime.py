"""Anytime Minibatch: every round computes for a fixed time, whatever comes of it (Ferdinand et al. 2019)."""

import functools
import math

import numpy as np

from sgdlab import arguments
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.protocols.threshold import Limits, limits, threshold_rounds
from sgdlab.schedule import Schedule


@PROTOCOLS.register(
    title="Anytime Minibatch", source="Ferdinand et al. 2019", families=("Rounds by the clock",), rule="nag_asgd"
)
def anytime(
    runtimes: np.ndarray,
    *,
    seconds: float | None = None,
    gradients: int = 2,
    window: int = 1,
    interrupt: bool = True,
    communication: float = 0.0,
    num_gradients: int | None = None,
) -> Schedule:
    r"""Every update averages what all workers compute in a fixed time: a fast worker many gradients, a slow one few.

    .. math:: \bar g_k = \frac{1}{\sum_i b_i} \sum_{i=1}^N \sum_{j=1}^{b_i} \nabla f(\theta_k; \xi_{i,j})

    b is how many gradients worker i has ended T seconds after the round began. A gradient stands for what the paper
    calls a sample; workers are averaged by a server, exactly, and not by rounds of consensus, and the step is the
    rule's instead of dual averaging.

    A round in which no gradient was finished makes no update, and the next one is on the same version.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      seconds: T, how long every round computes. None: (g + 1) times the mean time of a gradient in the first rounds.
      gradients: g, of a worker in each of these rounds; later ones have about as many on average.
      window: number of these rounds.
      interrupt: whether a gradient is given up when the time is over; else one that was begun by then is used.
      communication: seconds from the end of a round's computing to its update.
      num_gradients: how many gradients to use; the run ends with the update that reaches this number. None: whole
        updates, until a worker that has to begin again runs out of run-times.

    Returns:
      A `Schedule`; gradients that were given up are dropped, none is pending.

    Raises:
      ValueError: where run-times are not positive and finite, or another argument is out of its range.
      NotEnoughRuntimes: (a ValueError) where run-times end first; it says how many rows would be enough.

    Source: Ferdinand, Al-Lawati, Draper and Nokleby 2019 (ICLR), whose abstract was read. The choice of T is a
    reconstruction: in (g + 1) mean times workers end at least N g gradients in the mean, by Wald's equation.

    Example:
      >>> import numpy as np
      >>> schedule = anytime(np.array([[1.0, 2.0]] * 9), seconds=4.5, num_gradients=6)
      >>> np.bincount(schedule.worker[schedule.used()[:, 0]]), schedule.applied[:, 0]
      (array([4, 2]), array([4.5]))
    """
    rounds = limits_of(
        seconds=seconds, gradients=gradients, window=window, interrupt=interrupt, communication=communication
    )
    return threshold_rounds(runtimes, rounds, num_gradients=num_gradients)


def limits_of(*, seconds: float | None, gradients: int, window: int, interrupt: bool, communication: float) -> Limits:
    """When the workers stop; its arguments are those of `anytime`."""
    patient = arguments.whole("gradients", gradients)
    if seconds is not None:
        arguments.real("seconds", seconds, above=0)  # an infinite round would never end
    return limits(
        patient=patient,
        most=math.inf,
        seconds=seconds,
        window=window,
        interrupt=interrupt,
        communication=communication,
        choose=functools.partial(_mean_times, patient + 1),
    )


def _mean_times(number: int, times: list[np.ndarray]) -> float:
    return number * float(np.mean(np.concatenate([seconds.ravel() for seconds in times])))
