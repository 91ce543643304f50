"""Partially synchronous parallelism: servers wait for some workers, workers for some servers (PSP-SGD, Algorithm 1)."""

from collections.abc import Iterator

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count, NotNegative, Whole
from sgdlab.cluster.messages import MessageDelays
from sgdlab.knobs import Knob
from sgdlab.ordering import by_number, by_time
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.protocols.in_seconds import in_seconds
from sgdlab.runtimes import NotEnoughRuntimes, checked, too_short
from sgdlab.schedule import DROPPED, PENDING, Schedule

Delays = float | np.ndarray | MessageDelays | None

_AT_ONCE = MessageDelays(base_seconds=0.0, late_share=0.0)
_NEVER = np.inf
_OPEN, _TIMER = -3, -1


@PROTOCOLS.register(
    title="PSP-SGD",
    source="Weak synchronization, Alg. 1",
    families=("Synchronous rounds",),
    rule="linear_scaling",
    blocks="num_servers",
    no_policy="its parameters are spread over several servers",
    tunes=Knob("push_at_least", 0.25, 1.0, log=False),
)
@in_seconds
def partial(  # noqa: PLR0913 (its entries are those of the method: what servers wait for, and what workers do)
    runtimes: np.ndarray,
    *,
    num_servers: Count = 4,
    push_at_least: int | float = 1.0,
    push_timeout: NotNegative = 0.0,
    pull_at_least: int | float = 1.0,
    pull_timeout: NotNegative = 0.0,
    pull_delays: Delays = _AT_ONCE,
    push_delays: Delays = _AT_ONCE,
    keep_newer: bool = False,
    num_gradients: Count | None = None,
    seed: Whole = 0,
) -> Schedule:
    """PSP-SGD: servers update their blocks after c gradients each, workers start after b new blocks.

    A server sends each version of its block to all workers, stamped with the number of its update. It collects all
    gradients whose stamp is at least its own count, also of workers that are ahead, until c have arrived (two of one
    worker count twice) and the time-out is over, or all workers have responded; then it updates. Gradients with an
    earlier stamp are dropped.

    A worker that has finished starts again once b blocks with a later stamp than that of its last gradient have
    arrived, and the time-out since the b-th is over (or all servers have responded). Its own count is the newest that b
    blocks have reached, so that a late worker skips the updates that it has missed. It computes on the blocks with a
    stamp of at least that count; of a slower server it uses the block that it had, which can fall many versions behind
    (line 10 of the algorithm). Before the first blocks arrive it has the initial parameters.

    Timers go off before messages of the same instant, gradients of one instant are taken by worker number, and a
    worker reads all blocks that have arrived by the instant at which it starts. With c = N, b = 100 %, one server and
    no delays it is `synchronous`; with a smaller c it is `backup_workers`, except for ties: there a worker that ends a
    late gradient at the instant of an update reads in the order of the workers' numbers.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      num_servers: S, number of servers, each with one block of the parameters.
      push_at_least: c, gradients that a server waits for: a whole number from 1 to N, or a share of N above 0.0 and at
        most 1.0.
      push_timeout: seconds that a server waits after its c-th gradient for other workers.
      pull_at_least: b, blocks that a worker waits for: a whole number from 1 to S, or a share of S.
      pull_timeout: seconds that a worker waits after its b-th block for other servers.
      pull_delays: float64[T, N, S], seconds that version t of a server's block is in flight to a worker; one number
        for all; or a model that they are drawn from. None: 0, as by default.
      push_delays: float64[T, N, S], seconds that a worker's t-th gradient is in flight to a server; or as above.
      keep_newer: whether a worker takes every block that is newer than the one it has, whatever its stamp.
      num_gradients: how many gradients to use in every block; the block that needs most updates decides their number.
        None: T updates.
      seed: of the delays that are drawn.

    Returns:
      A `Schedule` with equally many updates of each block. A server that has used gradients ahead of its count can end
      with fewer, since it lacks them at the end; those that it has collected by then are dropped. Gradients that arrive
      after the last update of all are pending. T rows suffice for T updates.

    Raises:
      ValueError: where compute times are not positive and finite, delays are negative or of another shape, or another
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
    servers = num_servers
    generators = np.random.default_rng(seed).spawn(2)
    shape = (*runtimes.shape, servers)
    pulls = _drawn("pull_delays", pull_delays, shape, generators[0])
    pushes = _drawn("push_delays", push_delays, shape, generators[1])
    push = (arguments.share("push_at_least", push_at_least, runtimes.shape[1], "workers"), push_timeout)
    pull = (arguments.share("pull_at_least", pull_at_least, servers, "servers"), pull_timeout)

    def simulation(updates: int) -> _Simulation:
        return _Simulation(
            runtimes[:updates], pulls[:updates], pushes[:updates], push=push, pull=pull, keep_newer=bool(keep_newer)
        )

    updates = runtimes.shape[0]
    if num_gradients is not None:
        # A server drops what it has at its last update: which one that is has to be known beforehand.
        updates = simulation(updates).updates_that_use(num_gradients)
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
        index = tuple(np.argwhere(~(np.isfinite(array) & (array >= 0)))[0].tolist())
        raise ValueError(f"{name}{list(index) if index else ''}={array[index]} must be finite and at least 0")
    return np.broadcast_to(array, shape)


class _Simulation:
    """Servers and workers, simulated decision by decision: a server updates, or some workers start.

    All messages that follow from decisions made so far are known, with their times of arrival, so that no later message
    can precede the earliest decision that they allow. The messages of one decision are handled in arrays, and so are
    workers that start before anything else can happen. The times of decisions are recomputed only when new messages
    could change the next one, then for all that have got messages.
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
        self.count = np.zeros(self.servers, np.int64)  # number of updates made
        self.closes = np.full(self.servers, _NEVER)  # time of the next update, by the messages known
        self.enough = np.full(self.servers, _NEVER)  # arrival of its c-th gradient
        self.waiting = np.zeros(self.servers, np.int64)  # number of known gradients that it can use
        self.first_push = np.full(self.servers, _NEVER)  # arrival of the first of them
        self.stale_servers = np.zeros(self.servers, bool)  # whether `closes` may be too late
        self.pulled = np.full((self.updates, *every), _NEVER)
        self.applied = np.full((self.updates, self.servers), np.nan)
        self.closed_by = np.full(self.servers, _TIMER)
        self.used = np.zeros(self.servers, np.int64)  # number of gradients in its updates

        # Workers.
        self.begun = np.zeros(self.workers, np.int64)  # number of gradients begun
        self.free = np.zeros(self.workers)  # time when it has finished
        self.own = np.full(self.workers, -1)  # the stamp of its last gradient
        self.newest = np.full(every, -1)  # the newest stamp it has seen of each block
        self.held = np.zeros(every, np.int64)  # the version it computes on
        self.first_arrival = np.full(every, _NEVER)  # first arrival of each block with a stamp above its own count
        self.have = np.zeros(self.workers, np.int64)  # number of blocks for which that is known
        self.starts = np.full(self.workers, _NEVER)  # time when it can start, by the messages known
        self.stale_workers = np.zeros(self.workers, bool)  # whether `starts` may be too late
        self.first_pull = _NEVER  # earliest time of the messages that made them so

        # Gradients; `status` is an update, DROPPED, or _OPEN: not yet decided.
        most = self.updates * self.workers
        self.worker, self.stamp = np.empty(most, np.int32), np.empty(most, np.int64)
        self.started = np.empty(most)
        self.read, self.status = (np.empty((most, self.servers), np.int32) for _ in range(2))
        self.arrived = np.empty((most, self.servers))
        self.size = 0
        self.open = np.empty(0, np.int64)  # indices of gradients that some server has not decided yet

    def to_the_end(self) -> None:
        """Simulates until all servers have made their updates, or no message is left."""
        for _ in self._decisions():
            pass

    def updates_that_use(self, num_gradients: int) -> int:
        """Number of updates that use `num_gradients` at the server that needs most; simulates until then."""
        needed = np.zeros(self.servers, np.int64)
        for server in self._decisions():
            if needed[server] == 0 and self.used[server] >= num_gradients:
                needed[server] = self.count[server]
                if needed.all():
                    return int(needed.max())
        raise NotEnoughRuntimes.after(num_gradients, rows=self.updates, done=int(self.used.min()))

    def _decisions(self) -> Iterator[int]:
        """Simulates decision by decision, and yields the server of each update."""
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
                self._start(self._starting(server, worker))

    def _next(self) -> tuple[int, int]:
        """The server that updates first and the worker that starts first; the earlier of them is the next decision."""
        while True:
            server, worker = int(self.closes.argmin()), int(self.starts.argmin())
            due = min(self.closes[server], self.starts[worker])
            if (self.first_push[self.stale_servers] <= due).any():
                self._set_closes(np.flatnonzero(self.stale_servers))
            elif self.first_pull < due or self.first_pull == due < self.closes[server]:
                self._set_starts(np.flatnonzero(self.stale_workers))
            else:
                return server, worker

    def _starting(self, server: int, worker: int) -> np.ndarray:
        """The workers that start one after the other, from `worker` on, before anything else can be decided."""
        known = min(self.closes[server], self.first_push[self.stale_servers].min(initial=_NEVER), self.first_pull)
        ready = np.flatnonzero(self.starts < known)
        if ready.size < 2:
            return np.array([worker])
        ready = ready[by_time(self.starts[ready])]
        starts = self.starts[ready]
        # No message of a gradient arrives, and its worker does not start again, before it is finished.
        finished = starts + self.runtimes[self.begun[ready], ready]
        alone = starts[1:] < np.minimum.accumulate(finished[:-1])
        return ready[: ready.size if alone.all() else int(np.argmin(alone)) + 1]

    def _send(self, server: int, now: float) -> None:
        """Sends a new version to all workers, some of which may then start."""
        version = self.count[server]
        arrival = now + self.pull_delays[version, :, server]
        self.pulled[version, :, server] = arrival
        earlier = (version > self.own) & (arrival < self.first_arrival[:, server])
        if earlier.any():
            self.have[earlier & np.isinf(self.first_arrival[:, server])] += 1
            self.first_arrival[earlier, server] = arrival[earlier]
            ready = earlier & (self.have >= self.pull_at_least)
            if ready.any():
                self.stale_workers |= ready
                self.first_pull = min(self.first_pull, now)

    def _set_starts(self, ready: np.ndarray) -> None:
        """Recomputes when these workers start, from the blocks known."""
        self.stale_workers[:] = False
        self.first_pull = _NEVER
        needed = self.pull_at_least - 1
        times = np.partition(self.first_arrival[ready], sorted({needed, self.servers - 1}), axis=1)
        start = np.minimum(times[:, needed] + self.pull_timeout, times[:, -1])
        self.starts[ready] = np.maximum(start, self.free[ready])

    def _start(self, workers: np.ndarray) -> None:
        """Lets workers read and compute; the arrivals of their gradients at the servers follow at once."""
        now, rows = self.starts[workers], self.begun[workers]
        newest = self._delivered(workers, now)
        least = self.servers - self.pull_at_least
        own = np.partition(newest, least, axis=1)[:, least]
        self.newest[workers], self.own[workers] = newest, own
        held = self.held[workers]
        held = np.where(newest > held if self.keep_newer else newest >= own[:, None], newest, held)
        self.held[workers] = held

        finished = now + self.runtimes[rows, workers]
        if not (finished > now).all():
            stuck = int(np.argmin(finished > now))
            row, worker = rows[stuck], workers[stuck]
            raise too_short(row, worker, self.runtimes[row, worker], now[stuck])
        gradients = slice(self.size, self.size + workers.size)
        self.begun[workers] += 1
        self.size += workers.size
        self.free[workers] = finished
        self.worker[gradients], self.stamp[gradients], self.started[gradients] = workers, own, now
        self.read[gradients] = held
        arrives = finished[:, None] + self.push_delays[rows, workers]
        self.arrived[gradients] = arrives
        counts = own[:, None] >= self.count
        self.status[gradients] = np.where(counts, _OPEN, DROPPED)
        counting = counts.any(axis=1)
        if counting.any():
            self.open = np.concatenate([self.open, np.flatnonzero(counting) + gradients.start])
            self.waiting += np.count_nonzero(counts, axis=0)
            self.first_push = np.minimum(self.first_push, np.where(counts, arrives, _NEVER).min(axis=0))
            matter = (counts & self._matters(arrives)).any(axis=0)
            self.stale_servers |= matter & (self.waiting >= self.push_at_least)
        self._wait(workers)

    def _matters(self, arrives: np.ndarray) -> np.ndarray:
        """bool[., S], whether a gradient that arrives then could change the server's next update."""
        return (arrives < self.enough) | (arrives <= self.closes) if self.push_timeout else arrives < self.enough

    def _delivered(self, workers: np.ndarray, now: np.ndarray) -> np.ndarray:
        """int64[., S], the newest stamp of each block that has arrived at each of these workers."""
        seen, sent = self.newest[workers], np.minimum(self.count, self.updates - 1)
        newest, columns = seen.copy(), np.arange(self.servers)
        for ahead in range(1, int((sent - seen).max()) + 1):
            stamp = np.minimum(seen + ahead, sent)
            arrived = self.pulled[stamp, workers[:, None], columns] <= now[:, None]
            newest[arrived] = np.maximum(newest[arrived], stamp[arrived])
        return newest

    def _wait(self, workers: np.ndarray) -> None:
        """Lets workers wait for blocks with a later stamp than that of their gradient."""
        first, last = self.own[workers] + 1, int(np.minimum(self.count, self.updates - 1).max())
        arrival = np.full((workers.size, self.servers), _NEVER)
        for stamp in range(int(first.min()), last + 1):
            later = np.flatnonzero(first <= stamp)
            arrival[later] = np.minimum(arrival[later], self.pulled[stamp, workers[later]])
        have = np.isfinite(arrival).sum(axis=1)
        ready = have >= self.pull_at_least
        self.starts[workers] = _NEVER
        self.first_arrival[workers], self.have[workers], self.stale_workers[workers] = arrival, have, ready
        self.first_pull = min(self.first_pull, self.free[workers[ready]].min(initial=_NEVER))

    def _set_closes(self, servers: np.ndarray) -> None:
        """Recomputes when these servers update, from the gradients known."""
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
        gradients = self.open[self.status[self.open, server] == _OPEN]
        times, workers = self.arrived[gradients, server], self.worker[gradients]
        order = by_number(workers, self.workers)
        order = order[by_time(times[order])]
        taken, self.closed_by[server] = self._taken(times[order], workers[order], now)
        update = self.count[server]
        self.status[gradients[order[:taken]], server] = update
        self.applied[update, server] = now
        self.used[server] += taken
        self.count[server] += 1
        # The rest can enter a later update, unless its stamp is too early.
        rest = gradients[order[taken:]]
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
        """Return how many gradients, in order of arrival, an update at `now` takes, and whose the last is, or timer."""
        enough = times[self.push_at_least - 1]
        if enough + self.push_timeout == enough:
            return self.push_at_least, int(workers[self.push_at_least - 1])
        if now == enough + self.push_timeout:
            return int(np.searchsorted(times, now, side="left")), _TIMER
        # All workers have responded: the update takes all gradients up to the last worker's first one.
        _, first = np.unique(workers, return_index=True)
        return int(first.max()) + 1, int(workers[first.max()])

    def schedule(self) -> Schedule:
        """Rows in order of first arrival; gradients that arrive after the last update of all are pending."""
        end = float(np.nanmax(self.applied))
        last = self.applied[np.maximum(self.count - 1, 0), np.arange(self.servers)] == end
        closed_by = int(self.closed_by[last].max())
        rows = np.flatnonzero(self.started[: self.size] < end)
        rows = rows[by_number(self.worker[rows], self.workers)]
        rows = rows[by_time(self.arrived[rows].min(axis=1))]
        worker, arrived, status = self.worker[rows], self.arrived[rows], self.status[rows]
        after = (arrived > end) | ((arrived == end) & (worker[:, None] > closed_by))
        update = np.where(status >= 0, status, np.where(after, PENDING, DROPPED))
        return Schedule(
            worker=worker,
            read=self.read[rows],
            update=update,
            started=self.started[rows],
            arrived=arrived,
            applied=self.applied,
            num_workers=self.workers,
        )


def blocks_behind(schedule: Schedule) -> np.ndarray:
    """Counts how many versions each block that a gradient was computed on is behind the newest block of that gradient.

    A server that waits for only some of the blocks pays with such gradients of mixed age.

    Args:
      schedule: a `Schedule` of several blocks.

    Returns:
      int64[K], the number of (gradient, block) pairs that were k versions behind, of gradients used by some block.

    Example:
      >>> import numpy as np
      >>> blocks_behind(partial(np.ones((3, 2)), num_servers=4))
      array([24])
    """
    read = schedule.read[schedule.used().any(axis=1)]
    return np.bincount((read.max(axis=1, keepdims=True) - read).ravel())
