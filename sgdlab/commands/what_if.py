"""The part of `sgdlab advise` behind --what_if: what repairing each cause of waiting gains, and who to drain first.

    sgdlab advise trace.csv --what_if

It prints a sentence and two tables, and writes to the work directory: what_if.csv and scores.csv, the tables in full;
what_if.html, a self-contained page. Nothing is trained; 10,000 steps of 1,000 workers take about half a minute.
"""

import dataclasses
import pathlib

from sgdlab import files
from sgdlab.errors import UsageError, said_of
from sgdlab.report.words import counted
from sgdlab.stragglers import diagnosis, what_if
from sgdlab.stragglers.diagnosis import pauses
from sgdlab.stragglers.recording import fewest, is_live, usable
from sgdlab.stragglers.what_if import table as what_if_table
from sgdlab.traces.options import Options
from sgdlab.traces.read import read
from sgdlab.traces.recording import Recording

_LEAST_STEPS = 4


def run(
    path: str, options: Options, workdir: pathlib.Path, seed: int, *, layers: int | None = None, flag: str = "trace"
) -> None:
    """Reads a trace, prints what repairing each cause would gain, and writes tables and page."""
    complete, gone = complete_steps(path, options, flag)
    found = pauses.find_pauses(complete)
    result = what_if.try_repairs(complete, found, diagnosis.find_causes(complete, found), seed=seed, layers=layers)
    print("\n".join(filter(None, [gone, what_if_table.text(result)])))
    print("".join(f"\nNote: {note}" for note in complete.notes))
    print(f"\nReport: {write(result, workdir, name=pathlib.Path(path).name)}")


def write(result: what_if.WhatIf, workdir: pathlib.Path, *, name: str) -> pathlib.Path:
    """Writes what_if.csv, scores.csv and what_if.html, and returns the path of the page."""
    contents = {
        "what_if.csv": what_if_table.comma_separated(result),
        "scores.csv": what_if_table.scores_comma_separated(result),
        "what_if.html": what_if_table.page(result, title=f"What if: {name}"),
    }
    try:
        for file_name, content in contents.items():
            files.write_text(workdir / file_name, content)
    except OSError as error:
        raise UsageError(f"--workdir={workdir} must be a directory that can be written: {error}") from error
    return workdir / "what_if.html"


def complete_steps(path: str, options: Options, flag: str) -> tuple[Recording, str]:
    """Read the complete steps of a trace, with a note on those that are excluded, and a sentence on who stopped."""
    try:
        recording = read(path, options, name=f"--{flag}")
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
    if len(recording.workers) < 2 and recording.job is None:
        raise UsageError(f"--{flag}={path} has one worker, {recording.workers[0]}; there must be at least 2")
    with said_of(f"--{flag}={path} "):
        recording, complete, stopped = usable(recording, live=is_live(path))
    steps = complete.steps.size
    if steps < _LEAST_STEPS:
        who = fewest(recording)
        raise UsageError(
            f"--{flag}={path} has {counted(steps, 'step')} without missing compute times; {_LEAST_STEPS} are needed"
            f"{'; ' * bool(who)}{who}"
        )
    notes, excluded = recording.notes, recording.steps.size - steps
    if excluded:
        was = "was" if excluded == 1 else "were"
        notes = (f"{counted(excluded, 'step')} with a missing compute time {was} excluded", *notes)
    return dataclasses.replace(complete, notes=notes), stopped
