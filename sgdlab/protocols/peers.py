"""Protocols without a server: all-reduce, gossip and elastic averaging (Jin et al. 2016; Zhang et al. 2015a)."""

from typing import NamedTuple

import numpy as np

from sgdlab import arguments
from sgdlab.ordering import by_time
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.protocols.arrivals import accumulated
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.protocols.synchronous import synchronous
from sgdlab.runtimes import NotEnoughRuntimes, checked
from sgdlab.schedule import Schedule


@PROTOCOLS.register(title="All-reduce", source="Jin et al. 2016, Alg. 1", families=("No server",), rule="nag_asgd")
def all_reduce(runtimes: np.ndarray, *, num_gradients: int | None = None) -> Schedule:
    """All nodes average their gradients after every iteration, which gives the parameters of `synchronous`.

    Args:
      runtimes: float64[T, p], seconds; row t holds each node's t-th gradient.
      num_gradients: how many gradients to use, rounded up to whole updates. None: all T p.

    Returns:
      A `Schedule` of updates, each with one gradient of every node.

    Raises:
      ValueError: where run-times are not positive and finite, or `num_gradients` is below 1.
      NotEnoughRuntimes: (a ValueError) where run-times end first; it says how many rows would be enough.

    Source: Jin et al. 2016, Algorithm 1.

    Example:
      >>> import numpy as np
      >>> all_reduce(np.array([[1.0, 3.0], [2.0, 1.0]])).applied[:, 0]
      array([3., 5.])
    """
    return synchronous(runtimes, num_gradients=num_gradients)


@PROTOCOLS.register(title="Gossip", source="Jin et al. 2016, Alg. 3-4", families=("No server",), rule=None)
def gossip(
    runtimes: np.ndarray,
    *,
    kind: str = "pull",
    clock: str = "own",
    period: int = 1,
    include_self: bool = False,
    fresh: bool = True,
    num_gradients: int | None = None,
    seed: int = 0,
) -> PeerSchedule:
    r"""Every node averages its parameters with those of a random partner, then takes a step of its own.

    With j uniform among the other nodes, before every `period`-th gradient,

    .. math:: \theta_i \leftarrow \tfrac12 (\theta_i + \theta_j) \;\text{("pull")}, \qquad
        \theta_i \leftarrow \operatorname{mean}(\theta_i, \text{what was sent to}\; i) \;\text{("push": i sends}\;
        \theta_i \;\text{to}\; j)

    and the gradient is taken at the result. What a node reads of the others depends on the clock:

    * "own": every node runs at its own pace. A pull gets what the partner has in memory at that instant, the parameters
      that the partner is computing on; a push is buffered until its receiver averages again.
    * "rounds": all nodes wait for each other before they average, and read parameters of the end of the round before.
    * "poisson": a node rests for its run-time; then it averages with the partner's newest parameters, takes its
      gradient and steps, all at once. With exponential run-times that is a Poisson clock.

    Jin et al.'s theorem bounds the distance from the minimum with `include_self`. With exponential run-times "own" is
    the recursion of their appendix: a tick ends a step at the node's own parameters, then averages. There the printed
    bound fails for small steps: its proof assumes that the averaging matrix D and the gradient g are independent, but
    they share the node that ticks. "poisson" is their Algorithm 3 made instantaneous: average, then step; for it the
    bound holds. `experiments.gossip.bounds` measures both.

    Args:
      runtimes: float64[T, p], seconds; row t holds each node's t-th gradient.
      kind: whether a node averages with its partner's parameters ("pull"), or sends it its own ("push").
      clock: when nodes average: each at its "own" pace, all in "rounds", or each by a "poisson" clock.
      period: number of gradients from one averaging to the next; only with Poisson clocks an averaging precedes the
        first gradient.
      include_self: whether a node can be its own partner, as in the proofs. It averages a push to itself with the other
        messages: in the same round, or at its next averaging.
      fresh: whether the gradient is taken at the averaged parameters; else at the node's own before averaging, as in
        the appendix, where gossip and gradient use the same parameters.
      num_gradients: how many gradients to compute, in order of their averaging (in rounds: rounded up to whole rounds).
        None: until the first node runs out of run-times.
      seed: of the partners.

    Returns:
      A `PeerSchedule`.

    Raises:
      ValueError: where run-times are not positive and finite, or another argument is out of its range.
      NotEnoughRuntimes: (a ValueError) where a node runs out of rows first; it says how many would be enough.

    Source: Jin et al. 2016, Algorithms 3 (pull) and 4 (push), and sections 6.1 and 6.2.

    Example:
      >>> import numpy as np
      >>> schedule = gossip(np.ones((2, 3)), clock="rounds")
      >>> schedule.num_gradients, schedule.weight.tolist()
      (6, [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    """
    arguments.one_of("kind", kind, ("pull", "push"))
    arguments.one_of("clock", clock, ("own", "rounds", "poisson"))
    events = _events(runtimes, period, clock, num_gradients)
    generator = np.random.default_rng(arguments.whole("seed", seed, least=0))
    partner = _partners(events, bool(include_self), generator)
    edges = _pulls(events, partner) if kind == "pull" else _pushes(events, partner)
    return _averaging(events, edges, bool(fresh))


