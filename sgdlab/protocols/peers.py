"""No server: all-reduce, gossip and elastic averaging (Jin et al. 2016; Zhang et al. 2015a)."""

from typing import NamedTuple

import numpy as np

from sgdlab import arguments
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.protocols.arrivals import accumulated
from sgdlab.protocols.synchronous import synchronous
from sgdlab.runtimes import NotEnoughRuntimes, checked
from sgdlab.schedule import Schedule


def all_reduce(runtimes: np.ndarray) -> Schedule:
    """All nodes average their gradients after every iteration: to the parameters, that is `synchronous`.

    Args:
      runtimes: float64[T, p], seconds; row t holds each node's t-th gradient.

    Returns:
      A `Schedule` of T updates, each with one gradient of every node.

    Raises:
      ValueError: where run-times are not positive and finite.

    Source: Jin et al. 2016, Algorithm 1.

    Example:
      >>> import numpy as np
      >>> all_reduce(np.array([[1.0, 3.0], [2.0, 1.0]])).applied[:, 0]
      array([3., 5.])
    """
    return synchronous(runtimes)


def gossip(
    runtimes: np.ndarray,
    *,
    kind: str = "pull",
    period: int = 1,
    synchronous: bool = False,
    include_self: bool = False,
    fresh: bool = True,
    instantaneous: bool = False,
    num_gradients: int | None = None,
    seed: int,
) -> PeerSchedule:
    r"""Every node averages its parameters with those of a random partner, then takes a step of its own.

    With j uniform among the other nodes, before every `period`-th gradient,

    .. math:: \theta_i \leftarrow \tfrac12 (\theta_i + \theta_j) \;\text{("pull")}, \qquad
        \theta_i \leftarrow \operatorname{mean}(\theta_i, \text{what was sent to}\; i) \;\text{("push": i sends}\;
        \theta_i \;\text{to}\; j)

    and the gradient is taken at the result. Nodes tick by their own clocks: one that pulls gets what its partner has in
    memory at that instant, the parameters that the partner is computing on; what is pushed waits until its receiver
    averages again. In synchronous rounds all nodes wait for each other before they average, and everybody's
    parameters are those at the end of the round before.

    The process that Jin et al. analyse is `instantaneous`, with exponential run-times (`sgdlab.cluster.exponential`)
    and `include_self`: a node rests until its clock ticks, then averages with what its partner has made by then, takes
    its gradient and steps, all at once. `experiments.gossip.bounds` shows what it takes for their bounds to hold.

    Args:
      runtimes: float64[T, p], seconds; row t holds each node's t-th gradient.
      kind: "pull" or "push".
      period: gradients from one averaging to the next; the first one is not preceded by any, unless `instantaneous`.
      synchronous: in rounds.
      include_self: partners are drawn from all nodes, the node itself among them, as the proofs do. What a node pushes
        to itself it averages with the other messages: in the same round, or at its next averaging.
      fresh: the gradient is taken at the averaged parameters; else at the node's own before averaging, the appendix's
        variant in which gossip and gradient use the same parameters.
      instantaneous: an event averages at the end of its run-time rather than at its beginning, and its gradient takes
        no time; not in rounds.
      num_gradients: how many gradients, in order of their averaging (in rounds: rounded up to whole rounds). None: as
        many as the run-times decide, that is until the first node has used up its rows.
      seed: of the partners.

    Returns:
      A `PeerSchedule`.

    Raises:
      ValueError: where run-times are not positive and finite, or another argument is out of its range.
      NotEnoughRuntimes: (a ValueError) where a node runs out of rows first; it says how many would be enough.

    Source: Jin et al. 2016, Algorithms 3 (pull) and 4 (push), and sections 6.1 and 6.2.

    Example:
      >>> import numpy as np
      >>> schedule = gossip(np.ones((2, 3)), synchronous=True, seed=0)
      >>> schedule.num_gradients, schedule.weight.tolist()
      (6, [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    """
    arguments.one_of("kind", kind, ("pull", "push"))
    if synchronous and instantaneous:
        raise ValueError("instantaneous=True must be left out where synchronous=True: in rounds it is the same")
    clock = _clock(runtimes, period, bool(synchronous), num_gradients, instantaneous=bool(instantaneous))
    generator = np.random.default_rng(arguments.whole("seed", seed, least=0))
    partner = _partners(clock, bool(include_self), generator)
    edges = _pulls(clock, partner) if kind == "pull" else _pushes(clock, partner)
    return _averaging(clock, edges, bool(fresh))


