"""The panel of each method, its colour and its marker, from what the runs say of themselves."""

from collections.abc import Iterable
from typing import NamedTuple

from sgdlab.results.summary import Group

ONE_PANEL = 6
"""As many methods share one panel, whatever their families."""

OTHERS = "Others"
"""Family of methods that name none: a reader's own, for example."""

PALETTE = ("#0072b2", "#e69f00", "#35b779", "#663333", "#56b4e9", "#332288", "#00bfc4", "#7a7a7a")
"""Apart from one another and from `BASELINE`, also for red-green colour blind readers.

The first four are the farthest apart.
"""

BASELINE = "#c51b1b"
"""Of the methods that, run by a single worker, others are compared with."""

_MARKERS = "osD^vP*<>Xphd"


class Panel(NamedTuple):
    """Methods side by side: a family's title, and the methods' names in their order."""

    title: str
    methods: tuple[str, ...]


class Style(NamedTuple):
    """The colour and the mark of a method."""

    colour: str
    marker: str


def panels(groups: Iterable[Group]) -> list[Panel]:
    """The panels in which methods are drawn: one for up to six methods, else one for each family.

    Families are in the order of the methods at home there. One all of whose methods stand in other panels is left out.
    Methods that name no family share their panel with those that several families have in common, to compare with.

    Args:
      groups: each method is drawn in all its `families`.
    """
    ordered = sorted({group.method: group for group in groups}.values(), key=lambda group: group.rank)
    if len(ordered) <= ONE_PANEL:
        return [Panel("", tuple(group.method for group in ordered))]
    # Families follow one another as their own methods do; those without any of their own come after.
    titles = list(dict.fromkeys([group.families[0] for group in ordered] + [t for g in ordered for t in g.families]))
    members = {title: tuple(group.method for group in ordered if title in group.families) for title in titles}
    for title in sorted(titles, key=lambda title: (len(members[title]), -titles.index(title))):
        elsewhere = {method for other, found in members.items() if other != title for method in found}
        if elsewhere.issuperset(members[title]):
            del members[title]
    if OTHERS in members:
        common = tuple(group.method for group in ordered if len(group.families) > 1)
        members[OTHERS] = common + members[OTHERS]
    return [Panel(title, found) for title, found in members.items()]


def style(rank: int, *, baseline: bool = False) -> Style:
    """Return the colour and the mark of a method, which are the same in every picture of the project.

    Both follow from its rank among all methods alone, so that what else is compared does not matter. Neighbours differ
    in both; of 104 methods in turn, no two have the same pair.

    Example:
      >>> style(3), style(11).colour == style(3).colour
      (Style(colour='#663333', marker='^'), True)
    """
    return Style(BASELINE if baseline else PALETTE[rank % len(PALETTE)], _MARKERS[rank % len(_MARKERS)])


def styles(groups: Iterable[Group]) -> dict[str, Style]:
    """Return method -> `style`, of all that are compared."""
    return {g.method: style(g.rank, baseline=g.method == g.baseline) for g in groups if not g.serial}
