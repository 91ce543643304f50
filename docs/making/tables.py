"""Tables of the site as Markdown."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from docs.making.measured import Row

TRAINED = ["workers", "test accuracy, %", "lost seeds", "x sync. SGD", "seconds to 95 %", "staleness"]
"""Headings of `trained`."""


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""Return a table; bars and line ends in cells are kept from ending them.

    Example:
      >>> print(table(["a", "b"], [["1", "2 | 3"]]))
      | a | b |
      | --- | --- |
      | 1 | 2 \| 3 |
    """
    lines = [headings, ["---"] * len(headings), *rows]
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def number(value: float, digits: int) -> str:
    """Return a number, or a dash where there is none."""
    return "-" if math.isnan(value) else f"{value:,.{digits}f}"


def trained(row: Row) -> list[str]:
    """Return the cells of one row of the stored comparison."""
    mean, std = row.accuracy
    return [
        str(row.num_workers),
        "-" if math.isnan(mean) else f"median {mean:.1f}" if math.isnan(std) else f"{mean:.1f} ± {std:.1f}",
        f"{row.diverged} of {row.seeds}" if row.diverged else "none",
        number(row.speedup, 2),
        number(row.seconds_to_target, 0),
        number(row.staleness, 1),
    ]


def flattened(entries: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Entries of a part, those of groups as `group.entry`.

    Example:
      >>> flattened({"size": 2, "gap": {"rate": 0.5}})
      {'size': 2, 'gap.rate': 0.5}
    """
    found: dict[str, Any] = {}
    for name, value in entries.items():
        found |= flattened(value, f"{prefix}{name}.") if hasattr(value, "items") else {f"{prefix}{name}": value}
    return found
