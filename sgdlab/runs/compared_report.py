"""The report of a comparison: tables, pictures and a page."""

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sgdlab import results
from sgdlab.results.records import Records, as_stored
from sgdlab.results.summary import Group
from sgdlab.runs import drawn
from sgdlab.runs import methods as known
from sgdlab.runs.compared import first_of_seeds, is_serial
from sgdlab.runs.plan import Plan, make_plan
from sgdlab.runs.store import Store
from sgdlab.runs.sweep import Sweep
from sgdlab.runs.tuning import Tuned
from sgdlab.runs.work import Point, num_workers_of

if TYPE_CHECKING:
    from sgdlab.report.table import Table

TIMELINES = 5
"""At most so many schedules are drawn, each of another protocol."""
TIMELINE_WORKERS = 8


def report(
    sweep: Sweep,
    found: Mapping[str, Records],
    path: pathlib.Path,
    over: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    given: Sequence[str] = (),
    tuned: Tuned | None = None,
) -> tuple[str, pathlib.Path]:
    """Write tables, pictures and the page of a comparison; return the tables for a terminal, and the page.

    The page shows the settings that are `tuned`.

    What is there of the same records, drawn by the same code, is not drawn again (`up_to_date`).
    """
    if (there := up_to_date(sweep, path, over, given)) is not None:
        return there
    values = as_stored({name: list(values) for name, values in over.items()})
    print(f"Drawing the report of {len(sweep.runs)} runs: some ten seconds", flush=True)
    records = {p.key: _varied(p, found[p.key], over) for p in sweep.runs}
    groups = results.summary.groups(_with_times(records).values())
    plans = _plans(sweep)
    schedules, down = ({title: getattr(p, name) for title, p in plans.items()} for name in ("schedule", "down"))
    page = results.publish.publish(path, groups, schedules, values, _chosen(groups, tuned or {}), down)
    if over:
        every = results.swept.Swept(groups, values)
        text = f"{every.table().text()}\n\n{results.table.text(every.best())}"
    else:
        text = results.table.text(groups)
    others = [*path.glob("table.*"), *path.glob("plots/*")]
    drawn.note(path, _state(sweep, path, over, given), page, others, text)
    return text, page


def _varied(point: Point, records: Records, over: Iterable[str]) -> Records:
    """Return the records of a run without the entries that are varied elsewhere, and that it does not take."""
    run, *rest = records
    for name in set(over) - point.varied.keys():
        run = run | {"config": _without(run["config"], name.split("."))}
    return [run, *rest]


def _with_times(found: Mapping[str, Records]) -> Mapping[str, Records]:
    """Return records without the times to a target that some untrained network meets, which compare nothing."""
    met = sum(records[-1].get("seconds_to_target") == 0 for records in found.values())
    if not met:
        return found
    print(f"Times to the target are left out: in {met} of {len(found)} runs the untrained network is there", flush=True)
    none = {"seconds_to_target": None, "epochs_to_target": None}
    return {key: [run | {"target": None}, *rest, last | none] for key, (run, *rest, last) in found.items()}


def _without(entries: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Return nested entries without the one at a path.

    Example:
      >>> _without({"seed": 0, "optimizer": {"momentum": 0.9, "nesterov": True}}, ["optimizer", "momentum"])
      {'seed': 0, 'optimizer': {'nesterov': True}}
    """
    first, *rest = path
    kept = {name: value for name, value in entries.items() if name != first}
    return {**entries, first: _without(entries[first], rest)} if rest and first in entries else kept


def _chosen(groups: Sequence[Group], tuned: Tuned) -> "Table | None":
    """Return the tuned settings of what is compared as a table; None where there are none."""
    if not tuned:
        return None
    from sgdlab.runs import tuned_report  # noqa: PLC0415 (it takes a second to import)

    titles = {group.method: group.title for group in groups if not group.serial}
    shown = [(group.method, group.num_workers) for group in groups if not group.serial and group.num_workers > 1]
    if tuned.keys().isdisjoint(shown):
        return None
    return tuned_report.chosen_settings({kind: tuned.get(kind) for kind in shown}, titles)


def up_to_date(
    sweep: Sweep, path: pathlib.Path, over: Mapping[str, Sequence[Any]], given: Sequence[str] = ()
) -> tuple[str, pathlib.Path] | None:
    """Return what `report` does, and say so, where its report was drawn of the same runs by the same code; else None.

    It needs neither plans nor records, which take most of the time where nothing is to do.
    """
    if (there := drawn.found(path, _state(sweep, path, over, given))) is not None:
        print(f"Nothing to do: {len(sweep.runs)} runs and their report are up to date", flush=True)
    return there


def _state(sweep: Sweep, path: pathlib.Path, over: Mapping[str, Sequence[Any]], given: Sequence[str]) -> str:
    return drawn.state(Store.of(path), [point.name for point in sweep.runs], [as_stored(dict(over)), list(given)])


def _plans(sweep: Sweep) -> dict[str, Plan]:
    """Return title -> plan, for the time-lines: the first method of each protocol, at one number of workers."""
    several = [point for point in first_of_seeds(sweep) if not is_serial(point)]
    shown = min((num_workers_of(point.settings) for point in several), key=lambda n: abs(n - TIMELINE_WORKERS))
    plans: dict[str, Plan] = {}
    for point in several:
        protocol = known.methods()[point.varied["method"]].protocol
        here = num_workers_of(point.settings) == shown and protocol not in plans
        if here and len(plans) < TIMELINES:
            plans[protocol] = make_plan(point.settings)
    return {plan.experiment.method.title: plan for plan in plans.values()}
