"""Which methods share a panel, and the colour and marker of each, from what the runs say of themselves."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from sgdlab.results.summary import Group

ONE_PANEL = 6
"""As many methods share one panel, whatever their families."""

OTHERS = "Others"
"""Family of methods that name none: a reader's own, for example."""

FAMILIES = (
    "Rounds: fresh gradients",
    "Staleness, limited or not",
    "Penalties on momentum SGD",
    "Look-ahead: DANA",
    "Adam",
    "No server",
    "Corrections of plain SGD",
    "Where staleness comes from",
    "Local steps",
    "For workers' own data",
    "Rounds by the clock",
    "Steps of one length",
)
"""Families of this library's methods, in the order of their colours; other families have the colours that remain."""

PALETTE = ("#0072b2", "#e69f00", "#35b779", "#663333", "#56b4e9", "#332288", "#00bfc4")
"""Apart from one another, and from the two colours of references, also for red-green colour blind readers.

The first four are the farthest apart.
"""

BASELINE, REFERENCE = "#c51b1b", "#7a7a7a"
"""Of methods that others are compared with: those run by the single workers, and all others."""

_MARKERS = "osD^vP*<>Xphd"


class Panel(NamedTuple):
    """Methods side by side: a family's title, and the methods' names in their order."""

    title: str
    methods: tuple[str, ...]


class Style(NamedTuple):
    """How a method is drawn, in every panel and picture."""

    colour: str
    marker: str


def panels(groups: Iterable[Group]) -> list[Panel]:
    """The panels in which methods are drawn: one for up to six methods, else one for each family.

    Families are in the order of the methods at home there. One all of whose methods stand in other panels is left out.
    Methods that name no family share their panel with those that several families have in common, to compare with.

    Args:
      groups: each method is drawn in all its `families`.
    """
    ordered = _in_order(groups)
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


def styles(groups: Sequence[Group]) -> dict[str, Style]:
    """Colour and marker of each method that is compared.

    The colour of a method follows from its rank among all methods, so that neighbours differ and a method looks the
    same in every comparison. Only where two methods of one panel would have the same colour, the one of the higher rank
    takes another, which is that of no method of the panel. Methods that are drawn in several panels, or are somebody's
    baseline, have the reserved colours; of those that share one panel only the first. Where a panel has more methods
    than the palette has colours, markers differ.
    """
    ours = _in_order(group for group in groups if not group.serial)
    baselines = {group.baseline for group in ours}
    one_panel = len(ours) <= ONE_PANEL
    members: dict[str, list[Group]] = {}
    for group in ours:
        members.setdefault("" if one_panel else group.families[0], []).append(group)
    colours = {}
    for here in members.values():
        colours |= _colours(here, baselines, unique_references=one_panel)
    return {group.method: Style(colours[group.method], _MARKERS[group.rank % len(_MARKERS)]) for group in ours}


def _colours(groups: Sequence[Group], baselines: Collection[str], *, unique_references: bool) -> dict[str, str]:
    """The colours of one panel: first all that methods have of their own, then those of the methods in conflict."""
    found: dict[str, str] = {}
    for group in groups:
        reserved = BASELINE if group.method in baselines else REFERENCE if len(group.families) > 1 else None
        if reserved and not (unique_references and reserved in found.values()):
            found[group.method] = reserved
    for group in groups:
        own = PALETTE[group.rank % len(PALETTE)]
        if group.method not in found and own not in found.values():
            found[group.method] = own
    for group in groups:
        if group.method not in found:
            free = [colour for colour in PALETTE if colour not in found.values()]
            found[group.method] = free[0] if free else PALETTE[group.rank % len(PALETTE)]
    return found


def family_styles(groups: Iterable[Group]) -> dict[str, Style]:
    """Return colour and marker of each family that some method is at home in, in the order of the methods.

    A family of `FAMILIES` looks alike in every comparison.
    """
    titles = list(dict.fromkeys(group.families[0] for group in _in_order(g for g in groups if not g.serial)))
    colours = (*PALETTE, BASELINE)
    # Each colour with each marker once, and a new colour for each as long as there is one.
    pairs = [
        Style(colour, _MARKERS[(place + turn) % len(_MARKERS)])
        for turn in range(len(_MARKERS))
        for place, colour in enumerate(colours)
    ]
    styles = {title: style for title, style in zip(FAMILIES, pairs, strict=False) if title in titles}
    for title in titles:
        if title not in styles:
            used = {style.colour for style in styles.values()}
            free = [pair for pair in pairs if pair not in styles.values()] or pairs
            styles[title] = next((pair for pair in free if pair.colour not in used), free[0])
    return {title: styles[title] for title in titles}


def _in_order(groups: Iterable[Group]) -> list[Group]:
    """One group of each method, by the methods' order."""
    return sorted({group.method: group for group in groups}.values(), key=lambda group: group.rank)
