"""`PeerEngine`, the state of a live run without a server's parameters: nodes average, compute and step."""

from collections.abc import Iterable, Sequence

from sgdlab.live.engine import Engine
from sgdlab.live.events import Event
from sgdlab.live.hosted_nodes import HostedNodes
from sgdlab.live.peer_flying import PeerFlying
from sgdlab.live.peer_steps import PeerSteps
from sgdlab.live.settings import Settings
from sgdlab.live.transport import Transport
from sgdlab.live.updated import Taken, Updated
from sgdlab.policies.peers import Mix, PeerAction, PeerPolicy, Source, Step
from sgdlab.policies.policy import Begin


class PeerEngine(Engine):
    """Policy, optimisers, recorder and ledger of a run of peers; workers fail and come back as in `Engine`.

    Args:
      policy: whose parameters are averaged when.
      steps: the nodes.
      transport: the workers.
      num_workers: N, number of nodes, each with a worker.
      num_gradients: how many gradients the policy begins, for those who watch.
      settings: of the run.

    Attributes:
      step_scale: what the step of each gradient is multiplied by, in the order in which nodes averaged; None: 1.
    """

    def __init__(
        self,
        policy: PeerPolicy,
        steps: PeerSteps,
        transport: Transport,
        *,
        num_workers: int,
        num_gradients: int,
        settings: Settings,
    ):
        hosted = HostedNodes(policy)
        super().__init__(
            hosted, None, transport, num_workers=num_workers, num_gradients=num_gradients, settings=settings
        )
        self.hosted, self.nodes = hosted, steps
        self.flying = PeerFlying()
        self.step_scale: Sequence[float] | None = None
        self._mixed: dict[int, tuple[Source, ...]] = {}
        self._row: dict[int, int] = {}  # node -> number of its gradient, in the order in which nodes averaged
        self._rows = 0

    @property
    def updates(self) -> int:
        """Number of steps of all nodes."""
        return self.used

    def handle(self, event: Event, now: float) -> None:
        """What happens changes the state; where all others are done, a stand-in computes for a node without worker."""
        super().handle(event, now)
        free = set(self.fleet.there()) - self.flying.current.keys()
        gone = [worker.worker for worker in self.fleet if worker.state == "gone"]
        self.perform(self.hosted.stand_in(now, free=free, gone=gone), now)
        self.finished = self.hosted.policy.finished

    def perform(self, actions: Iterable[PeerAction], now: float) -> None:
        """Does what the policy says, in its order."""
        began: float | None = None
        updated: Updated | None = None
        for action in actions:
            match action:
                case Step(node):
                    updated = self._step(node, now)
                case Mix(node, sources):
                    self.nodes.mix(node, self._next(node), sources)
                    if node == self.num_workers:
                        self.flying.recorder.moved(node, sources, now if began is None else began)
                    else:
                        self._mixed[node] = sources
                case Begin(node, version):
                    began = self.reading(now, self.flying.tickets) if began is None else began
                    self._begin_node(node, version, began)
        self.nodes.keep(self.hosted.policy.held())
        if updated is not None:
            self.on_update(updated)

    def _decide(self, worker: int, now: float) -> None:
        """What becomes of the gradient that has come."""
        self.patience.learn(worker, now - self.flying.began[worker])
        self.perform(self.hosted.policy.arrived(now, self.flying.node[worker]), now)

    def _step(self, node: int, now: float) -> Updated:
        worker = self.hosted.worker_of(node)
        self._check_come(worker)
        version = self._next(node)
        at = self.nodes.at(node, version - 1 if self.hosted.policy.fresh else version - 2)
        grads, aux = self.gradient(self.come, at)
        scale = 1.0 if self.step_scale is None else float(self.step_scale[self._row[node]])
        self.nodes.step(node, version, grads, aux, scale=scale)
        self.flying.taken(worker, now, self.transport)
        self.fleet.waits(worker, now)
        self.used += 1
        return Updated(self.used, self.used, now, (Taken(self.come, worker, 1, self.losses[self.come]),), True)

    def _begin_node(self, node: int, version: int, now: float) -> None:
        worker = self.hosted.worker_of(node)
        params, sources = self.nodes.at(node, version), self._mixed.pop(node, None)
        if sources is not None:
            self._row[node], self._rows = self._rows, self._rows + 1
        self.flying.begin(worker, node, sources, params, now, self.transport)
        self.fleet.computes(worker, now)
        self.patience.expect(worker)

    def _end(self, worker: int, now: float, fate: str) -> None:
        """A gradient is lost; its node owes it."""
        self.flying.void(worker, fate, self.transport)
        self.fleet.waits(worker, now)

    def _next(self, node: int) -> int:
        """The version of a node that the next averaging, or step, makes."""
        return self.nodes.newest(node) + 1
