"""A2CiD2: pairs of nodes average by a Poisson clock, with a continuous momentum (Nabli et al. 2023)."""

import dataclasses
import math
from array import array
from typing import Any

import numpy as np

from sgdlab import arguments, graphs
from sgdlab.bounds import NotNegative, Positive
from sgdlab.knobs import Knob
from sgdlab.ordering import by_time
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.protocols.fast_arrivals import accumulated
from sgdlab.protocols.in_seconds import in_seconds
from sgdlab.runtimes import NotEnoughRuntimes, checked, too_short

SAMPLE = 16
"""Compute times of each node by which the unit of time is judged: more rows change nothing."""


@PROTOCOLS.register(
    title="A2CiD2",
    source="Nabli et al. 2023",
    families=("Decentralised",),
    rule="nag_asgd",
    averages=lambda entries, num_workers: graphs.Size(edges=4 + 10 * entries["rate"], matrices=1),
    no_policy="its pairs average by a Poisson clock beside the gradients, which exists in simulation only",
    tunes=Knob("rate", 0.25, 4.0),
)
@in_seconds
def a2cid2(
    runtimes: np.ndarray,
    *,
    graph: str = "ring",
    density: float = 0.5,
    rate: Positive = 1.0,
    eta: NotNegative | None = None,
    weight: NotNegative | None = None,
    clock: str = "own",
    num_gradients: int | None = None,
    seed: int = 0,
) -> PeerSchedule:
    r"""Nodes compute at their own pace, pairs average beside it, and a second variable of each node gives momentum.

    With N_i the gradients of node i, M_ij the averagings of a pair, and alpha = 1/2,

    .. math:: d\theta_i = \eta (\tilde\theta_i - \theta_i) dt - \gamma \nabla F_i dN_i
        - \alpha \sum_j (\theta_i - \theta_j) dM_{ij}, \qquad
        d\tilde\theta_i = \eta (\theta_i - \tilde\theta_i) dt - \gamma \nabla F_i dN_i
        - \tilde\alpha \sum_j (\theta_i - \theta_j) dM_{ij}

    Between two events of a node its variables mix by :math:`\exp(\eta\, dt \left(\begin{smallmatrix} -1 & 1 \\ 1 & -1
    \end{smallmatrix}\right))`; a gradient is a step of both; an averaging makes the pair their mean, and moves the
    second variables by :math:`\tilde\alpha` times the difference. The unit of time is :math:`N / \sum_i 1 / \tau_i`,
    with :math:`\tau_i` the mean of a node's first 16 compute times: in it N gradients are computed, however slow one
    node is. With `eta` 0 there is no momentum: pairs average as in AD-PSGD, by a clock instead of after gradients.

    Args:
      runtimes: float64[T, N], seconds; row t holds each node's t-th gradient.
      graph: who averages with whom, one of `sgdlab.graphs.GRAPHS`; its edges are used both ways.
      density: of a random graph, the probability of an edge.
      rate: averagings of a node in the time of a gradient.
      eta: how fast the two variables mix, per unit of time. None: 1 / (2 sqrt(chi_1 chi_2)) of the graph.
      weight: alpha-tilde, of the second variable at an averaging. None: sqrt(chi_1 / chi_2) / 2 of the graph.
      clock: whether a node takes its gradient at what it has when it begins to compute ("own"), or rests until it
        steps, and takes the gradient there ("poisson": with exponential compute times the equation above).
      num_gradients: how many gradients to compute, in order of their ends. None: until a node that has to begin runs
        out of compute times.
      seed: of the averagings, and of a random graph.

    Returns:
      A `PeerSchedule`; with momentum, every node has a companion.

    Source: Nabli, Belilovsky and Oyallon 2023 (arXiv:2306.08289). eta, alpha-tilde, the mixing and both kinds of events
    are checked against the authors' code, AdelNabli/ACiD; there the pair exchanges what it had before the mixing, and
    each node's unit of time is its own gradient's. The equation is a reconstruction from these.

    Example:
      >>> import numpy as np
      >>> print(a2cid2(np.ones((3, 4)), num_gradients=8))  # 6 averagings of 4 variables
      PeerSchedule: 4 nodes, 8 gradients and 128 edges in 2 s
    """
    runtimes = checked(runtimes)
    arguments.one_of("clock", clock, ("own", "poisson"))
    nodes = runtimes.shape[1]
    edges: Any = graphs.make(graph, nodes, density=density, seed=seed).any(axis=0)
    edges |= edges.T
    graphs.check_connected(graph, edges[None])
    rates = graphs.pair_rates(edges, rate)
    best = graphs.acceleration(rates) if nodes > 1 else (0.0, 0.5)
    eta = best[0] if eta is None else eta
    weight = best[1] if weight is None else weight
    node, started, finished = _gradients(runtimes, num_gradients)
    unit = float(nodes / (1 / runtimes[:SAMPLE].mean(axis=0)).sum())
    meetings = _meetings(rates / unit, float(finished[-1]), seed)
    run = _Run(nodes, eta / unit, weight, fresh=clock == "poisson")
    place = 0
    for row, end in enumerate(finished.tolist()):
        while place < len(meetings) and meetings[place][0] < end:
            run.meet(*meetings[place])
            place += 1
        run.step(int(node[row]), float(started[row]), end)
    return run.schedule()


