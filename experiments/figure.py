"""Shared by the commands that reproduce a table or figure of a paper: the work directory, and writing the results."""

import csv
import io
import pathlib
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from tabulate import tabulate

from sgdlab import files
from sgdlab.commands import launch
from sgdlab.results import plots

Row = Mapping[str, object]


def directory(default: str) -> pathlib.Path:
    """The directory for the results: --workdir, or `default` where the flag is not given."""
    return pathlib.Path(launch.WORKDIR.value or default)


def publish(
    path: pathlib.Path,
    name: str,
    rows: Sequence[Row],
    *,
    title: str,
    reading: Sequence[str] = (),
    figure: Figure | None = None,
) -> None:
    """Prints a table with its comments and writes them: `<name>.md`, `<name>.csv`, and the picture, if there is one.

    Args:
      path: directory to write to.
      name: name of the files, without the extension.
      rows: the rows of the table, one mapping from column to value for each, all with the same columns.
      title: one line above the table that says what it shows and in which units.
      reading: sentences below the table: where the results differ from the paper's, and why.
      figure: picture to write beside the table as PNG and SVG.
    """
    shown = [{key: f"{v:.4g}" if isinstance(v, float) else v for key, v in row.items()} for row in rows]
    comments = "\n".join(f"* {sentence}" for sentence in reading)
    print(f"\n{title}\n\n{tabulate(shown, headers='keys', tablefmt='simple', disable_numparse=True)}\n\n{comments}")
    table = tabulate(shown, headers="keys", tablefmt="github", disable_numparse=True)
    picture = f"![{title}]({name}.svg)\n\n" if figure else ""
    files.write_text(path / f"{name}.md", f"# {title}\n\n{table}\n\n{picture}{comments}\n")
    output = io.StringIO()
    writer = csv.DictWriter(output, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files.write_text(path / f"{name}.csv", output.getvalue())
    if figure is not None:
        plots.save(figure, path / name)
    print(f"\nWritten: {path / name}.md, .csv{', .png, .svg' if figure else ''}")
