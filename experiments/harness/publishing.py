"""Makes a figure, and writes the table with the paper's numbers beside ours, the picture, the claims."""

import dataclasses
import datetime
import io
import json
import math
import pathlib
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib as mpl
import pandas as pd
from tabulate import tabulate

from experiments.harness.claims import Claim
from experiments.harness.figures import SCALES, Figure, Output
from experiments.harness.intervals import digits
from experiments.harness.machine import duration, processor
from experiments.harness.options import shown
from experiments.harness.pictures import STYLE
from sgdlab import files
from sgdlab.errors import UsageError
from sgdlab.results import plots
from sgdlab.runs import digests, pool
from sgdlab.runs.store import key_of
from sgdlab.runs.sweep import Session, within

TABLE, PICTURE, CLAIMS = "table", "picture", "claims.json"
FIGURE = "figure"
"""The name of the figure's own code among those of its runs."""


def folder(path: pathlib.Path, name: str, scale: str, changed: Mapping[str, Any] | None = None) -> pathlib.Path:
    """Return where the results of a figure at a scale are; those with other arguments have a place of their own."""
    return path / name / (f"{scale}-{key_of(changed)[:8]}" if changed else scale)


def produce(made: Figure, scale: str, changed: Mapping[str, Any], session: Session) -> pathlib.Path:
    """Make a figure and publish it.

    Args:
      made: the figure.
      scale: its size.
      changed: arguments with another value than the scale's.
      session: where its runs are; those that the figure has asked for are added to the used ones.

    Raises:
      UsageError: where an argument is impossible.
      Unfinished: where other shards have runs left.
    """
    own, begun = dataclasses.replace(session, used={}, code={}), time.perf_counter()
    try:
        with within(own):
            output = made(**made.values(scale) | dict(changed))
    except ValueError as error:
        if str(error).partition("=")[0] in made.options:  # of an argument, and not of something that went wrong
            raise UsageError(f"--{error}") from error
        raise
    session.used.update(own.used)
    return publish(made, scale, changed, output, own, time.perf_counter() - begun)


