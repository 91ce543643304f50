"""Compares methods over numbers of workers and seeds, and reports.

    python -m experiments.compare --config=configs/digits.py --workdir=runs/digits

Leaves in the work directory: the configuration, one metrics file a run (JSON lines), the table (table.md, table.csv),
pictures (plots/) and report.html, one page that says it all. A job that was killed continues where it stopped:
finished runs are never run again, and more methods, workers or seeds can be added later.
"""

import contextlib
import pathlib
import sys
from collections.abc import Sequence

from absl import flags
from ml_collections import ConfigDict

from experiments import launch
from sgdlab import compare
from sgdlab.errors import UsageError
from sgdlab.methods import METHODS
from sgdlab.plan import check, make_plan
from sgdlab.results import table
from sgdlab.results.directory import RunDirectory
from sgdlab.results.publish import publish
from sgdlab.validate import ConfigError
from sgdlab.waiting import AnySchedule

DEFAULT_WORKDIR = "runs/digits"
_METHODS = flags.DEFINE_list("methods", list(METHODS), "Methods to compare, separated by commas.")
_NUM_WORKERS = flags.DEFINE_list("num_workers", ["4", "8", "16", "32"], "Numbers of workers, separated by commas.")
_SEEDS = flags.DEFINE_integer("seeds", 3, "How many seeds: 0, 1, ...")
_PROCESSES = flags.DEFINE_integer("processes", None, "Runs at once. By default one for each core, or one on a GPU.")

TIMELINE = ("synchronous", "backup_workers", "partial", "asgd", "pull_gossip")
TIMELINE_WORKERS = 8


def main(argv: Sequence[str]) -> None:
    """Runs what is missing, then reports."""
    del argv
    config, workdir = launch.CONFIG.value, pathlib.Path(launch.WORKDIR.value or DEFAULT_WORKDIR)
    methods, num_workers = _checked_methods(_METHODS.value), _checked_counts(_NUM_WORKERS.value)
    _at_least_one("seeds", _SEEDS.value)
    if _PROCESSES.value is not None:
        _at_least_one("processes", _PROCESSES.value)
    _refuse_grid_flags()
    cells = compare.grid(methods, num_workers, _SEEDS.value)
    if all(compare.is_baseline(cell.method, cell.num_workers) for cell in cells):
        raise UsageError(f"--num_workers={num_workers[0]} must be more for {', '.join(methods)}: that is the baseline")
    for cell in cells:
        check(cell.configured(config))
    shared = compare.shared_config(config)
    directory = RunDirectory(workdir, shared)
    compare.run_all(config, cells, directory, processes=_PROCESSES.value)
    groups = compare.groups(cells, directory)
    shown = min(num_workers, key=lambda n: abs(n - TIMELINE_WORKERS))
    page = publish(workdir, groups, shared, _schedules(config, shown))
    print(f"\n{table.text(groups)}\n\nReport: {page}")


def _schedules(config: ConfigDict, num_workers: int) -> dict[str, AnySchedule]:
    """Title -> schedule, for the time-lines; less those that so few workers cannot have."""
    schedules = {}
    for method in TIMELINE:
        with contextlib.suppress(ConfigError):
            plan = make_plan(compare.Cell(method, num_workers, 0).configured(config))
            schedules[METHODS[method].title] = plan.schedule
    return schedules


def _refuse_grid_flags() -> None:
    """What the grid varies is not set by the configuration's flags."""
    for name, flag in zip(compare.GRID, ("methods", "seeds", "num_workers"), strict=True):
        for argument in sys.argv[1:]:
            if argument.lstrip("-").split("=")[0] == f"config.{name}":
                raise UsageError(f"{argument} must be left out: compare sets it by --{flag}")


def _checked_methods(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in METHODS:
            raise UsageError(f"--methods={name} must be one of {', '.join(METHODS)}")
    if not names:
        raise UsageError(f"--methods= must name at least one of {', '.join(METHODS)}")
    return list(dict.fromkeys(names))


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


if __name__ == "__main__":
    launch.run(main, __doc__)
