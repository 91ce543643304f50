"""`serve_peers`: a live run without a server's parameters, coordinated in one thread, over any transport.

The coordinator holds the parameters of all nodes. Workers compute their gradients; it averages and steps, so that what
nodes read of each other is in one place and in one order. A run that is killed is not resumed: there is no log yet.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sgdlab.live.peer_engine import LivePeerEngine
from sgdlab.live.peer_recording import PeerRecording
from sgdlab.live.peer_steps import PeerSteps
from sgdlab.live.recording import versions
from sgdlab.live.settings import LiveSettings
from sgdlab.live.status import Status
from sgdlab.live.transport import Transport
from sgdlab.live.turns import OnUpdate, Turns
from sgdlab.live.view import View
from sgdlab.protocols.peer_policy import PeerPolicy


def serve_peers(  # noqa: PLR0913 (the arguments of `serve`, and the nodes' rates)
    policy: PeerPolicy,
    steps: PeerSteps,
    transport: Transport,
    *,
    num_workers: int,
    num_gradients: int,
    settings: LiveSettings = LiveSettings(),  # noqa: B008 (it is frozen)
    step_scale: Sequence[float] | np.ndarray | None = None,
    config: dict[str, Any] | None = None,
    on_update: OnUpdate | None = None,
    watch: Callable[[Status], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> PeerRecording:
    """Executes a policy of peers on workers until all of its gradients were steps, and records what happened.

    The caller compiles `steps` before (`PeerSteps.compile`), and closes the transport afterwards. A gradient that is
    lost with its worker is computed again, on the same parameters and another batch, when the worker is back, or by
    another one if it is gone for good.

    Args:
      policy: whose parameters are averaged when; a new one, made with `num_gradients`.
      steps: compiled; it holds the nodes' parameters during and after the run.
      transport: the workers; they are spawned, `num_workers` of them, numbered from 0.
      num_workers: N, number of nodes, each with a worker.
      num_gradients: how many gradients the policy begins, for those who watch.
      settings: patience and respawning.
      step_scale: float[num_gradients, or in rounds so many whole rounds], what the step of each gradient is multiplied
        by, in the order in which nodes average for them; as in `replay.run`. None: 1.
      config: of the run, as JSON holds it, for the recording.
      on_update: called after each step of a node. What it returns is shown as the newest evaluation.
      watch: called with the `Status` about twice a second, and at the end.
      stop: asked at each turn; if it says True, `Stopped` is raised.

    Returns:
      The `PeerRecording`.

    Raises:
      ValueError: if policy and steps do not fit together, or the policy has no end.
      HostLost: if fewer than `settings.min_workers` are there, for too long or for good; it says why.
      RunFailed: if gradients of all workers fail, or are not finite, again and again.
      Stopped: if `stop` said so.
    """
    if steps.num_nodes != num_workers:
        raise ValueError(f"steps.num_nodes={steps.num_nodes} must be {num_workers}, num_workers")
    if getattr(policy, "num_gradients", num_gradients) is None:
        raise ValueError("policy.num_gradients=None must be a number: the run would have no end")
    turns = _PeerTurns(policy, steps, transport, num_workers, num_gradients, settings)
    turns.engine.step_scale = step_scale
    turns.on_update, turns.watch, turns.stop = on_update, watch, stop
    turns.run()
    engine = turns.engine
    schedule, tickets = engine.flying.recorder.schedule(num_workers, fresh=policy.fresh)
    seconds, losses = engine.seconds.of(tickets), engine.losses.of(tickets)
    return PeerRecording(schedule, tickets, seconds, losses, engine.flying.lost, config or {}, versions())


class _PeerTurns(Turns):
    """What the coordinator does from one message to the next; the arguments are those of `serve_peers`."""

    engine: LivePeerEngine

    def __init__(
        self,
        policy: PeerPolicy,
        steps: PeerSteps,
        transport: Transport,
        num_workers: int,
        num_gradients: int,
        settings: LiveSettings,
    ):
        super().__init__(policy, steps, transport, num_workers, num_gradients, settings, None)
        self.engine = LivePeerEngine(
            policy, steps, transport, num_workers=num_workers, num_gradients=num_gradients, settings=settings
        )
        self.engine.on_update = self.updated
        self.view = _PeerView(self.engine)


class _PeerView(View):
    """Every step is a gradient's own: whoever computes is waited for."""

    def _waiting_for(self) -> tuple[int, ...]:
        return tuple(self._engine.flying.current)
