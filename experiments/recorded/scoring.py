"""Scores predictors and rules on folders of traces: one table, as Markdown and CSV."""

import pathlib
import tempfile
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats
from tqdm import tqdm

from experiments.benchmarks import diagnosis
from experiments.benchmarks.planted.rules import RULES
from experiments.cutoff import contenders
from experiments.harness.intervals import FEWEST, interval
from experiments.recorded.episodes import KINDS
from sgdlab import files, predictors
from sgdlab.errors import UsageError
from sgdlab.report.table import Table
from sgdlab.stragglers import recording as recordings
from sgdlab.stragglers.comparison import comparison, protocol, sweeps
from sgdlab.stragglers.diagnosis import find_causes
from sgdlab.traces import paths

SAMPLE = pathlib.Path(__file__).parent / "sample"
RESULTS = pathlib.Path(__file__).parents[1] / "results" / "recorded"
OURS, FIXED = next(iter(RULES)), sweeps.INTERRUPTED
"""The rule and the protocol that others are compared with."""

LEVEL = 0.05
_ENDINGS = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson", ".npy")

COLUMNS = {
    "traces of": "folder",
    "tool": "a protocol of `sgdlab advise`, tuned on the first half of a trace, or a rule that names who is slow",
    "traces": "how many",
    "% of the oracle": "gradients per second on the second half, of those of a cutoff that knows each step; means over "
    "traces, with 95 % intervals",
    "against a fixed number": "the same less that of waiting for the number of workers that was best on the first "
    "half, in points; a tie where the interval holds 0",
    "inside, %": "order statistics inside of two predicted standard deviations; 95 of a normal law",
    "named first": "faults of which exactly the slow workers are named first, with a 95 % interval",
    "by fault": "the same, in the order below",
    "against sgdlab": "faults in which this rule alone is right, and those in which `sgdlab advise` alone is; a tie "
    "unless a sign test decides at 5 %",
    "since, off by": "median distance of the first slow step from the one that is named, in steps",
    "something named": "traces without a fault in which somebody is named: false alarms; without a truth.json, any",
}


def main(folders: Sequence[pathlib.Path], *, store: bool) -> None:
    """Print the table of some folders, and keep it."""
    if len({folder.name for folder in folders}) < len(folders):
        raise UsageError(f"--traces={','.join(map(str, folders[1:]))} must have names that differ, also from 'sample'")
    read = [traces_of(folder) for folder in folders]  # a mistake is said before minutes of scores
    found = pd.concat([pd.DataFrame(scores_of(folder.name, *of)) for folder, of in zip(folders, read, strict=True)])
    shown = table(found)
    print(shown.text())
    if store:
        made = f"python -m experiments.recorded --score --traces={','.join(map(str, folders[1:]))} --store"
        files.write_text(RESULTS / "README.md", f"Made by `{made}`.\n\n{shown.markdown()}")
        files.write_text(RESULTS / "scores.csv", found.to_csv(index=False, float_format="%.6g"))
        print(f"Written: README.md and scores.csv in {RESULTS}")


def traces_of(folder: pathlib.Path) -> tuple[list[diagnosis.Fleet], list[recordings.SplitRecording], bool]:
    """Read the traces of a folder, as fleets and split for tuning, and say whether it is known what is true of them.

    Raises:
      UsageError: where there is no trace, or one cannot be read.
    """
    if not folder.is_dir():
        raise UsageError(f"--traces={folder} must be a folder of traces")
    try:
        known = diagnosis.stored(folder) if (folder / diagnosis.TRUTH).exists() else None
        names = [path.name for path in paths.files(folder, _ENDINGS)] if known is None else [one.name for one in known]
        if not names:
            raise ValueError(f"it must hold traces, files that end in {', '.join(_ENDINGS)}")
        parts = [recordings.read(folder / name, train_share=0.5, flag="traces") for name in names]
    except (OSError, ValueError) as error:
        raise UsageError(f"--traces={folder}: {error}") from error
    fleets = known or [diagnosis.recorded(name, None, part.complete) for name, part in zip(names, parts, strict=True)]
    return fleets, parts, known is not None


def scores_of(
    data: str, fleets: Sequence[diagnosis.Fleet], parts: Sequence[recordings.SplitRecording], is_known: bool
) -> list[dict[str, object]]:
    """Score all tools on each trace of a folder of this name: a row for each trace and tool."""
    return [
        {"data": data, "trace": fleet.name, "tool": tool, **scores, "truth": is_known}
        for fleet, part in tqdm(list(zip(fleets, parts, strict=True)), unit="trace", leave=False, disable=None)
        for tool, scores in [*predicted(part), *((rule, judged(rule, fleet)) for rule in RULES)]
    ]


def judged(rule: str, fleet: diagnosis.Fleet) -> dict[str, object]:
    """Return what is to be said of a rule on a fleet: whether it names somebody, whether that is right, since when."""
    answers = diagnosis.named(RULES[rule], fleet)
    score = diagnosis.scored([fleet], [answers])
    (right,) = [hits for _, hits in score.first.values()] or [None]
    since = score.since[0] if score.since else None
    return {"fault": fleet.fault, "named": bool(answers), "right": right, "since": since}