def publish(
    made: Figure, scale: str, changed: Mapping[str, Any], output: Output, session: Session, seconds: float
) -> pathlib.Path:
    """Writes the results of a figure, and prints them.

    Returns:
      The directory: table.md, table.csv, claims.json and, where there is a picture, picture.png and picture.svg.
    """
    path, table = (
        folder(session.path, made.name, scale, changed),
        with_difference(output.table, alike=not made.stand_in),
    )
    computing = sum(records[-1].get("compute_seconds", 0.0) for records in session.used.values())
    made_with = _made_with(session)
    facts = {
        "figure": made.name,
        "paper": made.paper.authors,
        "paper_title": made.paper.title,
        "source": made.paper.source,
        "numbers": list(made.numbers),
        "title": made.title,
        "scale": scale,
        "changed": {name: shown(value) for name, value in changed.items()},
        "hardware": made_with,
        "seconds": seconds,
        "computing_seconds": computing,
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "made": digests.made_with(),
        "differs": made.differs,
        "notes": list(output.notes),
        "picture": output.picture is not None,
        "full_size": made.full_size,
        "stand_in": made.stand_in,
        "arguments": {name: shown(value) for name, value in (made.values(scale) | dict(changed)).items()},
        "claims": [claim.facts() for claim in output.claims],
        "code": {FIGURE: digests.of_code(made.make), **session.code},
    }
    csv = io.StringIO()
    table.to_csv(csv, index=False, lineterminator="\n")
    facts["digest"] = digest(facts, csv.getvalue())
    line = _line(facts, seconds, computing, len(session.used))
    title = f"{made.paper.authors}, {' and '.join(made.numbers)}: {made.title}"
    notes = "".join(f"* {note}\n" for note in output.notes)
    picture = f"![{made.title}]({PICTURE}.png)\n\n" if output.picture else ""
    text = (
        f"# {title}\n\n{picture}{_tabulated(table, 'github')}\n\n{line}\n\n{notes}\n{_claims(output.claims, 'github')}"
    )
    if output.picture is not None:
        with mpl.rc_context(STYLE):
            plots.save(output.picture, path / PICTURE)
    files.write_text(path / f"{TABLE}.csv", csv.getvalue())
    files.write_text(path / f"{TABLE}.md", text.rstrip() + "\n")
    files.write_text(path / CLAIMS, json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    print(f"\n{title}\n\n{_tabulated(table, 'simple')}\n\n{line}\n{notes}\n{_claims(output.claims, 'simple')}\n")
    if scale == SCALES[0]:
        print(f"The scale {scale} shows that the command works; no verdict of it counts.")
    print(f"Written: {path}/{TABLE}.md, .csv{', picture.png, .svg' if output.picture else ''}, {CLAIMS}", flush=True)
    return path


def digest(facts: Mapping[str, Any], table: str) -> str:
    """Return a hash of a result: of its claims and other facts, and of its table.

    Args:
      facts: what claims.json holds; its own entry `digest` does not count.
      table: the text of table.csv.
    """
    return key_of({"facts": {name: value for name, value in facts.items() if name != "digest"}, "table": table})


def with_difference(table: pd.DataFrame, *, alike: bool = True) -> pd.DataFrame:
    """Return the table with a column `difference`, ours less the paper's, where both are numbers of the same data.

    Example:
      >>> with_difference(pd.DataFrame({"k": [1, 2], "ours": [2.5, 4.0], "paper": [2.0, None]})).difference.tolist()
      [0.5, nan]
    """
    table = table.drop(columns="difference", errors="ignore").reset_index(drop=True)
    ours, paper = (pd.to_numeric(table[name], errors="coerce") for name in ("ours", "paper"))
    first = [name for name in table.columns if name not in ("ours", "±", "paper")]
    spread = ["±"] if "±" in table else []
    order = [*first, "ours", *spread, "paper"]
    return table.assign(difference=ours - paper)[[*order, "difference"]] if alike else table[order]


def _tabulated(table: pd.DataFrame, form: str) -> str:
    rows = [_cells(dict(zip(table.columns, row, strict=True))) for row in table.itertuples(index=False)]
    return tabulate(rows, headers=list(map(str, table.columns)), tablefmt=form, disable_numparse=True)


def _cells(row: Mapping[Any, Any]) -> list[str]:
    """Return the cells of a row; ours has the digits that its interval allows."""
    cells = {name: _cell(value) for name, value in row.items()}
    ours, half = row.get("ours"), row.get("±")
    if isinstance(ours, float) and isinstance(half, float) and 0 < half < math.inf and math.isfinite(ours):
        cells["ours"], cells["±"] = digits(ours, half).split(" ± ")
    return list(cells.values())


def _cell(value: Any) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _claims(claims: Iterable[Claim], form: str) -> str:
    """Return the claims as a table."""
    rows = []
    for claim in claims:
        ours = f"{claim.ours.rstrip('.')}. {claim.because}" if claim.because else claim.ours
        row = [f"{claim.says} ({claim.where})", ours, claim.of_paper, claim.mark]
        rows.append([re.sub(r"\|", "/", cell) for cell in row])
    if not rows:
        return ""
    widths = [48, 48, 30, 12] if form == "simple" else None
    headers = ["the paper says", "ours", "paper", "verdict"]
    return tabulate(rows, headers=headers, tablefmt=form, disable_numparse=True, maxcolwidths=widths)


def _line(facts: Mapping[str, Any], seconds: float, computing: float, runs: int) -> str:
    """One line: the scale, the hardware, the time taken, and why numbers differ."""
    changed = "".join(f", {name}={value}" for name, value in facts["changed"].items())
    took = f"{runs} runs of {duration(computing)} of computing in all; this command took {duration(seconds)}"
    took = took if runs else f"it took {duration(seconds)}"
    return f"Scale {facts['scale']}{changed}, on {facts['hardware']}: {took}. Why numbers differ: {facts['differs']}"


def this_machine() -> str:
    """Return the hardware on which this process runs, such as "2 cores of AMD EPYC"."""
    here, cores = digests.made_with()["device"], len(pool.cores())
    return f"{cores} core{'s' * (cores != 1)} of {processor()}{f', {here}' if here != 'cpu' else ''}"


def _made_with(session: Session) -> str:
    """Return the hardware: this machine and, where runs were made on other devices, those."""
    devices = {records[0].get("made", {}).get("device") for records in session.used.values()} - {None}
    others = sorted(devices - {digests.made_with()["device"]})
    return this_machine() + "".join(f" and {device}" for device in others)