def elastic_averaging(
    runtimes: np.ndarray,
    *,
    period: int = 1,
    beta: float | None = None,
    synchronous: bool = False,
    num_gradients: int | None = None,
) -> PeerSchedule:
    r"""Every node and a center are drawn towards each other, then the node takes a step of its own.

    Before every `period`-th gradient, with the same difference for both,

    .. math:: d = \theta_i - \tilde\theta, \qquad \theta_i \leftarrow \theta_i - \beta d, \qquad
        \tilde\theta \leftarrow \tilde\theta + \beta d

    and the gradient is taken at the new :math:`\theta_i`. The sum of all nodes and the center is kept. In synchronous
    rounds the center moves once a round, by the sum of beta d over the nodes. With beta = 0 nodes are independent.

    Args:
      runtimes: float64[T, p], seconds; row t holds each node's t-th gradient.
      period: gradients from one averaging to the next.
      beta: the moving rate, from 0 to 1 (in rounds: to 1 / p). None: 0.8 / p.
      synchronous: in rounds; else each node by its own clock.
      num_gradients: as in `gossip`.

    Returns:
      A `PeerSchedule`, with a center where nodes have met it.

    Raises:
      ValueError: where run-times are not positive and finite, or another argument is out of its range.
      NotEnoughRuntimes: (a ValueError) where a node runs out of rows first; it says how many would be enough.

    Source: Jin et al. 2016, Algorithm 2; Zhang, Choromanska and LeCun 2015.

    Example:
      >>> import numpy as np
      >>> print(elastic_averaging(np.ones((3, 2)), beta=0.25))
      PeerSchedule: 2 nodes and a center, 6 gradients and 18 edges in 3 s
    """
    clock = _clock(runtimes, period, bool(synchronous), num_gradients)
    nodes = clock.num_nodes
    if beta is None:
        beta = 0.8 / nodes
    arguments.real("beta", beta, least=0, most=1 / nodes if synchronous else 1)
    own, mixing = 2 * clock.number, np.flatnonzero(clock.mixes)
    # The center's event stands right behind the node's, or behind the last one of its round.
    if synchronous:
        meetings, size = mixing.reshape(-1, nodes), nodes
        behind = meetings.max(axis=1)
    else:
        meetings, size, behind = mixing[:, None], 1, mixing
    moves = np.arange(behind.size)
    place = np.arange(clock.node.size) + np.searchsorted(behind, np.arange(clock.node.size), side="left")
    centers = behind + moves + 1
    count = place.size + centers.size
    node, started, finished = np.full(count, nodes), np.empty(count), np.empty(count)
    node[place], started[place], finished[place] = clock.node, clock.started, clock.finished
    started[centers] = finished[centers] = clock.started[behind]
    before = np.repeat(2 * moves, size)  # the center's version that a meeting finds
    met = meetings.ravel()
    columns = [
        (place, clock.node, own, np.where(clock.mixes, 1.0 - beta, 1.0)),
        (place[met], np.full(met.size, nodes), before, np.full(met.size, beta)),
        (centers, np.full(centers.size, nodes), 2 * moves, np.full(centers.size, 1.0 - size * beta)),
        (np.repeat(centers, size), clock.node[met], own[met], np.full(met.size, beta)),
    ]
    event, source, version, weight = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.argsort(event, kind="stable")
    return PeerSchedule(node, started, finished, event[order], source[order], version[order], weight[order], nodes)


class _Clock(NamedTuple):
    """Events in order of their averaging, those of one instant by node."""

    node: np.ndarray  # int64[E].
    number: np.ndarray  # int64[E], which gradient of the node.
    started: np.ndarray  # float64[E].
    finished: np.ndarray  # float64[E].
    mixes: np.ndarray  # bool[E], whether the node averages before it.
    num_nodes: int
    stepped: bool  # what others find of a node at an averaging is what its last step has made.
    synchronous: bool


class _Edges(NamedTuple):
    """Edges from others, in order of their events; each as heavy as the node's own parameters."""

    event: np.ndarray
    source: np.ndarray
    version: np.ndarray


