"""Results of figures, those that are stored and others', and the verdicts of all their claims at once.

A verdict of one claim is wrong in at most 5 % of all cases; so that of many no more than that share is expected to be
wrong, they are decided together, by Benjamini and Hochberg's procedure over all that were measured.
"""

import collections
import csv
import dataclasses
import datetime
import functools
import io
import json
import pathlib
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import jsonschema
import scipy.stats

import experiments
from experiments import papers
from experiments.harness import claims, publishing
from experiments.harness.claims import FAILS, INCONCLUSIVE, OUTSIDE, VERDICTS, Claim
from experiments.harness.evidence import LEVEL, Evidence
from experiments.harness.figures import SCALES, Figure, by_number
from sgdlab import files
from sgdlab.errors import UsageError, said_of
from sgdlab.report import pages
from sgdlab.runs import digests
from sgdlab.runs.work import digest_now

STORED = pathlib.Path(experiments.__path__[0]) / "results"
"""Results that the repository holds, so that the pages are whole before anything was run."""

SCHEMA = pathlib.Path(experiments.__path__[0]).parent / "docs" / "claims.schema.json"
"""The form of a file of claims."""

COSTS = "costs.csv"
"""Core-seconds of the stored figures, at each scale at which one was stored."""

WRONG = 0.05
"""Share of wrong verdicts that is expected at most among those that are decided."""


@dataclasses.dataclass(frozen=True)
class Result:
    """The newest result of a figure at its largest scale.

    Attributes:
      facts: what claims.json holds.
      picture: the PNG file; None where there is none.
      table: the CSV file; None where there is none.
    """

    facts: dict[str, Any]
    picture: pathlib.Path | None = None
    table: pathlib.Path | None = None

    @functools.cached_property
    def claims(self) -> list[Claim]:
        """The claims; the scale smoke only shows that a command works, and decides nothing."""
        found = [_claim(facts) for facts in self.facts["claims"]]
        if self.facts.get("scale") != SCALES[0]:
            return found
        return [dataclasses.replace(claim, holds=Evidence(1, 1), identity=False, premises=()) for claim in found]

    def changed(self, made: Figure) -> list[str]:
        """Return what of the code that made it has changed since: "figure", works, functions and parts, by name."""
        now = {publishing.FIGURE: digests.of_code(made.make)}
        stored = self.facts.get("code", {})
        return [name for name, digest in stored.items() if (now.get(name) or digest_now(name)) != digest]

    @property
    def scale(self) -> str:
        """Return the scale, with the arguments that differ from its own, and the number of seeds."""
        given = self.facts.get("changed", {})
        changed = "".join(f", {name}={value}" for name, value in given.items())
        whole = " (the paper's size)" if self.facts.get("full_size") and self.facts["scale"] == "laptop" else ""
        seeds = self.facts.get("arguments", {}).get("seeds")
        known = "" if seeds is None or "seeds" in given else f", {seeds} seed{'s' * (str(seeds) != '1')}"
        return f"{self.facts.get('scale', 'of its own')}{whole}{changed}{known}"

    @property
    def made_with(self) -> str:
        """Return the machine and the version of the code."""
        made = self.facts.get("made", {})
        code = f"version {made.get('version') or 'unknown'}, commit {made.get('commit') or 'unknown'}" if made else ""
        return "; ".join(filter(None, [self.facts.get("hardware", ""), code]))

    @property
    def day(self) -> str:
        """Return the day on which it was made."""
        return self.facts.get("when", "").partition("T")[0]

    def age(self, now: datetime.datetime) -> str:
        """Return how old it is, in words."""
        if not self.day:
            return ""
        made = datetime.datetime.fromisoformat(self.facts["when"])
        made = made if made.tzinfo else made.replace(tzinfo=datetime.UTC)
        hours = (now - made).total_seconds() / 3600
        if hours < 24:
            return "today"
        return "a day old" if hours < 48 else f"{hours / 24:.0f} days old"


