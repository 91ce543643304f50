"""Colours and sizes of the pictures of `advise`, and labels that do not overlap."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

BLUE, ORANGE, GREEN, GREY, RED, PALE = "#2166ac", "#d95f02", "#1b7837", "#7a7a7a", "#c51b1b", "#e4dfd3"

LABELLED = 40
"""Most workers, or steps, that are all labelled; of more, only some are."""

_WIDTH = 8.4  # inches
_LONGEST_NAME = 22
_MOST_STEPS = 12  # about so many are labelled


def panels(height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Returns a figure of a height in inches, with panels that share their axes."""
    figure = Figure(figsize=(_WIDTH, height))
    return figure, figure.subplots(rows, columns, sharex=rows > 1, sharey=True, squeeze=False).ravel().tolist()


def short(name: str) -> str:
    r"""A name as a label, without its middle if it is long; a dollar sign is a character, and begins no formula.

    Example:
      >>> short("w$1"), short("ip-10-0-3-17.eu-west.compute.internal/rank3")
      ('w\\$1', 'ip-10-0-3-…ernal/rank3')
    """
    half = _LONGEST_NAME // 2
    return plain(name if len(name) <= _LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}")


def plain(words: str) -> str:
    """Words as a label, in which a dollar sign begins no formula."""
    return words.replace("$", r"\$")


def cells(size: int, most: int) -> np.ndarray:
    """Returns where at most so many cells of a size begin, and the size."""
    return np.linspace(0, size, min(size, most) + 1).astype(int)


def label_steps(axes: Axes, steps: np.ndarray) -> None:
    """Labels a horizontal axis of rows with the numbers of some steps: round ones, where they are evenly spaced.

    Args:
      axes: whose horizontal axis counts rows.
      steps: int64[T], the number of each row's step.

    Example:
      >>> axes = Figure().add_subplot()
      >>> label_steps(axes, np.arange(7, 130))
      >>> [int(row) for row in axes.get_xticks()], [text.get_text() for text in axes.get_xticklabels()][:3]
      ([13, 33, 53, 73, 93, 113], ['20', '40', '60'])
    """
    locator = MaxNLocator(_MOST_STEPS, integer=True, steps=[1, 2, 2.5, 5, 10])
    round_ones = [step for step in locator.tick_values(steps[0], steps[-1]) if steps[0] <= step <= steps[-1]]
    rows = np.searchsorted(steps, round_ones)
    even = rows.size > 1 and np.diff(rows).min() > 0.5 * np.diff(rows).max()  # not so, where steps were left out
    if not even:
        rows = np.arange(0, steps.size, max(1, -(-steps.size // _MOST_STEPS)))
    axes.set_xticks(rows, [str(step) for step in steps[rows]], fontsize="small")


def label(set_ticks: Callable[..., object], positions: np.ndarray, names: Sequence[str], *, most: int) -> None:
    """Labels at most `most` evenly spaced ones of positions, by `set_xticks` or `set_yticks` of the axes."""
    every = max(1, -(-positions.size // most))
    set_ticks(positions[::every], [short(name) for name in list(names)[::every]], fontsize="small")
