"""`GraphRounds`, event by event: nodes that average with their neighbours on a graph, round by round."""

import collections
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgdlab import arguments, graphs
from sgdlab.protocols.peer_policy import Keep, Mix, PeerAction, Source, Step
from sgdlab.protocols.policy import Begin
from sgdlab.protocols.register import register


@dataclasses.dataclass
class GraphRounds:
    """In its k-th round a node takes its k-th gradient; it needs its neighbours' parameters after their k-th steps.

    It waits for its neighbours only. If gradients are fresh, it waits before its gradient, which it takes at the
    average; else it begins at once, at its own parameters, and waits before its step, if it has to. Before the first
    round all have the same parameters, and nobody averages.

    Attributes:
      num_nodes: N.
      num_gradients: how many gradients to compute; the last round may be of the first nodes only. None: no end.
      fresh: whether gradients are taken at the averaged parameters.
      weights: float64[K, N, N], what node i multiplies node j's parameters by, [k, i, j], in rounds k, k + K, ...
      push_sum: whether nodes divide by the weights w of push-sum (`graphs.push_sum_weights`).
      begun: number of gradients that each node has begun.
      done: number of steps that each node has made.
      busy: nodes that compute.
      kept: nodes whose gradients have come, and that wait for their neighbours before their step.
      missing: (node, round) -> of how many it still needs the parameters.
    """

    num_nodes: int
    num_gradients: int | None
    fresh: bool
    weights: np.ndarray = dataclasses.field(compare=False, repr=False)
    push_sum: bool = False
    begun: list[int] = dataclasses.field(default_factory=list, init=False)
    done: list[int] = dataclasses.field(default_factory=list, init=False)
    busy: set[int] = dataclasses.field(default_factory=set, init=False)
    kept: set[int] = dataclasses.field(default_factory=set, init=False)
    missing: dict[tuple[int, int], int] = dataclasses.field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.num_gradients is not None:
            arguments.whole("num_gradients", self.num_gradients)
        reads = self.weights > 0
        self._sources = [[np.flatnonzero(row).tolist() for row in matrix] for matrix in reads]
        self._readers = [[np.flatnonzero(column).tolist() for column in matrix.T] for matrix in reads]
        self._push_sum = {0: np.ones(self.num_nodes)}  # w of the rounds that nodes are in
        if np.allclose(self.weights.sum(axis=2), 1.0, rtol=0, atol=1e-12):
            self.push_sum = False  # w stays 1

    def start(self, nodes: Sequence[int]) -> list[PeerAction]:
        """All nodes begin."""
        self.begun, self.done = [0] * self.num_nodes, [0] * self.num_nodes
        return [action for node in sorted(nodes) for action in self._begin(node)]

    def arrived(self, now: float, node: int) -> list[PeerAction]:
        """The node's step, or it waits for its neighbours; those that have waited for it go on."""
        self.busy.remove(node)
        if not self.fresh and not self._ready(node, self.done[node]):
            self.kept.add(node)
            return [Keep(node)]
        return self._stepped(node)

    def _ends(self, node: int, number: int) -> bool:
        """Tell whether a node has no round of this number."""
        return self.num_gradients is not None and number * self.num_nodes + node >= self.num_gradients

    def _ready(self, node: int, number: int) -> bool:
        """Tell whether a node has all that it averages in a round."""
        return number == 0 or self._left(node, number) == 0

    def _left(self, node: int, number: int) -> int:
        return self.missing.setdefault((node, number), len(self._sources[self._place(number)][node]))

    def _place(self, number: int) -> int:
        """Return which of the matrices averages in a round: on fresh gradients the first round has none."""
        return (number - self.fresh) % len(self.weights)

    def _begin(self, node: int) -> list[PeerAction]:
        """The node's next gradient, if it can begin it."""
        number = self.begun[node]
        there = node not in self.busy and self.done[node] == number
        if not there or self._ends(node, number) or (self.fresh and not self._ready(node, number)):
            return []
        mix = [self._mix(node, number)] if self.fresh else []
        self.begun[node] += 1
        self.busy.add(node)
        return [*mix, Begin(node, 2 * number + self.fresh)]

    def _stepped(self, node: int) -> list[PeerAction]:
        """The step of a node, and what follows from it: steps and beginnings of nodes that have waited for it."""
        actions: list[PeerAction] = []
        stepping = collections.deque([node])
        while stepping:
            node = stepping.popleft()
            number = self.done[node]
            if not self.fresh:
                actions.append(self._mix(node, number))
                self.missing.pop((node, number), None)
            self.kept.discard(node)
            self.done[node] += 1
            actions.append(Step(node))
            beginning = [] if self.fresh else [node]
            for reader in self._readers[self._place(number + 1)][node]:
                self.missing[reader, number + 1] = self._left(reader, number + 1) - 1
                if self.missing[reader, number + 1] == 0:
                    beginning += [reader] if self.fresh else []
                    stepping += [reader] if reader in self.kept and self.done[reader] == number + 1 else []
            for other in beginning:
                actions += self._begin(other)
        return actions

    def _mix(self, node: int, number: int) -> Mix:
        """Return what a node averages in a round, its own parameters first."""
        place, count = self._place(number), number + (not self.fresh)
        scale = 1.0
        row = self.weights[place, node]
        if self.push_sum:
            while (newest := max(self._push_sum)) < count:
                matrix = self.weights[newest % len(self.weights)]
                self._push_sum[newest + 1] = matrix @ self._push_sum[newest]
                for past in [past for past in self._push_sum if past < min(self.done) - 1]:
                    del self._push_sum[past]
            scale = 1.0 / float(self._push_sum[count][node])
            row = row * self._push_sum[count - 1] * scale if count else row
        if number == 0:
            return Mix(node, (Source(node, 0, 1.0),), scale)
        if self.fresh:
            self.missing.pop((node, number), None)
        others = (other for other in self._sources[place][node] if other != node)
        return Mix(node, tuple(Source(other, 2 * number, float(row[other])) for other in (node, *others)), scale)


def averaging(graph: str, num_workers: int, *, density: float, seed: int) -> np.ndarray:
    """Return the weights of D-PSGD on a graph, float64[K, N, N]; the mean of all stays.

    Raises:
      ValueError: where the graph is not known, has no such weights, or does not connect all nodes.
    """
    edges = graphs.make(graph, num_workers, density=density, seed=seed)
    try:
        weights = graphs.doubly_stochastic(edges)
    except ValueError as error:
        raise ValueError(f"graph={graph!r}{str(error).removeprefix('graph')}") from error
    graphs.check_connected(graph, edges)
    return weights


def _size_of(entries: Mapping[str, Any], num_workers: int) -> graphs.Size:
    """Return the size of the graph that a protocol's entries name."""
    return graphs.size(entries["graph"], num_workers, density=entries["density"])


register_on_graph = functools.partial(
    register, families=("Decentralised",), rule="nag_asgd", peers=True, averages=_size_of
)
