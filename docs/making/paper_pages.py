"""The papers' pages: those of the stored results, and the methods of each paper."""

import functools
import pathlib

from experiments.harness import board, scoreboard
from experiments.harness.figures import figures, is_apart
from experiments.papers import PAPERS, Paper
from sgdlab.runs.methods import methods

_COMMANDS = """
```
python -m experiments                                   # lists all, and what each takes at its scales
python -m experiments gossip.bounds --scale=smoke       # one, in seconds
python -m experiments all --workdir=runs/papers         # all of the five papers, on a laptop
python -m experiments decide --hours=4                  # what is inconclusive, first what takes the least
python -m experiments scoreboard --workdir=runs/papers  # these pages, from your own runs
```
"""


@functools.cache
def pages() -> dict[str, str]:
    """Return the pages by path: the first one counts, then one for each paper, and one for others."""
    texts = {name: (board.STORED / name).read_text(encoding="utf-8") for name in names()}
    made = {"papers/index.md": texts.pop(scoreboard.PAGE) + _COMMANDS}
    for paper in PAPERS:
        title, back, rest = texts.pop(f"{paper.slug}.md").split("\n\n", 2)
        its = [method for method in methods().values() if paper in of_source(method.source)]
        listed = ", ".join(f"[{method.title}](../methods/{method.name}.md)" for method in its)
        made[path(paper)] = "\n\n".join([title, back, *[f"Its methods: {listed}."] * bool(its), rest])
    made |= {f"papers/{name}": text for name, text in texts.items()}
    return {name: _linked(text) for name, text in made.items()}


def names() -> list[str]:
    """Return the names of the stored pages, the first one first."""
    return [scoreboard.PAGE, *(f"{paper.slug}.md" for paper in (*PAPERS, scoreboard.OTHERS))]


def beside() -> list[pathlib.Path]:
    """Return the stored pictures and tables, which stand beside the pages."""
    return [*sorted(board.STORED.glob("*.png")), *sorted(board.STORED.glob("*.csv"))]


def path(paper: Paper) -> str:
    """Return the page of a paper."""
    return f"papers/{paper.slug}.md"


def of_source(source: str) -> list[Paper]:
    """Return the papers among the five that a part names as its source."""
    cited = source.partition(",")[0].lower()
    return [paper for paper in PAPERS if cited and cited in f"{paper.authors}: {paper.title}".lower()]


def others_of_source(source: str) -> list[tuple[str, str]]:
    """Return titles and addresses of the tables of another paper that a part names as its source.

    Example:
      >>> others_of_source("Maranjyan and Richtarik 2025, Algorithm 1")[0][1]
      'papers/other_papers.md#beyond-ringleader'
    """
    # Exactly: "Maranjyan et al. 2025" is another paper than "Maranjyan et al. 2025b".
    cited = {each.partition(",")[0].strip() for each in source.split(";")}
    found = [made for made in figures(apart=True) if is_apart(made.name) and made.paper.authors in cited]
    return [(made.title, f"{path(scoreboard.OTHERS)}#{scoreboard.anchor(made.name)}") for made in found]


def _linked(text: str) -> str:
    """Return a page whose links are to pages of the site."""
    return text.replace(f"]({scoreboard.PAGE})", "](index.md)").replace("](tuned/README.md)", "](../choose.md)")