@dataclasses.dataclass(frozen=True)
class Judged:
    """A claim with its verdict among all.

    Attributes:
      claim: it, with a verdict of its own.
      verdict: in words.
      level: the p-value of a side by which it would be decided among all.
    """

    claim: Claim
    verdict: str
    level: float = LEVEL

    @functools.cached_property
    def times(self) -> float:
        """Return the number of runs, over that of now, by which it would be decided with a chance of 80 %."""
        return self.claim.holds.needed(level=self.level)

    @property
    def seen(self) -> bool:
        """Return whether it rests on a threshold that was set after numbers that it judges."""
        return any(threshold.seen for threshold in self.claim.thresholds)


@dataclasses.dataclass(frozen=True)
class Row:
    """A table, figure or bound of a paper, or a claim that is shown in none of them.

    Attributes:
      number: such as "Figure 2".
      shows: what it shows.
      figure: the command that reproduces it; None: there is none.
      result: of the command; None: it has not been run.
      first: it is the first row of its command, which shows the claims and the picture.
      judged: the claims, where it is the first row.
      taken: scale -> core-seconds of the stored result at it, where it is the first row.
    """

    number: str
    shows: str
    figure: Figure | None
    result: Result | None
    first: bool
    judged: tuple[Judged, ...] = ()
    taken: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the command, or that of somebody else's result."""
        return self.figure.name if self.figure else self.result.facts["figure"] if self.result else ""


@dataclasses.dataclass(frozen=True)
class Board:
    """All results that are shown, by paper, with the verdicts of all claims.

    Attributes:
      papers: each paper with its rows.
    """

    papers: tuple[tuple[papers.Paper, tuple[Row, ...]], ...]

    @property
    def rows(self) -> list[Row]:
        """Return all rows."""
        return [row for _, rows in self.papers for row in rows]

    @property
    def made(self) -> tuple[int, int]:
        """Return how many tables, figures and bounds of the five papers have a command, and how many there are."""
        tables = [row for paper, rows in self.papers for row in rows if paper in papers.PAPERS]
        tables = [row for row in tables if any(row.number in paper.rows for paper in papers.PAPERS)]
        return sum(row.figure is not None for row in tables), len(tables)


def assemble(found: Sequence[Figure], path: pathlib.Path, folders: Iterable[pathlib.Path] = ()) -> Board:
    """Return the rows of the five papers, then of others that figures are of, then of other folders' results.

    Args:
      found: the figures.
      path: a work directory, whose results come before those that are stored.
      folders: with results of others, as in docs/claims.md.

    Raises:
      UsageError: where a file of a folder is none of claims.
    """
    results = {made.name: find_result(made, path) for made in found}
    others = {name: result for folder in folders for name, result in read_folder(folder, results).items()}
    judged = judge({name: result for name, result in results.items() if result} | others)
    shown, by_paper, costs = [], collections.defaultdict(list), read_costs()
    for name, result in others.items():
        number, title = ", ".join(result.facts.get("numbers", ())), result.facts.get("title", name)
        by_paper[result.facts["paper"]].append(Row(number, title, None, result, True, tuple(judged[name])))
    for paper in (*papers.PAPERS, *papers.others(made.paper for made in found)):
        rows, seen = [], set()
        for number, made in by_number(paper, found).items():
            first = bool(made) and made.name not in seen
            shows = paper.rows.get(number) or made.title
            own = tuple(judged.get(made.name, ())) if first else ()
            taken = {scale: cost for (name, scale), cost in costs.items() if first and name == made.name}
            rows.append(Row(number, shows, made, results[made.name] if made else None, first, own, taken))
            seen.add(made.name if made else None)
        shown.append((paper, (*rows, *by_paper.pop(paper.authors, ()))))
    for authors, rows in by_paper.items():
        facts = rows[0].result.facts
        paper = papers.Paper(authors, facts.get("paper_title", ""), facts.get("source", ""), {})
        shown.append((paper, tuple(rows)))
    return Board(tuple(shown))


