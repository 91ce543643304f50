"""The upper bounds: the best cutoffs if the run-times of every iteration are known in advance, by either objective."""

import numpy as np


def cutoffs(runtimes: np.ndarray, objective: str) -> np.ndarray:
    r"""The best number of workers to wait for in every iteration.

    .. math:: c_t = \arg\max_c \frac{c}{x_{t(c)}}, \qquad \text{or} \qquad
        c_t = \arg\max_c\, c - \lambda x_{t(c)}, \quad \lambda = \frac{\sum_t c_t}{\sum_t x_{t(c_t)}}

    The first is the paper's objective, which is the best for each iteration by itself. The second is the best for all
    iterations together: no other choice of cutoffs gives more gradients per second.

    Args:
      runtimes: float64[T, N], seconds.
      objective: "throughput" or "rate".

    Returns:
      int64[T].

    Source: Teng and Wood 2018, section 3; Dinkelbach 1967.

    Example:
      >>> runtimes = np.array([[1.0, 1.0, 3.5], [1.0, 3.0, 3.0]])
      >>> cutoffs(runtimes, "throughput"), cutoffs(runtimes, "rate")
      (array([2, 1]), array([2, 1]))
    """
    ordered = np.sort(runtimes, axis=1)
    count = np.arange(1, ordered.shape[1] + 1)
    rows = np.arange(len(ordered))
    chosen = 1 + np.argmax(count / ordered, axis=1)
    while objective == "rate":
        rate = chosen.sum() / ordered[rows, chosen - 1].sum()
        better = 1 + np.argmax(count - rate * ordered, axis=1)
        if better.sum() / ordered[rows, better - 1].sum() <= rate:
            break
        chosen = better
    return chosen
