"""From finished runs to what a person reads: table, pictures, report."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from sgdlab import files
from sgdlab.results import plots, report, table
from sgdlab.results.summary import Group
from sgdlab.results.timeline import timeline
from sgdlab.waiting import AnySchedule


def publish(
    path: pathlib.Path, groups: Sequence[Group], config: Mapping[str, Any], schedules: Mapping[str, AnySchedule]
) -> pathlib.Path:
    """Writes `table.md`, `table.csv`, `plots/*.png`, `plots/*.svg` and `report.html` below `path`.

    Args:
      path: the run directory.
      groups: finished runs, seeds put together.
      config: what all runs share.
      schedules: title -> schedule, for the worker time-line.

    Returns:
      The path of the report.
    """
    seeds = max(len(group.runs) for group in groups)
    target = f"{100 * config['target_accuracy']:g}"
    caption = (
        f"Mean ± standard deviation over {seeds} seed{'s' * (seeds > 1)} at equal numbers of used gradients. "
        f"Accuracies in %; time in virtual seconds; target: {target} % test accuracy."
    )
    files.write_text(path / "table.md", table.markdown(list(groups), caption))
    files.write_text(path / "table.csv", table.comma_separated(list(groups)))
    figures = {
        "accuracy": plots.accuracy_by_workers(groups),
        "loss": plots.loss_by_time(groups),
        "staleness": plots.staleness_and_gap(groups),
        "timeline": timeline(schedules),
    }
    for name, figure in figures.items():
        plots.save(figure, path / "plots" / name)
    pictures = {name: path / "plots" / f"{name}.svg" for name in figures}
    files.write_text(path / "report.html", report.page(groups, config, pictures))
    return path / "report.html"
