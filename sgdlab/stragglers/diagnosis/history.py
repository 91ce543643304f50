"""Stretches of steps in which workers were slow: change points of their compute times relative to the step."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from sgdlab import arrays
from sgdlab.stragglers import second_process
from sgdlab.stragglers.diagnosis import change_points
from sgdlab.stragglers.diagnosis.change_points import Noise

SLOWER = 1.05
"""A stretch of steps is slow from this multiple of the other workers' median on, if it is significant too."""

MOST_OF_NODE = 0.75
"""Least share of a node's workers that are slow if the node is to blame."""

_ROWS = 512
"""Blocks of steps on whose means workers are screened."""

_TOGETHER = 64
"""Most workers whose compute times are searched for changes at once."""

_SHARED = 2_000_000
"""Compute times of the workers that are searched from which a second process searches half of the workers."""

_SCREEN = 0.7
"""Share of the critical value from which a worker is looked at step by step."""

_JUMP = math.log(SLOWER)


@dataclasses.dataclass(frozen=True)
class Episode:
    """A stretch of steps in which a worker was slow.

    Attributes:
      first: first row.
      last: last row, inclusive.
      factor: median of its compute time over that of the workers of the step that are not slow.
    """

    first: int
    last: int
    factor: float

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return self.last - self.first + 1


@dataclasses.dataclass(frozen=True, eq=False)
class Histories:
    """Holds when workers were slow.

    Attributes:
      episodes: for each worker its slow stretches, in order.
      slow: bool[T, N], whether a worker was in a slow stretch.
      usual: float64[T], seconds: median of the step over the workers that were not slow.
      noise: of the logarithms of the relative compute times.
    """

    episodes: tuple[tuple[Episode, ...], ...]
    slow: np.ndarray
    usual: np.ndarray
    noise: Noise


def find_slow_stretches(
    runtimes: np.ndarray, nodes: Sequence[str] = (), medians: np.ndarray | None = None
) -> Histories:
    """Finds the stretches of steps in which workers were slow.

    Twice: first relative to the median of the step, then to the median of the workers that were not slow the first
    time, which is what they are compared to where many are slow. Where most workers of a node are slow together, by the
    median of the node's workers, all of the node are.

    Args:
      runtimes: float64[T, N], seconds, without the steps that pause all.
      nodes: the machine of each worker; empty if unknown.
      medians: float64[T], of the steps. None: they are computed.
    """
    logs = np.log(runtimes)
    median = arrays.median(runtimes, axis=1) if medians is None else medians
    slow = _jumped(logs, np.log(median))
    for _ in range(2):
        usual = reference(runtimes, slow) if slow.any() else median
        series = logs - np.log(usual)[:, None]
        noise = change_points.noise(series)
        episodes: list[tuple[Episode, ...]] = [()] * runtimes.shape[1]
        for worker, own in _episodes(series, noise, _suspicious(series, noise)):
            episodes[worker] = own
        for workers, together in _of_nodes(series, nodes):
            for worker in workers:
                episodes[worker] = _joined(episodes[worker], together, series[:, worker])
        slow_before, slow = slow, among(episodes, len(runtimes))
        if np.array_equal(slow_before, slow):
            break
    return Histories(tuple(episodes), slow, usual, noise)


def among(episodes: Sequence[Sequence[Episode]], rows: int) -> np.ndarray:
    """Return whether each worker is in one of its episodes, bool[T, N]."""
    slow = np.zeros((rows, len(episodes)), bool)
    for worker, own in enumerate(episodes):
        for episode in own:
            slow[episode.first : episode.last + 1, worker] = True
    return slow