@PROTOCOLS.register(
    title="Elastic averaging", source="Jin et al. 2016, Alg. 2", families=("No server",), rule="nag_asgd"
)
def elastic_averaging(
    runtimes: np.ndarray,
    *,
    clock: str = "own",
    period: int = 1,
    beta: float | None = None,
    num_gradients: int | None = None,
) -> PeerSchedule:
    r"""Every node and a center are drawn towards each other, then the node takes a step of its own.

    Before every `period`-th gradient, with the same difference for both,

    .. math:: d = \theta_i - \tilde\theta, \qquad \theta_i \leftarrow \theta_i - \beta d, \qquad
        \tilde\theta \leftarrow \tilde\theta + \beta d

    and the gradient is taken at the new :math:`\theta_i`. The sum of all nodes and the center is conserved. In
    rounds the center moves once a round, by the sum of beta d over the nodes. With beta = 0 nodes are independent.

    Args:
      runtimes: float64[T, p], seconds; row t holds each node's t-th gradient.
      clock: when nodes average: each at its "own" pace, or in "rounds", in which all wait for each other.
      period: number of gradients from one averaging to the next.
      beta: the moving rate of nodes and center, from 0 to 1 (in rounds: to 1 / p). None: 0.8 / p.
      num_gradients: as in `gossip`.

    Returns:
      A `PeerSchedule`, with a center if any node averages with it.

    Raises:
      ValueError: where run-times are not positive and finite, or another argument is out of its range.
      NotEnoughRuntimes: (a ValueError) where a node runs out of rows first; it says how many would be enough.

    Source: Jin et al. 2016, Algorithm 2; Zhang, Choromanska and LeCun 2015.

    Example:
      >>> import numpy as np
      >>> print(elastic_averaging(np.ones((3, 2)), beta=0.25))
      PeerSchedule: 2 nodes and a center, 6 gradients and 18 edges in 3 s
    """
    arguments.one_of("clock", clock, ("own", "rounds"))
    events = _events(runtimes, period, clock, num_gradients)
    nodes = events.num_nodes
    if beta is None:
        beta = 0.8 / nodes
    arguments.real("beta", beta, least=0, most=1 / nodes if events.in_rounds else 1)
    own, mixing = 2 * events.number, np.flatnonzero(events.mixes)
    # The center's event follows the node's, or the last one of its round.
    if events.in_rounds:
        meetings, size = mixing.reshape(-1, nodes), nodes
        behind = meetings.max(axis=1)
    else:
        meetings, size, behind = mixing[:, None], 1, mixing
    moves = np.arange(behind.size)
    index = np.arange(events.node.size) + np.searchsorted(behind, np.arange(events.node.size), side="left")
    centers = behind + moves + 1
    count = index.size + centers.size
    node, started, finished = np.full(count, nodes), np.empty(count), np.empty(count)
    node[index], started[index], finished[index] = events.node, events.started, events.finished
    started[centers] = finished[centers] = events.started[behind]
    before = np.repeat(2 * moves, size)  # the center's version that a meeting averages
    met = meetings.ravel()
    columns = [
        (index, events.node, own, np.where(events.mixes, 1.0 - beta, 1.0)),
        (index[met], np.full(met.size, nodes), before, np.full(met.size, beta)),
        (centers, np.full(centers.size, nodes), 2 * moves, np.full(centers.size, 1.0 - size * beta)),
        (np.repeat(centers, size), events.node[met], own[met], np.full(met.size, beta)),
    ]
    dtypes = np.int32, np.int32, np.int32, np.float64
    event, source, version, weight = (
        np.concatenate(column, dtype=dtype) for column, dtype in zip(zip(*columns, strict=True), dtypes, strict=True)
    )
    del columns  # it is as large as the schedule
    order = np.argsort(event, kind="stable")
    return PeerSchedule(node, started, finished, event[order], source[order], version[order], weight[order], nodes)


