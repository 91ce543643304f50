"""From finished runs to what a person reads: table, pictures, report."""

import pathlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from sgdlab import files
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.report.table import Table
from sgdlab.results import certificates, facts, plots, report, standing, table, target
from sgdlab.results.summary import Group, compared, largest, metric_of
from sgdlab.results.swept import Swept
from sgdlab.results.timeline import timeline
from sgdlab.schedule import Schedule


def publish(
    path: pathlib.Path,
    groups: Sequence[Group],
    schedules: Mapping[str, Schedule | PeerSchedule],
    over: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    tuned: Table | None = None,
    down: Mapping[str, np.ndarray | None] = MappingProxyType({}),
) -> pathlib.Path:
    """Write `table.md`, `table.csv`, `plots/*.png`, `plots/*.svg` and `report.html`, the path of which is returned.

    The pictures are `standing` (the methods at the most workers in order, with their speeds unless runs end at the
    target), `loss`, `staleness` where some method has a server, and `timeline` where schedules are given; with several
    numbers of workers also `accuracy`, or what else the metric's name is, and `target` where some method reaches a
    target. `certificates.csv` is there where runs have certificates.
    Where further entries are varied, `sweep.csv` has every value, and the pictures `sweep_<entry>`; all else shows each
    method with its best.

    `schedules` (title -> schedule) are for the time-line, and so is `down`, as `timeline` has it; `over` are the
    further entries that are varied, with their values as records hold them, and `tuned` are the settings that tuning
    has chosen.
    """
    swept = Swept(groups, over) if over else None
    groups = swept.best() if swept else groups
    several = len({group.num_workers for group in compared(groups)}) > 1
    whole = not any(group.ends_at_target for group in groups)  # else the time to the target is all that differs
    figures = {
        report.STANDING: standing.standing(
            [*(group for group in groups if group.serial), *largest(groups)], speeds=whole
        ),
        metric_of(groups).picture: plots.metric_by_workers(groups) if several and whole else None,
        "loss": plots.loss_by_time(groups),
        "target": target.seconds_to_target(groups) if several else None,
        "staleness": plots.staleness_and_gap(groups),
        "timeline": timeline(schedules, messages=facts.titles_of_messages(groups), down=down) if schedules else None,
        **{report.name_of_sweep(name): swept.figure(name) for name in over if swept},
    }
    if swept:
        files.write_text(path / "sweep.csv", swept.comma_separated())
    files.write_text(path / "table.md", table.table(groups).markdown())
    files.write_text(path / "table.csv", table.comma_separated(groups))
    if certificates.certified(groups):
        files.write_text(path / "certificates.csv", certificates.comma_separated(groups))
    pictures = {}
    for name, figure in figures.items():
        if figure is not None:
            plots.save(figure, path / "plots" / name)
            pictures[name] = path / "plots" / f"{name}.svg"
    files.write_text(path / "report.html", report.page(groups, pictures, swept, tuned))
    return path / "report.html"