def of_nodes(nodes: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the indices of the workers of each node that may be to blame: it has several, but not all of them."""
    names = np.array(nodes)
    members = {name: np.flatnonzero(names == name) for name in dict.fromkeys(nodes)}
    return {name: workers for name, workers in members.items() if 2 <= workers.size < len(nodes)}


def runs(rows: np.ndarray) -> list[tuple[int, int]]:
    """Return the first and last of each run of consecutive numbers, among rising ones."""
    parts = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    return [(int(part[0]), int(part[-1])) for part in parts if part.size]


def _of_nodes(series: np.ndarray, nodes: Sequence[str]) -> Iterator[tuple[np.ndarray, tuple[Episode, ...]]]:
    """Find the workers and the slow stretches of each node most of whose workers are slow in them."""
    members = list(of_nodes(nodes).values())
    if not members:
        return
    middle = np.stack([arrays.median(series[:, workers], axis=1) for workers in members], axis=1)
    noise = change_points.noise(middle)
    for node, episodes in _episodes(middle, noise, _suspicious(middle, noise)):
        found = []
        for episode in episodes:
            own = arrays.median(series[episode.first : episode.last + 1, members[node]], axis=0)
            if np.mean(own >= math.log(episode.factor) / 2) >= MOST_OF_NODE:
                found.append(episode)
        if found:
            yield members[node], tuple(found)


def _joined(own: Sequence[Episode], together: Sequence[Episode], series: np.ndarray) -> tuple[Episode, ...]:
    """The stretches of the node, with the worker's own factors, and what of its own stretches lies outside of them."""
    inside = among([together], series.size)[:, 0]
    result = [Episode(e.first, e.last, math.exp(float(arrays.median(series[e.first : e.last + 1])))) for e in together]
    for episode in own:
        outside = np.flatnonzero(~inside[episode.first : episode.last + 1]) + episode.first
        parts = [Episode(first, last, episode.factor) for first, last in runs(outside)]
        result += [part for part in parts if part.rows >= change_points.LEAST]
    return tuple(sorted(result, key=lambda e: e.first))


def _suspicious(series: np.ndarray, noise: Noise) -> np.ndarray:
    """bool[N]: whether the level or a change of level of a worker might be significant, by means of blocks of steps."""
    rows, workers = series.shape
    size = -(-rows // _ROWS)
    least = _SCREEN * noise.critical
    level = arrays.median(series[change_points.sampled(rows)], axis=0)
    result = (level >= _SCREEN * _JUMP) & (level * math.sqrt(rows) >= least * noise.deviation)
    clip = 6 * noise.deviation
    blocks = np.clip(series, level - clip, level + clip)[: rows // size * size].reshape(-1, size, workers).mean(axis=1)
    if len(blocks) >= 2 * change_points.LEAST:
        result |= change_points.strongest(blocks, noise.deviation / math.sqrt(size)) >= least
    return result


def _episodes(series: np.ndarray, noise: Noise, searched: np.ndarray) -> Iterator[tuple[int, tuple[Episode, ...]]]:
    """Find the slow ones of the stretches of the columns that are searched, bool[N]."""
    columns = np.flatnonzero(searched)
    shared = columns.size * len(series) >= _SHARED
    here, there = np.split(columns, [columns.size // 2 if shared else columns.size])
    of = lambda some: (np.ascontiguousarray(series[:, some].T), noise.deviation[some], noise.critical)
    with second_process.beside(_of_rows, *of(there), elsewhere=shared) as rest:
        found = _of_rows(*of(here)) + rest()
    yield from zip(columns.tolist(), found, strict=True)


def _of_rows(series: np.ndarray, deviations: np.ndarray, critical: float) -> list[tuple[Episode, ...]]:
    """Find the slow stretches of series, float64[N, T], each with the deviation of its noise."""
    found = []
    for first in range(0, len(series), _TOGETHER):
        own, their = series[first : first + _TOGETHER], deviations[first : first + _TOGETHER]
        splits = change_points.changes_of_all(list(own), their, critical)
        for values, deviation, at in zip(own, their.tolist(), splits, strict=True):
            least = critical * 1.2533 * deviation
            found.append(
                tuple(
                    Episode(first_row, end - 1, math.exp(level))
                    for first_row, end, level in change_points.levels(values, at)
                    if level >= _JUMP and level * math.sqrt(end - first_row) >= least
                )
            )
    return found


def _jumped(logs: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """bool[T, N]: workers whose own compute times jumped at a step where so many others did that the median jumped too.

    Where half of the workers or more become slow together, they are near the median, and the others seem to have
    become fast. Their own compute times before and after tell: those of the others did not change.
    """
    slow = np.zeros(logs.shape, bool)
    noise = change_points.noise(middle[:, None], memory=0.0)
    # A low bar: which workers jumped is seen below, and whether they are slow is tested afterwards.
    splits = change_points.changes(middle, float(noise.deviation[0]), _SCREEN * noise.critical)
    parts = change_points.levels(middle, splits)
    still = np.zeros(logs.shape[1], bool)
    for (first, change, before), (_, end, after) in itertools.pairwise(parts):
        own = [arrays.median(logs[since:until], axis=0) for since, until in ((first, change), (change, end))]
        moved = _movers(own[1] - own[0], after - before)
        if after > before:
            still |= moved
        else:
            slow[:change, moved & ~still] = True  # they were slow from the beginning
            still &= ~moved
        slow[change:end] = still
    return slow


def _movers(own: np.ndarray, jump: float) -> np.ndarray:
    """bool[N]: workers whose level moved with the median by `jump`, if clearly 20 to 80 % of the workers did not."""
    nobody = np.zeros(own.size, bool)
    if abs(jump) < _JUMP / 2 or own.size < 2:
        return nobody
    own = own * np.sign(jump)
    order = np.sort(own)
    gap = int(np.argmax(np.diff(order)))
    stay, move = order[: gap + 1], order[gap + 1 :]
    spread = max(np.ptp(stay), np.ptp(move), abs(jump) / 2, change_points.FLOOR)
    clear = move[0] - stay[-1] > spread and abs(stay.mean()) < abs(jump) / 2
    return own > stay[-1] if clear and 0.2 * own.size <= stay.size <= 0.8 * own.size else nobody


def reference(runtimes: np.ndarray, slow: np.ndarray) -> np.ndarray:
    """Return the median of each step over the workers that are not slow in it; over all workers, if all are slow.

    The plain median of a step is itself raised by its slow workers: with 4 workers a little, with half of them slow by
    half of the slowness.

    Args:
      runtimes: float64[T, N], seconds.
      slow: bool[T, N], the compute times to leave out.

    Returns:
      float64[T], seconds.

    Example:
      >>> times = np.array([[1.0, 1.0, 3.0, 3.0], [1.0, 2.0, 3.0, 9.0]])
      >>> reference(times, times >= 3.0).tolist(), np.median(times, axis=1).tolist()
      ([1.0, 1.5], [2.0, 2.5])
    """
    result, some = np.empty(len(runtimes)), slow.any(axis=1) & ~slow.all(axis=1)
    result[~some] = arrays.median(runtimes[~some], axis=1)
    result[some] = arrays.known_medians(np.where(slow[some], np.nan, runtimes[some]))
    return result