def judge(results: Mapping[Any, Result]) -> dict[Any, list[Judged]]:
    """Return the claims of results with the verdicts that stand among all of them.

    Identities, claims that are not in our regime, and those of which nothing was measured, do not count among all.
    """
    every = [claim for result in results.values() for claim in result.claims if _is_measured(claim)]
    adjusted = scipy.stats.false_discovery_control([claim.holds.p for claim in every]) if every else []
    stands = {id(claim) for claim, p in zip(every, adjusted, strict=True) if p <= WRONG}
    level = min(LEVEL, WRONG * (len(stands) + 1) / (2 * len(every))) if every else LEVEL  # for one more to stand

    def judged(claim: Claim) -> Judged:
        stays = claim.identity or claim.verdict == OUTSIDE or id(claim) in stands
        return Judged(claim, claim.verdict if stays else INCONCLUSIVE, level)

    return {name: list(map(judged, result.claims)) for name, result in results.items()}


def counted(judged: Iterable[Judged]) -> dict[str, int]:
    """Return how many claims of a paper have each verdict.

    Of those that fail, or are not in our regime, all of one cause count once; identities do not count.
    """
    found = {}
    for each in judged:
        if not each.claim.identity:
            together = each.claim.cause if each.verdict in (FAILS, OUTSIDE) else ""
            found[each.verdict, together or id(each.claim)] = each.verdict
    numbers = collections.Counter(found.values())
    return {verdict: numbers[verdict] for verdict in VERDICTS}


def counted_of(papers_of: Iterable[Sequence[Row]]) -> dict[str, int]:
    """Return how many claims of several papers have each verdict."""
    numbers: collections.Counter[str] = collections.Counter()
    for rows in papers_of:
        numbers.update(counted(each for row in rows for each in row.judged))
    return {verdict: numbers[verdict] for verdict in VERDICTS}


def identities(judged: Iterable[Judged]) -> tuple[int, int]:
    """Return how many identities and pieces of arithmetic are right, and how many there are."""
    found = [each.claim.holds.holds for each in judged if each.claim.identity]
    return sum(holds is True for holds in found), len(found)


def find_result(made: Figure, path: pathlib.Path) -> Result | None:
    """Return the result of a figure at the largest scale, in a directory or else in the repository."""
    stored = stored_result(made.name)
    for scale in reversed(SCALES):
        folder = publishing.folder(path, made.name, scale)
        found = _read(folder / publishing.CLAIMS, folder / publishing.PICTURE, folder / publishing.TABLE)
        if found is not None:
            return stored if stored and _size(stored) > _size(found) else found
    return stored


def stored_result(name: str) -> Result | None:
    """Return the result of a figure that the repository holds; None where there is none."""
    return _read(STORED / f"{name}.json", STORED / name, STORED / name)


def read_folder(folder: pathlib.Path, ours: Container[str] = ()) -> dict[str, Result]:
    """Return the results of others in a folder: every claims.json in it, and every other JSON file at its top.

    Of a figure with several scales it is the largest, as of ours.

    Args:
      folder: where the files are.
      ours: names of figures that others' cannot have.

    Raises:
      UsageError: where there are none, or a file is not as docs/claims.md says.
    """
    files_of = sorted({*folder.glob("*.json"), *folder.rglob(publishing.CLAIMS)})
    if not files_of:
        raise UsageError(f"--claims={folder} must be a folder with JSON files of claims (docs/claims.md)")
    found: dict[str, Result] = {}
    for path in files_of:
        with said_of(f"--claims={folder}: {path.relative_to(folder)} is no file of claims (docs/claims.md): "):
            facts = _checked(path, ours)
        png = path.with_name(f"{publishing.PICTURE if path.name == publishing.CLAIMS else path.stem}.png")
        result, before = Result(facts, png if png.exists() else None), found.get(facts["figure"])
        if before is None or _size(result) >= _size(before):
            found[facts["figure"]] = result
    return found


