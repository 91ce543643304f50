"""Nodes without a server told as messages and a heap: slow, obvious, and written without a look at the vectorised code.

A node's memory holds the version of its own parameters that it is computing on; a push lies in its receiver's mailbox
until that one averages; the center has a memory too. Ends of gradients are (time, node): equal times are processed by
node number, and an end, the averaging and the next beginning happen at once. Each simulation returns the fields of the
schedule it expects, as plain lists.
"""

import heapq

import numpy as np


class RanOut(Exception):
    """A node has no row of compute times left, and the simulation is not over."""


def partners_of(rows: int, nodes: int, include_self: bool, seed: int) -> np.ndarray:
    """int[rows, nodes]: whom each node averages with before each of its gradients, as the schedule draws it."""
    if nodes == 1:
        return np.zeros((rows, 1), int)
    others = [[j for j in range(nodes) if include_self or j != i] for i in range(nodes)]
    drawn = np.random.default_rng(seed).integers(0, len(others[0]), (rows, nodes))
    return np.array([[others[i][row[i]] for i in range(nodes)] for row in drawn])


class Peers:
    """Common ground: clocks, memories, and the record that a schedule is.

    Args:
      runtimes: float64[T, p].
      period: gradients from one averaging to the next.
      rounds: whether all nodes wait for each other before they average.
      instant: nodes rest until their clocks tick, and then do everything at once.
      num_gradients: to begin; in rounds rounded up to whole rows. None: until a node has no row left.
    """

    def __init__(self, runtimes, *, period=1, rounds=False, instant=False, num_gradients=None):
        self.runtimes, self.period, self.rounds = runtimes, period, rounds
        self.rows, self.nodes = runtimes.shape
        self.wanted = num_gradients
        if rounds:
            self.wanted = (
                self.rows * self.nodes if num_gradients is None else -(-num_gradients // self.nodes) * self.nodes
            )
        self.instant = instant
        self.begun, self.gradients = [0] * self.nodes, 0  # gradients begun
        self.memory = [0] * self.nodes  # which version of its own parameters each node is computing on
        self.center = 0  # the version that the center has
        self.events, self.edges = [], []  # (node, started, finished); per event a list of (source, version, weight)
        self.queue, self.waiting = [], []

    def run(self):
        """Until so many gradients have begun; in order of their beginning."""
        if self.instant:
            return self.run_ticks()
        for node in range(self.nodes):
            self.begin([node], 0.0)
        while self.queue and (self.wanted is None or self.gradients < self.wanted):
            now, node = heapq.heappop(self.queue)
            self.memory[node] += 1  # its step is done
            assert self.memory[node] % 2 == 0
            if not self.rounds:
                if self.begun[node] == self.rows:
                    if self.wanted is not None:
                        raise RanOut
                    break
                self.begin([node], now)
            elif self.begun[node] % self.period:
                self.begin([node], now)
            else:
                self.waiting.append(node)
                if len(self.waiting) == self.nodes:
                    together, self.waiting = sorted(self.waiting), []
                    self.begin(together, now)
        return self.fields()

    def run_ticks(self):
        """Until so many ticks; the last one of the first node that has no more is one of them."""
        self.queue = [(first, node, 0.0) for node, first in enumerate(self.runtimes[0])]
        heapq.heapify(self.queue)
        while self.wanted is None or self.gradients < self.wanted:
            now, node, before = heapq.heappop(self.queue)
            averages = self.begun[node] % self.period == 0
            self.edges.append(self.averaged([node])[node] if averages else [(node, self.memory[node], 1.0)])
            self.events.append((node, before, now))
            self.memory[node] += 2  # averaged, and stepped
            self.begun[node] += 1
            self.gradients += 1
            if self.begun[node] == self.rows:
                if self.wanted is not None and self.gradients < self.wanted:
                    raise RanOut
                break
            heapq.heappush(self.queue, (now + self.runtimes[self.begun[node], node], node, now))
        return self.fields()

    def begin(self, together, now):
        """Nodes that begin a gradient at the same moment, and average first where it is time to."""
        together = [node for node in together if self.begun[node] < self.rows]
        if self.wanted is not None and not self.rounds:
            together = together[: self.wanted - self.gradients]
        if self.rounds:  # rows past the wanted ones are not begun
            together = [node for node in together if self.begun[node] < self.wanted // self.nodes]
        if self.rounds and self.wanted > self.rows * self.nodes:
            raise RanOut
        averaging = [node for node in together if self.begun[node] and self.begun[node] % self.period == 0]
        found = self.averaged(averaging)
        for node in together:
            own = [(node, self.memory[node], 1.0)]
            finished = now + self.runtimes[self.begun[node], node]
            self.events.append((node, now, finished))
            self.edges.append(found.get(node, own))
            self.memory[node] += 1  # what it has averaged
            self.begun[node] += 1
            self.gradients += 1
            heapq.heappush(self.queue, (finished, node))
        self.after(averaging, now)

    def averaged(self, nodes):
        """{node: its edges}."""
        raise NotImplementedError

    def after(self, nodes, now):
        pass

    def fields(self):
        node, started, finished = zip(*self.events, strict=True)
        flat = [(event, *edge) for event, edges in enumerate(self.edges) for edge in edges]
        event, source, version, weight = zip(*flat, strict=True)
        return {
            "node": node, "started": started, "finished": finished,
            "event": event, "source": source, "source_version": version, "weight": weight,
        }  # fmt: skip


class Pull(Peers):
    def __init__(self, runtimes, partners, **options):
        super().__init__(runtimes, **options)
        self.partners = partners

    def averaged(self, nodes):
        edges = {}
        for node in nodes:
            partner = self.partners[self.begun[node], node]
            edges[node] = [(node, self.memory[node], 0.5), (partner, self.memory[partner], 0.5)]
            if partner == node:
                edges[node] = [(node, self.memory[node], 1.0)]
        return edges


class Push(Peers):
    def __init__(self, runtimes, partners, **options):
        super().__init__(runtimes, **options)
        self.partners = partners
        self.mailbox = [[] for _ in range(self.nodes)]

    def averaged(self, nodes):
        edges = {}
        if self.rounds:
            for node in nodes:
                self.send(node)
            for node in nodes:
                edges[node] = self.opened(node)
        else:
            for node in nodes:
                edges[node] = self.opened(node)  # what it sends, also to itself, is for the next averaging
                self.send(node)
        return edges

    def send(self, node):
        if self.nodes > 1:
            self.mailbox[self.partners[self.begun[node], node]].append((node, self.memory[node]))

    def opened(self, node):
        values = [(node, self.memory[node]), *self.mailbox[node]]
        self.mailbox[node] = []
        return [(*value, 1 / len(values)) for value in values]


class Elastic(Peers):
    def __init__(self, runtimes, beta, **options):
        super().__init__(runtimes, **options)
        self.beta = beta

    def averaged(self, nodes):
        move = [(node, self.memory[node], self.beta) for node in nodes]
        edges = {
            node: [(node, self.memory[node], 1 - self.beta), (self.nodes, self.center, self.beta)] for node in nodes
        }
        self.move = [(self.nodes, self.center, 1 - len(nodes) * self.beta), *move]
        return edges

    def after(self, nodes, now):
        """The center moves right behind them, by what it was and what they were before."""
        if nodes:
            self.events.append((self.nodes, now, now))
            self.edges.append(self.move)
            self.center += 2
