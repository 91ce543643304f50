"""The command `python -m experiments scoreboard`: one page of all, one page for each paper, and one HTML page."""

import base64
import datetime
import math
import pathlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from absl import flags
from tabulate import tabulate

from experiments import papers
from experiments.harness import board
from experiments.harness.board import WRONG, Board, Judged, Result, Row, counted, counted_of, identities
from experiments.harness.claims import FAILS, HOLDS, IN_PART, INCONCLUSIVE, OUTSIDE, VERDICTS
from experiments.harness.figures import figures
from experiments.harness.machine import duration
from sgdlab import files
from sgdlab.commands import launch
from sgdlab.report import pages
from sgdlab.runs.sweep import DEFAULT_WORKDIR

USAGE = """Writes the scoreboard: every table and figure of the papers, with its claims' verdicts and its picture.

    python -m experiments scoreboard --workdir=runs/papers
    python -m experiments scoreboard --claims=theirs         with results of others, in files as docs/claims.md says

Writes scoreboard.html, and the pages scoreboard.md and one for each paper, to the work directory. Of each figure the
largest scale is shown that the work directory has results of, and else the result that is stored in this repository.
"""

PAGE = "README.md"
"""The first page of the stored results, with a page for each paper and all pictures beside it."""

OTHERS = papers.Paper("Other papers", "Claims of papers other than the five", "experiments/beyond", {})
"""Name of what stands on one page, with a section for each."""

WORDS = {HOLDS: "holds", IN_PART: "part", FAILS: "fails", INCONCLUSIVE: "open", OUTSIDE: "outside"}
"""Verdict -> the word in colour."""

_COSTS = ("core time, laptop", "core time, decide")
"""Core time at two scales."""

TITLE = "What holds of five papers on distributed SGD"


def define_flags() -> None:
    """Defines the command's flags."""
    says = "Copies the results that are shown into the repository, experiments/results, and writes its pages anew."
    flags.DEFINE_bool("store", False, says)
    flags.DEFINE_list("claims", [], "Folders with results of others, which are shown too (docs/claims.md).")


def main(argv: Sequence[str]) -> None:
    """Writes the pages."""
    del argv
    path = launch.workdir(DEFAULT_WORKDIR)
    shown = board.assemble(figures(apart=True), path, map(pathlib.Path, flags.FLAGS.claims))
    files.write_text(path / "scoreboard.html", as_html(shown))
    for name, text in as_markdown(shown, first="scoreboard.md", pictures="pictures/").items():
        files.write_text(path / name, text.replace("](tuned/README.md)", "]"))
    for row in (row for row in shown.rows if row.first and row.result and row.result.picture):
        with files.replacing(path / "pictures" / f"{row.name}.png") as file:
            file.write(pages.small_png(row.result.picture))
    print(f"{summary(shown)}\n\nWritten: {path}/scoreboard.html, .md and a page for each paper")
    if flags.FLAGS.store:
        try:
            board.store(shown)
        finally:
            write_stored()


def write_stored() -> None:
    """Writes the repository's pages of the stored results."""
    stored = board.assemble(figures(apart=True), board.STORED)
    for name, text in as_markdown(stored, stored=True).items():
        files.write_text(board.STORED / name, text)


def summary(shown: Board) -> str:
    """Return rows with a command, claims by verdict, and how many verdicts may be wrong."""
    counts = counted_of(rows for _, rows in shown.papers)
    words = _words(counts, identities(each for row in shown.rows for each in row.judged))
    made, tables = shown.made
    return (
        f"{made} of {tables} tables, figures and bounds of the five papers have a command. Of {sum(counts.values())} "
        f"claims, those of {len(shown.papers) - len(papers.PAPERS)} other papers included, {words}. Of the verdicts "
        f"that decide, about {WRONG * sum(counts[each] for each in (HOLDS, IN_PART, FAILS)):.0f} may be wrong."
    )


