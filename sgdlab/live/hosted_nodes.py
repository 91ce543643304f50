"""`HostedNodes`: which worker computes for which node; one that is gone for good has a stand-in at the end of a run."""

from collections.abc import Collection, Sequence

from sgdlab.protocols.peer_policy import PeerAction, PeerPolicy


class HostedNodes:
    """A policy of peers as the server's engine speaks to policies: of workers, not of nodes.

    A worker computes for the node of its own number. When all other nodes have done their gradients, a worker that is
    free computes those of a node whose worker will not come back.

    Args:
      policy: of the nodes.

    Attributes:
      policy: of the nodes.
      worker: node -> its stand-in, of nodes that have one.
    """

    single = True

    def __init__(self, policy: PeerPolicy):
        self.policy = policy
        self.worker: dict[int, int] = {}

    def worker_of(self, node: int) -> int:
        """Who computes for a node."""
        return self.worker.get(node, node)

    def start(self, workers: Sequence[int]) -> list[PeerAction]:
        """The run begins."""
        return self.policy.start(workers)

    def timer(self, now: float) -> list[PeerAction]:
        """Nothing: policies of peers have no timers."""
        return []

    def lost(self, now: float, worker: int) -> list[PeerAction]:
        """The worker's node, and those that it stands in for, lose it."""
        actions = []
        for node in (worker, *(node for node, other in self.worker.items() if other == worker)):
            if self.worker_of(node) == worker:
                actions += self.policy.lost(now, node)
        self.worker = {node: other for node, other in self.worker.items() if other != worker}
        return actions

    def joined(self, now: float, worker: int) -> list[PeerAction]:
        """The worker's node has it."""
        return [] if worker in self.worker else self.policy.joined(now, worker)

    def prepare(self) -> None:
        """Nothing: no answer takes long."""

    def stand_in(self, now: float, *, free: Collection[int], gone: Collection[int]) -> list[PeerAction]:
        """If nobody computes, and gradients are missing, a free worker computes for the first node that has nobody."""
        nodes = sorted(set(gone) - self.worker.keys())
        if self.policy.busy or self.policy.finished or not free or not nodes:
            return []
        self.worker[nodes[0]] = min(free)
        return self.policy.joined(now, nodes[0])
