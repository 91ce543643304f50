"""Mixing weights of the nodes of a graph: Metropolis weights, and the equal shares of push-sum."""

import numpy as np


def metropolis(edges: np.ndarray) -> np.ndarray:
    r"""Weights of which rows and columns add up to 1, for edges that run both ways.

    .. math:: W_{ij} = \frac1{1 + \max(d_i, d_j)}, \qquad W_{ii} = 1 - \sum_{j \ne i} W_{ij}

    with d the numbers of neighbours. Where all have as many they are 1 / (d + 1).

    Args:
      edges: bool[..., N, N], symmetric.

    Returns:
      float64[..., N, N], symmetric.

    Source: Metropolis-Hastings weights, as Xiao and Boyd 2004 use them for averaging.

    Example:
      >>> from sgdlab import graphs
      >>> metropolis(graphs.complete(4))[0, 0].tolist()
      [0.25, 0.25, 0.25, 0.25]
    """
    degree = edges.sum(axis=-1)
    weights = edges / (1.0 + np.maximum(degree[..., :, None], degree[..., None, :]))
    return weights + (1.0 - weights.sum(axis=-1))[..., None] * np.eye(edges.shape[-1])


def sent_in_equal_shares(edges: np.ndarray) -> np.ndarray:
    r"""Weights of which columns add up to 1: what a node sends it divides equally, itself included.

    .. math:: P_{ij} = \frac1{1 + |\{i : j \;\text{sends to}\; i\}|}

    Args:
      edges: bool[..., N, N]; see `sgdlab.graphs`.

    Returns:
      float64[..., N, N].

    Source: `UniformMixing` of facebookresearch/stochastic_gradient_push, the code of Assran et al. 2019.

    Example:
      >>> sent_in_equal_shares(np.array([[False, True, True], [False, False, True], [True, False, False]]))
      array([[0.5       , 0.5       , 0.33333333],
             [0.        , 0.5       , 0.33333333],
             [0.5       , 0.        , 0.33333333]])
    """
    own = np.eye(edges.shape[-1], dtype=bool)
    sends = edges | own
    return sends / sends.sum(axis=-2, keepdims=True)


def doubly_stochastic(edges: np.ndarray) -> np.ndarray:
    """Weights of which rows and columns add up to 1, so that averaging keeps the mean.

    Metropolis weights where edges run both ways; equal ones where in a round every node sends to as many as all others
    do, and gets from as many.

    Args:
      edges: bool[K, N, N]; see `sgdlab.graphs`.

    Returns:
      float64[K, N, N].

    Raises:
      ValueError: where the graph is neither.

    Example:
      >>> from sgdlab import graphs
      >>> doubly_stochastic(graphs.one_peer_exponential(4))[0, 0].tolist()
      [0.5, 0.0, 0.0, 0.5]
    """
    if (edges == edges.transpose(0, 2, 1)).all():
        return metropolis(edges)
    got, sent = edges.sum(axis=2), edges.sum(axis=1)
    if (got == got[:, :1]).all() and (sent == got[:, :1]).all():
        return sent_in_equal_shares(edges)
    raise ValueError(
        "graph must have edges that run both ways, or as many to and from every node: on this one weighted means would "
        "not keep the mean of all; push-sum (sgp) does"
    )


def push_sum_weights(weights: np.ndarray, rounds: int) -> np.ndarray:
    r"""The weights w of push-sum, by which a node divides what it has added up.

    .. math:: w^{(0)} = 1, \qquad w^{(k+1)} = P^{(k)} w^{(k)}

    They do not depend on the values; where rows of P add up to 1 they stay 1.

    Args:
      weights: float64[K, N, N], P, of which columns add up to 1.
      rounds: how many.

    Returns:
      float64[rounds + 1, N]; they add up to N in each round.

    Source: Assran et al. 2019 (push-sum of Kempe et al. 2003).

    Example:
      >>> push_sum_weights(np.array([[[0.5, 0.5], [0.5, 0.5]]]), 1).tolist()
      [[1.0, 1.0], [1.0, 1.0]]
    """
    found = [np.ones(weights.shape[-1])]
    for number in range(rounds):
        found.append(weights[number % len(weights)] @ found[-1])
    return np.array(found)


def pair_rates(edges: np.ndarray, rate: float = 1.0) -> np.ndarray:
    r"""Return how often pairs of nodes average, where each asks a random neighbour `rate` / 2 times a unit of time.

    .. math:: \lambda_{ij} = \frac{\text{rate}}2 \left(\frac1{d_i} + \frac1{d_j}\right)

    Where all have as many neighbours every node takes part in `rate` averagings a unit of time. Edges count without a
    direction: on the exponential graph a node's neighbours are those 2^i ahead and those 2^i behind.

    Args:
      edges: bool[N, N], symmetric.
      rate: of averagings.

    Returns:
      float64[N, N], symmetric; 0 where there is no edge.

    Source: for graphs on which all have as many neighbours, `compute_laplacian` of AdelNabli/ACiD, the code of Nabli,
    Belilovsky and Oyallon 2023. For others a reconstruction.

    Example:
      >>> from sgdlab import graphs
      >>> pair_rates(graphs.ring(4)[0])[0].tolist()
      [0.0, 0.5, 0.0, 0.5]
    """
    share = 1.0 / np.maximum(edges.sum(axis=1), 1)
    return edges * (0.5 * rate * (share[:, None] + share[None, :]))