def _gradients(runtimes: np.ndarray, num_gradients: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Node, beginning and end of gradients, in order of their ends, those of one instant by node."""
    if num_gradients is not None:
        arguments.whole("num_gradients", num_gradients)
    rows, nodes = runtimes.shape
    finished = accumulated(runtimes)
    started = np.concatenate([np.zeros((1, nodes)), finished[:-1]])
    if not (finished > started).all():
        row, node = np.argwhere(~(finished > started))[0]
        raise too_short(row, node, runtimes[row, node], started[row, node])
    node = np.repeat(np.arange(nodes), rows)
    order = by_time(finished.T.ravel())  # node by node, so that equal times stay in the order of the nodes
    last = int(np.flatnonzero(order % rows == rows - 1)[0])  # the first node to run out
    if num_gradients is not None and num_gradients > last + 1:
        raise NotEnoughRuntimes.after(num_gradients, rows=rows, done=last + 1, who="a node", spare=True)
    order = order[: last + 1 if num_gradients is None else num_gradients]
    return node[order], started.T.ravel()[order], finished.T.ravel()[order]


def _meetings(rates: np.ndarray, until: float, seed: int) -> list[tuple[float, int, int]]:
    """When which pairs average, in order: a Poisson process of these rates, a second."""
    one, other = np.nonzero(np.triu(rates))
    each = rates[one, other]
    if not each.size:
        return []
    generator, total = np.random.default_rng(seed), float(each.sum())
    times: list[float] = []
    now = 0.0
    while now < until:
        now += generator.exponential(1 / total)
        times.append(now)
    pairs = generator.choice(each.size, len(times), p=each / total)
    return list(zip(times, one[pairs].tolist(), other[pairs].tolist(), strict=True))


@dataclasses.dataclass
class _Run:
    """The schedule as it is written. A node's companion, its second variable, has the number N + 1 + i.

    What a step does to the companion is written before the node's next event: until then other nodes' gradients do not
    depend on the step, and replay can compute them together.

    Attributes:
      nodes: N.
      eta: per second; without it there are no companions.
      weight: alpha-tilde.
      fresh: whether gradients are taken at the mixed parameters.
    """

    nodes: int
    eta: float
    weight: float
    fresh: bool

    def __post_init__(self) -> None:
        self.version = [0] * (2 * self.nodes + 1)
        self.mixed = [0.0] * self.nodes  # when each node's variables have mixed
        self.begun = [0] * self.nodes  # the version that each node's gradient is taken at
        # Columns of a `PeerSchedule`, of events and of edges.
        self.events: dict[str, Any] = {
            "node": array("i"),
            "started": array("d"),
            "finished": array("d"),
            "read": array("i"),
        }
        edges = {"event": "i", "source": "i", "source_version": "i", "weight": "d"}
        self.edges = {name: array(kind) for name, kind in edges.items()}
        self.stepped: dict[int, tuple[float, _Parts]] = {}  # companions after steps that are not written yet

    def meet(self, now: float, one: int, other: int) -> None:
        """Two nodes become their mean, and their companions move by as many times their difference."""
        mine, its = self._mixtures(one, now), self._mixtures(other, now)
        moves = []
        for node, (own, companion), (others, _) in ((one, mine, its), (other, its, mine)):
            moves.append((node, _sum((0.5, own), (0.5, others))))
            if self.eta:
                second = _sum((1.0, companion), (-self.weight, own), (self.weight, others))
                moves.append((self.nodes + 1 + node, second))
        for variable, parts in moves:
            self._write(variable, now, now, -1, parts)
        for variable, _ in moves:
            self.version[variable] += 2

    def step(self, node: int, started: float, now: float) -> None:
        """A node's gradient is a step of both of its variables."""
        own, companion = self._mixtures(node, now)
        version = self.version[node]
        self._write(node, started, now, version + 1 if self.fresh else self.begun[node], own)
        self.version[node] += 2
        self.begun[node] = self.version[node]
        if self.eta:
            stepped = {(node, version + 2): 1.0, (node, version + 1): -1.0}
            self.stepped[node] = now, _sum((1.0, companion), (1.0, stepped))

    def schedule(self) -> PeerSchedule:
        """Return what has been written."""
        columns = {name: np.array(column) for name, column in (self.events | self.edges).items()}
        return PeerSchedule(**columns, num_nodes=self.nodes, fresh=self.fresh, companions=self.eta > 0)

    def _mixtures(self, node: int, now: float) -> tuple["_Parts", "_Parts"]:
        """A node's parameters and its companion's at an instant, as weights of their newest versions."""
        own = node, self.version[node]
        if not self.eta:
            return {own: 1.0}, {}
        variable = self.nodes + 1 + node
        if node in self.stepped:
            when, parts = self.stepped.pop(node)
            self._write(variable, when, when, -1, parts)
            self.version[variable] += 2
        companion = variable, self.version[variable]
        half = -0.5 * math.expm1(-2.0 * self.eta * (now - self.mixed[node]))
        self.mixed[node] = now
        return {own: 1.0 - half, companion: half}, {companion: 1.0 - half, own: half}

    def _write(self, variable: int, started: float, finished: float, read: int, parts: "_Parts") -> None:
        number = len(self.events["node"])
        for column, value in zip(self.events.values(), (variable, started, finished, read), strict=True):
            column.append(value)
        newest = variable, self.version[variable]
        for source, weight in sorted(parts.items(), key=lambda part: part[0] != newest):
            for column, value in zip(self.edges.values(), (number, *source, weight), strict=True):
                column.append(value)


_Parts = dict[tuple[int, int], float]
"""(variable, version) -> weight."""


def _sum(*terms: tuple[float, _Parts]) -> _Parts:
    total: _Parts = {}
    for factor, parts in terms:
        for source, weight in parts.items():
            total[source] = total.get(source, 0.0) + factor * weight
    return total
