"""Partially synchronous parallelism: servers wait for some workers, workers for some servers (PSP-SGD, Algorithm 1)."""

from collections.abc import Iterator

import numpy as np

from sgdlab import arguments
from sgdlab.cluster.messages import MessageDelays
from sgdlab.registry import PROTOCOLS
from sgdlab.runtimes import NotEnoughRuntimes, checked
from sgdlab.schedule import DROPPED, PENDING, Schedule

Delays = float | np.ndarray | MessageDelays | None

_AT_ONCE = MessageDelays(base_seconds=0.0, late_share=0.0)
_NEVER = np.inf
_OPEN, _TIMER = -3, -1


@PROTOCOLS.register(
    title="PSP-SGD",
    source="Weak synchronization, Alg. 1",
    families=("Rounds: fresh gradients",),
    rule="linear_scaling",
    blocks="num_servers",
)
def partial(  # noqa: PLR0913 (its entries are those of the method: what servers wait for, and what workers do)
    runtimes: np.ndarray,
    *,
    num_servers: int = 4,
    push_at_least: int | float = 1.0,
    push_timeout: float = 0.0,
    pull_at_least: int | float = 1.0,
    pull_timeout: float = 0.0,
    pull_delays: Delays = _AT_ONCE,
    push_delays: Delays = _AT_ONCE,
    keep_newer: bool = False,
    num_gradients: int | None = None,
    seed: int = 0,
) -> Schedule:
    """PSP-SGD: every server updates its block after c gradients, every worker starts once b of the blocks have come.

    A server sends each version of its block to all workers, with the number of its update as a stamp. It takes every
    gradient that is stamped no earlier than its own count, also of workers that run ahead, until c have come (two of
    one worker are two) and the time-out is over, or all workers have responded; then it updates. Gradients stamped
    earlier are dropped.

    A worker that has finished starts again once b of the blocks have come with a later stamp than its last gradient's,
    and the time-out since the b-th is over (or all servers have responded). Its own count is the newest that b blocks
    have reached, so one that was late skips what it has missed. It computes on what has come stamped no earlier than
    that count; of a slower server it keeps the block that it had, which can fall many versions behind (line 10 of the
    algorithm). Before the first blocks have come it has the initial parameters.

    Timers go off before messages of the same instant, gradients of one instant are taken by worker number, and a
    worker reads all blocks that have come by the instant at which it starts. With c = N, b = 100 %, one server and no
    delays it is `synchronous`; with a smaller c `backup_workers`, but for ties: there a worker that ends a late
    gradient at the instant of an update reads in the order of the workers' numbers.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      num_servers: S, each with one block of the parameters.
      push_at_least: c, gradients that a server waits for: a whole number from 1 to N, or a share of N above 0.0 and at
        most 1.0.
      push_timeout: seconds that a server waits longer.
      pull_at_least: b, blocks that a worker waits for: a whole number from 1 to S, or a share of S.
      pull_timeout: seconds that a worker waits longer.
      pull_delays: float64[T, N, S], seconds that version t of a server's block is under way to a worker; one number
        for all; or a model to draw them from. None: 0, as the default.
      push_delays: float64[T, N, S], seconds that a worker's t-th gradient is under way to a server; or as above.
      keep_newer: a worker takes every block that is newer than the one it has, however it is stamped.
      num_gradients: how many gradients to use: the run has as many updates as the block needs that has them last. None:
        T updates.
      seed: of delays that are drawn.

    Returns:
      A `Schedule` of as many updates a block. Where servers differ, one of them can end with fewer: a server that has
      taken gradients ahead of its count lacks them at the end, and those that it had collected by then are dropped.
      What comes after the last update of all is pending. T rows suffice for T updates.

    Raises:
      ValueError: where run-times are not positive and finite, delays are negative or of another shape, or another
        argument is out of its range.
      NotEnoughRuntimes: (a ValueError) where T updates of some block use fewer gradients; it says how many rows would
        be enough.

    Example:
      >>> import numpy as np
      >>> schedule = partial(np.array([[1.0, 1.0], [1.0, 1.0]]), num_servers=2, pull_at_least=0.5,
      ...                    pull_delays=np.array([[[0, 0], [0, 0]], [[0, 3], [0, 0]]]))
      >>> schedule.read
      array([[0, 0],
             [0, 0],
             [1, 0],
             [1, 1]], dtype=int32)
    """
    runtimes = checked(runtimes)
    servers = arguments.whole("num_servers", num_servers)
    generators = np.random.default_rng(arguments.whole("seed", seed, least=0)).spawn(2)
    shape = (*runtimes.shape, servers)
    pulls = _drawn("pull_delays", pull_delays, shape, generators[0])
    pushes = _drawn("push_delays", push_delays, shape, generators[1])
    push = (
        arguments.share("push_at_least", push_at_least, runtimes.shape[1], "workers"),
        arguments.real("push_timeout", push_timeout, least=0),
    )
    pull = (
        arguments.share("pull_at_least", pull_at_least, servers, "servers"),
        arguments.real("pull_timeout", pull_timeout, least=0),
    )

    def simulation(updates: int) -> _Simulation:
        return _Simulation(
            runtimes[:updates], pulls[:updates], pushes[:updates], push=push, pull=pull, keep_newer=bool(keep_newer)
        )

    updates = runtimes.shape[0]
    if num_gradients is not None:
        # A server drops what it has at its last update: which one that is has to be known beforehand.
        updates = simulation(updates).updates_that_use(arguments.whole("num_gradients", num_gradients))
    run = simulation(updates)
    run.to_the_end()
    return run.schedule()


