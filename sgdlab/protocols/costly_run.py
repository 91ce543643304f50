"""A policy's run in which messages cost time, the server is a queue, and workers fail."""

import collections
import functools
import heapq
import math

import numpy as np

from sgdlab.failures.outages import Outages
from sgdlab.protocols.policy import Close, Interrupt, Policy
from sgdlab.protocols.policy_run import IN_VAIN, NOT_BEGUN, PolicyRun
from sgdlab.runtimes import too_short
from sgdlab.schedule import DROPPED
from sgdlab.transports.links import Fifo, Flows
from sgdlab.transports.star import Star

_TIMER, _NOTICE, _LOST, _JOINED, _LEAVES, _REACHES, _OUT, _INTO, _ARRIVED, _SERVE = range(10)
"""Kinds of events in their order at one instant: timers, failures, what leaves and reaches the server's links, messages
that end on them, what comes to the server, and the server that goes on. Of one kind, by worker."""


def is_free(num_workers: int, transport: Star | None, outages: Outages | None) -> bool:
    """Tell whether messages cost nothing and nobody fails.

    Raises:
      ValueError: where one of them is of another number of workers.
    """
    if transport is not None and transport.num_workers != num_workers:
        raise ValueError(f"transport of {transport.num_workers} workers must be of {num_workers}, as the compute times")
    if outages is not None and not outages.never and len(outages) not in (num_workers, num_workers + 1):
        raise ValueError(f"outages of {len(outages)} workers must be of {num_workers}, as the compute times")
    return (outages is None or outages.never) and (transport is None or transport.is_free)


