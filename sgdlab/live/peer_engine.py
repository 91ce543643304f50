"""`LivePeerEngine`, the state of a live run without a server's parameters: nodes average, compute and step."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from sgdlab.live.engine import LiveEngine
from sgdlab.live.events import Event
from sgdlab.live.hosted_nodes import HostedNodes
from sgdlab.live.peer_flying import PeerFlying
from sgdlab.live.peer_steps import PeerSteps
from sgdlab.live.settings import LiveSettings
from sgdlab.live.transport import Transport
from sgdlab.live.updated import Taken, Updated
from sgdlab.protocols.peer_policy import Keep, Mix, Move, PeerAction, PeerPolicy, Step
from sgdlab.protocols.policy import Begin

Tree = Any


class LivePeerEngine(LiveEngine):
    """Policy, optimisers, recorder and ledger of a run of peers; workers fail and come back as in `LiveEngine`.

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

    flying: PeerFlying
    policy: HostedNodes
    gradient: Any

    def __init__(
        self,
        policy: PeerPolicy,
        steps: PeerSteps,
        transport: Transport,
        *,
        num_workers: int,
        num_gradients: int,
        settings: LiveSettings,
    ):
        hosted: Any = HostedNodes(policy)
        super().__init__(
            hosted, None, transport, num_workers=num_workers, num_gradients=num_gradients, settings=settings
        )
        self.hosted, self.nodes = hosted, steps
        self.flying = PeerFlying()
        self.step_scale: Sequence[float] | np.ndarray | None = None
        self._mixed: dict[int, Mix] = {}  # node -> what it has averaged for the gradient that it begins
        self._scale: dict[int, float] = {}  # node -> what its next step is multiplied by
        self._at: dict[int, int] = {}  # node -> the version that its gradient is taken at
        self._kept: dict[int, tuple[int, int, tuple[Tree, Tree]]] = {}  # node -> ticket, worker and gradient
        self._rows = 0  # gradients that nodes have averaged for

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

    # pyrefly: ignore[bad-override]  # actions of peers, not of a server
    def perform(self, actions: Iterable[PeerAction], now: float) -> None:
        """Does what the policy says, in its order."""
        began: float | None = None
        updated: Updated | None = None
        for action in actions:
            match action:
                case Step(node):
                    if updated is not None:
                        self.on_update(updated)  # one event may be followed by steps of several nodes
                    updated = self._step(node, now)
                case Keep(node):
                    self._keep(node, now)
                case Move(node, sources):
                    self.nodes.move(node, self._next(node), sources)
                    self.flying.recorder.moved(node, sources, now)
                case Mix(node, sources):
                    self.nodes.mix(node, self._next(node), sources)
                    if node == self.num_workers:
                        self.flying.recorder.moved(node, sources, now if began is None else began)
                    else:
                        self._averaged(action)
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

    def _averaged(self, mix: Mix) -> None:
        """A node has averaged, for the gradient that it begins or for one that it has begun before."""
        row, self._rows = self._rows, self._rows + 1
        rate = 1.0 if self.step_scale is None else float(self.step_scale[row])
        self._scale[mix.node] = rate * mix.scale
        if mix.node in self.flying.recorder.open:
            self.flying.recorder.averaged(mix.node, mix.sources, scale=mix.scale)
        else:
            self._mixed[mix.node] = mix

    def _keep(self, node: int, now: float) -> None:
        """The gradient that has come waits for the step of its node; its worker is free."""
        worker = self.hosted.worker_of(node)
        self._check_come(worker)
        # The transport's memory is the next gradient's.
        gradient = jax.tree.map(np.array, self.gradient(self.come, self.nodes.at(node, self._at[node])))
        self._kept[node] = self.come, worker, gradient
        self.flying.taken(worker, now, self.transport)
        self.fleet.waits(worker, now)

    def _step(self, node: int, now: float) -> Updated:
        version = self._next(node)
        if node in self._kept:
            ticket, worker, gradient = self._kept.pop(node)
            self.nodes.step(node, version, *gradient, scale=self._scale[node])
        else:
            worker, ticket = self.hosted.worker_of(node), self.come
            self._check_come(worker)
            gradient = self.gradient(ticket, self.nodes.at(node, self._at[node]))
            self.nodes.step(node, version, *gradient, scale=self._scale[node])
            self.flying.taken(worker, now, self.transport)
            self.fleet.waits(worker, now)
        self.used += 1
        return Updated(self.used, self.used, now, (Taken(ticket, worker, 1, self.losses[ticket]),), True)

    def _begin_node(self, node: int, version: int, now: float) -> None:
        worker, recorder = self.hosted.worker_of(node), self.flying.recorder
        mix = self._mixed.pop(node, None)
        if mix is not None:
            begins = lambda: recorder.began(node, mix.sources, now, scale=mix.scale)
        elif node in recorder.open:  # it was lost, and is begun on the same parameters
            begins = lambda: recorder.began_again(node)
        else:
            begins = lambda: recorder.began_first(node, version, now)
        self._at[node] = version
        self.flying.begin(worker, node, begins, self.nodes.at(node, version), now, self.transport)
        self.fleet.computes(worker, now)
        self.patience.expect(worker)

    def _end(self, worker: int, now: float, fate: str) -> None:
        """A gradient is lost; its node owes it."""
        self.flying.void(worker, fate, self.transport)
        self.fleet.waits(worker, now)

    def _next(self, node: int) -> int:
        """The version of a node that the next averaging, or step, makes."""
        return self.nodes.newest(node) + 1
