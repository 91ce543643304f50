"""Run-times from gamma distributions: homogeneous and heterogeneous clusters (Barkai et al. 2020, Appendix C.3)."""

import numpy as np

from sgdlab import arguments

_TASK = 0.1
"""V_task: coefficient of variation between tasks."""
_MACHINE = {False: 0.1, True: 0.6}
"""V_mach: coefficient of variation between machines, by `heterogeneous`."""


def gamma(
    *, num_workers: int, num_gradients: int, heterogeneous: bool = False, batch_size: float = 128, seed: int
) -> np.ndarray:
    r"""Draws how long each worker takes for each of its gradients.

    Homogeneous machines (Algorithm 12) share one mean :math:`q`, and each task scatters around it:

    .. math:: q \sim \Gamma(1 / V_{task}^2,\; B V_{task}^2), \qquad
        t_{kj} \sim \Gamma(1 / V_{mach}^2,\; q V_{mach}^2), \qquad V_{mach} = V_{task} = 0.1

    Heterogeneous machines (Algorithm 13) each have a mean :math:`p_j` of their own for the whole run:

    .. math:: p_j \sim \Gamma(1 / V_{mach}^2,\; B V_{mach}^2), \qquad
        t_{kj} \sim \Gamma(1 / V_{task}^2,\; p_j V_{task}^2), \qquad V_{mach} = 0.6,\; V_{task} = 0.1

    The mean over runs is B seconds of virtual time. More rows can be asked for later: the same seed gives the same
    first rows.

    Args:
      num_workers: N, machines.
      num_gradients: T, rows: gradients per machine.
      heterogeneous: machines of unequal speed.
      batch_size: B, examples per gradient; the mean run-time in seconds.
      seed: of the random numbers.

    Returns:
      float64[T, N], seconds; row t holds each worker's t-th gradient.

    Raises:
      ValueError: where a number is out of its range.

    Example:
      >>> gamma(num_workers=3, num_gradients=2, seed=0).shape
      (2, 3)
    """
    arguments.whole("num_workers", num_workers)
    arguments.whole("num_gradients", num_gradients)
    arguments.real("batch_size", batch_size, above=0)
    arguments.whole("seed", seed, least=0)
    generator = np.random.default_rng(seed)
    machine = _MACHINE[bool(heterogeneous)]
    if heterogeneous:
        between, within, size = machine, _TASK, num_workers
    else:
        between, within, size = _TASK, machine, 1
    means = generator.gamma(1 / between**2, batch_size * between**2, size)
    return generator.gamma(1 / within**2, means * within**2, (num_gradients, num_workers))