class _Events(NamedTuple):
    """Gradients in order of the averaging before them, those of one instant by node."""

    node: np.ndarray  # int64[E].
    number: np.ndarray  # int64[E], index of the gradient among the node's.
    started: np.ndarray  # float64[E].
    finished: np.ndarray  # float64[E].
    mixes: np.ndarray  # bool[E], whether the node averages before it.
    num_nodes: int
    stepped: bool  # whether others read what a node's last step has made, rather than what it has averaged.
    in_rounds: bool


class _Edges(NamedTuple):
    """Edges from other nodes, in order of their events; each has the weight of the node's own parameters."""

    event: np.ndarray
    source: np.ndarray
    version: np.ndarray


def _events(runtimes: np.ndarray, period: int, clock: str, num_gradients: int | None) -> _Events:
    in_rounds, at_the_end = clock == "rounds", clock == "poisson"
    runtimes = checked(runtimes)
    period = arguments.whole("period", period)
    rows, nodes = runtimes.shape
    period = min(period, rows)
    if num_gradients is not None:
        arguments.whole("num_gradients", num_gradients)
    if in_rounds:
        wanted = rows if num_gradients is None else -(-num_gradients // nodes)
        finished = np.empty_like(runtimes)
        started = np.zeros_like(runtimes)
        for row in range(rows):
            if row:
                started[row] = finished[row - 1].max() if row % period == 0 else finished[row - 1]
            finished[row] = started[row] + runtimes[row]
        when, known = started, np.zeros(runtimes.shape, bool)
        known[:wanted] = True
    else:
        finished = accumulated(runtimes)
        started = np.concatenate([np.zeros((1, nodes)), finished[:-1]])
        # After the first node has run out of run-times, it is not known what those that begin later would read.
        first = int(finished[-1].argmin())
        when = finished if at_the_end else started
        known = when < finished[-1, first]
        known[:, : first + at_the_end] |= when[:, : first + at_the_end] == finished[-1, first]
        wanted = np.count_nonzero(known) if num_gradients is None else num_gradients
    if not (finished > started).all():
        row, node = np.argwhere(~(finished > started))[0]
        raise ValueError(
            f"runtimes[{row}, {node}]={runtimes[row, node]} does not advance the clock at {started[row, node]:g} s; "
            "run-times must be long enough to move the clock"
        )
    done = np.count_nonzero(known)
    if (wanted * nodes if in_rounds else wanted) > done:
        # pyrefly: ignore[bad-argument-type]  # a number, or nothing was wanted
        raise NotEnoughRuntimes.after(num_gradients, rows=rows, done=done, who="a node", spare=not in_rounds)
    # Node by node, so that a stable sort by time leaves equal times in the order of the nodes.
    known = np.ascontiguousarray(known.T)
    node, number = np.nonzero(known)
    order = by_time(when.T[known])
    order = order if in_rounds else order[:wanted]
    node, number, started, finished = node[order], number[order], started.T[known][order], finished.T[known][order]
    mixes = (number % period == 0) & ((number > 0) | at_the_end)
    return _Events(node, number, started, finished, mixes, nodes, in_rounds or at_the_end, in_rounds)


def _partners(events: _Events, include_self: bool, generator: np.random.Generator) -> np.ndarray:
    """int64[E], a partner for every event, the node itself where it has no other."""
    nodes, rows = events.num_nodes, int(events.number.max()) + 1
    if nodes == 1:
        return np.zeros(events.node.size, np.int64)
    drawn = generator.integers(0, nodes - (not include_self), (rows, nodes))
    if not include_self:
        drawn += drawn >= np.arange(nodes)
    return drawn[events.number, events.node]


def _pulls(events: _Events, partner: np.ndarray) -> _Edges:
    event = np.flatnonzero(events.mixes & (partner != events.node))
    source = partner[event]
    if events.in_rounds:
        return _Edges(event, source, 2 * events.number[event])
    # What the partner has averaged before the latest gradient that it has begun, or what its step has made since.
    seen = _begun(events, source, event, np.ones(events.node.size, bool))[1]
    return _Edges(event, source, 2 * seen - (not events.stepped))


def _pushes(events: _Events, partner: np.ndarray) -> _Edges:
    sent = np.flatnonzero(events.mixes & (events.num_nodes > 1))
    source, target = events.node[sent], partner[sent]
    if events.in_rounds:
        meetings = np.full((int(events.number.max()) + 1, events.num_nodes), -1)
        meetings[events.number, events.node] = np.arange(events.node.size)
        event = meetings[events.number[sent], target]
    else:
        event = _begun(events, target, sent, events.mixes)[0]  # the target's next averaging
    arrives = event >= 0
    order = np.argsort(event[arrives], kind="stable")
    return _Edges(event[arrives][order], source[arrives][order], 2 * events.number[sent[arrives][order]])


def _begun(events: _Events, node: np.ndarray, event: np.ndarray, counted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each (node, event): the node's first counted event after it, or -1; and how many it has had so far."""
    size = events.node.size
    keys = np.sort((events.node * size + np.arange(size))[counted])
    counts = np.bincount(events.node[counted], minlength=events.num_nodes)
    # Searches in rising order are faster, since they hit the cache.
    wanted = node * size + event
    order = np.argsort(wanted)
    position = np.empty(wanted.size, np.int64)
    position[order] = np.searchsorted(keys, wanted[order], side="right")
    so_far = position - (np.cumsum(counts) - counts)[node]
    exists = so_far < counts[node]
    after = keys[np.where(exists, position, 0)] % size if keys.size else position
    return np.where(exists, after, -1), so_far


def _averaging(events: _Events, edges: _Edges, fresh: bool) -> PeerSchedule:
    """Every event averages, with equal weights, its node's own parameters and those of its edges."""
    count = events.node.size
    degree = 1 + np.bincount(edges.event, minlength=count)
    first = np.cumsum(degree) - degree
    rank = np.arange(edges.event.size) - np.repeat(np.cumsum(degree - 1) - (degree - 1), degree - 1)
    others = first[edges.event] + 1 + rank
    source, version = (np.empty(count + edges.event.size, np.int64) for _ in range(2))
    source[first], version[first] = events.node, 2 * events.number
    source[others], version[others] = edges.source, edges.version
    return PeerSchedule(
        node=events.node,
        started=events.started,
        finished=events.finished,
        event=np.repeat(np.arange(count), degree),
        source=source,
        source_version=version,
        weight=np.repeat(1.0 / degree, degree),
        num_nodes=events.num_nodes,
        fresh=fresh,
    )
