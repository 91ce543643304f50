"""The paper's four settings: what they wait for, the paper's results, and their rows and lines here."""

import dataclasses
import math
from typing import Any

import numpy as np
import pandas as pd

from experiments.harness import PALETTE, colour, interval


@dataclasses.dataclass(frozen=True)
class Setting:
    """The numbers that servers and workers wait for, and the paper's results with injected delays (Table 1).

    Attributes:
      push_at_least: c, number of gradients, of 32, that a server waits for.
      pull_at_least: b, share of the servers that a worker waits for.
      paper_minutes: running time in minutes.
      paper_error: top-1 validation error of ResNet-50 on CIFAR-10, in %.
      shade: its colour.
      marker: its marker.
      dash: its line style.

    Example:
      >>> print(SETTINGS[2], SETTINGS[2].waits)
      (28, 90 %) {'push_at_least': 28, 'pull_at_least': 0.9}
    """

    push_at_least: int
    pull_at_least: float
    paper_minutes: float
    paper_error: float
    shade: str
    marker: str
    dash: str

    def __str__(self) -> str:
        return f"({self.push_at_least}, {100 * self.pull_at_least:g} %)"

    @property
    def waits(self) -> dict[str, Any]:
        """Return the entries of its runs."""
        return {"push_at_least": self.push_at_least, "pull_at_least": self.pull_at_least}

    @property
    def line(self) -> dict[str, Any]:
        """Return how its lines are drawn."""
        return {"color": self.shade, "marker": self.marker, "linestyle": self.dash, "label": str(self)}

    def of(self, runs: pd.DataFrame, **others: Any) -> pd.DataFrame:
        """Return the rows of its runs in which other entries have the given values too."""
        wanted = self.waits | others
        return runs[np.logical_and.reduce([runs[name] == value for name, value in wanted.items()])]

    def row(self, values: Any, paper: float = math.nan, **about: Any) -> dict[str, Any]:
        """Return a row of a table: the mean over the seeds, half the width of its interval, and the paper's number."""
        found = interval(values)
        spread = found.half if math.isfinite(found.half) else math.nan
        return {"(c, b)": str(self), **about, "ours": found.mean, "±": spread, "paper": paper}


SETTINGS = (
    Setting(32, 1.0, 199.97, 14.79, colour("synchronous"), "s", "-"),
    Setting(28, 1.0, 164.97, 16.09, colour("backup_workers"), "D", "--"),
    Setting(28, 0.9, 139.95, 15.65, PALETTE[2], "o", "-."),
    Setting(20, 0.75, 136.54, 29.14, PALETTE[5], "^", ":"),
)
SYNCHRONOUS, PUSH, BOTH, SMALL = SETTINGS

HALF_WIDTH = "± is half the width of the 95 % confidence interval of the mean over the seeds."
