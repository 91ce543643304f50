"""`simulate_peers`, a policy of peers on a virtual clock."""

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from sgdlab import arguments
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.protocols.peer_policy import Begin, Keep, Mix, Move, PeerAction, PeerPolicy, Step
from sgdlab.protocols.peer_recorder import PeerRecorder
from sgdlab.runtimes import NotEnoughRuntimes, checked, too_short


def simulate_peers(
    make_policy: Callable[..., PeerPolicy], runtimes: np.ndarray, *, num_gradients: int | None = None
) -> PeerSchedule:
    """The schedule of a policy of peers on given run-times; that of `protocols`, field by field.

    Gradients that come at one instant come by node number. In rounds, the protocols' `num_gradients=None` means all T N
    gradients; elsewhere it means what it means here.

    Args:
      make_policy: called with `num_workers`, N, and `num_gradients`; it makes a new policy.
      runtimes: float64[T, N], seconds; row t holds each node's t-th gradient.
      num_gradients: how many gradients to begin. None: until a node that has to begin runs out of run-times.

    Returns:
      A `PeerSchedule`.

    Raises:
      ValueError: where run-times are not positive and finite, or `num_gradients` is below 1.
      NotEnoughRuntimes: (a ValueError) where run-times end first; it says how many rows would be enough.

    Example:
      >>> from sgdlab import policies
      >>> print(simulate_peers(policies.gossip, np.array([[1.0, 2.0], [1.0, 2.0]])))
      PeerSchedule: 2 nodes, 3 gradients and 4 edges in 2 s
    """
    runtimes = checked(runtimes)
    if num_gradients is not None:
        arguments.whole("num_gradients", num_gradients)
    rows, nodes = runtimes.shape
    policy = make_policy(num_workers=nodes, num_gradients=num_gradients)
    run = _Run(runtimes)
    actions, now = policy.start(list(range(nodes))), 0.0
    while run.perform(actions, now) and run.heap:
        now, node = heapq.heappop(run.heap)
        actions = policy.arrived(now, node)
    if run.ran_out and num_gradients is not None:
        raise NotEnoughRuntimes.after(num_gradients, rows=rows, done=run.recorder.gradients, who="a node", spare=True)
    while run.heap:  # what was begun ends when it would have
        now, node = heapq.heappop(run.heap)
        run.recorder.ended(node, now)
    return run.recorder.schedule(nodes, fresh=policy.fresh)


class _Run:
    """Nodes, what they have begun, and their clock."""

    def __init__(self, runtimes: np.ndarray):
        self.recorder = PeerRecorder()
        self.times = [column.tolist() for column in runtimes.T]
        self.begun = [0] * len(self.times)
        self.mixed: dict[int, Mix] = {}
        self.heap: list[tuple[float, int]] = []  # when a gradient comes, and whose
        self.ran_out = False

    def perform(self, actions: Sequence[PeerAction], now: float) -> bool:
        """Whether all of the actions could be done; else a node that has to begin has no run-time."""
        for action in actions:
            match action:
                case Step(node) | Keep(node):
                    self._come(node, now)
                case Move(node, sources):
                    self.recorder.moved(node, sources, now)
                case Mix(node, sources) if node == len(self.times):
                    self.recorder.moved(node, sources, now)
                case Mix(node, sources, scale) if node in self.recorder.open:
                    self.recorder.averaged(node, sources, scale=scale)
                case Mix(node):
                    self.mixed[node] = action
                case Begin(node, version):
                    row = self.begun[node]
                    if row == len(self.times[node]):
                        self.ran_out = True
                        return False
                    self._begin(node, version, row, now)
        return True

    def _come(self, node: int, now: float) -> None:
        """The gradient that has come; one that was kept has come before."""
        event = self.recorder.open.get(node)
        if event is not None and np.isnan(event.finished):
            self.recorder.ended(node, now)

    def _begin(self, node: int, version: int, row: int, now: float) -> None:
        finished = now + self.times[node][row]
        if not finished > now:
            raise too_short(row, node, self.times[node][row], now)
        self.begun[node] = row + 1
        mix = self.mixed.pop(node, None)
        if mix is None:
            self.recorder.began_first(node, version, now)
        else:
            self.recorder.began(node, mix.sources, now, scale=mix.scale)
        heapq.heappush(self.heap, (finished, node))
