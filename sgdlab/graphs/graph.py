"""Graphs of who sends to whom, `bool[K, N, N]`: rings, tori, exponential, complete and random (see `sgdlab.graphs`)."""

import math
from typing import Any, NamedTuple

import numpy as np

from sgdlab import arguments
from sgdlab.graphs.family import GRAPHS
from sgdlab.registry import Part

_TRIES = 1000
"""Number of random graphs that are drawn in search of one that is connected."""

_LARGEST_MADE = 2**28
"""Bytes of a matrix [N, N] up to which a custom graph is made in order to count its edges."""


@GRAPHS.register(title="Ring")
def ring(num_nodes: int) -> np.ndarray:
    """Every node has the two next to it.

    Example:
      >>> ring(4)[0].astype(int)
      array([[0, 1, 0, 1],
             [1, 0, 1, 0],
             [0, 1, 0, 1],
             [1, 0, 1, 0]])
    """
    return _symmetric(_ahead(num_nodes, [1]))


@GRAPHS.register(title="Torus")
def torus(num_nodes: int) -> np.ndarray:
    """A grid, as square as the number of nodes lets it be, whose borders meet; of a prime number it is a ring.

    Example:
      >>> torus(9)[0].sum(axis=1)
      array([4, 4, 4, 4, 4, 4, 4, 4, 4])
    """
    rows = next(size for size in range(math.isqrt(num_nodes), 0, -1) if num_nodes % size == 0)
    columns = num_nodes // rows
    row, column = np.divmod(np.arange(num_nodes), columns)
    edges = np.zeros((num_nodes, num_nodes), bool)
    for down, right in ((1, 0), (0, 1)):
        edges[(row + down) % rows * columns + (column + right) % columns, np.arange(num_nodes)] = True
    np.fill_diagonal(edges, False)
    return _symmetric(edges[None])


@GRAPHS.register(title="Complete graph")
def complete(num_nodes: int) -> np.ndarray:
    """Every node has all others.

    Example:
      >>> int(complete(4).sum())
      12
    """
    return ~np.eye(num_nodes, dtype=bool)[None]


@GRAPHS.register(title="Exponential graph")
def exponential(num_nodes: int) -> np.ndarray:
    """Every node sends to those 1, 2, 4, ... places ahead of it.

    Source: the directed exponential graph of Assran et al. 2019, all of its peers at once.

    Example:
      >>> np.flatnonzero(exponential(8)[0, 0]).tolist()  # whose messages node 0 gets
      [4, 6, 7]
    """
    return _ahead(num_nodes, _powers(num_nodes))


@GRAPHS.register(title="One-peer exponential graph")
def one_peer_exponential(num_nodes: int) -> np.ndarray:
    """Every node sends to one other a round: to that 1 place ahead of it, then 2, then 4, and so on, and again 1.

    Of N = 2^m nodes all have the mean of all after m rounds.

    Source: Assran et al. 2019; Ying et al. 2021.

    Example:
      >>> one_peer_exponential(8).shape
      (3, 8, 8)
    """
    powers = _powers(num_nodes)
    return np.concatenate([_ahead(num_nodes, [power]) for power in powers]) if powers else _ahead(num_nodes, [])


@GRAPHS.register(title="Random graph")
def random(num_nodes: int, *, density: float = 0.5, seed: int = 0) -> np.ndarray:
    """Every pair of nodes is joined with probability `density`, drawn until all nodes are connected (Erdos-Renyi).

    Raises:
      ValueError: where no connected graph is found.

    Example:
      >>> edges = random(6, density=0.4, seed=1)
      >>> bool((edges == edges.transpose(0, 2, 1)).all())
      True
    """
    return _drawn(num_nodes, density, seed, both_ways=True)


@GRAPHS.register(title="Random directed graph")
def directed(num_nodes: int, *, density: float = 0.5, seed: int = 0) -> np.ndarray:
    """Every node sends to every other with probability `density`, drawn until all can reach all.

    Nodes get from, and send to, different numbers of others: only push-sum averages evenly on it.

    Raises:
      ValueError: where no such graph is found.

    Example:
      >>> directed(6, density=0.5, seed=0).sum(axis=(0, 1)).tolist()  # to how many each sends
      [4, 2, 4, 3, 2, 3]
    """
    return _drawn(num_nodes, density, seed, both_ways=False)


def make(name: str, num_nodes: int, *, density: float = 0.5, seed: int = 0) -> np.ndarray:
    """The graph of that name.

    Args:
      name: one of `GRAPHS`, to which custom ones can be registered.
      num_nodes: N.
      density: of a random one, the probability of an edge.
      seed: of a random one.

    Returns:
      bool[K, N, N]; see `sgdlab.graphs`.

    Raises:
      ValueError: where the name is not known, an argument is out of its range, or a custom graph is not one.

    Example:
      >>> make("ring", 3).shape
      (1, 3, 3)
    """
    arguments.one_of("graph", name, tuple(GRAPHS))
    arguments.whole("num_nodes", num_nodes)
    arguments.real("density", density, above=0, most=1)
    arguments.whole("seed", seed, least=0)
    part = GRAPHS[name]
    known = {"num_nodes": num_nodes, "density": density, "seed": seed}
    return _checked(part, num_nodes, part.make(**{key: value for key, value in known.items() if key in part.given}))


