"""The array programs of gossip and elastic averaging, for the protocols of these names."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sgdlab.ordering import by_time
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.protocols.fast_arrivals import accumulated
from sgdlab.runtimes import NotEnoughRuntimes, too_short

if TYPE_CHECKING:
    from sgdlab.protocols.elastic_averaging import ElasticAveraging
    from sgdlab.protocols.gossip import Gossip


def gossip(policy: "Gossip", runtimes: np.ndarray, num_gradients: int | None) -> PeerSchedule:
    """Returns the schedule of gossip; arguments and errors are those of the protocol."""
    events = _events(runtimes, policy.period, policy.clock, num_gradients)
    partner = _partners(events, policy.include_self, np.random.default_rng(policy.seed))
    edges = _pulls(events, partner) if policy.kind == "pull" else _pushes(events, partner)
    return _averaging(events, edges, policy.fresh)


def elastic_averaging(policy: "ElasticAveraging", runtimes: np.ndarray, num_gradients: int | None) -> PeerSchedule:
    """Returns the schedule of elastic averaging, with a center if any node averages with it."""
    events = _events(runtimes, policy.period, policy.clock, num_gradients)
    nodes, beta = events.num_nodes, policy.beta
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
    rows, nodes = runtimes.shape
    period = min(period, rows)
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
        # After the first node has run out of compute times, it is not known what those that begin later would read.
        first = int(finished[-1].argmin())
        when = finished if at_the_end else started
        known = when < finished[-1, first]
        known[:, : first + at_the_end] |= when[:, : first + at_the_end] == finished[-1, first]
        wanted = np.count_nonzero(known) if num_gradients is None else num_gradients
    if not (finished > started).all():
        row, node = np.argwhere(~(finished > started))[0]
        raise too_short(row, node, runtimes[row, node], started[row, node])
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
    """Return int64[E], a partner for every event, the node itself where it has no other."""
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
    """Find for each (node, event) the node's first counted event after it, or -1; and how many it has had so far."""
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
