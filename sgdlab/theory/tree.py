r"""The computation tree of a schedule (Birch SGD): how far from the server's point each gradient was computed.

Every point that a method computes is a vertex of a tree, and every gradient that it adds is an edge. The main branch is
the server's parameters, one gradient after the other: an update of m gradients is m edges. The distance of two vertices
is the larger number of edges from either to the last vertex that both have in common. With x_k the k-th vertex of the
main branch, z_k the vertex at which the gradient was computed that leads from x_k to x_{k+1}, and R the largest
distance of x_k and z_k,

.. math:: \frac{1}{K} \sum_{k < K} \mathbb{E} \|\nabla f(x_k)\|^2 \le \epsilon \quad \text{for all} \quad
    K \ge \frac{4 (R + 1) L \Delta}{\epsilon} + \frac{8 \sigma^2 L \Delta}{\epsilon^2}, \qquad
    \gamma = \min\left\{\frac{1}{2 L}, \frac{1}{2 R L}, \frac{\epsilon}{4 \sigma^2 L}\right\}.

The theorem asks that gradients be unbiased and independent of what came before, that the point of a gradient contain no
gradient which the main branch does not (in a schedule it is a version of the server's, so it never does), and that all
workers have data of one distribution. It is of plain SGD with one step size for every gradient.

Source: Tyurin and Sivtsov 2025, Birch SGD (arXiv 2505.09218), Theorem 2.4, verified in its conditions, step size and
constants, and for R of vanilla SGD, Rennala SGD and Ringmaster ASGD, in a public digest of the paper, not in the paper.
That blocks of parameters with servers of their own each have a tree of their own is ours, not the paper's.
"""

import math

import numpy as np

from sgdlab.arguments import whole
from sgdlab.ordering import by_number
from sgdlab.schedule import Schedule
from sgdlab.theory.problem import Problem


def tree_distances(schedule: Schedule, steps: int | np.ndarray = 1) -> np.ma.MaskedArray:
    """Return the tree's distance of the point of every gradient from the server's point that it enters.

    A message of H local steps is H edges, of which the largest distance counts: its points are a side branch that
    leaves the main branch at the version that was read. Where it is the first to enter behind that version, the side
    branch is the main branch, and the distance is 0.

    Args:
      schedule: of methods with a server.
      steps: local steps of every message, or int[G] of each; 1 is a gradient.

    Returns:
      int64[G, S], masked where the gradient was not used.

    Raises:
      ValueError: where `steps` are not at least 1 each, or not as many as there are gradients.

    Example:
      >>> from sgdlab import protocols
      >>> schedule = protocols.synchronous(np.ones((2, 3)))
      >>> tree_distances(schedule).compressed()
      array([0, 1, 2, 0, 1, 2])
    """
    edges = checked_steps(schedule.num_gradients, steps)
    used = schedule.used()
    distances = np.zeros(used.shape, np.int64)
    for block in range(schedule.num_blocks):
        rows = np.flatnonzero(used[:, block])
        if schedule.num_blocks > 1:  # two servers can use the same two gradients in different orders
            rows = rows[by_number(schedule.update[rows, block], schedule.num_updates)]
        if not rows.size:
            continue
        here = edges[rows]
        end = np.cumsum(here)
        updates = schedule.update[rows, block]
        last = np.flatnonzero(np.diff(updates, append=schedule.num_updates))  # each update's last gradient
        version = np.concatenate([[0], end[last]])  # vertex of the main branch that each version is
        apart = end - here - version[schedule.read[rows, block]]
        distances[rows, block] = np.where(apart == 0, 0, apart + here - 1)
    return np.ma.masked_array(distances, mask=~used)


def iterations(distance: int, problem: Problem) -> int:
    """Return K, the gradients on the main branch after which the mean squared gradient is at most epsilon.

    Args:
      distance: R, the largest distance in the computation tree.
      problem: its four numbers.

    Raises:
      ValueError: where the distance is not a whole number of at least 0.

    Example:
      >>> iterations(0, Problem()), iterations(7, Problem())
      (12, 40)
    """
    most = whole("distance", distance, least=0)
    return math.ceil(4 * (most + 1) * problem.exact_steps + 8 * problem.noise_steps)


def step_size(distance: int, problem: Problem) -> float:
    """Return gamma, the step size of one gradient for which `iterations` are enough.

    Arguments and errors are those of `iterations`.

    Example:
      >>> step_size(0, Problem(variance=0.0)), step_size(7, Problem(variance=0.0)), step_size(0, Problem())
      (0.5, 0.07142857142857142, 0.25)
    """
    most, curvature = whole("distance", distance, least=0), problem.smoothness
    sizes = [1 / (2 * max(most, 1) * curvature)]
    if problem.variance > 0:
        sizes.append(problem.accuracy / (4 * problem.variance * curvature))
    return min(sizes)


def checked_steps(count: int, steps: int | np.ndarray) -> np.ndarray:
    """Return the local steps of `count` messages, int64[G], from one number for all or int[G].

    Raises:
      ValueError: where they are not at least 1 each, or not as many as there are messages.
    """
    if np.ndim(steps) == 0:
        return np.full(count, whole("steps", steps), np.int64)
    given = np.asarray(steps)
    if given.shape != (count,) or not np.issubdtype(given.dtype, np.integer):
        raise ValueError(f"steps of shape {given.shape}, {given.dtype} must be a whole number, or int[{count}]")
    if given.size and given.min() < 1:
        raise ValueError(f"steps={given.min()} in row {int(given.argmin())} must be at least 1")
    return given.astype(np.int64)
