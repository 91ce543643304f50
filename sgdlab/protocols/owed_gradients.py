"""`OwedGradients`: what a peer whose worker is lost owes, and what happens when it is back."""

import dataclasses

from sgdlab.protocols.peer_policy import PeerAction
from sgdlab.protocols.policy import Begin


@dataclasses.dataclass
class OwedGradients:
    """Who computes, who is gone, and who owes a gradient; subclasses say what else follows.

    Its worker may be lost, but a node is not: its parameters are kept, and when it is back it computes the gradient
    that it was at, on the same parameters.

    Attributes:
      alive: nodes whose workers are there.
      busy: nodes that compute.
      owed: nodes whose gradients were lost.
    """

    alive: set[int] = dataclasses.field(default_factory=set, init=False)
    busy: set[int] = dataclasses.field(default_factory=set, init=False)
    owed: set[int] = dataclasses.field(default_factory=set, init=False)

    def lost(self, now: float, node: int) -> list[PeerAction]:
        """The node owes its gradient, if it was at one; the others go on."""
        self.alive.discard(node)
        if node in self.busy:
            self.busy.remove(node)
            self.owed.add(node)
        return self.without(node)

    def joined(self, now: float, node: int) -> list[PeerAction]:
        """The node begins the gradient that it owes, or goes on."""
        self.alive.add(node)
        if node in self.owed:
            self.owed.remove(node)
            self.busy.add(node)
            return [Begin(node, self.read_by(node))]
        return self.go_on(node)

    def being_read(self) -> set[tuple[int, int]]:
        """(node, version) of the parameters that gradients in flight or owed are taken at."""
        return {(node, self.read_by(node)) for node in self.busy | self.owed}

    def read_by(self, node: int) -> int:
        """The version that the gradient which a node has begun is taken at."""
        raise NotImplementedError

    def go_on(self, node: int) -> list[PeerAction]:
        """What a node does next that computes nothing: it begins, waits, or has no gradient left."""
        raise NotImplementedError

    def without(self, node: int) -> list[PeerAction]:
        """What follows for the others when a node is lost."""
        return []
