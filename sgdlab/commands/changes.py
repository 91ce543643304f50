"""The part of `sgdlab advise` behind --compare: what changed from one trace to another.

    sgdlab advise --compare=before.csv after.csv

It prints a sentence and a table, and writes to the work directory: changes.html, a self-contained page; changes.json.
"""

import os
import pathlib

from sgdlab import files
from sgdlab.commands import what_if
from sgdlab.errors import UsageError
from sgdlab.stragglers.changes import find_changes
from sgdlab.traces.options import Options


def run(before: str, after: str, options: Options, workdir: pathlib.Path) -> None:
    """Reads two traces, prints what changed, and writes it."""
    pair = [what_if.complete_steps(path, options, "compare") for path in (before, after)]
    same = os.path.basename(before) == os.path.basename(after)
    first, second = (path if same else os.path.basename(path) for path in (before, after))
    found = find_changes(pair[0][0], pair[1][0], (first, second))
    print(f"{found.sentence()}\n\n{found.table().text()}")
    for name, (complete, gone) in zip((first, second), pair, strict=True):
        print("".join(f"\nNote on {name}: {note}" for note in (gone, *complete.notes) if note))
    try:
        files.write_text(workdir / "changes.json", found.json())
        files.write_text(workdir / "changes.html", found.page())
    except OSError as error:
        raise UsageError(f"--workdir={workdir} must be a directory that can be written: {error}") from error
    print(f"\nReport: {workdir / 'changes.html'}")
