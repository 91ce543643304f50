"""What the commands that draw a table or figure of a paper share: where results go, its numbers beside ours."""

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
    """Where the results go: --workdir, or a place of the figure's own below runs/."""
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
    """Prints a table and writes it: `<name>.md` with its title and what it says, `<name>.csv`, and the picture.

    Args:
      path: the directory.
      name: of the files, without ending.
      rows: one mapping a row, all with the same columns; numbers as they are to be read.
      title: one line above the table: what is shown, in which units.
      reading: sentences below it: where ours differ from the paper's, and why.
      figure: written as PNG and SVG beside the table.
    """
    shown = [{key: f"{v:.4g}" if isinstance(v, float) else v for key, v in row.items()} for row in rows]
    notes = "\n".join(f"* {sentence}" for sentence in reading)
    print(f"\n{title}\n\n{tabulate(shown, headers='keys', tablefmt='simple', disable_numparse=True)}\n\n{notes}")
    table = tabulate(shown, headers="keys", tablefmt="github", disable_numparse=True)
    picture = f"![{title}]({name}.svg)\n\n" if figure else ""
    files.write_text(path / f"{name}.md", f"# {title}\n\n{table}\n\n{picture}{notes}\n")
    output = io.StringIO()
    writer = csv.DictWriter(output, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files.write_text(path / f"{name}.csv", output.getvalue())
    if figure is not None:
        plots.save(figure, path / name)
    print(f"\nWritten: {path / name}.md, .csv{', .png, .svg' if figure else ''}")