def as_markdown(shown: Board, *, first: str = PAGE, pictures: str = "", stored: bool = False) -> dict[str, str]:
    """Return the pages in Markdown, by name: the first one, then one for each of the five papers, and one for others.

    Args:
      shown: all results.
      first: name of the first page.
      pictures: where the pictures are, relative to the pages.
      stored: whether they are the repository's, which have tables beside them, and no marks of older code.
    """
    of_five = [(paper, rows) for paper, rows in shown.papers if paper in papers.PAPERS]
    others = [(paper, rows) for paper, rows in shown.papers if paper not in papers.PAPERS]
    table, parts = [], []
    for paper, rows in [*of_five, (OTHERS, tuple(row for _, found in others for row in found))]:
        judged = [each for row in rows for each in row.judged]
        right, of = identities(judged)
        ticks = f"{right} of {of}" if of else ""
        table.append([f"[{paper.authors}]({paper.slug}.md)", *counted(judged).values(), ticks, *_costs(rows)])
        parts.append(f"## [{paper.authors}: {paper.title}]({paper.slug}.md)\n\n{_believed(paper, judged)}")
    headers = ["", *VERDICTS, "✓", *_COSTS]
    counts = tabulate(table, headers, "github", disable_numparse=True)
    made = {first: "\n\n".join([f"# {TITLE}", summary(shown), _reading(), counts, *parts]) + "\n"}
    for paper, rows in of_five:
        made[f"{paper.slug}.md"] = _page(paper, [(paper, rows)], first, pictures, stored)
    made[f"{OTHERS.slug}.md"] = _page(OTHERS, others, first, pictures, stored)
    return made


def _reading() -> str:
    """Return how the pages are read."""
    return f"""* **holds** and **fails**: the whole 95 % interval of what was measured is on one side of what it says.
  All claims of all pages are decided together (Benjamini and Hochberg), so that {100 * WRONG:.0f} % of these verdicts
  at most are expected to be wrong, were their runs independent and no threshold set after a look.
* **holds in part**: it was measured for several values of a number that the paper leaves open, such as the scatter of
  compute times, and holds with some of them and fails with others, by the same intervals.
* **inconclusive**: the interval is on both sides, or only just on one, which among so many claims is not enough, or
  there are too few values for one; where more runs would decide, the page says how many, and what they cost.
  **not in our regime**: a premise of the claim, which its page names, is not what was run.
* **✓** is an identity, arithmetic or a proof: checked, and no finding, so it is not counted. **†** marks a threshold of
  ours that was set after numbers were seen that it judges. Claims that fail for one cause count once.
* **Core time** counts runs that figures share with each of them."""


def as_html(shown: Board) -> str:
    """Return the page in HTML that refers to no other file."""
    now = datetime.datetime.now(datetime.UTC)
    sections = []
    for paper, rows in shown.papers:
        sections.append(
            {
                "paper": paper,
                "anchor": paper.slug,
                "short": paper.authors.replace(" et al.", ""),
                "counts": _coloured(counted(each for row in rows for each in row.judged)),
                "rows": [_html_row(row, now) for row in rows],
                "cards": [_card(row, now) for row in rows if row.first and row.result],
            }
        )
    return pages.render(
        "experiments.harness",
        "scoreboard.html",
        title=TITLE,
        subtitle=summary(shown),
        counts=_coloured(counted_of(rows for _, rows in shown.papers)),
        reading=_reading().replace("**", "").replace("* ", "").split("\n"),
        sections=sections,
    )


def said_of(judged: Judged, result: Result) -> str:
    """Return remarks on a claim: why it fails, which premise is not met, or what would decide it."""
    claim = judged.claim
    parts = [f"The claim is of {each.says}; here, {each.ours}." for each in claim.premises if not each.met]
    if judged.verdict == INCONCLUSIVE and claim.holds.measured:
        if claim.verdict != INCONCLUSIVE:
            parts.append(f"By itself it {claim.verdict}; among so many claims that is not decided.")
        parts.append(_needs(judged.times, result.facts.get("computing_seconds") or 0.0))
    parts += [f"{'† ' * each.seen}{each.origin:g}, set on {each.since}: {each.because}." for each in claim.thresholds]
    return " ".join([*parts, *filter(None, [claim.because])])


