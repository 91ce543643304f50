"""AD-PSGD, event by event: a node that makes a step averages with a random neighbour, both ways (Lian et al. 2018)."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from sgdlab import graphs
from sgdlab.bounds import Count
from sgdlab.protocols.peer_policy import Mix, Move, PeerAction, Source, Step
from sgdlab.protocols.policy import Begin
from sgdlab.protocols.register import register


@dataclasses.dataclass
class Pairs:
    """Nodes that compute at their own pace, and average in pairs; nobody waits.

    The k-th row of random numbers holds those of all nodes for their k-th gradients, whatever the order of events.

    Attributes:
      num_nodes: N.
      num_gradients: how many gradients to compute. None: no end.
      neighbours: of each node.
      seed: of the partners.
      version: the newest version of each node.
      begun: number of gradients that each node has begun.
      drawn: random numbers from 0 to 1, row by row.
    """

    fresh = False

    num_nodes: int
    num_gradients: int | None
    neighbours: list[list[int]]
    seed: int = 0
    version: list[int] = dataclasses.field(default_factory=list, init=False)
    begun: list[int] = dataclasses.field(default_factory=list, init=False)
    drawn: list[list[float]] = dataclasses.field(default_factory=list, init=False)
    _generator: np.random.Generator | None = dataclasses.field(default=None, init=False, compare=False, repr=False)

    def start(self, nodes: Sequence[int]) -> list[PeerAction]:
        """All nodes begin."""
        self.version, self.begun = [0] * self.num_nodes, [0] * self.num_nodes
        return [action for node in sorted(nodes) for action in self._begin(node)]

    def arrived(self, now: float, node: int) -> list[PeerAction]:
        """The node and its partner both become their mean; then the node makes its step, and begins again."""
        other, mine = self._partner(node), self.version[node]
        self.version[node] += 2
        if other is None:
            return [Mix(node, (Source(node, mine, 1.0),)), Step(node), *self._begin(node)]
        its = self.version[other]
        self.version[other] += 2
        pair = Source(node, mine, 0.5), Source(other, its, 0.5)
        return [Move(other, pair[::-1]), Mix(node, pair), Step(node), *self._begin(node)]

    def _ends(self) -> bool:
        return self.num_gradients is not None and sum(self.begun) >= self.num_gradients

    def _begin(self, node: int) -> list[PeerAction]:
        if self._ends():
            return []
        self.begun[node] += 1
        return [Begin(node, self.version[node])]

    def _partner(self, node: int) -> int | None:
        """Whom the node averages with; None where there is nobody."""
        neighbours, row = self.neighbours[node], self.begun[node] - 1
        if self._generator is None:
            self._generator = np.random.default_rng(self.seed)
        while len(self.drawn) <= row:
            self.drawn.append(self._generator.random(self.num_nodes).tolist())
        return neighbours[int(self.drawn[row][node] * len(neighbours))] if neighbours else None


@register(
    title="AD-PSGD",
    source="Lian et al. 2018",
    families=("Decentralised",),
    rule="nag_asgd",
    peers=True,
    averages=lambda entries, num_workers: graphs.Size(edges=4),  # its own and its partner's, both ways
)
def ad_psgd(
    *, num_workers: Count, graph: str = "ring", density: float = 0.5, num_gradients: Count | None = None, seed: int = 0
) -> Pairs:
    r"""Every node computes at its own pace; before its step it and a random neighbour both become their mean.

    .. math:: \theta_i, \theta_j \leftarrow \tfrac12 (\theta_i + \theta_j), \qquad
        \theta_i \leftarrow \theta_i - \gamma \nabla F_i(\hat\theta_i)

    where :math:`\hat\theta_i` is what node i had when it began the gradient: others may have averaged with it since.
    Averaging is both ways, so that it keeps the mean of the nodes, unlike that of `gossip`.

    Args:
      num_workers: N, number of nodes.
      graph: who averages with whom, one of `sgdlab.graphs.GRAPHS`; its edges are used both ways.
      density: of a random graph, the probability of an edge.
      num_gradients: how many gradients to compute, in order of their beginning. None: until a node that has to begin
        runs out of compute times.
      seed: of the partners, and of a random graph.

    Raises:
      ValueError: where an argument is out of its range, or the graph does not connect all nodes.

    Source: Lian et al. 2018 (arXiv:1710.06952), Algorithm 1 with pairs for its averaging matrices; a reconstruction
    from papers that cite it. In `BilatGossipDataParallel` of facebookresearch/stochastic_gradient_push pairs become
    their means and gradients are applied late in the same way, but averagings follow each other as fast as they can.

    Example:
      >>> from sgdlab.protocols.family import PROTOCOLS
      >>> import numpy as np
      >>> runtimes = np.array([[1.0, 1.5]] * 3)
      >>> schedule = PROTOCOLS.make("ad_psgd", {}, runtimes=runtimes, num_gradients=3, seed=0)
      >>> schedule.node.tolist(), schedule.read.tolist()  # at 1 s and at 1.5 s the other one moves
      ([1, 0, 0, 1, 1, 0], [-1, 0, -1, 0, -1, 2])
    """
    edges: Any = graphs.make(graph, num_workers, density=density, seed=seed).any(axis=0)
    edges |= edges.T
    graphs.check_connected(graph, edges[None])
    neighbours = [np.flatnonzero(row).tolist() for row in edges]
    return Pairs(num_nodes=num_workers, num_gradients=num_gradients, neighbours=neighbours, seed=seed)
