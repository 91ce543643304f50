"""Workers that are slow in the same steps: a node, or a group without a name."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from sgdlab.stragglers.diagnosis import change_points
from sgdlab.stragglers.diagnosis.history import MOST_OF_NODE, Episode, of_nodes, runs

_ALIKE = 0.6
"""Least share of common rows (over the rows of either) of two workers that are slow together."""

_ROWS = 2048
"""Rows on which workers are compared."""

ALWAYS = 0.95
"""Share of the rows from which a worker is slow all along."""


@dataclasses.dataclass(frozen=True)
class SlowGroup:
    """Workers with one history.

    Attributes:
      workers: their indices, rising.
      node: name of the node whose workers they are, if most of it is slow.
      episodes: the stretches in which at least half of them were slow.
    """

    workers: tuple[int, ...]
    node: str | None
    episodes: tuple[Episode, ...]


def find_groups(episodes: Sequence[Sequence[Episode]], slow: np.ndarray, nodes: Sequence[str] = ()) -> list[SlowGroup]:
    """Groups the slow workers.

    Workers that are slow in nearly the same steps are one group, unless they are slow all along: then nothing tells
    two slow machines from one reason for both, except a node, or neighbouring numbers of three workers or more.

    Args:
      episodes: of each worker.
      slow: bool[T, N], whether a worker is in one of its episodes.
      nodes: the machine of each worker; empty if unknown.
    """
    left = [worker for worker in range(len(episodes)) if episodes[worker]]
    cost = {w: sum(e.rows * (e.factor - 1) for e in episodes[w]) for w in left}
    left.sort(key=lambda w: -cost[w])
    sample = slow[:: max(1, len(slow) // _ROWS)].astype(np.float32)  # counts up to 16 million are exact
    rows, both = sample.sum(axis=0), sample.T @ sample
    groups, members = [], of_nodes(nodes)
    while left:
        common = both[left[0], left]
        either = rows[left[0]] + rows[left] - common
        together = [
            worker
            for worker, alike in zip(left, common >= _ALIKE * np.maximum(either, 1), strict=True)
            if worker == left[0] or alike
        ]
        left = [worker for worker in left if worker not in set(together)]
        groups += _named(sorted(together), episodes, slow, members)
    return groups


def _named(
    workers: list[int], episodes: Sequence[Sequence[Episode]], slow: np.ndarray, nodes: Mapping[str, np.ndarray]
) -> list[SlowGroup]:
    groups = []
    for name, members in nodes.items():
        inside = [worker for worker in members.tolist() if worker in workers]
        if len(inside) >= MOST_OF_NODE * members.size:
            groups.append(_group(inside, name, episodes, slow))
            workers = [worker for worker in workers if worker not in inside]
    if not workers:
        return groups
    always = np.mean(slow[:, workers].mean(axis=1) >= 0.5) >= ALWAYS
    neighbours = len(workers) >= 3 and workers[-1] - workers[0] == len(workers) - 1
    if len(workers) == 1 or (always and not neighbours):
        return groups + [SlowGroup((worker,), None, calm(episodes[worker])) for worker in workers]
    return [*groups, _group(workers, None, episodes, slow)]


def _group(workers: list[int], node: str | None, episodes: Sequence[Sequence[Episode]], slow: np.ndarray) -> SlowGroup:
    found = []
    for first, last in runs(np.flatnonzero(slow[:, workers].mean(axis=1) >= 0.5)):
        factors = [math.log(e.factor) for w in workers for e in episodes[w] if e.first <= last and e.last >= first]
        found.append(Episode(first, last, math.exp(float(np.median(factors)))))
    return SlowGroup(tuple(workers), node, calm(found))


def calm(episodes: Sequence[Episode]) -> tuple[Episode, ...]:
    """Stretches of similar factors with no row between them as one.

    Example:
      >>> calm([Episode(3, 5, 1.5), Episode(6, 8, 1.5), Episode(10, 10, 1.5)])
      (Episode(first=3, last=8, factor=1.5), Episode(first=10, last=10, factor=1.5))
    """
    return _contiguous(episodes, alike=0.6, between=0)


def _contiguous(episodes: Sequence[Episode], alike: float, between: int) -> tuple[Episode, ...]:
    """As one those with so many rows between them at most, and excesses over 1 whose ratio is at least `alike`."""
    result: list[Episode] = []
    for episode in episodes:
        if result and episode.first - result[-1].last - 1 <= between:
            before = result[-1]
            low, high = sorted([before.factor - 1, episode.factor - 1])
            if low >= alike * high:
                factor = (before.rows * before.factor + episode.rows * episode.factor) / (before.rows + episode.rows)
                result[-1] = Episode(before.first, episode.last, factor)
                continue
        result.append(episode)
    return tuple(result)


def essential(episodes: Sequence[Episode], rows: int) -> tuple[tuple[Episode, ...], int, int | None]:
    """Return the stretches that count, the first row of the slowness, and its last row, None if it lasts.

    Stretches that are much less slow than the worst lasting one do not count. The others are dated as if those with a
    few rows between them were one; if such a one has most of the slow rows, it is the only one that counts.

    Args:
      episodes: in order, at least one.
      rows: T.

    Example:
      >>> essential([Episode(10, 12, 1.5), Episode(300, 599, 1.6)], 600)
      ((Episode(first=300, last=599, factor=1.6),), 300, None)
    """
    total = sum(e.rows for e in episodes)
    usual = sum(e.rows * (e.factor - 1) for e in episodes) / total
    worst = max((e.factor - 1 for e in episodes if e.rows >= 0.05 * total), default=usual)
    kept = tuple(e for e in episodes if e.factor - 1 >= 0.4 * worst)
    joined = _contiguous(kept, alike=0.0, between=change_points.LEAST - 1)
    longest = max(joined, key=lambda e: e.rows)
    if longest.rows >= 0.8 * sum(e.rows for e in joined):
        kept = joined = (longest,)
    quiet = max((b.first - a.last for a, b in itertools.pairwise(joined)), default=0)
    still = rows - 1 - joined[-1].last <= max(2 * quiet, 2 if len(joined) == 1 else 0)
    return kept, joined[0].first, None if still else joined[-1].last
