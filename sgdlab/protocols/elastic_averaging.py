"""Elastic averaging: nodes and a center are drawn towards each other (Zhang et al. 2015a)."""

import dataclasses
from collections.abc import Sequence

from sgdlab import arguments
from sgdlab.bounds import Count
from sgdlab.knobs import Knob
from sgdlab.protocols import fast_peers
from sgdlab.protocols.peer_policy import Mix, PeerAction, PeerBase, Source
from sgdlab.protocols.register import register


@dataclasses.dataclass
class ElasticAveraging(PeerBase):
    """A node that averages moves towards the center, and the center towards what the node was, as far.

    Attributes:
      beta: the moving rate.
    """

    beta: float = 0.0

    def averaged(self, nodes: Sequence[int]) -> dict[int, tuple[Source, ...]]:
        """Own parameters and the center's."""
        center = Source(self.num_nodes, self.version[self.num_nodes], self.beta)
        return {node: (Source(node, self.version[node], 1.0 - self.beta), center) for node in nodes}

    def after(self, read: dict[int, tuple[Source, ...]]) -> list[PeerAction]:
        """The center's move, by what it was and what the nodes were before."""
        if not read:
            return []
        center = self.num_nodes
        own = Source(center, self.version[center], 1.0 - len(read) * self.beta)
        self.version[center] += 2
        nodes = (sources[0]._replace(weight=self.beta) for sources in read.values())
        return [Mix(center, (own, *nodes))]


@register(
    title="Elastic averaging",
    source="Jin et al. 2016, Alg. 2",
    families=("Decentralised",),
    rule="nag_asgd",
    explores=True,
    peers=True,
    fast=fast_peers.elastic_averaging,
    tunes=Knob("period", 1, 16, whole=True),
)
def elastic_averaging(
    *,
    num_workers: Count,
    clock: str = "own",
    period: Count = 1,
    beta: float | None = None,
    num_gradients: Count | None = None,
) -> ElasticAveraging:
    r"""Every node and a center are drawn towards each other, then the node takes a step of its own.

    Before every `period`-th gradient, with the same difference for both,

    .. math:: d = \theta_i - \tilde\theta, \qquad \theta_i \leftarrow \theta_i - \beta d, \qquad
        \tilde\theta \leftarrow \tilde\theta + \beta d

    and the gradient is taken at the new :math:`\theta_i`. The sum of all nodes and the center is conserved. In
    rounds the center moves once a round, by the sum of beta d over the nodes. With beta = 0 nodes are independent.

    Args:
      num_workers: p, number of nodes.
      clock: when nodes average: each at its "own" pace, or in "rounds", in which all wait for each other.
      period: number of gradients from one averaging to the next.
      beta: the moving rate of nodes and center, from 0 to 1 (in rounds: to 1 / p). None: 0.8 / p.
      num_gradients: as in `gossip`.

    Source: Jin et al. 2016, Algorithm 2; Zhang, Choromanska and LeCun 2015.

    Example:
      >>> from sgdlab import protocols
      >>> print(protocols.elastic_averaging([[1.0, 1.0]] * 3, beta=0.25))
      PeerSchedule: 2 nodes and a center, 6 gradients and 18 edges in 3 s
    """
    arguments.one_of("clock", clock, ("own", "rounds"))
    if beta is None:
        beta = 0.8 / num_workers
    return ElasticAveraging(
        num_nodes=num_workers,
        num_gradients=num_gradients,
        clock=clock,
        period=period,
        beta=arguments.real("beta", beta, least=0, most=1 / num_workers if clock == "rounds" else 1),
    )
