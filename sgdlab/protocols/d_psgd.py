"""D-PSGD, event by event: rounds of averaging with the neighbours on a graph (Lian et al. 2017)."""

from sgdlab.bounds import Count
from sgdlab.protocols.graph_rounds import GraphRounds, averaging, register_on_graph


@register_on_graph(title="D-PSGD", source="Lian et al. 2017")
def d_psgd(
    *,
    num_workers: Count,
    graph: str = "ring",
    density: float = 0.5,
    fresh: bool = False,
    num_gradients: int | None = None,
    seed: int = 0,
) -> GraphRounds:
    r"""Every node averages with its neighbours on a graph while it computes, then takes its step.

    .. math:: \theta_i^{(k+1)} = \sum_j W_{ij} \theta_j^{(k)} - \gamma \nabla F_i(\theta_i^{(k)})

    with W of which rows and columns add up to 1, so that averaging keeps the mean of the nodes. A node waits for its
    neighbours' parameters of the same round, and for nobody else: who is slow holds up its neighbours at once, and
    theirs a round later. With `fresh` the gradient is taken at the average, which is to step first and then to average:
    :math:`\sum_j W_{ij} (\theta_j - \gamma \nabla F_j(\theta_j))`.

    Weight decay is taken at the averaged parameters, to which the step is added, also where the gradient is not.

    On a complete graph, with fresh gradients and plain SGD, the mean of the nodes is that of `synchronous`.

    Args:
      num_workers: N, number of nodes.
      graph: who averages with whom, one of `sgdlab.graphs.GRAPHS`.
      density: of a random graph, the probability of an edge.
      fresh: whether the gradient is taken at the averaged parameters; else at the node's own before.
      num_gradients: how many gradients to compute; the first nodes have one more than the others, if N does not divide
        it. None: until a node that has to begin runs out of compute times.
      seed: of a random graph.

    Raises:
      ValueError: where an argument is out of its range, the graph has no such weights, or it does not connect all
        nodes.

    Source: Lian et al. 2017 (arXiv:1705.09056), Algorithm 1; a reconstruction from papers that cite it, as is that a
    node waits for its neighbours only. Stepping before averaging (`fresh`) is checked against `PushPull` of
    facebookresearch/stochastic_gradient_push, which calls it D-PSGD.

    Example:
      >>> from sgdlab.protocols.family import PROTOCOLS
      >>> import numpy as np
      >>> schedule = PROTOCOLS.make("d_psgd", {"graph": "ring"}, runtimes=np.ones((3, 4)), num_gradients=8, seed=0)
      >>> print(schedule)
      PeerSchedule: 4 nodes, 8 gradients and 16 edges in 2 s
      >>> schedule.weight[-3:]
      array([0.33333333, 0.33333333, 0.33333333])
    """
    weights = averaging(graph, num_workers, density=density, seed=seed)
    return GraphRounds(num_nodes=num_workers, num_gradients=num_gradients, fresh=bool(fresh), weights=weights)
