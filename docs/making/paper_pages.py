"""The papers' pages, from the stored results: every table and figure, and every claim with its verdict."""

import functools
import pathlib
import re

import experiments
from experiments.papers import PAPERS, Paper
from sgdlab.runs.methods import methods

RESULTS = pathlib.Path(experiments.__path__[0]) / "results"
"""A test of the harness holds its page against the results beside it."""


@functools.cache
def pages() -> dict[str, str]:
    """Path -> page: the first one counts, then a page for each paper."""
    head, *sections = re.split(r"^## ", (RESULTS / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    made = {path(paper): _page(paper, section) for section in sections for paper in PAPERS if _is_of(section, paper)}
    listed = [
        f"* [{paper.authors}: {paper.title}]({slug(paper)}.md) ({paper.source}), {len(paper.rows)} tables, figures and "
        "bounds"
        for paper in PAPERS
    ]
    first = [
        f"{head.strip()}",
        "Each claim is a sentence of the paper; its verdict is computed from numbers that one command makes, on one "
        "laptop unless a page says otherwise. What fails is shown like what holds.",
        *listed,
        "",
        "[Tables of others](others.md) are claims of further papers, checked in the same way.",
        "",
        "```",
        "python -m experiments                                   # lists all, and what each takes at four scales",
        "python -m experiments gossip.bounds --scale=smoke       # one, in seconds",
        "python -m experiments all --workdir=runs/papers         # all, on a laptop",
        "python -m experiments scoreboard --workdir=runs/papers  # this page, from your own runs",
        "```",
    ]
    return {"papers/index.md": "\n\n".join(first[:2]) + "\n\n" + "\n".join(first[2:]) + "\n", **made}


def pictures() -> list[pathlib.Path]:
    """Return the stored pictures, which stand beside the pages."""
    return sorted(RESULTS.glob("*.png"))


def path(paper: Paper) -> str:
    """Return the page of a paper."""
    return f"papers/{slug(paper)}.md"


def slug(paper: Paper) -> str:
    """Return a paper's name in addresses.

    Example:
      >>> slug(PAPERS[0])
      'chen_et_al_2016'
    """
    return re.sub(r"[^a-z0-9]+", "_", paper.authors.lower()).strip("_")


def of_source(source: str) -> list[Paper]:
    """Return the papers that a part names as its source."""
    cited = source.partition(",")[0].lower()
    return [paper for paper in PAPERS if cited and cited in f"{paper.authors}: {paper.title}".lower()]


def _is_of(section: str, paper: Paper) -> bool:
    return section.startswith(f"{paper.authors}: ")


def _page(paper: Paper, section: str) -> str:
    title, _, rest = section.partition("\n")
    its = [method for method in methods().values() if paper in of_source(method.source)]
    listed = ", ".join(f"[{method.title}](../methods/{method.name}.md)" for method in its)
    return f"# {title}\n\n{paper.source}. " + f"Its methods: {listed}.\n" * bool(its) + rest.replace("\n###", "\n##")