def _clock(
    runtimes: np.ndarray, period: int, synchronous: bool, num_gradients: int | None, *, instantaneous: bool = False
) -> _Clock:
    runtimes = checked(runtimes)
    period = arguments.whole("period", period)
    rows, nodes = runtimes.shape
    period = min(period, rows)
    if num_gradients is not None:
        arguments.whole("num_gradients", num_gradients)
    if synchronous:
        wanted = rows if num_gradients is None else -(-num_gradients // nodes)
        finished = np.empty_like(runtimes)
        started = np.zeros_like(runtimes)
        for row in range(rows):
            if row:
                started[row] = finished[row - 1].max() if row % period == 0 else finished[row - 1]
            finished[row] = started[row] + runtimes[row]
        chosen = np.arange(min(wanted, rows) * nodes)
    else:
        finished = accumulated(runtimes)
        started = np.concatenate([np.zeros((1, nodes)), finished[:-1]])
        # When the first node has no row left, it is not known what those that begin after it would find.
        first = int(finished[-1].argmin())
        when = finished if instantaneous else started
        known = when < finished[-1, first]
        known[:, : first + instantaneous] |= when[:, : first + instantaneous] == finished[-1, first]
        chosen = np.flatnonzero(known)
        wanted = chosen.size if num_gradients is None else num_gradients
    if not (finished > started).all():
        row, node = np.argwhere(~(finished > started))[0]
        raise ValueError(
            f"runtimes[{row}, {node}]={runtimes[row, node]} does not advance the clock at {started[row, node]:g} s; "
            "run-times must be long enough to move the clock"
        )
    if (wanted * nodes if synchronous else wanted) > chosen.size:
        needed = wanted if synchronous else max(rows + 1, -(-11 * rows * wanted // (10 * chosen.size)))
        raise NotEnoughRuntimes(
            f"num_gradients={num_gradients} needs more than the {rows} rows of runtimes: a node runs out after "
            f"{chosen.size} gradients; about {needed} rows would be enough",
            needed,
        )
    # Node by node, so that a stable sort by time leaves equal times in the order of the nodes.
    chosen = chosen[np.argsort(chosen % nodes, kind="stable")]
    order = chosen[np.argsort((finished if instantaneous else started).ravel()[chosen], kind="stable")]
    order = order if synchronous else order[:wanted]
    number = order // nodes
    mixes = (number % period == 0) & ((number > 0) | instantaneous)
    times = started.ravel()[order], finished.ravel()[order]
    return _Clock(order % nodes, number, *times, mixes, nodes, synchronous or instantaneous, synchronous)


def _partners(clock: _Clock, include_self: bool, generator: np.random.Generator) -> np.ndarray:
    """int64[E], a partner for every event, the node itself where it has no other."""
    nodes, rows = clock.num_nodes, int(clock.number.max()) + 1
    if nodes == 1:
        return np.zeros(clock.node.size, np.int64)
    drawn = generator.integers(0, nodes - (not include_self), (rows, nodes))
    if not include_self:
        drawn += drawn >= np.arange(nodes)
    return drawn[clock.number, clock.node]


def _pulls(clock: _Clock, partner: np.ndarray) -> _Edges:
    event = np.flatnonzero(clock.mixes & (partner != clock.node))
    source = partner[event]
    if clock.synchronous:
        return _Edges(event, source, 2 * clock.number[event])
    # What the partner has averaged before the latest gradient that it has begun, or stepped to since.
    seen = _begun(clock, source, event, np.ones(clock.node.size, bool))[1]
    return _Edges(event, source, 2 * seen - (not clock.stepped))


def _pushes(clock: _Clock, partner: np.ndarray) -> _Edges:
    sent = np.flatnonzero(clock.mixes & (clock.num_nodes > 1))
    source, target = clock.node[sent], partner[sent]
    if clock.synchronous:
        meetings = np.full((int(clock.number.max()) + 1, clock.num_nodes), -1)
        meetings[clock.number, clock.node] = np.arange(clock.node.size)
        event = meetings[clock.number[sent], target]
    else:
        event = _begun(clock, target, sent, clock.mixes)[0]  # the target's next averaging
    arrives = event >= 0
    order = np.argsort(event[arrives], kind="stable")
    return _Edges(event[arrives][order], source[arrives][order], 2 * clock.number[sent[arrives][order]])


def _begun(clock: _Clock, node: np.ndarray, event: np.ndarray, counted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each (node, event): the node's first counted event after it, or -1; and how many it has up to it."""
    size = clock.node.size
    keys = np.sort((clock.node * size + np.arange(size))[counted])
    counts = np.bincount(clock.node[counted], minlength=clock.num_nodes)
    # Searches in rising order find their way in the cache.
    wanted = node * size + event
    order = np.argsort(wanted)
    place = np.empty(wanted.size, np.int64)
    place[order] = np.searchsorted(keys, wanted[order], side="right")
    so_far = place - (np.cumsum(counts) - counts)[node]
    exists = so_far < counts[node]
    after = keys[np.where(exists, place, 0)] % size if keys.size else place
    return np.where(exists, after, -1), so_far


def _averaging(clock: _Clock, edges: _Edges, fresh: bool) -> PeerSchedule:
    """Every event averages, with equal weights, its own parameters and those that its edges bring."""
    events = clock.node.size
    degree = 1 + np.bincount(edges.event, minlength=events)
    first = np.cumsum(degree) - degree
    rank = np.arange(edges.event.size) - np.repeat(np.cumsum(degree - 1) - (degree - 1), degree - 1)
    others = first[edges.event] + 1 + rank
    source, version = (np.empty(events + edges.event.size, np.int64) for _ in range(2))
    source[first], version[first] = clock.node, 2 * clock.number
    source[others], version[others] = edges.source, edges.version
    return PeerSchedule(
        node=clock.node,
        started=clock.started,
        finished=clock.finished,
        event=np.repeat(np.arange(events), degree),
        source=source,
        source_version=version,
        weight=np.repeat(1.0 / degree, degree),
        num_nodes=clock.num_nodes,
        fresh=fresh,
    )
