"""PSP-SGD, message by message: servers and workers with mailboxes, and one heap of everything that is going to happen.

Written from Algorithm 1 of the weak-synchronization paper and the docstring of `protocols.partial`, without a look at
the vectorised code. At one instant, in this order: workers finish, timers go off, pushes come (by worker, then by the
worker's earlier gradient) and servers update, pulls come, workers start (by number). A gradient that came by the end of
the run and entered no update is dropped, one that had not come is pending.
"""

import dataclasses
import heapq
from collections.abc import Callable

import numpy as np

DROPPED, PENDING = -1, -2
FINISH, TIMER, PUSH, PULL, START = range(5)


@dataclasses.dataclass
class Gradient:
    worker: int
    stamp: int
    read: list[int]
    started: float
    arrived: list[float]
    update: list[int]


class Server:
    """Lines 1 to 15: counts updates, and keeps who has sent a gradient for the next one."""

    def __init__(self, number: int, world: "World"):
        self.number, self.world = number, world
        self.count = 0
        self.taken: list[Gradient] = []
        self.applied: list[float] = []

    def broadcast(self, now: float) -> None:
        if self.count == self.world.updates:
            return  # nothing is to be learned from the last version
        for worker in self.world.workers:
            delay = self.world.pull_delays[self.count][worker.number][self.number]
            self.world.at(now + delay, PULL, worker.number, worker.pulled, self.number, self.count)

    def pushed(self, now: float, gradient: Gradient) -> None:
        gradient.update[self.number] = DROPPED  # if nothing comes of it
        if (now, gradient.worker) != self.world.last_update:
            self.world.since.append((gradient, self.number))
        if gradient.stamp < self.count:
            return
        self.taken.append(gradient)
        responded = {taken.worker for taken in self.taken}
        if len(self.taken) == self.world.push_at_least and self.world.push_timeout:
            self.world.at(now + self.world.push_timeout, TIMER, self.number, self.timer, self.count)
        if len(self.taken) >= self.world.push_at_least and (
            not self.world.push_timeout or len(responded) == len(self.world.workers)
        ):
            self.update(now, gradient.worker)

    def timer(self, now: float, count: int) -> None:
        if count == self.count:
            self.update(now, None)

    def update(self, now: float, closed_by: int | None) -> None:
        self.world.last_update = now, closed_by
        self.world.since = []
        for gradient in self.taken:
            gradient.update[self.number] = self.count
            assert gradient.stamp >= self.count
        self.taken = []
        self.count += 1
        self.applied.append(now)
        self.broadcast(now)


class Worker:
    """Lines 16 to 29: newest stamps that have come from each server, and the blocks that it holds."""

    def __init__(self, number: int, world: "World"):
        self.number, self.world = number, world
        self.stamp = -1
        self.mailbox = [-1] * len(world.servers)
        self.holds = [0] * len(world.servers)
        self.begun, self.idle, self.timed_out = 0, True, False

    def pulled(self, now: float, server: int, stamp: int) -> None:
        before = self.later()
        self.mailbox[server] = max(self.mailbox[server], stamp)
        if before < self.world.pull_at_least <= self.later():
            if self.world.pull_timeout:
                self.world.at(now + self.world.pull_timeout, TIMER, self.number, self.timer, self.stamp)
            else:
                self.timed_out = True
        self.perhaps_start(now)

    def later(self) -> int:
        """Return how many servers have responded since the last gradient."""
        return sum(stamp > self.stamp for stamp in self.mailbox)

    def timer(self, now: float, stamp: int) -> None:
        if stamp == self.stamp:
            self.timed_out = True
            self.perhaps_start(now)

    def perhaps_start(self, now: float) -> None:
        if self.idle and (self.timed_out or self.later() == len(self.mailbox)):
            self.world.at(now, START, self.number, self.start)

    def start(self, now: float) -> None:
        if not self.idle:
            return  # two messages of one instant both said so
        enough = self.world.pull_at_least
        self.stamp = sorted(self.mailbox, reverse=True)[enough - 1]  # the newest that so many blocks have reached
        for server, stamp in enumerate(self.mailbox):
            if stamp >= self.stamp or self.world.keep_newer:
                self.holds[server] = max(self.holds[server], stamp)
        self.idle = self.timed_out = False
        finish = now + self.world.runtimes[self.begun][self.number]
        arrived = [finish + delay for delay in self.world.push_delays[self.begun][self.number]]
        self.begun += 1
        pending = [PENDING] * len(self.mailbox)
        gradient = Gradient(self.number, self.stamp, list(self.holds), now, arrived, pending)
        self.world.gradients.append(gradient)
        self.world.at(finish, FINISH, self.number, self.finish, gradient)

    def finish(self, now: float, gradient: Gradient) -> None:
        for server, time in zip(self.world.servers, gradient.arrived, strict=True):
            self.world.at(time, PUSH, self.number, server.pushed, gradient)
        self.idle = True
        self.perhaps_start(now)


class World:
    """The heap: (time, kind, number, order of entry)."""

    def __init__(self, runtimes, pull_delays, push_delays, push, pull, keep_newer):
        self.runtimes, self.updates = runtimes.tolist(), len(runtimes)
        self.pull_delays, self.push_delays = pull_delays.tolist(), push_delays.tolist()
        (self.push_at_least, self.push_timeout), (self.pull_at_least, self.pull_timeout) = push, pull
        self.keep_newer = keep_newer
        self.heap, self.entered = [], 0
        self.gradients: list[Gradient] = []
        # The run ends with the last update of all, and what its worker sends at that instant: later pushes are pending.
        self.last_update: tuple[float, int | None] | None = None
        self.since: list[tuple[Gradient, int]] = []
        self.servers = [Server(number, self) for number in range(pull_delays.shape[2])]
        self.workers = [Worker(number, self) for number in range(runtimes.shape[1])]

    def at(self, time: float, kind: int, number: int, action: Callable, *arguments) -> None:
        self.entered += 1
        heapq.heappush(self.heap, (time, kind, number, self.entered, action, arguments))

    def run(self) -> None:
        for server in self.servers:
            server.broadcast(0.0)
        while self.heap:
            now, *_, action, arguments = heapq.heappop(self.heap)
            action(now, *arguments)
        for gradient, server in self.since:
            gradient.update[server] = PENDING


def simulate_partial(
    runtimes: np.ndarray,
    pull_delays: np.ndarray,
    push_delays: np.ndarray,
    *,
    push: tuple[int, float],
    pull: tuple[int, float],
    keep_newer: bool,
) -> dict[str, list]:
    """The fields of the schedule; `push` and `pull` are (how many, seconds of time-out)."""
    world = World(runtimes, pull_delays, push_delays, push, pull, keep_newer)
    world.run()
    end = max(time for server in world.servers for time in server.applied)
    rows = [gradient for gradient in world.gradients if gradient.started < end]
    rows.sort(key=lambda gradient: (min(gradient.arrived), gradient.worker, gradient.stamp))
    most = max(server.count for server in world.servers)
    return {
        "worker": [row.worker for row in rows],
        "read": [row.read for row in rows],
        "update": [row.update for row in rows],
        "started": [row.started for row in rows],
        "arrived": [row.arrived for row in rows],
        "applied": [
            [server.applied[update] if update < server.count else np.nan for server in world.servers]
            for update in range(most)
        ],
    }