def _needs(times: float, seconds: float) -> str:
    """Return how many runs would decide a claim, and their cost."""
    if times == math.inf:
        return "A thousand times the runs would hardly decide it."
    cost = f" ({duration((times - 1) * seconds)} of a core)" if seconds else ""
    number = f"{times:.0f}" if times >= 10 else f"{times:.2g}"
    return f"{number} times the runs{cost} would decide it with a chance of 80 %."


def word(judged: Judged) -> str:
    """Return the verdict as a page names it; of an identity, a tick or a cross."""
    return judged.claim.mark if judged.claim.identity else f"{judged.verdict}{' †' * judged.seen}"


def _believed(paper: papers.Paper, judged: Sequence[Judged]) -> str:
    """Return what is believed of a paper, its counts, and its strongest failure."""
    texts = [paper.belief] if paper.belief else []
    words = _words(counted(judged), identities(judged))
    texts.append(f"{words[:1].upper()}{words[1:]}.")
    failed = [each for each in judged if each.verdict == FAILS and not each.claim.identity]
    if failed:
        worst = min(failed, key=lambda each: each.claim.holds.p_against).claim
        texts.append(f'The best-founded failure: "{worst.says}" ({worst.where}); here, {worst.ours.rstrip(".")}.')
    return "\n\n".join(texts)


def _words(counts: Mapping[str, int], ticks: tuple[int, int]) -> str:
    """Return the number of claims by verdict, and of identities that are right, in words."""
    right, of = ticks
    one = (HOLDS, IN_PART, FAILS, f"is {INCONCLUSIVE}", f"is {OUTSIDE}")
    more = ("hold", "hold in part", "fail", f"are {INCONCLUSIVE}", f"are {OUTSIDE}")
    named = zip(VERDICTS, one, more, strict=True)
    words = [f"{counts[each]} {a if counts[each] == 1 else b}" for each, a, b in named if counts[each]]
    plural = f"{right} of {of} identities {'is' if right == 1 else 'are'} right"
    return ", ".join([*words, *[plural] * bool(of)]) or "nothing has been made yet"


def _named(paper: papers.Paper) -> str:
    """Return a paper's authors, title and source, as far as they are known."""
    return f"{paper.authors}{': ' * bool(paper.title)}{paper.title}{f' ({paper.source})' if paper.source else ''}"


def _claims(row: Row) -> str:
    """Return the number of claims by verdict, in words, where a row has any."""
    return _words(counted(row.judged), identities(row.judged)) if row.judged else ""


def _link(row: Row) -> str:
    """Return the number of a row, or else its command, as a link to its section."""
    named = row.number or row.name
    return f"[{named}](#{anchor(row.name)})" if row.result else named


def _page(
    of: papers.Paper,
    sections: Iterable[tuple[papers.Paper, Sequence[Row]]],
    first: str,
    pictures: str,
    stored: bool,
) -> str:
    """Return the page of a paper, or of several others."""
    parts = [f"# {_named(of)}", f"[What a verdict is, and all papers]({first})"]
    for paper, rows in sections:
        if paper != of:
            parts.append(f"## {_named(paper)}")
        table = [[_link(row), row.shows, _state(row), _claims(row), *_costs([row])] for row in rows]
        parts.append(tabulate(table, ["", "shows", "scale", "claims", *_COSTS], "github", disable_numparse=True))
        for row in rows:
            if row.first and row.result:
                parts += _section(row, pictures, stored)
    return "\n\n".join(parts) + "\n"