def predicted(parts: recordings.SplitRecording) -> list[tuple[str, dict[str, object]]]:
    """Return of each protocol the % of the oracle's gradients per second, and % inside of two deviations."""
    with tempfile.TemporaryDirectory() as folder:
        causes = find_causes(parts.complete, parts.pauses)
        found = comparison.compare(parts, causes, pathlib.Path(folder), report=lambda _: None)
    (oracle,) = found.by_role(protocol.CEILING)
    rows = []
    for one in found.by_role(protocol.DEPLOYABLE):
        share, inside = 100 * one.result.gradients_per_second / oracle.result.gradients_per_second, None
        if one.predictor is not None:
            record = predictors.run_online(parts.test, one.predictor, history=one.history)
            inside = contenders.errors(record)["within"] if np.isfinite(record.std).all() else None
        rows.append((one.title, {"share": share, "inside": inside}))
    return rows


def table(found: pd.DataFrame) -> Table:
    """Return the table of the scores of all traces."""
    rows = []
    for data, of_data in found.groupby("data", sort=False):
        for tool, here in of_data.groupby("tool", sort=False):
            row = {"traces of": data, "tool": tool, "traces": str(len(here))}
            told = (_of_rule, OURS) if tool in RULES else (_of_protocol, FIXED)
            row |= told[0](here, of_data[of_data.tool == told[1]])
            rows.append([row.get(heading, "") for heading in COLUMNS])
    return Table(COLUMNS, rows, [f"Faults in order: {', '.join(_kinds(found))}."], left=2)


def _kinds(found: pd.DataFrame) -> list[str]:
    """Return the faults that there are, those of this data set first."""
    there = set(found.fault.dropna()) if "fault" in found else set()
    return [*(kind for kind in KINDS if kind in there), *sorted(there - set(KINDS))]


def _of_protocol(here: pd.DataFrame, fixed: pd.DataFrame) -> dict[str, str]:
    gains = here.share.to_numpy() - fixed[fixed.trace.isin(here.trace)].share.to_numpy()
    row = {"% of the oracle": mean(here.share)}
    row |= {"against a fixed number": against(gains)} if (here.tool != FIXED).all() else {}
    return row | ({"inside, %": mean(here.inside.dropna())} if here.inside.notna().any() else {})


def _of_rule(here: pd.DataFrame, ours: pd.DataFrame) -> dict[str, str]:
    faulty = here.fault.notna().to_numpy()
    row = {"something named": f"{int(here[~faulty].named.sum())} of {int((~faulty).sum())}"}
    if faulty.any():
        right, by = here[faulty].right.astype(int), here[faulty].groupby("fault").right
        row["named first"] = diagnosis.share_of(int(right.sum()), len(right))
        row["by fault"] = ", ".join(f"{by.sum()[kind]:.0f}/{by.size()[kind]}" for kind in _kinds(here))
        if here.since.notna().any():
            row["since, off by"] = f"{here.since.median():g}"
        if (here.tool != OURS).all():
            difference = right.to_numpy() - ours[faulty].right.to_numpy().astype(int)
            row["against sgdlab"] = outcome(int((difference > 0).sum()), int((difference < 0).sum()))
    return row


def mean(values: Sequence[float]) -> str:
    """Say the mean of values, with its interval where three or more tell one.

    Example:
      >>> mean([80.0, 84.0, 82.0, 82.0]), mean([80.0, 84.0])
      ('82.0 ± 2.6', '82')
    """
    return str(interval(values)) if len(values) >= FEWEST else str(round(float(np.mean(values))))


def against(gains: Sequence[float]) -> str:
    """Say what the differences of a tool from the one that it is compared with decide, with their mean.

    Example:
      >>> against([1.0, 2.0, 3.0, 2.0]), against([1.0, -1.0, 1.0, -1.0]), against([0.0, 4.0])
      ('better: 2.0 ± 1.3', 'tie: 0.0 ± 1.8', 'undecided: 2')
    """
    found = interval(gains)
    decided = found.decides and (found.low > 0 or found.high < 0)
    said = "undecided" if len(gains) < FEWEST else "tie" if not decided else "better" if found.mean > 0 else "worse"
    return f"{said}: {mean(gains)}"


def outcome(alone: int, other: int) -> str:
    """Say what the traces decide in which one of two tools alone is right, by an exact sign test.

    Example:
      >>> outcome(0, 9), outcome(3, 5), outcome(0, 0)
      ('worse: 0 to 9', 'tie: 3 to 5', 'tie: 0 to 0')
    """
    decided = alone + other > 0 and stats.binomtest(alone, alone + other).pvalue <= LEVEL
    return f"{'tie' if not decided else 'better' if alone > other else 'worse'}: {alone} to {other}"
