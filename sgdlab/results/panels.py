"""Which methods share a panel, and the colour and marker of each, from what the runs say of themselves."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sgdlab.results.summary import Group

ONE_PANEL = 6
"""As many methods share one panel, whatever their families."""

OTHERS = "Others"
"""Family of methods that name none: a reader's own, for example."""

PALETTE = ("#0072b2", "#e69f00", "#35b779", "#663333", "#56b4e9", "#332288", "#00bfc4")
"""Apart from one another, and from the two colours of references, also for red-green colour blind readers."""

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

    Example:
      >>> from sgdlab.results.summary import Group
      >>> facts = {"protocol": "asynchronous", "baseline": "sgd", "serial": False, "never_waits": True, "about": {},
      ...          "measures_gap": False, "num_workers": 8, "target": 0.9, "runs": ()}
      >>> sgd = Group(method="sgd", title="SGD", rule="sgd", families=("Plain", "Momentum"), place=0, **facts)
      >>> heavy = Group(method="heavy", title="Heavy ball", rule="heavy", families=("Momentum",), place=1, **facts)
      >>> panels([heavy, sgd])
      [Panel(title='', methods=('sgd', 'heavy'))]
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
    """Colour and marker of each method.

    A method at home in one panel takes the colour of its place among all methods, so that methods that follow one
    another differ; if an earlier one of its panel has that colour, the next that is free. Methods that are drawn in
    several panels, or are somebody's baseline, have the reserved colours; of those that share one panel only the first.
    Where a panel has more methods than the palette has colours, markers differ. Beyond one panel a method's style is
    the same whatever it is compared with.

    Args:
      groups: in any order, single workers included.

    Returns:
      Style by the method's name.
    """
    baselines = {group.baseline for group in groups}
    shared = _in_order(group for group in groups if not group.serial)
    # Single workers are drawn as lines of their own; their methods' colours come last.
    methods = list({group.method: group for group in [*shared, *_in_order(groups)]}.values())
    one_panel = len(shared) <= ONE_PANEL
    taken: dict[str, set[str]] = {}
    found = {}
    for group in methods:
        used = taken.setdefault("" if one_panel else group.families[0], set())
        reserved = BASELINE if group.method in baselines else REFERENCE if len(group.families) > 1 else None
        if reserved and not (one_panel and reserved in used):
            colour = reserved
        else:
            if used.issuperset(PALETTE):
                used.clear()
            choices = [PALETTE[(group.place + step) % len(PALETTE)] for step in range(len(PALETTE))]
            colour = next(choice for choice in choices if choice not in used)
        used.add(colour)
        found[group.method] = Style(colour, _MARKERS[group.place % len(_MARKERS)])
    return found


def family_styles(groups: Iterable[Group]) -> dict[str, Style]:
    """Colour and marker of each family that some method is at home in, in the order of the methods.

    Args:
      groups: single workers are left out.

    Returns:
      Style by the family's title. More families than there are colours differ by their markers.
    """
    titles = list(dict.fromkeys(group.families[0] for group in _in_order(g for g in groups if not g.serial)))
    colours = (*PALETTE, BASELINE)
    return {
        title: Style(colours[place % len(colours)], _MARKERS[place % len(_MARKERS)])
        for place, title in enumerate(titles)
    }


def _in_order(groups: Iterable[Group]) -> list[Group]:
    """One group of each method, by the methods' order."""
    return sorted({group.method: group for group in groups}.values(), key=lambda group: group.place)
