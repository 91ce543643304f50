"""Stochastic gradient push, event by event: push-sum on a graph that may have one-way edges (Assran et al. 2019)."""

from sgdlab import graphs
from sgdlab.bounds import Count
from sgdlab.protocols.graph_rounds import GraphRounds, register_on_graph


@register_on_graph(title="Stochastic gradient push", source="Assran et al. 2019")
def sgp(
    *,
    num_workers: Count,
    graph: str = "one_peer_exponential",
    density: float = 0.5,
    overlap: bool = False,
    num_gradients: int | None = None,
    seed: int = 0,
) -> GraphRounds:
    r"""Every node sends shares of its parameters, and of a weight, and divides what it has got by the weights.

    With P of which columns add up to 1, and :math:`x_i^{(0)} = \theta_i^{(0)}, w_i^{(0)} = 1`,

    .. math:: x_i^{(k+1/2)} = x_i^{(k)} - \gamma \nabla F_i(z_i^{(k)}), \qquad
        x_i^{(k+1)} = \sum_j P_{ij} x_j^{(k+1/2)}, \qquad w_i^{(k+1)} = \sum_j P_{ij} w_j^{(k)}, \qquad
        z_i^{(k+1)} = x_i^{(k+1)} / w_i^{(k+1)}

    The parameters of a node are z: averages with the weights :math:`P_{ij} w_j^{(k)} / w_i^{(k+1)}`, which add up to 1,
    and steps divided by w. Weight decay is that of z. A node waits for those that send to it, and for nobody else.

    With `overlap` messages travel while the next gradient is computed: a node sends :math:`x_i^{(k)}` when it begins
    its gradient, and waits for those of the others before it steps,

    .. math:: x_i^{(k+1)} = \sum_j P_{ij} x_j^{(k)} - \gamma \nabla F_i(z_i^{(k)})

    where weight decay is taken at the averaged parameters, to which the step is added.

    Where every node sends to as many as send to it, w is 1: SGP is `d_psgd` with fresh gradients, overlap SGP is
    `d_psgd`.

    Args:
      num_workers: N, number of nodes.
      graph: who sends to whom, one of `sgdlab.graphs.GRAPHS`.
      density: of a random graph, the probability of an edge.
      overlap: whether messages travel while gradients are computed (OSGP), and are used a step later.
      num_gradients: how many gradients to compute; the first nodes have one more than the others, if N does not divide
        it. None: until a node that has to begin runs out of compute times.
      seed: of a random graph.

    Raises:
      ValueError: where an argument is out of its range, or some node cannot reach some other, in all rounds together.

    Source: Assran et al. 2019 (arXiv:1811.10792), checked against its code, facebookresearch/stochastic_gradient_push
    (`GossipDataParallel` with `push_sum`, `UniformMixing`, `overlap`). The graph there visits the nodes 2^i ahead and
    2^i behind in turn; ours those ahead, as the paper says. The paper's overlap SGP may let messages take several
    steps; ours take one, as in the code.

    Example:
      >>> from sgdlab.protocols.family import PROTOCOLS
      >>> import numpy as np
      >>> schedule = PROTOCOLS.make("sgp", {"graph": "directed"}, runtimes=np.ones((3, 4)), num_gradients=8, seed=1)
      >>> schedule.scale[4:].round(3)
      array([1.5  , 1.2  , 0.75 , 0.857])
    """
    edges = graphs.make(graph, num_workers, density=density, seed=seed)
    graphs.check_connected(graph, edges)
    weights = graphs.sent_in_equal_shares(edges)
    return GraphRounds(
        num_nodes=num_workers, num_gradients=num_gradients, fresh=not overlap, weights=weights, push_sum=True
    )
