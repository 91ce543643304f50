"""Gossip, event by event: every node averages with a random partner (Jin et al. 2016, Algorithms 3 and 4)."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from sgdlab import arguments
from sgdlab.policies.family import POLICIES
from sgdlab.policies.peer_base import PeerBase
from sgdlab.policies.peers import PeerAction, Source


@dataclasses.dataclass
class Gossip(PeerBase):
    """A node averages with its partner's parameters ("pull"), or with those that were sent to it ("push").

    Partners are those of `protocols.gossip`: the k-th row of random numbers holds those of all nodes for their k-th
    gradients, whatever the order of events. Where a partner is lost, the next node by number stands in for it; what was
    sent to a node that is lost is lost as well.

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

    def without(self, node: int) -> list[PeerAction]:
        """What was sent to the node is lost with it."""
        self.sent.pop(node, None)
        return super().without(node)

    def held(self) -> set[tuple[int, int]]:
        """What `PeerBase` holds, and what was sent."""
        return super().held() | {each for sent in self.sent.values() for each in sent}

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
        first = self.drawn[self.begun[node]][node]
        for partner in (*range(first, self.num_nodes), *range(first)):
            if partner in self.alive and (partner != node or self.include_self):
                return partner
        return node


@POLICIES.register(title="Gossip", source="Jin et al. 2016, Alg. 3-4", peers=True)
def gossip(
    *,
    num_workers: int,
    kind: str = "pull",
    clock: str = "own",
    period: int = 1,
    include_self: bool = False,
    fresh: bool = True,
    num_gradients: int | None = None,
    seed: int = 0,
) -> Gossip:
    """Every node averages with a random partner, then takes a step of its own; see `protocols.gossip`.

    A Poisson clock, by which a node averages, computes and steps in one instant, exists in simulation only.

    Args:
      num_workers: N, number of nodes.
      kind: whether a node averages with its partner's parameters ("pull"), or sends it its own ("push").
      clock: when nodes average: each at its "own" pace, or all in "rounds".
      period: number of gradients from one averaging to the next.
      include_self: whether a node can be its own partner.
      fresh: whether the gradient is taken at the averaged parameters; else at the node's own before averaging.
      num_gradients: how many gradients to compute (in rounds: rounded up to whole rounds). None: no end.
      seed: of the partners.

    Raises:
      ValueError: where an argument is out of its range.

    Example:
      >>> policy = gossip(num_workers=2)
      >>> policy.start([0, 1])[:2]
      [Mix(node=0, sources=(Source(node=0, version=0, weight=1.0),), scale=1.0), Begin(worker=0, version=1)]
      >>> policy.arrived(1.0, 0)[1].sources
      (Source(node=0, version=2, weight=0.5), Source(node=1, version=1, weight=0.5))
    """
    if num_gradients is not None:
        arguments.whole("num_gradients", num_gradients)
    return Gossip(
        num_nodes=arguments.whole("num_workers", num_workers),
        num_gradients=num_gradients,
        kind=arguments.one_of("kind", kind, ("pull", "push")),
        clock=arguments.one_of("clock", clock, ("own", "rounds")),
        period=arguments.whole("period", period),
        include_self=bool(include_self),
        fresh=bool(fresh),
        seed=arguments.whole("seed", seed, least=0),
    )
