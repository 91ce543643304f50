"""Run-times of a configuration's cluster, and what is asked of a law of one's own before they are believed."""

import inspect
from typing import Any

import numpy as np

from sgdlab.errors import UsageError, said_of
from sgdlab.registry import Part
from sgdlab.runtimes import checked

_ROWS = 64
"""So many rows at most are drawn twice, and twice as many once, of a law that has not been used before."""

_ROUNDING = 1e-5
"""Run-times that differ by this fraction are the same: a product of matrices rounds as their shapes have it."""

_asked: set[tuple[type, str, int]] = set()
"""Laws of this process that have been asked, with their seeds."""


def drawn(part: Part, law: Any, rows: int, workers: int, seed: int) -> np.ndarray:
    """What a law draws.

    Args:
      part: of the law.
      law: as it was made for the run.
      rows: T, how many rows to draw.
      workers: N, of the cluster.
      seed: of the random numbers.

    Returns:
      float64[T, N], seconds; with more rows and columns where the law draws more.

    Raises:
      UsageError: where it draws no matrix, or one of fewer rows or columns; where a law of one's own draws run-times
        that are not positive and finite, other ones for the same seed, or other first rows where more are asked for.
        Errors that the law itself raises pass as they are, with the flag in front of a `ValueError`.
    """
    if part.is_foreign:
        _ask(part, law, min(rows, _ROWS), workers, seed)
    return _draw(part, law, rows, workers, seed)


def _draw(part: Part, law: Any, rows: int, workers: int, seed: int) -> np.ndarray:
    with said_of(f"--config.cluster.{part.name}."):
        times = law.draw(rows, seed=seed)
    return _checked(part, times, rows, workers, seed)


def _checked(part: Part, times: Any, rows: int, workers: int, seed: int) -> np.ndarray:
    shape = np.shape(times)
    if len(shape) != 2 or shape[0] < rows or shape[1] < workers:
        found = "None: is `return` missing?" if times is None else f"an array of shape {shape}"
        raise UsageError(
            f"{_flag(part)}: `draw({rows}, seed={seed})` must return float64[rows, num_workers], an array of shape "
            f"{(rows, workers)}, and returned {found} ({part.where})"
        )
    if part.is_foreign:
        with said_of(f"{_flag(part)} ({part.where}): "):
            times = checked(times, name="draw")
    return times


def _ask(part: Part, law: Any, rows: int, workers: int, seed: int) -> None:
    key = (type(law), repr(law), seed)
    if key in _asked:
        return
    try:
        inspect.signature(law.draw).bind(rows, seed=seed)
    except (AttributeError, TypeError) as error:
        raise UsageError(f"{_flag(part)} must have a method `draw(rows, *, seed)` ({part.where}): {error}") from error
    try:
        once, again = (law.draw(rows, seed=seed) for _ in range(2))
    except Exception:  # of so many rows; what it says of those of the run is said when they are drawn
        _asked.add(key)
        return
    once, again = (_checked(part, times, rows, workers, seed)[:rows] for times in (once, again))
    if not _same(once, again):
        raise UsageError(
            f"{_flag(part)}: `draw` must return the same run-times for the same seed; draw all random numbers from "
            f"np.random.default_rng(seed) ({part.where})"
        )
    try:
        more = law.draw(2 * rows, seed=seed)
    except Exception:  # it may have no more
        _asked.add(key)
        return
    shape = np.shape(more)
    if len(shape) != 2 or shape[0] < rows or shape[1] != once.shape[1]:
        more = _checked(part, more, 2 * rows, workers, seed)
    # What it says beyond these rows, or whether it ends there, is of no account until a run needs them.
    more = np.asarray(more)[:rows, :workers]
    if not _same(once[:, :workers], more):
        row = int(np.argmin(np.isclose(once[:, :workers], more, _ROUNDING, 0).all(axis=1)))
        raise UsageError(
            f"{_flag(part)}: `draw` must return the same first rows however many it is asked for, and row {row} of "
            f"{rows} differs from row {row} of {2 * rows}; draw all workers of a row before the next row, or a "
            f"stream for each worker ({part.where})"
        )
    _asked.add(key)


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=_ROUNDING, atol=0)


def _flag(part: Part) -> str:
    return f"--config.cluster.kind={part.name}"
