"""The mixing of values on a graph: the spectral gap of its weights, and the two resistances that A2CiD2 needs."""

import numpy as np

_ZERO = 1e-9
"""Eigenvalues below this are 0: that of the mean of all, which no averaging changes."""


def spectral_gap(weights: np.ndarray) -> float:
    r"""1 - rho, where a round shrinks distances from the mean by rho in the long run.

    .. math:: \rho = |\lambda_2(W^{(K-1)} \cdots W^{(0)})|^{1/K}

    Args:
      weights: float64[K, N, N], of which rows or columns add up to 1, in the order of the rounds.

    Returns:
      From 0 (parts of the graph never meet) to 1 (all have the mean after K rounds).

    Example:
      >>> from sgdlab import graphs
      >>> gap = lambda edges: spectral_gap(graphs.doubly_stochastic(edges))
      >>> round(gap(graphs.ring(16)), 3), round(gap(graphs.torus(16)), 3), gap(graphs.one_peer_exponential(16))
      (0.051, 0.4, 1.0)
    """
    product = np.eye(weights.shape[-1])
    for matrix in weights:
        product = matrix @ product
    sizes = np.sort(np.abs(np.linalg.eigvals(product)))[::-1]
    second = float(sizes[1]) if sizes.size > 1 else 0.0
    return 1.0 - (second if second > _ZERO else 0.0) ** (1 / len(weights))


def resistances(rates: np.ndarray) -> tuple[float, float]:
    r"""chi_1 and chi_2 of pairs that average at these rates.

    .. math:: \Lambda = \sum_{i<j} \lambda_{ij} (e_i - e_j)(e_i - e_j)^\top, \qquad
        \chi_1 = \frac1{\lambda_2(\Lambda)}, \qquad
        \chi_2 = \tfrac12 \max_{(i, j)} (e_i - e_j)^\top \Lambda^+ (e_i - e_j)

    chi_2 is at most chi_1, and far below it on poorly connected graphs: there momentum saves most.

    Args:
      rates: float64[N, N], symmetric, averagings of each pair a unit of time.

    Returns:
      chi_1 and chi_2, in units of time.

    Raises:
      ValueError: where not all nodes are connected.

    Source: `compute_algebraic_connectivity` and `compute_graph_resistance` of AdelNabli/ACiD, the code of Nabli,
    Belilovsky and Oyallon 2023.

    Example:
      >>> from sgdlab import graphs
      >>> chi_1, chi_2 = resistances(graphs.pair_rates(graphs.ring(16)[0]))
      >>> round(chi_1, 2), round(chi_2, 2)
      (13.14, 0.94)
    """
    laplacian = np.diag(rates.sum(axis=1)) - rates
    values = np.linalg.eigvalsh(laplacian)
    if len(rates) < 2 or values[1] < _ZERO * max(values[-1], _ZERO):
        raise ValueError("graph must connect at least two nodes, and all of them")
    inverse = np.linalg.pinv(laplacian, hermitian=True)
    own = np.diag(inverse)
    between = own[:, None] + own[None, :] - 2 * inverse
    return float(1 / values[1]), float(0.5 * between[rates > 0].max())


def acceleration(rates: np.ndarray) -> tuple[float, float]:
    r"""The momentum of A2CiD2: eta, how fast a node's two variables mix, and the weight of the second at a meeting.

    .. math:: \eta = \frac1{2 \sqrt{\chi_1 \chi_2}}, \qquad \tilde\alpha = \frac12 \sqrt{\frac{\chi_1}{\chi_2}}

    Args:
      rates: float64[N, N], symmetric, averagings of each pair a unit of time.

    Returns:
      eta, per unit of time, and alpha-tilde.

    Raises:
      ValueError: where not all nodes are connected.

    Source: `compute_acid_constants` of AdelNabli/ACiD, the code of Nabli, Belilovsky and Oyallon 2023.

    Example:
      >>> from sgdlab import graphs
      >>> [round(value, 3) for value in acceleration(graphs.pair_rates(graphs.ring(16)[0]))]
      [0.142, 1.872]
    """
    chi_1, chi_2 = resistances(rates)
    return 0.5 / np.sqrt(chi_1 * chi_2).item(), 0.5 * np.sqrt(chi_1 / chi_2).item()