def _checked(path: pathlib.Path, ours: Container[str]) -> dict[str, Any]:
    """Return what a file of claims holds.

    Raises:
      ValueError: where it is none; the message names the entry.
    """
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(str(error)) from error
    wrong = jsonschema.exceptions.best_match(_validator().iter_errors(facts))
    if wrong is not None:
        raise ValueError(f"{wrong.json_path.removeprefix('$').removeprefix('.')}: {wrong.message}")
    for number, claim in enumerate(facts["claims"]):
        try:
            claims.of_facts(claim)
        except ValueError as error:
            raise ValueError(f"claims[{number}]: {error}") from error
    if facts["figure"] in ours:
        raise ValueError(f"figure: {facts['figure']!r} is a name of sgdlab's own; take another")
    return facts


@functools.cache
def _validator() -> jsonschema.protocols.Validator:
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def _size(result: Result) -> int:
    scale = result.facts.get("scale")
    return SCALES.index(scale) if scale in SCALES else len(SCALES)


def store(shown: Board) -> None:
    """Copies the results that are shown into the repository: facts, tables, and pictures in few colours.

    Raises:
      UsageError: where a result was made by code that is in no commit; all others are stored before.
    """
    costs, unknown = read_costs(), []
    for row in (row for row in shown.rows if row.first and row.result and row.figure):
        name, result = row.figure.name, row.result
        if result.facts == getattr(stored_result(name), "facts", None):
            continue
        commit = result.facts["made"].get("commit")
        if not commit or commit.endswith("+"):
            unknown.append(name)
            continue
        picture = pages.small_png(result.picture) if result.picture else None
        table = result.table and result.table.read_text(encoding="utf-8")
        files.write_text(STORED / f"{name}.json", json.dumps(result.facts, indent=1, ensure_ascii=False) + "\n")
        if table is not None:
            files.write_text(STORED / f"{name}.csv", table)
        if picture is not None:
            with files.replacing(STORED / f"{name}.png") as file:
                file.write(picture)
        costs[name, result.facts["scale"]] = result.facts["computing_seconds"] or result.facts["seconds"]
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    rows.writerows([("figure", "scale", "core_seconds"), *((*key, f"{costs[key]:.0f}") for key in sorted(costs))])
    files.write_text(STORED / COSTS, written.getvalue())
    if unknown:
        raise UsageError(
            f"--store: {', '.join(unknown)} were made by code that is in no commit; commit it, and make them anew"
        )


def read_costs() -> dict[tuple[str, str], float]:
    """Return core-seconds by figure and scale, as far as they are stored."""
    try:
        text = (STORED / COSTS).read_text(encoding="utf-8")
    except OSError:
        return {}
    return {(row["figure"], row["scale"]): float(row["core_seconds"]) for row in csv.DictReader(io.StringIO(text))}


def _read(facts_of: pathlib.Path, picture: pathlib.Path, table: pathlib.Path) -> Result | None:
    """Return a result of its files, whose names end in .json, .png and .csv."""
    try:
        facts = json.loads(facts_of.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    png, csv_file = (path.with_name(f"{path.name}.{kind}") for path, kind in ((picture, "png"), (table, "csv")))
    return Result(facts, png if facts["picture"] and png.exists() else None, csv_file if csv_file.exists() else None)


def _claim(facts: Mapping[str, Any]) -> Claim:
    """Return a claim of its JSON; of one of before evidence was kept, nothing is known."""
    if "evidence" in facts:
        return claims.of_facts(facts)
    known = {name: facts[name] for name in ("says", "where", "ours", "paper", "on_paper")}
    return Claim(**known, holds=None, because="Made before evidence was kept; the command makes it anew.")


def _is_measured(claim: Claim) -> bool:
    return not claim.identity and claim.verdict != OUTSIDE and claim.holds.measured
