"""Compares methods over numbers of workers and seeds, and reports.

    sgdlab compare --workdir=runs/digits

Leaves in the work directory: the configuration, one metrics file a run (JSON lines), the table (table.md, table.csv),
pictures (plots/) and report.html, one page that says it all. A job that was killed continues where it stopped:
finished runs are never run again, and more methods, workers or seeds can be added later.
"""

import pathlib
import sys
from collections.abc import Sequence

from absl import flags
from ml_collections import ConfigDict

from sgdlab.commands import launch
from sgdlab.errors import UsageError
from sgdlab.jobs import compare, provenance
from sgdlab.jobs.methods import methods
from sgdlab.jobs.plan import AnySchedule, make_plan
from sgdlab.results import table
from sgdlab.results.directory import RunDirectory
from sgdlab.results.publish import publish

DEFAULT_WORKDIR = "runs/digits"

TIMELINES = 5
"""So many schedules are drawn, of as many kinds as there are."""
TIMELINE_WORKERS = 8


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_list("methods", None, "Methods to compare, separated by commas. By default all.")
    flags.DEFINE_list("num_workers", ["4", "8", "16", "32"], "Numbers of workers, separated by commas.")
    flags.DEFINE_integer("seeds", 3, "How many seeds: 0, 1, ...")
    flags.DEFINE_integer("processes", None, "Runs at once. By default one for each core, or one on a GPU.")


def main(argv: Sequence[str]) -> None:
    """Runs what is missing, then reports."""
    del argv
    given = flags.FLAGS
    config, workdir = launch.CONFIG.value, pathlib.Path(launch.WORKDIR.value or DEFAULT_WORKDIR)
    names, num_workers = _checked_methods(given.methods), _checked_counts(given.num_workers)
    _at_least_one("seeds", given.seeds)
    if given.processes is not None:
        _at_least_one("processes", given.processes)
    _refuse_grid_flags()
    cells = compare.grid(names, num_workers, given.seeds)
    if all(cell.serial for cell in cells):
        raise UsageError(f"--num_workers={num_workers[0]} must be more for {', '.join(names)}: that is the baseline")
    directory = RunDirectory(workdir, compare.shared_config(config, cells), made=provenance.made_with())
    compare.check(config, cells)
    if changed := directory.changed_since():
        print(changed, flush=True)
    compare.run_all(config, cells, directory, processes=given.processes)
    groups = compare.groups(config, cells, directory)
    page = publish(workdir, groups, _schedules(config, cells))
    print(f"\n{table.text(groups)}\n\nReport: {page}")


def _schedules(config: ConfigDict, cells: Sequence[compare.Cell]) -> dict[str, AnySchedule]:
    """Title -> schedule, for the time-lines: the first method of each protocol, at one number of workers."""
    several = [cell for cell in cells if not cell.serial and cell.seed == 0]
    shown = min((cell.num_workers for cell in several), key=lambda n: abs(n - TIMELINE_WORKERS))
    schedules: dict[str, tuple[str, AnySchedule]] = {}
    for cell in several:
        protocol = methods()[cell.method].protocol
        if cell.num_workers == shown and protocol not in schedules and len(schedules) < TIMELINES:
            plan = make_plan(cell.configured(config))
            schedules[protocol] = plan.choice.method.title, plan.schedule
    return dict(schedules.values())


def _refuse_grid_flags() -> None:
    """What the grid varies is not set by the configuration's flags."""
    for name, flag in zip(compare.GRID, ("methods", "seeds", "num_workers"), strict=True):
        for argument in sys.argv[1:]:
            if argument.lstrip("-").split("=")[0] == f"config.{name}":
                raise UsageError(f"{argument} must be left out: compare sets it by --{flag}")


def _checked_methods(names: Sequence[str] | None) -> list[str]:
    known = methods()
    for name in names or ():
        if name not in known:
            raise UsageError(f"--methods={name} must be one of {', '.join(known)}")
    if names is not None and not names:
        raise UsageError(f"--methods= must name at least one of {', '.join(known)}")
    return list(dict.fromkeys(known if names is None else names))


def _checked_counts(values: Sequence[str]) -> list[int]:
    for value in values:
        if not value.strip().isdecimal() or int(value) < 1:
            raise UsageError(f"--num_workers={value} must be whole numbers of at least 1, separated by commas")
    if not values:
        raise UsageError("--num_workers= must be at least one whole number")
    return sorted({int(value) for value in values})


def _at_least_one(flag: str, value: int) -> None:
    if value < 1:
        raise UsageError(f"--{flag}={value} must be a whole number of at least 1")