class CostlyRun(PolicyRun):
    """A policy, its workers and their clock, with a network between them and a server that is one queue.

    A gradient's life, of which each step is only `max` and `+` of times, in this order:

        Begin -> [outgoing link] -> latency -> computes -> latency -> [incoming link] -> [queue] -> policy.arrived

    * The queue holds gradients, timers, losses and joins in the order in which they come. The policy is told when the
      server gets to one: of a gradient, `receive_seconds` later. `Close` takes `update_seconds`; what the same answer
      lets begin leaves then.
    * Parameters that the worker has already are not sent again.
    * `Interrupt`: the worker stops when the next parameters reach it. What it has sent until then occupies the link,
      and is ignored.
    * The `seconds` of `policy.arrived` are those from when it let the worker begin until the message was there; the
      compute time itself, to the bit, where the message cost nothing.

    Args:
      policy: of the run.
      runtimes: float64[T, N], seconds.
      num_gradients: as for `simulate`, like those that follow.
      num_updates: most updates.
      idle_at_end: whether a worker without compute times idles.
      star: what messages cost.
      outages: when workers, and the server, are down. None: never.
    """

    def __init__(
        self,
        policy: Policy,
        runtimes: np.ndarray,
        num_gradients: int | None,
        num_updates: int | None,
        idle_at_end: bool,
        star: Star,
        outages: Outages | None = None,
    ):
        super().__init__(policy, runtimes, num_gradients, num_updates, idle_at_end)
        self.star, self.latency, self.traffic = star, star.latency, star.traffic
        self.groups = star.groups or (0,) * len(self.times)
        self.out, self.into = star.links()
        self.epochs = [0, 0]  # of messages on links that are shared; those planned before count no more
        self.events: list[tuple[float, int, int, int]] = []  # when, kind, worker, ticket
        self.server = 0.0  # when it has done what it has begun
        self.queue: collections.deque[tuple[float, int, int, int]] = collections.deque()
        self.holds = [-1] * len(self.times)  # the version that each worker has
        self.asked: list[float] = []
        self.done: list[float] = []  # when it is computed
        self.outages = outages or Outages(())
        self.loses = not (self.outages.never or self.outages.pauses)
        self.server_fails = len(self.outages) > len(self.times)
        self.leaving: dict[int, int] = {}  # worker that was told to stop -> the gradient that it still sends
        self.in_a_row = 0  # failures since a gradient has come
        self.at_server = frozenset((_TIMER, _LOST, _JOINED))
        self.does = {
            _NOTICE: self._notice, _LEAVES: self._leaves, _REACHES: self._reaches, _SERVE: self._goes_on,
            _OUT: functools.partial(self._through, _OUT), _INTO: functools.partial(self._through, _INTO),
        }  # fmt: skip
        self.stops: dict[int, float] = {}  # ticket that was interrupted -> when its worker learns of that
        self.last_stopped: dict[int, int] = {}  # worker -> that ticket, until the worker begins again

    def until_it_ends(self) -> None:
        """Until enough gradients are used or updates made, or a worker that has to begin runs out of compute times."""
        events, current = self.events, self.current
        for worker in range(len(self.times)):
            self._fails(worker, 0.0)
        self._perform("start", self.policy.start(list(range(len(self.times)))), 0.0)
        while events and not self.ended:
            now, kind, worker, ticket = event = heapq.heappop(events)
            if kind == _ARRIVED:
                if current.get(worker) == ticket:  # else it was interrupted, or its worker was lost
                    self._comes(event, now)
            elif kind in self.at_server:
                self._comes(event, now)
            else:
                self.does[kind](now, worker, ticket)

    def _comes(self, event: tuple[float, int, int, int], now: float) -> None:
        """Something comes to the server, which gets to it at once, or puts it into its queue."""
        free = self._free_at(now)
        if self.queue or free > now:
            if not self.queue:
                heapq.heappush(self.events, (free, _SERVE, -1, -1))
            self.queue.append(event)
        else:
            self._serve(event, now)

    def _goes_on(self, now: float, worker: int, ticket: int) -> None:
        """The server gets to the first of its queue."""
        del worker, ticket
        if (free := self._free_at(now)) <= now:
            self._serve(self.queue.popleft(), now)
            free = self._free_at(now)
        if self.queue and not self.ended:
            heapq.heappush(self.events, (free, _SERVE, -1, -1))

    def _free_at(self, now: float) -> float:
        """Return when the server, at work or down until then, can do something that it has at `now`."""
        free = self.server if self.server > now else now
        if self.server_fails:
            down, back = self.outages.away(len(self.times), free)
            return back if down <= free else free
        return free

    def _serve(self, event: tuple[float, int, int, int], now: float) -> None:
        """The server gets to what came to it."""
        when, kind, worker, ticket = event
        if self.prepare is not None:
            self.prepare()
        if kind == _TIMER:
            self._perform("timer", self.policy.timer(now), now)
        elif kind == _LOST:
            self._lose(worker, now)
        elif kind == _JOINED:
            if self.leaving.pop(worker, None) is not None:  # what it was to send is still on the way
                self._lose(worker, now)
            self.holds[worker] = -1
            self._fails(worker, now)
            self._perform("joined", self.policy.joined(now, worker), now)
        elif self.current.get(worker) == ticket:
            self.server = now = now + self.star.receive_seconds
            self.arrived[ticket] = when
            seconds, asked = self.times[worker][self.begun[worker] - 1], self.asked[ticket]
            if not (asked == self.started[ticket] and when == self.done[ticket]):
                seconds = when - asked
            self.in_a_row = 0
            self._come(now, worker, ticket, seconds)
            if self.leaving.get(worker) == ticket and not self.ended:
                del self.leaving[worker]
                self._lose(worker, now)

    def _fails(self, worker: int, now: float) -> None:
        """Plan the next failure of a worker, where what it computes is lost."""
        if not self.loses:
            return
        down, back = self.outages.away(worker, now)
        if down < math.inf:
            notice, detect = self.outages.notice_seconds, self.outages.detect_seconds
            when, kind = (down - notice, _NOTICE) if notice else (min(down + detect, back), _LOST)
            heapq.heappush(self.events, (max(when, now), kind, worker, -1))
        if back < math.inf:
            heapq.heappush(self.events, (back, _JOINED, worker, -1))

    def _notice(self, now: float, worker: int, ticket: int) -> None:
        """A worker will be stopped: it is lost once its gradient has come, or at once if that would be too late."""
        ticket = self.current.get(worker, -1)
        if ticket >= 0 and ticket not in self.stops and self.done[ticket] <= self.outages.away(worker, now)[0]:
            self.leaving[worker] = ticket
        else:
            self._comes((now, _LOST, worker, -1), now)

    def _lose(self, worker: int, now: float) -> None:
        """The server learns that a worker is down, and with it what it computes."""
        self.in_a_row += 1
        if self.exhausted and not self.current and not self._will_be_back(now):
            self.ended = True  # who has compute times left waits for one that has none
            return
        if self.in_a_row > IN_VAIN * len(self.times):
            raise ValueError(
                f"{self.name} has had no gradient in the last {self.in_a_row} failures of workers; they must be up for "
                "longer than a gradient takes"
            )
        if worker in self.current:
            ticket = self.current[worker]
            down = self.outages.away(worker, now)[0]
            self.stops[ticket] = down if self._give_up(worker, now) else -math.inf  # what it has sent by then has left
        self._perform("lost", self.policy.lost(now, worker), now)
        workers = range(len(self.times))
        if not self.ended and all(self._is_down(each, now) == math.inf for each in workers):
            raise ValueError(f"{self.name}: all workers are down for ever at {now:g} s, after {self.used} gradients")

    def _is_down(self, worker: int, now: float) -> float:
        """Return until when a worker is down; 0 where it is up."""
        down, back = self.outages.away(worker, now)
        return back if down <= now else 0.0

    def _will_be_back(self, now: float) -> bool:
        """Tell whether a worker that is down, and not for ever, has compute times left."""
        left = (worker for worker, times in enumerate(self.times) if self.begun[worker] < len(times))
        return any(0.0 < self._is_down(worker, now) < math.inf for worker in left)

    def _wake_at(self, when: float) -> None:
        heapq.heappush(self.events, (when, _TIMER, -1, -1))

    def _close(self, action: Close, now: float) -> None:
        self.server = now + self.star.update_seconds
        super()._close(action, self.server)

    def _interrupt(self, action: Interrupt, now: float) -> None:
        ticket = self.current.get(action.worker, -1)
        super()._interrupt(action, now)
        if self.update[ticket] == DROPPED:
            self.last_stopped[action.worker] = ticket
        else:
            self.stops[ticket] = -math.inf  # it never sends anything
        if ticket >= 0 and self.leaving.get(action.worker) == ticket:  # nothing is waited for any more
            del self.leaving[action.worker]
            heapq.heappush(self.events, (now, _LOST, action.worker, -1))

    def _send(self, worker: int, ticket: int, row: int, now: float) -> None:
        asked = now if now > self.server else self.server
        self.asked.append(asked)
        for times in (self.started, self.done, self.arrived):
            times.append(math.inf)
        version = self.read[ticket]
        if self.holds[worker] == version:
            self._starts(worker, ticket, asked + self.latency[worker])
            return
        self.holds[worker] = version
        if isinstance(self.out, Fifo):
            self._starts(worker, ticket, self.out.carry(asked) + self.latency[worker])
        elif asked > now:
            heapq.heappush(self.events, (asked, _LEAVES, worker, ticket))
        else:
            self._flow(_OUT, asked, worker, ticket)

    def _starts(self, worker: int, ticket: int, started: float) -> None:
        """The parameters reach the worker: it computes, and sends."""
        seconds = self.times[worker][self.begun[worker] - 1]
        done = started + seconds
        if not done > started:
            raise too_short(self.begun[worker] - 1, worker, seconds, started)
        if (stopped := self.last_stopped.pop(worker, None)) is not None:
            self.stops[stopped] = started
        if self.outages.pauses:
            done = self.outages.finish(worker, started, seconds)
        elif self.loses:
            down = self.outages.away(worker, started)[0]
            if down <= started:
                return  # nobody is there: it never starts
            if down <= done:
                self.started[ticket], self.stops[ticket] = started, -math.inf
                self.done[ticket] = self.arrived[ticket] = down
                return  # nobody is there to send it
        self.started[ticket], self.done[ticket] = started, done
        latency = self.latency[worker]
        reaches = done + latency
        if self.star.overlap:
            reaches = done - self.star.overlap * seconds + latency
        if isinstance(self.into, Fifo):
            self.arrived[ticket] = max(self.into.alone(reaches), done + latency)
            kind = _REACHES if self.into.takes_time else _ARRIVED
            heapq.heappush(self.events, (self.arrived[ticket] if kind == _ARRIVED else reaches, kind, worker, ticket))
        else:
            self.arrived[ticket] = done + latency  # an estimate, for what is in flight at the end
            heapq.heappush(self.events, (reaches, _REACHES, worker, ticket))

    def _reaches(self, now: float, worker: int, ticket: int) -> None:
        """A gradient reaches the server's incoming link, unless its worker has stopped before it was computed."""
        if self.current.get(worker) != ticket and self.done[ticket] > self.stops.pop(ticket, math.inf):
            return
        if isinstance(self.into, Fifo):
            self._is_there(self.into.carry(now), worker, ticket)
        else:
            self._flow(_INTO, now, worker, ticket)

    def _is_there(self, when: float, worker: int, ticket: int) -> None:
        whole = self.done[ticket] + self.latency[worker]
        heapq.heappush(self.events, (when if when > whole else whole, _ARRIVED, worker, ticket))

    def _flow(self, kind: int, now: float, worker: int, ticket: int) -> None:
        """A message enters a link that messages share."""
        link, size = (self.out, self.star.parameter_bytes) if kind == _OUT else (self.into, self.star.gradient_bytes)
        assert isinstance(link, Flows)
        if size == 0.0:
            self._carried(kind, now, worker, ticket)
            return
        self._plan(kind, link.enter(now, self.groups[worker], size, ticket))

    def _leaves(self, now: float, worker: int, ticket: int) -> None:
        if self.current.get(worker) == ticket:
            self._flow(_OUT, now, worker, ticket)

    def _through(self, kind: int, now: float, worker: int, epoch: int) -> None:
        """A message has crossed a link that messages share, unless others have come since that was planned."""
        del worker
        if epoch != self.epochs[kind - _OUT]:
            return
        link = self.out if kind == _OUT else self.into
        assert isinstance(link, Flows)
        ticket, following = link.leave(now)
        self._plan(kind, following)
        self._carried(kind, now, self.worker[ticket], ticket)

    def _carried(self, kind: int, now: float, worker: int, ticket: int) -> None:
        if kind == _INTO:
            self._is_there(now, worker, ticket)
        elif self.current.get(worker) == ticket:  # else it was interrupted on the way
            self._starts(worker, ticket, now + self.latency[worker])

    def _columns(self) -> dict[str, np.ndarray]:
        """Return what a gradient's message cost; what never got to its worker was not begun."""
        started, arrived = np.array(self.started), np.array(self.arrived)
        for ticket in np.flatnonzero(~np.isfinite(started)).tolist():
            self.update[ticket] = NOT_BEGUN
        found = {"asked": np.array(self.asked), "sent": np.minimum(self.done, arrived)}
        if self.outages.pauses:
            spans = zip(self.worker, self.started, found["sent"].tolist(), strict=True)
            found["paused"] = np.array([self.outages.within(*span) if span[1] < math.inf else 0.0 for span in spans])
        return found

    def _plan(self, kind: int, when: float) -> None:
        self.epochs[kind - _OUT] += 1
        if when < math.inf:
            heapq.heappush(self.events, (when, kind, -1, self.epochs[kind - _OUT]))
