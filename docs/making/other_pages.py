"""The page of claims of papers other than the five, from the stored results: what holds of each, and by which command.

Every number and verdict on it is that of a stored result; where there is none, the page names the command for it.
"""

import functools
import pathlib
import re

import pandas as pd

from docs.making import tables
from docs.making.measured import STORES
from experiments.beyond.sources import SGDLAB
from experiments.harness import publishing, scoreboard
from experiments.harness.claims import FAILS, HOLDS, OPEN
from experiments.harness.figures import Figure, find_figure, is_apart, names

PATH = "papers/others.md"


@functools.cache
def shown() -> tuple[Figure, ...]:
    """Return the figures of the page: those apart that check claims of a paper.

    Example:
      >>> "beyond.ringleader" in [made.name for made in shown()]
      True
    """
    found = (find_figure(name) for name in names() if is_apart(name))
    return tuple(made for made in found if made is not None and made.paper != SGDLAB)


def page() -> str:
    """Return the page as Markdown."""
    found = [(made, scoreboard.stored_result(made.name)) for made in shown()]
    rows = [[_link(made), *_state(result)] for made, result in found]
    parts = [
        "# Tables of others",
        f"Claims of {len({made.paper.source for made, _ in found})} papers besides [the five](index.md), in "
        f"{len(found)} tables, each by one command, on one laptop: what the source says, what came out here, and what "
        "does not hold. A verdict is computed from the numbers beside it. Where a paper's text was not at hand, a "
        "claim is worded after its abstract or its code, and says so.",
        tables.table(["", "command", "scale", HOLDS, FAILS, "open", "made"], rows),
        "Each command takes minutes, continues where it was stopped, and writes a table and a picture; `scoreboard "
        "--store` then keeps them, and this page shows them:",
        f"```\npython -m experiments beyond.ringleader --workdir=runs/papers\n{STORES} --workdir=runs/papers\n```",
        *(part for made, result in found for part in _section(made, result)),
    ]
    return "\n\n".join(parts) + "\n"


def of_source(source: str) -> list[tuple[str, str]]:
    """Titles and addresses, below the site's root, of the tables of the paper that a part names as its source.

    Example:
      >>> of_source("Maranjyan and Richtarik 2025, Algorithm 1")[0][1]
      'papers/others.md#beyond-ringleader'
    """
    # Exactly: "Maranjyan et al. 2025" is another paper than "Maranjyan et al. 2025b".
    cited = {each.partition(",")[0].strip() for each in source.split(";")}
    return [(made.title, f"{PATH}#{_anchor(made)}") for made in shown() if made.paper.authors in cited]


def _anchor(made: Figure) -> str:
    return made.name.replace(".", "-").replace("_", "-")


def _link(made: Figure) -> str:
    return f"[{made.paper.authors}: {made.paper.rows.get(made.numbers[0], made.title)}](#{_anchor(made)})"


def _state(result: scoreboard.Result | None) -> list[str]:
    """Command, scale, the number of claims by verdict, and when it was made."""
    if result is None:
        return ["not stored yet", "", "", "", "", ""]
    verdicts = [claim["verdict"] for claim in result.claims]
    counts = [str(verdicts.count(each)) for each in (HOLDS, FAILS, OPEN)]
    return [f"`{result.facts['figure']}`", result.scale, *counts, _day(result)]


def _day(result: scoreboard.Result) -> str:
    return result.facts["when"].partition("T")[0]


def _section(made: Figure, result: scoreboard.Result | None) -> list[str]:
    """Return what is said of one figure."""
    head = [
        f"## {made.paper.authors}: {made.title} {{#{_anchor(made)}}}",
        f"*{made.paper.title}* ({made.paper.source}).",
        f"```\npython -m experiments {made.name} --workdir=runs/papers\n```",
    ]
    if result is None:
        return [*head, f"No result is stored: this command makes one (about {made.scales['laptop'].takes}), and "
                f"`{STORES}` keeps it."]  # fmt: skip
    claims = [
        [
            f"**{claim['verdict']}**",
            f"{claim['says']} ({claim['where']})",
            _joined(claim["ours"], publishing.opinion(claim["because"])),
            scoreboard.of_paper(claim),
        ]
        for claim in result.claims
    ]
    parts = [*head]
    if result.picture is not None:
        parts.append(f"![{made.title}]({pathlib.PurePosixPath(result.picture.name)})")
    parts += [
        tables.table(["verdict", "the source says", "here", "the source's numbers"], claims),
        f"{_sentence(made.differs)} Scale {result.scale}, on {result.made_with}, {_day(result)}.",
        "\n".join(f"* {note}" for note in result.facts["notes"]),
    ]
    if result.table is not None:
        parts.append(_numbers(pd.read_csv(result.table)))
    return [part for part in parts if part]


def _numbers(found: pd.DataFrame) -> str:
    """Return the whole table, folded away, without columns that are empty."""
    filled = found.dropna(axis="columns", how="all")
    rows = [[_cell(value) for value in row] for row in filled.itertuples(index=False)]
    whole = tables.table(list(filled.columns), rows)
    return f'<details markdown="1"><summary>All {len(rows)} numbers</summary>\n\n{whole}\n\n</details>'


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if pd.isna(value) else f"{value:.4g}"
    return str(value)


def _joined(*sentences: str) -> str:
    """Sentences that are not empty, each with an end."""
    return " ".join(map(_sentence, filter(None, sentences)))


def _sentence(text: str) -> str:
    return text if re.search(r"[.!?]$", text) else f"{text}."
