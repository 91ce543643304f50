"""`PeerPolicy`: whose parameters are averaged when, decided event by event, where there is no server.

Nodes have the numbers of the workers that compute their gradients; N, past them, is a center. The k-th event of a node,
counted from 0, makes two versions of its parameters, as in a `PeerSchedule`: 2 k + 1 by averaging, and 2 k + 2 by its
step. Version 0 is the initial parameters. An event without a gradient makes two versions that are equal.

A node averages when it begins a gradient (`Mix`, `Begin`, and `Step` when the gradient has come), or when it makes its
step (`Begin`, and when the gradient has come, `Mix` and `Step`).
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from sgdlab.protocols.policy import Begin


class Step(NamedTuple):
    """The gradient that has just come, or was kept, is applied to the parameters of its node."""

    node: int


class Keep(NamedTuple):
    """The gradient that has just come is kept until the `Step` of its node."""

    node: int


class Source(NamedTuple):
    """Parameters that an averaging reads, and their weight."""

    node: int
    version: int
    weight: float


class Mix(NamedTuple):
    """The next version of a node, or of the center, is the weighted mean of sources.

    For a node `Begin` follows, or its `Step`, of which `scale` is a factor.
    """

    node: int
    sources: tuple[Source, ...]
    scale: float = 1.0


class Move(NamedTuple):
    """The next two versions of a node are the weighted mean of sources; what it computes goes on as it was."""

    node: int
    sources: tuple[Source, ...]


PeerAction = Step | Keep | Mix | Move | Begin


class PeerPolicy(Protocol):
    """Decides whose parameters are averaged when.

    Attributes:
      fresh: whether gradients are taken at the averaged parameters; else at the node's own before.
    """

    fresh: bool

    def start(self, nodes: Sequence[int]) -> list[PeerAction]:
        """The run begins, at 0 s, with these nodes."""
        ...

    def arrived(self, now: float, node: int) -> list[PeerAction]:
        """A node's gradient has come."""
        ...


@dataclasses.dataclass
class PeerBase:
    """Nodes that average before every `period`-th gradient, each at its own pace or all together; subclasses say how.

    Attributes:
      num_nodes: N.
      num_gradients: how many gradients to compute, in order of their beginning (in rounds: rounded up to whole rounds).
        None: no end.
      clock: when nodes average: each at its "own" pace, or all in "rounds".
      period: number of gradients from one averaging to the next.
      fresh: whether gradients are taken at the averaged parameters.
      version: the newest version of each node, and of the center.
      begun: number of gradients that each node has begun.
      total: number of gradients that all have begun.
      busy: nodes that compute.
      waiting: nodes that wait for the others, in rounds.
    """

    num_nodes: int = 1
    num_gradients: int | None = None
    clock: str = "own"
    period: int = 1
    fresh: bool = True
    version: list[int] = dataclasses.field(default_factory=list, init=False)
    begun: list[int] = dataclasses.field(default_factory=list, init=False)
    total: int = dataclasses.field(default=0, init=False)
    busy: set[int] = dataclasses.field(default_factory=set, init=False)
    waiting: set[int] = dataclasses.field(default_factory=set, init=False)

    def averaged(self, nodes: Sequence[int]) -> dict[int, tuple[Source, ...]]:
        """Return what nodes that average at one moment read; those that are left out read their own parameters only."""
        raise NotImplementedError

    def after(self, read: dict[int, tuple[Source, ...]]) -> list[PeerAction]:
        """Return what follows when the nodes of `averaged` have begun: nothing, or the center's move."""
        return []

    def start(self, nodes: Sequence[int]) -> list[PeerAction]:
        """All nodes begin."""
        self.version, self.begun = [0] * (self.num_nodes + 1), [0] * self.num_nodes
        return self._begin(sorted(nodes))

    def arrived(self, now: float, node: int) -> list[PeerAction]:
        """The node's step; then it averages if it is time to, and begins again."""
        self.busy.remove(node)
        self.version[node] += 1
        return [Step(node), *self._go_on(node)]

    def _ends(self, node: int) -> bool:
        """Tell whether a node begins no other gradient."""
        if self.num_gradients is None:
            return False
        if self.clock == "rounds":
            return self.begun[node] >= -(-self.num_gradients // self.num_nodes)
        return self.total >= self.num_gradients

    def _go_on(self, node: int) -> list[PeerAction]:
        """The node begins its next gradient, or waits for the others where they average in rounds."""
        if self._ends(node):
            return self._meet()
        if self.clock == "rounds" and self._averages(node):
            self.waiting.add(node)
            return self._meet()
        return self._begin([node])

    def _averages(self, node: int) -> bool:
        return self.begun[node] > 0 and self.begun[node] % self.period == 0

    def _meet(self) -> list[PeerAction]:
        """In rounds, once nobody is left to wait for."""
        if not self.waiting or not all(node in self.waiting or self._ends(node) for node in range(self.num_nodes)):
            return []
        nodes, self.waiting = sorted(self.waiting), set()
        return self._begin(nodes)

    def _begin(self, nodes: Sequence[int]) -> list[PeerAction]:
        read = self.averaged([node for node in nodes if self._averages(node)])
        actions: list[PeerAction] = []
        for node in nodes:
            if self._ends(node):
                continue
            sources = read.get(node, (Source(node, self.version[node], 1.0),))
            self.version[node] += 1
            self.begun[node] += 1
            self.total += 1
            self.busy.add(node)
            actions += [Mix(node, sources), Begin(node, self.version[node] - (not self.fresh))]
        return actions + self.after(read)