def _section(row: Row, pictures: str, stored: bool) -> list[str]:
    result, facts = row.result, row.result.facts
    parts = [f'<a id="{anchor(row.name)}"></a>\n\n### {_heading(row)}']
    if result.picture:
        parts.append(f"![{facts.get('title', row.name)}]({pictures}{row.name}.png)")
    old = "" if stored else _older(row)
    stand_in = f"{facts['stand_in'][:1].upper()}{facts['stand_in'][1:]}. " if facts.get("stand_in") else ""
    scale = "" if facts.get("scale", "laptop") == "laptop" else f" --scale={facts['scale']}"
    command = f"`python -m experiments {row.name}{scale}`. " if row.figure else ""
    numbers = f" [All numbers]({row.name}.csv)." if stored and result.table else ""
    made = f"Scale {', '.join(filter(None, [result.scale, result.made_with, result.day]))}."
    parts.append(f"{command}{stand_in}{made}{f' {old}' if old else ''}{numbers}")
    claims = [
        [
            word(each),
            f"{each.claim.says} ({each.claim.where})",
            each.claim.ours,
            each.claim.of_paper,
            said_of(each, result),
        ]
        for each in row.judged
    ]
    if claims:
        cells = [[cell.replace("\n", " ").replace("|", "/") for cell in line] for line in claims]
        headers = ["verdict", "the paper says", "ours", "paper", "remarks"]
        parts.append(tabulate(cells, headers, "github", disable_numparse=True))
    return parts


def anchor(name: str) -> str:
    """Return the anchor of a figure on its page.

    Example:
      >>> anchor("beyond.four_speeds")
      'beyond-four-speeds'
    """
    return name.replace(".", "-").replace("_", "-")


def _html_row(row: Row, now: datetime.datetime) -> dict[str, Any]:
    return {
        "number": row.number,
        "shows": row.shows,
        "name": row.name,
        "made": row.result is not None,
        "scale": _state(row),
        "age": row.result.age(now) if row.result else "",
        "marks": [{"word": _colour(each), "verdict": each.verdict, "says": each.claim.says} for each in row.judged],
        "above": bool(row.figure) and not row.first,
        "older": bool(_older(row)),
    }


def _card(row: Row, now: datetime.datetime) -> dict[str, Any]:
    result = row.result
    source, size = None, (0, 0)
    if result.picture:
        content = pages.small_png(result.picture)
        source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
        size = struct.unpack(">II", content[16:24])  # so that the page keeps its room before it is drawn
    facts = {"scale": "", "changed": {}, "differs": "", "stand_in": "", "title": row.name} | result.facts
    return {
        "name": row.name,
        "own": row.figure is not None,
        "heading": _heading(row),
        "picture": source,
        "size": size,
        "made_with": result.made_with,
        "older": _older(row),
        "title": facts["title"],
        "facts": facts,
        "age": result.age(now),
        "claims": [
            {
                "says": each.claim.says,
                "where": each.claim.where,
                "ours": each.claim.ours,
                "verdict": "identity" if each.claim.identity else each.verdict,
                "word": _colour(each),
                "of_paper": each.claim.of_paper,
                "remarks": said_of(each, result),
            }
            for each in row.judged
        ],
    }


def _colour(judged: Judged) -> str:
    return "identity" if judged.claim.identity and judged.claim.holds.holds else WORDS[judged.verdict]


def _heading(row: Row) -> str:
    facts = row.result.facts
    numbers = " and ".join(row.figure.numbers if row.figure else facts.get("numbers", ()))
    return f"{numbers}{': ' * bool(numbers)}{row.figure.title if row.figure else facts.get('title', row.name)}"


def _state(row: Row) -> str:
    """Return the scale at which a row was made, or why it was not."""
    return row.result.scale if row.result else "not run yet" if row.figure else "no command yet"


def _older(row: Row) -> str:
    """Return whether the code that made a result has changed since, and what of it; "" where it has not."""
    changed = row.result.changed(row.figure) if row.figure and row.result else []
    return f"Made by older code: {', '.join(changed)} changed since." if changed else ""


def _costs(rows: Iterable[Row]) -> list[str]:
    """Return what results that are stored took, at the scales of `_COSTS`."""
    taken = [sum(row.taken.get(scale, 0.0) for row in rows) for scale in ("laptop", "decide")]
    return [duration(seconds) if seconds else "" for seconds in taken]


def _coloured(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"word": WORDS[each], "verdict": each, "count": counts[each]} for each in VERDICTS]
