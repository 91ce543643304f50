"""Gossip: every node averages with a random partner (Jin et al. 2016, Algorithms 3 and 4)."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count, Whole
from sgdlab.knobs import Knob
from sgdlab.protocols import fast_peers
from sgdlab.protocols.peer_policy import PeerAction, PeerBase, Source
from sgdlab.protocols.register import register


@dataclasses.dataclass
class Gossip(PeerBase):
    """A node averages with its partner's parameters ("pull"), or with those that were sent to it ("push").

    The k-th row of random numbers holds those of all nodes for their k-th gradients, whatever the order of events.

    Attributes:
      kind: "pull" or "push".
      include_self: whether a node can be its own partner.
      seed: of the partners.
      drawn: row by row, the partner of each node.
      sent: for each node, what was sent to it since it averaged: (node, version).
    """

    kind: str = "pull"
    include_self: bool = False
    seed: int = 0
    drawn: list[list[int]] = dataclasses.field(default_factory=list, init=False)
    sent: dict[int, list[tuple[int, int]]] = dataclasses.field(default_factory=dict, init=False)
    _generator: np.random.Generator | None = dataclasses.field(default=None, init=False, compare=False, repr=False)

    def start(self, nodes: Sequence[int]) -> list[PeerAction]:
        """All nodes begin.

        Raises:
          ValueError: by a Poisson clock, which exists in schedules only.
        """
        if self.clock == "poisson":
            raise ValueError("clock='poisson' must be 'own' or 'rounds': its nodes average, compute and step at once")
        return super().start(nodes)

    def averaged(self, nodes: Sequence[int]) -> dict[int, tuple[Source, ...]]:
        """Own parameters and the partner's, or what was sent, with equal weights."""
        if self.kind == "push" and self.clock == "rounds":
            for node in nodes:
                self._send(node)
        read = {}
        for node in nodes:
            others = self._pulled(node) if self.kind == "pull" else self.sent.pop(node, [])
            weight = 1 / (1 + len(others))
            read[node] = tuple(Source(*each, weight) for each in [(node, self.version[node]), *others])
            if self.kind == "push" and self.clock == "own":
                self._send(node)
        return read

    def _pulled(self, node: int) -> list[tuple[int, int]]:
        partner = self._partner(node)
        return [] if partner == node else [(partner, self.version[partner])]

    def _send(self, node: int) -> None:
        if self.num_nodes > 1:
            self.sent.setdefault(self._partner(node), []).append((node, self.version[node]))

    def _partner(self, node: int) -> int:
        """The node's partner before the gradient that it begins next; itself where there is nobody else."""
        if self.num_nodes == 1:
            return node
        if self._generator is None:
            self._generator = np.random.default_rng(self.seed)
        while len(self.drawn) <= self.begun[node]:
            row = self._generator.integers(0, self.num_nodes - (not self.include_self), self.num_nodes)
            if not self.include_self:
                row += row >= np.arange(self.num_nodes)
            self.drawn.append(row.tolist())
        return self.drawn[self.begun[node]][node]


@register(
    title="Gossip",
    source="Jin et al. 2016, Alg. 3-4",
    families=("Decentralised",),
    peers=True,
    fast=fast_peers.gossip,
    tunes=Knob("period", 1, 8, whole=True),
)
def gossip(
    *,
    num_workers: Count,
    kind: str = "pull",
    clock: str = "own",
    period: Count = 1,
    include_self: bool = False,
    fresh: bool = True,
    num_gradients: Count | None = None,
    seed: Whole = 0,
) -> Gossip:
    r"""Every node averages its parameters with those of a random partner, then takes a step of its own.

    With j uniform among the other nodes, before every `period`-th gradient,

    .. math:: \theta_i \leftarrow \tfrac12 (\theta_i + \theta_j) \;\text{("pull")}, \qquad
        \theta_i \leftarrow \operatorname{mean}(\theta_i, \text{what was sent to}\; i) \;\text{("push": i sends}\;
        \theta_i \;\text{to}\; j)

    and the gradient is taken at the result. What a node reads of the others depends on the clock:

    * "own": every node runs at its own pace. A pull gets what the partner has in memory at that instant, the parameters
      that the partner is computing on; a push is buffered until its receiver averages again.
    * "rounds": all nodes wait for each other before they average, and read parameters of the end of the round before.
    * "poisson": a node rests for its compute time; then it averages with the partner's newest parameters, takes its
      gradient and steps, all at once. With exponential compute times that is a Poisson clock.

    Jin et al.'s theorem bounds the distance from the minimum with `include_self`. With exponential compute times "own"
    is the recursion of their appendix, for which the printed bound fails for small steps: the averaging and the
    gradient share the node that ticks. "poisson" is their Algorithm 3 made instantaneous, for which it holds
    (`experiments.gossip.bounds`).

    Args:
      num_workers: p, number of nodes.
      kind: whether a node averages with its partner's parameters ("pull"), or sends it its own ("push").
      clock: when nodes average: each at its "own" pace, all in "rounds", or each by a "poisson" clock.
      period: number of gradients from one averaging to the next; only with Poisson clocks an averaging precedes the
        first gradient.
      include_self: whether a node can be its own partner, as in the proofs. It averages a push to itself with the other
        messages: in the same round, or at its next averaging.
      fresh: whether the gradient is taken at the averaged parameters; else at the node's own before averaging, as in
        the appendix, where gossip and gradient use the same parameters.
      num_gradients: how many gradients to compute, in order of their averaging (in rounds: rounded up to whole rounds).
        None: until the first node runs out of compute times.
      seed: of the partners.

    Source: Jin et al. 2016, Algorithms 3 (pull) and 4 (push), and sections 6.1 and 6.2.

    Example:
      >>> from sgdlab import protocols
      >>> schedule = protocols.gossip(np.ones((2, 3)), clock="rounds")
      >>> schedule.num_gradients, schedule.weight.tolist()
      (6, [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])

      The policy, event by event:

      >>> policy = gossip(num_workers=2)
      >>> policy.start([0, 1])[:2]
      [Mix(node=0, sources=(Source(node=0, version=0, weight=1.0),), scale=1.0), Begin(worker=0, version=1)]
      >>> policy.arrived(1.0, 0)[1].sources
      (Source(node=0, version=2, weight=0.5), Source(node=1, version=1, weight=0.5))
    """
    return Gossip(
        num_nodes=num_workers,
        num_gradients=num_gradients,
        kind=arguments.one_of("kind", kind, ("pull", "push")),
        clock=arguments.one_of("clock", clock, ("own", "rounds", "poisson")),
        period=period,
        include_self=bool(include_self),
        fresh=bool(fresh),
        seed=seed,
    )
