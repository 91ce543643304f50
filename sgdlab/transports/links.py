"""Links that messages share: one after the other, or all at once with max-min fair shares."""

import heapq
import math
from collections.abc import Sequence


class Fifo:
    r"""A link that carries one message after the other, in the order in which they come.

    .. math:: e_k = \max(t_k, e_{k-1}) + b / r, \qquad \text{there at } \max(e_k, t_k + b / c)

    t is when message k reaches the link, b its bytes, r the link's rate and c that of the worker's own link: the two
    overlap (cut-through), so that a fast link does not add to a slow one.

    Args:
      size: b, bytes of every message.
      rate: r, bytes per second.
      cap: c, bytes per second.

    Example:
      >>> link = Fifo(size=10.0, rate=5.0, cap=2.0)
      >>> [link.carry(when) for when in (0.0, 1.0, 2.0)]
      [5.0, 6.0, 7.0]
    """

    def __init__(self, size: float, rate: float, cap: float):
        self.seconds, self.own, self.free = size / rate, size / cap, 0.0

    @property
    def takes_time(self) -> bool:
        """Tell whether a message that meets no other takes any time."""
        return self.seconds > 0 or self.own > 0

    def carry(self, now: float) -> float:
        """Return when a message is through that reaches the link at `now`; messages must come in order."""
        self.free = (now if now > self.free else self.free) + self.seconds
        alone = now + self.own
        return self.free if self.free > alone else alone

    def alone(self, now: float) -> float:
        """Return when a message would be through if there were no others."""
        return now + max(self.seconds, self.own)


class Flows:
    """Messages that share links with max-min fairness: all at once, each as fast as its slowest link allows.

    Messages of one group (a rack, a region) cross the same two links, the group's uplink and the server's, and none is
    faster than its worker's own. So all of a group have one rate at any time: a group's virtual time is the bytes that
    each of its messages has had since the start, and a message ends where virtual time has grown by its size. Rates
    change when a message enters or ends, by progressive filling over the groups.

    Args:
      rate: of the server's link, bytes per second.
      cap: of a worker's own link.
      uplinks: of each group.

    Example:
      >>> flows = Flows(rate=10.0, cap=8.0, uplinks=[math.inf])
      >>> flows.enter(0.0, 0, 8.0, key=0), flows.enter(0.5, 0, 8.0, key=1)  # alone at 8, then both at 5 bytes/s
      (1.0, 1.3)
      >>> flows.leave(1.3)
      (0, 1.8)
    """

    def __init__(self, rate: float, cap: float, uplinks: Sequence[float]):
        self.rate, self.cap, self.uplinks = rate, cap, list(uplinks)
        groups = len(self.uplinks)
        self.virtual, self.speed = [0.0] * groups, [0.0] * groups
        self.flows: list[list[tuple[float, int, int]]] = [[] for _ in range(groups)]  # virtual end, number, key
        self.then, self.number, self.next, self.active = 0.0, 0, 0, set[int]()

    @property
    def takes_time(self) -> bool:
        """True: some link has a finite rate."""
        return True

    def enter(self, now: float, group: int, size: float, key: int) -> float:
        """Begin a message; returns when the next of all ends, if none enters before."""
        self._advance(now)
        heapq.heappush(self.flows[group], (self.virtual[group] + size, self.number, key))
        self.number += 1
        self.active.add(group)
        return self._plan()

    def leave(self, now: float) -> tuple[int, float]:
        """End the message that ends at `now`; returns its key, and when the next one ends.

        Messages that end at one instant leave in the order in which they entered, one call each.
        """
        self._advance(now)
        group = self.next
        end, _, key = heapq.heappop(self.flows[group])
        self.virtual[group] = max(self.virtual[group], end)
        if not self.flows[group]:
            self.active.discard(group)
        return key, self._plan()

    def _advance(self, now: float) -> None:
        gone, self.then = now - self.then, now
        if gone > 0:
            for group in self.active:
                self.virtual[group] += gone * self.speed[group]

    def _plan(self) -> float:
        """Share the links among the groups; returns when the next message ends."""
        if not self.active:
            return math.inf
        self._fill()
        first = math.inf, 0
        for group in self.active:
            end, number, _ = self.flows[group][0]
            wait = (end - self.virtual[group]) / self.speed[group]
            if (wait, number) < first:
                first, self.next = (wait, number), group
        return self.then + max(first[0], 0.0)

    def _fill(self) -> None:
        """Set each group's speed, by progressive filling: the narrowest uplinks first, the rest shares what is left."""
        flows, speed, left = self.flows, self.speed, self.rate
        counts = {group: len(flows[group]) for group in self.active}
        number = sum(counts.values())
        # A group is held back by its uplink where that allows less than the others' equal share of the server's link.
        for group in sorted(counts, key=lambda g: self.uplinks[g] / counts[g]):
            own = min(self.uplinks[group] / counts[group], self.cap)
            speed[group] = min(own, left / number)
            left -= speed[group] * counts[group]
            number -= counts[group]