def check_connected(name: str, edges: np.ndarray) -> None:
    """Check that what any node sends reaches all others, by way of others.

    Args:
      name: of the graph.
      edges: bool[K, N, N]; those of all rounds count together.

    Raises:
      ValueError: where it does not; parts of the nodes would never agree.

    Example:
      >>> check_connected("ring", ring(4))
      >>> check_connected("mine", np.array([[[False, True], [False, False]]]))
      Traceback (most recent call last):
      ...
      ValueError: graph='mine' must connect all 2 nodes: nothing that node 0 sends gets to node 1
    """
    ever: Any = edges.any(axis=0)
    for ways, words in ((ever, "node 0 sends gets to node {}"), (ever.T, "node {} sends gets to node 0")):
        reached = _reached(ways)
        if not reached.all():
            lost = words.format(np.argmin(reached))
            raise ValueError(f"graph={name!r} must connect all {len(ever)} nodes: nothing that {lost}")


def _checked(part: Part, num_nodes: int, edges: Any) -> np.ndarray:
    """The edges that a graph's function returned, which may be somebody's own."""
    must = f"must return bool[K, {num_nodes}, {num_nodes}] for {num_nodes} nodes, with one [k] for each of K rounds"
    if edges is None:
        raise ValueError(f"graph={part.name!r} {must}, and returned None: is `return` missing? ({part.where})")
    edges = np.asarray(edges)
    zeros_and_ones = edges.dtype == bool or (edges.dtype.kind in "iu" and ((edges == 0) | (edges == 1)).all())
    if edges.ndim != 3 or edges.shape[1:] != (num_nodes, num_nodes) or not len(edges) or not zeros_and_ones:
        cure = ": `edges[None]` is that of a single round" if edges.shape == (num_nodes, num_nodes) else ""
        raise ValueError(f"graph={part.name!r} {must}, and not {edges.dtype}{list(edges.shape)}{cure} ({part.where})")
    return edges.astype(bool) & ~np.eye(num_nodes, dtype=bool)  # a node counts itself anyway


class Size(NamedTuple):
    """Holds what of a graph the memory of a schedule depends on.

    Attributes:
      edges: whose parameters a node averages for each of its gradients, its own included: how many they are.
      matrices: how many matrices [N, N] there are.
    """

    edges: float
    matrices: int = 0


def size(name: str, num_nodes: int, *, density: float) -> Size:
    """Return how large a graph is, without making it: as it is expected, of a random one.

    A custom one is made, and counted; of one that is too large for that, or fails, no more is known than that a
    node has itself and another.

    Args:
      name: one of `GRAPHS`, to which custom ones can be registered.
      num_nodes: N.
      density: of a random one.

    Example:
      >>> size("ring", 1000, density=0.5), size("one_peer_exponential", 1000, density=0.5)
      (Size(edges=3, matrices=1), Size(edges=2, matrices=10))
    """
    if name in GRAPHS and GRAPHS[name].is_foreign:
        return _counted(name, num_nodes, density)
    powers = (num_nodes - 1).bit_length()
    drawn = density * (num_nodes - 1)
    others = {
        "ring": 2, "torus": 4, "exponential": powers, "one_peer_exponential": 1, "random": drawn, "directed": drawn,
    }.get(name, num_nodes - 1)  # fmt: skip
    return Size(1 + others, max(powers, 1) if name == "one_peer_exponential" else 1)


def _counted(name: str, num_nodes: int, density: float) -> Size:
    """The size of a custom graph, which is made."""
    least = Size(edges=2, matrices=1)
    if num_nodes**2 > _LARGEST_MADE:
        return least
    try:
        edges = make(name, num_nodes, density=density)
    except ValueError:  # its protocol says so, with its flag, or makes another one with the seed of the run
        return least
    return Size(1 + float(edges.sum()) / (len(edges) * num_nodes), len(edges))


def _powers(num_nodes: int) -> list[int]:
    return [2**power for power in range((num_nodes - 1).bit_length())]


def _ahead(num_nodes: int, places: list[int]) -> np.ndarray:
    """Every node sends to those so many places ahead of it."""
    edges = np.zeros((1, num_nodes, num_nodes), bool)
    for place in places:
        edges[0, (np.arange(num_nodes) + place) % num_nodes, np.arange(num_nodes)] = True
    edges[:, np.arange(num_nodes), np.arange(num_nodes)] = False
    return edges


def _symmetric(edges: np.ndarray) -> np.ndarray:
    return edges | edges.transpose(0, 2, 1)


def _drawn(num_nodes: int, density: float, seed: int, *, both_ways: bool) -> np.ndarray:
    generator = np.random.default_rng(seed)
    for _ in range(_TRIES):
        edges = generator.random((1, num_nodes, num_nodes)) < density
        edges = _symmetric(np.triu(edges, 1)) if both_ways else edges & ~np.eye(num_nodes, dtype=bool)
        if _connected(edges[0]):
            return edges
    raise ValueError(
        f"density={density} must be higher: of {_TRIES} graphs of {num_nodes} nodes none was connected; "
        f"{min(1.0, 2 * math.log(num_nodes) / num_nodes):.2g} would be enough as a rule"
    )


def _connected(edges: np.ndarray) -> bool:
    """Tell whether what any node sends reaches all, by way of others."""
    return bool(_reached(edges).all() and _reached(edges.T).all())


def _reached(edges: np.ndarray) -> np.ndarray:
    """Return bool[N], whom what node 0 sends reaches, by way of others."""
    reached = np.arange(len(edges)) == 0
    new = np.flatnonzero(reached)
    while new.size:
        new = np.flatnonzero(edges[:, new].any(axis=1) & ~reached)
        reached[new] = True
    return reached
