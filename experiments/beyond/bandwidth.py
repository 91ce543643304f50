"""Closed forms of how much of the time data centres compute that synchronise over slow links, and what that needs."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes

from experiments.harness import PAPER
from sgdlab import transports
from sgdlab.transports.star import bytes_per_second

UTILISATIONS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Shares of the time that both papers' tables are about."""

GRID = np.logspace(-1, 3, 50)
"""The bandwidths, in Gbit/s, on which all numbers of both papers lie; each is 1.21 times the one before."""

BACKWARD = 2 / 3
"""Share of a step that its backward pass takes, which costs twice the forward one. (Ours.)"""

REPLICAS = 2
"""Data centres, whose ring sends every number once each way. (Ours: their simulations' own number was not at hand.)"""


@dataclasses.dataclass(frozen=True)
class Exchange:
    r"""Holds what each data centre computes and sends between two synchronisations of all parameters.

    .. math:: u = \frac{H t}{H t + P \max(s(b / P) - h, 0)}

    is its utilisation, with s the seconds of a ring all-reduce.

    Attributes:
      step: t, seconds of a step.
      size: b, bytes of all parameters as they are sent.
      every: H, steps between two synchronisations.
      fragments: P, parts that are sent one after the other, spread over the H steps.
      hidden: h, seconds of each message that pass while the data centre computes.

    Example:
      >>> Exchange(step=1.0, size=1e9, every=24).utilisation(1.0)  # 8 s of messages to 24 s of steps
      0.75
      >>> round(Exchange(step=1.0, size=1e9, every=24).needed(0.75), 9)
      1.0
    """

    step: float
    size: float
    every: int = 1
    fragments: int = 1
    hidden: float = 0.0

    def seconds(self, gbits: float) -> float:
        """Return the seconds of a message at a bandwidth in Gbit/s."""
        return transports.ring(REPLICAS, self.size / self.fragments, bytes_per_second("gbits", gbits), 0)

    def utilisation(self, gbits: float) -> float:
        """Return u, the share of the time in which a data centre computes."""
        computing = self.every * self.step
        return computing / (computing + self.fragments * max(self.seconds(gbits) - self.hidden, 0.0))

    def needed(self, utilisation: float) -> float:
        """Return the least bandwidth with a utilisation below 1, in Gbit/s."""
        stall = self.every * self.step * (1 / utilisation - 1) / self.fragments
        return self.seconds(1.0) / (stall + self.hidden)


def on_grid(gbits: float) -> int:
    """Return the index in `GRID` of the first bandwidth that suffices; beyond its end, that of the next if there were.

    Example:
      >>> on_grid(0.1), on_grid(0.11), on_grid(2000.0)
      (0, 1, 50)
    """
    return int(np.searchsorted(GRID, gbits * (1 - 1e-9)))


def printed_on_grid(gbits: float) -> int:
    """Return the index in `GRID` of a number that a paper prints, to one digit behind the point.

    Raises:
      ValueError: where it is no number of the grid.

    Example:
      >>> printed_on_grid(86.8), printed_on_grid(1.4)
      (36, 14)
    """
    place = int(np.argmin(np.abs(GRID - gbits)))
    if abs(GRID[place] - gbits) > 0.06:
        raise ValueError(f"gbits={gbits} must be a number of the papers' grid, such as {GRID[place]:.1f}")
    return place


def fitted_size(exchanges: Sequence[Exchange], printed: Sequence[Sequence[float]]) -> float:
    """Return the bytes that make the least absolute error of logarithms, given a paper's thresholds of some exchanges.

    A printed number says that what is needed lies between it and the one before in `GRID`: the error is from the
    middle. All exchanges are taken to send as many bytes; what their `size` is does not matter.

    Args:
      exchanges: K of them.
      printed: [K, 5], Gbit/s, for each of `UTILISATIONS`.

    Example:
      >>> one = Exchange(step=1.0, size=1e9, every=24)
      >>> found = fitted_size([one], [[float(GRID[on_grid(one.needed(u))]) for u in UTILISATIONS]])
      >>> 0.9e9 < found < 1.1e9
      True
    """
    middles = [
        math.log(GRID[printed_on_grid(number)] * math.sqrt(GRID[0] / GRID[1]))
        - math.log(dataclasses.replace(exchange, size=1.0).needed(share))
        for exchange, row in zip(exchanges, printed, strict=True)
        for share, number in zip(UTILISATIONS, row, strict=True)
    ]
    return math.exp(float(np.median(middles)))


def thresholds(exchange: Exchange, printed: Sequence[float]) -> list[dict[str, float]]:
    """Return a row for each of `UTILISATIONS`: the first number of the grid that suffices, and the paper's.

    Args:
      exchange: ours.
      printed: [5], Gbit/s.
    """
    rows = []
    for share, number in zip(UTILISATIONS, printed, strict=True):
        place = on_grid(exchange.needed(share))
        ours = float(GRID[place]) if place < len(GRID) else math.inf
        off = place - printed_on_grid(number)
        rows.append({"utilisation, %": 100 * share, "ours": ours, "paper": number, "grid points off": off})
    return rows


def within(rows: Iterable[dict], points: int) -> tuple[int, int]:
    """Return how many of some thresholds are at most so many points of the grid off, and of how many."""
    off = [abs(row["grid points off"]) for row in rows]
    return sum(each <= points for each in off), len(off)


def draw(panel: Axes, exchange: Exchange, printed: Sequence[float], *, label: str, shade: str, mark: str) -> None:
    """Draws utilisation against bandwidth as a line, and a paper's thresholds as marks with black edges."""
    panel.plot(GRID, [exchange.utilisation(gbits) for gbits in GRID], color=shade, label=label)
    panel.plot(printed, UTILISATIONS, mark, color=shade, markeredgecolor=PAPER, markersize=6)
    panel.set(xscale="log", xlabel="Gbit/s", xlim=(GRID[0], GRID[-1]), ylim=(0, 1.03))
