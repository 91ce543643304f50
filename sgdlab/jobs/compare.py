"""Compares methods over numbers of workers and seeds: a sweep, and a report of it."""

import itertools
import pathlib
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ml_collections import ConfigDict

from sgdlab.errors import UsageError
from sgdlab.jobs.configuration import identity
from sgdlab.jobs.methods import baselines, chosen, methods
from sgdlab.jobs.plan import make_plan
from sgdlab.jobs.sweep import Sweep
from sgdlab.jobs.work import Point
from sgdlab.results import publish, summary
from sgdlab.results.records import Records

TIMELINES = 5
"""At most so many schedules are drawn, each of another protocol."""
TIMELINE_WORKERS = 8


def comparison(
    config: ConfigDict,
    names: Sequence[str],
    num_workers: Sequence[int],
    seeds: int,
    over: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> Sweep:
    """Return the runs of a comparison: first the single workers, then method by method.

    A single worker is the first of the cluster, alone. That which methods are compared with has its own protocol and
    rule, whatever the configuration says; it is one of the methods' baselines.

    Args:
      config: of all runs, but for what a run sets.
      names: the methods.
      num_workers: numbers of workers.
      seeds: how many: 0, 1, ...
      over: further entries and their values, whose product is done of each run.

    Raises:
      UsageError: where a single worker would be compared with itself alone.

    Example:
      >>> from configs import digits
      >>> sweep = comparison(digits.get_config(), ["dana"], [4], 1, {"optimizer.learning_rate": [0.01, 0.05]})
      >>> for run in sweep.runs:
      ...     print(run)
      nag_asgd, 1 worker, learning_rate=0.01, seed 0
      nag_asgd, 1 worker, learning_rate=0.05, seed 0
      dana, 4 workers, learning_rate=0.01, seed 0
      dana, 4 workers, learning_rate=0.05, seed 0
    """
    known, several = methods(), [n for n in num_workers if n > 1]
    # The cluster whose first worker is alone.
    cluster = {"cluster.num_workers": min(several)} if several else {}
    alone = [name for name in baselines() if any(known[method].baseline == name for method in names)]
    kinds = [
        {"method": name, **cluster, "cluster.first_workers": 1, "protocol.kind": None, "rule.kind": None}
        for name in alone
    ]
    for name in names:
        for n in num_workers:
            if n > 1:
                kinds.append({"method": name, "cluster.num_workers": n})
            elif name not in alone:
                kinds.append({"method": name, **cluster, "cluster.first_workers": 1})
    if len(kinds) == len(alone):
        raise UsageError(
            f"--num_workers={num_workers[0]} with {', '.join(names)} is the baseline itself; name more workers or "
            "another method"
        )
    points = [
        kind | dict(zip(over, values, strict=True)) | {"seed": seed}
        for kind in kinds
        for values in itertools.product(*over.values())
        for seed in range(seeds)
    ]
    return Sweep(config, points, label=_label)


def is_serial(point: Point) -> bool:
    """Return whether a run is a single worker that methods are compared with."""
    return "rule.kind" in point.varied


def first_of_seeds(sweep: Sweep) -> list[Point]:
    """Return the runs of the first seed, which stand for those that differ from them in their seed alone."""
    return [point for point in sweep.runs if point.varied["seed"] == 0]


def check(sweep: Sweep) -> None:
    """Plan one run of each kind, so that a comparison fails before it starts.

    Raises:
      UsageError: where a configuration is impossible, or where two methods are the same because of a protocol or a rule
        that is set in the place of their own.
    """
    pairs: dict[str, str] = {}
    for point in first_of_seeds(sweep):
        name, pair = point.varied["method"], chosen(point.settings).method.name
        if not is_serial(point) and pairs.setdefault(pair, name) != name:
            raise UsageError(
                f"--methods={pairs[pair]},{name} must be one method: with the protocol or rule that is set, "
                f"{pairs[pair]} and {name} are both {pair}"
            )
    for point in first_of_seeds(sweep):
        make_plan(point.settings)


def report(sweep: Sweep, found: Mapping[str, Records], path: pathlib.Path) -> tuple[list[summary.Group], pathlib.Path]:
    """Write tables, pictures and the page of a comparison.

    Args:
      sweep: its runs.
      found: the records of all of them, by key.
      path: the work directory.

    Returns:
      The runs with their seeds put together, and the page.
    """
    groups = summary.groups({point.key: found[point.key] for point in sweep.runs}.values())
    return groups, publish.publish(path, groups, _schedules(sweep))


def _schedules(sweep: Sweep) -> dict[str, Any]:
    """Return title -> schedule, for the time-lines: the first method of each protocol, at one number of workers."""
    several = [point for point in first_of_seeds(sweep) if not is_serial(point)]
    shown = min((_num_workers(point.settings) for point in several), key=lambda n: abs(n - TIMELINE_WORKERS))
    schedules: dict[str, tuple[str, Any]] = {}
    for point in several:
        protocol = methods()[point.varied["method"]].protocol
        here = _num_workers(point.settings) == shown and protocol not in schedules
        if here and len(schedules) < TIMELINES:
            plan = make_plan(point.settings)
            schedules[protocol] = plan.choice.method.title, plan.schedule
    return dict(schedules.values())


def _label(config: ConfigDict) -> str:
    """Return what the name of a run's file begins with, which other entries than these do not change.

    Example:
      >>> from configs import digits
      >>> _label(digits.get_config())
      'gap_aware-n8-seed0'
    """
    method = re.sub(r"[^\w.+-]+", "_", identity(config)["method"])
    return f"{method}-n{_num_workers(config)}-seed{config.seed}"


def _num_workers(config: Any) -> int:
    return config.cluster.first_workers or config.cluster.num_workers