def _drawn(name: str, delays: Delays, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    if delays is None or (
        isinstance(delays, MessageDelays) and delays.base_seconds == 0 and delays.late_share * delays.late_seconds == 0
    ):
        delays = 0.0
    array = delays.draw(shape, generator) if isinstance(delays, MessageDelays) else np.asarray(delays, np.float64)
    if array.shape not in ((), shape):
        raise ValueError(
            f"{name} of shape {array.shape} must have shape [T, N, S] = {shape}, that of runtimes and num_servers, or "
            "be one number"
        )
    if not (np.isfinite(array).all() and (array >= 0).all()):
        place = tuple(np.argwhere(~(np.isfinite(array) & (array >= 0)))[0].tolist())
        raise ValueError(f"{name}{list(place) if place else ''}={array[place]} must be finite and at least 0")
    return np.broadcast_to(array, shape)


class _Simulation:
    """Servers and workers, from one decision to the next: a server updates, or a worker starts.

    All messages that an agent will get from decisions made so far are known, with the time at which they come; so the
    earliest decision that they allow is one that no later message can forestall. Messages are handled in arrays, all
    those of one decision at once; and when an agent decides is only worked out anew, for all that have got messages,
    once the earliest of these could matter.
    """

    def __init__(
        self,
        runtimes: np.ndarray,
        pull_delays: np.ndarray,
        push_delays: np.ndarray,
        *,
        push: tuple[int, float],
        pull: tuple[int, float],
        keep_newer: bool,
    ):
        (self.updates, self.workers), self.servers = runtimes.shape, pull_delays.shape[2]
        self.runtimes, self.pull_delays, self.push_delays = runtimes, pull_delays, push_delays
        (self.push_at_least, self.push_timeout), (self.pull_at_least, self.pull_timeout) = push, pull
        self.keep_newer = keep_newer
        every = (self.workers, self.servers)

        # Servers. Version t of block s reaches worker n at pulled[t, n, s].
        self.count = np.zeros(self.servers, np.int64)  # updates made
        self.closes = np.full(self.servers, _NEVER)  # when the next update is due, by what is known
        self.enough = np.full(self.servers, _NEVER)  # when its c-th gradient comes
        self.waiting = np.zeros(self.servers, np.int64)  # gradients known that can count
        self.first_push = np.full(self.servers, _NEVER)  # when the first of them comes
        self.stale_servers = np.zeros(self.servers, bool)  # their `closes` can be too late
        self.pulled = np.full((self.updates, *every), _NEVER)
        self.applied = np.full((self.updates, self.servers), np.nan)
        self.closed_by = np.full(self.servers, _TIMER)
        self.used = np.zeros(self.servers, np.int64)  # gradients in its updates

        # Workers.
        self.begun = np.zeros(self.workers, np.int64)  # gradients
        self.free = np.zeros(self.workers)  # when it has finished
        self.own = np.full(self.workers, -1)  # the stamp of its last gradient
        self.newest = np.full(every, -1)  # the newest stamp it has seen of each block
        self.held = np.zeros(every, np.int64)  # the version it computes on
        self.comes = np.full(every, _NEVER)  # when the first block comes that is stamped later than its own count
        self.have = np.zeros(self.workers, np.int64)  # blocks for which that is known
        self.starts = np.full(self.workers, _NEVER)  # when it can start, by what is known
        self.stale_workers = np.zeros(self.workers, bool)  # their `starts` can be too late
        self.first_pull = _NEVER  # when the first block comes that made one of them so

        # Gradients, one line each; `status` is an update, DROPPED, or _OPEN: not yet decided.
        most = self.updates * self.workers
        self.worker, self.stamp = np.empty(most, np.int32), np.empty(most, np.int64)
        self.started = np.empty(most)
        self.read, self.status = (np.empty((most, self.servers), np.int32) for _ in range(2))
        self.arrived = np.empty((most, self.servers))
        self.size = 0
        self.open = np.empty(0, np.int64)  # lines that some server has not decided yet

    def to_the_end(self) -> None:
        """Goes from decision to decision until all servers have made their updates, or nothing more can come."""
        for _ in self._decisions():
            pass

    def updates_that_use(self, num_gradients: int) -> int:
        """How many updates use so many gradients, at the server that needs most; goes on until they have."""
        needed = np.zeros(self.servers, np.int64)
        for server in self._decisions():
            if needed[server] == 0 and self.used[server] >= num_gradients:
                needed[server] = self.count[server]
                if needed.all():
                    return int(needed.max())
        raise NotEnoughRuntimes.after(num_gradients, rows=self.updates, done=int(self.used.min()))

    def _decisions(self) -> Iterator[int]:
        """The servers that update, one after the other, each when it has."""
        for server in range(self.servers):
            self._send(server, 0.0)
        while (self.count < self.updates).any():
            server, worker = self._next()
            if self.closes[server] <= self.starts[worker]:
                if self.closes[server] == _NEVER:
                    return
                self._update(server)
                yield server
            else:
                self._start(worker)

    def _next(self) -> tuple[int, int]:
        """The server that updates first and the worker that starts first, one of which is the next decision."""
        while True:
            server, worker = int(self.closes.argmin()), int(self.starts.argmin())
            due = min(self.closes[server], self.starts[worker])
            if (self.first_push[self.stale_servers] <= due).any():
                self._set_closes(np.flatnonzero(self.stale_servers))
            elif self.first_pull < due or self.first_pull == due < self.closes[server]:
                self._set_starts(np.flatnonzero(self.stale_workers))
            else:
                return server, worker

    def _send(self, server: int, now: float) -> None:
        """A new version goes to all workers, and may let some of them start."""
        version = self.count[server]
        comes = now + self.pull_delays[version, :, server]
        self.pulled[version, :, server] = comes
        earlier = (version > self.own) & (comes < self.comes[:, server])
        if earlier.any():
            self.have[earlier & np.isinf(self.comes[:, server])] += 1
            self.comes[earlier, server] = comes[earlier]
            ready = earlier & (self.have >= self.pull_at_least)
            if ready.any():
                self.stale_workers |= ready
                self.first_pull = min(self.first_pull, now)

    def _set_starts(self, ready: np.ndarray) -> None:
        """When these workers start, by the blocks that are known to come."""
        self.stale_workers[:] = False
        self.first_pull = _NEVER
        needed = self.pull_at_least - 1
        times = np.partition(self.comes[ready], sorted({needed, self.servers - 1}), axis=1)
        start = np.minimum(times[:, needed] + self.pull_timeout, times[:, -1])
        self.starts[ready] = np.maximum(start, self.free[ready])

    def _start(self, worker: int) -> None:
        """A worker reads what has come, and computes; when its gradient will come to each server is known at once."""
        now = self.starts[worker]
        newest = self._delivered(worker, now)
        own = np.partition(newest, self.servers - self.pull_at_least)[self.servers - self.pull_at_least]
        self.newest[worker], self.own[worker] = newest, own
        fresh = newest > self.held[worker] if self.keep_newer else newest >= own
        self.held[worker][fresh] = newest[fresh]

        line, row = self.size, self.begun[worker]
        finished = now + self.runtimes[row, worker]
        if not finished > now:
            raise ValueError(
                f"runtimes[{row}, {worker}]={self.runtimes[row, worker]} does not advance the clock at {now:g} s; "
                "run-times must be long enough to move the clock"
            )
        self.begun[worker] += 1
        self.size += 1
        self.free[worker] = finished
        self.worker[line], self.stamp[line], self.started[line] = worker, own, now
        self.read[line] = self.held[worker]
        arrives = finished + self.push_delays[row, worker]
        self.arrived[line] = arrives
        counts = own >= self.count
        self.status[line] = np.where(counts, _OPEN, DROPPED)
        if counts.any():
            self.open = np.append(self.open, line)
            self.waiting += counts
            self.first_push[counts] = np.minimum(self.first_push[counts], arrives[counts])
            self.stale_servers |= counts & (self.waiting >= self.push_at_least) & self._matters(arrives)
        self._wait(worker)

    def _matters(self, arrives: np.ndarray) -> np.ndarray:
        """Servers whose next update could change by a gradient that comes then."""
        return (arrives < self.enough) | (arrives <= self.closes) if self.push_timeout else arrives < self.enough

    def _delivered(self, worker: int, now: float) -> np.ndarray:
        """The newest stamp of each block that has come."""
        seen, sent = self.newest[worker], np.minimum(self.count, self.updates - 1)
        newest, columns = seen.copy(), np.arange(self.servers)
        for ahead in range(1, int((sent - seen).max()) + 1):
            stamp = np.minimum(seen + ahead, sent)
            here = self.pulled[stamp, worker, columns] <= now
            newest[here] = np.maximum(newest[here], stamp[here])
        return newest

    def _wait(self, worker: int) -> None:
        """What a worker waits for after a gradient: blocks stamped later than it."""
        first, sent = self.own[worker] + 1, np.minimum(self.count, self.updates - 1)
        last = int(sent.max())
        self.starts[worker] = _NEVER
        self.comes[worker] = self.pulled[first : last + 1, worker].min(axis=0) if first <= last else _NEVER
        self.have[worker] = np.isfinite(self.comes[worker]).sum()
        self.stale_workers[worker] = self.have[worker] >= self.pull_at_least
        if self.stale_workers[worker]:
            self.first_pull = min(self.first_pull, self.free[worker])

    def _set_closes(self, servers: np.ndarray) -> None:
        """When these servers update, by the gradients that are known to come."""
        self.stale_servers[servers] = False
        times = np.where(
            self.status[self.open[:, None], servers] == _OPEN, self.arrived[self.open[:, None], servers], _NEVER
        )
        at_least = self.push_at_least - 1
        enough = np.partition(times, at_least, axis=0)[at_least]
        self.enough[servers] = enough
        self.closes[servers] = enough + self.push_timeout
        if self.push_timeout:
            responded = np.full((self.workers, servers.size), _NEVER)
            np.minimum.at(responded, self.worker[self.open], times)
            self.closes[servers] = np.minimum(self.closes[servers], np.maximum(responded.max(axis=0), enough))

    def _update(self, server: int) -> None:
        now = self.closes[server]
        lines = self.open[self.status[self.open, server] == _OPEN]
        times, workers = self.arrived[lines, server], self.worker[lines]
        order = np.lexsort((workers, times))
        taken, self.closed_by[server] = self._taken(times[order], workers[order], now)
        update = self.count[server]
        self.status[lines[order[:taken]], server] = update
        self.applied[update, server] = now
        self.used[server] += taken
        self.count[server] += 1
        # The rest can count for a later update, unless it is stamped too early for that.
        rest = lines[order[taken:]]
        old = self.stamp[rest] <= update
        self.status[rest[old], server] = DROPPED
        self.waiting[server] = np.count_nonzero(~old)
        self.first_push[server] = self.arrived[rest[~old], server].min(initial=_NEVER)
        if server == self.servers - 1 or self.open.size > 4 * self.workers:
            self.open = self.open[(self.status[self.open] == _OPEN).any(axis=1)]
        self.closes[server] = self.enough[server] = _NEVER
        if self.count[server] < self.updates:
            self.stale_servers[server] = self.waiting[server] >= self.push_at_least
            self._send(server, now)
        else:
            self.status[rest[~old], server] = DROPPED

    def _taken(self, times: np.ndarray, workers: np.ndarray, now: float) -> tuple[int, int]:
        """How many gradients, in order of arrival, an update at `now` takes, and whose was the last (or the timer)."""
        enough = times[self.push_at_least - 1]
        if enough + self.push_timeout == enough:
            return self.push_at_least, int(workers[self.push_at_least - 1])
        if now == enough + self.push_timeout:
            return int(np.searchsorted(times, now, side="left")), _TIMER
        # All workers have responded: the update takes what has come up to the last worker's first gradient.
        _, first = np.unique(workers, return_index=True)
        return int(first.max()) + 1, int(workers[first.max()])

    def schedule(self) -> Schedule:
        """Rows in order of their first arrival; what comes after the last update of all is pending."""
        end = float(np.nanmax(self.applied))
        last = self.applied[np.maximum(self.count - 1, 0), np.arange(self.servers)] == end
        closed_by = int(self.closed_by[last].max())
        kept = np.flatnonzero(self.started[: self.size] < end)
        kept = kept[np.lexsort((self.worker[kept], self.arrived[kept].min(axis=1)))]
        worker, arrived, status = self.worker[kept], self.arrived[kept], self.status[kept]
        after = (arrived > end) | ((arrived == end) & (worker[:, None] > closed_by))
        update = np.where(status >= 0, status, np.where(after, PENDING, DROPPED))
        return Schedule(
            worker=worker,
            read=self.read[kept],
            update=update,
            started=self.started[kept],
            arrived=arrived,
            applied=self.applied,
            num_workers=self.workers,
        )


def blocks_behind(schedule: Schedule) -> np.ndarray:
    """How many versions each block that a gradient was computed on lay behind the newest one that it was computed on.

    This is what waiting for only some of the blocks costs: a gradient of mixed age.

    Args:
      schedule: of several blocks.

    Returns:
      int64[K], the number of (gradient, block) pairs that were k versions behind, for the gradients of some update.

    Example:
      >>> import numpy as np
      >>> blocks_behind(partial(np.ones((3, 2)), num_servers=4))
      array([24])
    """
    read = schedule.read[schedule.used().any(axis=1)]
    return np.bincount((read.max(axis=1, keepdims=True) - read).ravel())
