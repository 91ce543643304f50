"""Compares methods over numbers of workers, seeds and further entries: a sweep, and a report of it."""

import ast
import contextlib
import itertools
import os
import pathlib
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ml_collections import ConfigDict

from sgdlab import arguments, files, hosts, results
from sgdlab.errors import UsageError
from sgdlab.results.records import Records, as_stored
from sgdlab.results.summary import Group
from sgdlab.runs import configuration, drawn, tuning
from sgdlab.runs import methods as known
from sgdlab.runs.configuration import check_used, flat, is_rate, value_of
from sgdlab.runs.executor import finish
from sgdlab.runs.experiment import Experiment, resolve
from sgdlab.runs.parts import load as load_parts
from sgdlab.runs.plan import Plan, make_plan, planned
from sgdlab.runs.store import METRICS, Store, check_ours
from sgdlab.runs.sweep import Session, Sweep, library, meant
from sgdlab.runs.tuning import Kind, Tuned, by_time
from sgdlab.runs.work import Point, label, num_workers_of

if TYPE_CHECKING:
    import pandas as pd

    from sgdlab.report.table import Table

EQUAL = ("time", "gradients")
"""Names the quantity that all methods have as much of."""

TIMELINES = 5
"""At most so many schedules are drawn, each of another protocol."""
TIMELINE_WORKERS = 8
DEFAULT_CONFIG = "configs/digits.py"
_NOT_IN_TABLES = ("kind", "families", "rank", "baseline", "never_waits", "measures_gap")
"""Entries of summaries that say how a run is drawn."""


_SET_OTHERWISE = {
    "method": "methods",
    "protocol.kind": "methods",
    "rule.kind": "methods",
    "cluster.num_workers": "num_workers",
    "cluster.first_workers": "num_workers",
    "seed": "seeds",
}
"""Entries that a comparison sets by what it calls otherwise."""

_COMMAS = re.compile(r",(?![^(\[]*[)\]])")
"""Between values, and not inside of one."""


class Checked(NamedTuple):
    """Holds what a check of a comparison finds before its runs."""

    notes: list[str]  # for a person: who takes no entry that is set or varied; one `Plan.waste` of each method
    gradients: dict[Kind, int]  # of a run of each method at a number of workers, where nothing else is varied


def compare(
    *,
    methods: str | Sequence[str] = known.REPRESENTATIVE,
    num_workers: int | Sequence[int] = (8, 32),
    seeds: int = 3,
    sweep: Mapping[str, Any] = MappingProxyType({}),
    config: ConfigDict | str | os.PathLike[str] = DEFAULT_CONFIG,
    parts: str | Sequence[str] = (),
    workdir: str | os.PathLike[str] | None = None,
    processes: int | None = None,
    equal: str = EQUAL[0],
    tune: int | str | os.PathLike[str] = 0,
) -> "pd.DataFrame":
    """Compare methods over numbers of workers, seeds and other entries, as `sgdlab compare` does.

    Runs that a work directory holds already are not done again. In a script, call it under
    `if __name__ == "__main__":`, since processes import the script.

    Args:
      methods: their names, one name, or "all".
      num_workers: numbers of workers, or one; 1 is the first worker of the cluster, alone.
      seeds: how many: 0, 1, ...; with fewer than three, no difference is decided.
      sweep: entries of the configuration and their values, such as `{"optimizer.learning_rate": [0.01, 0.05]}`; all
        combinations are done of each run. A single value needs no list.
      config: a configuration, or its file; a file of the package is known by its name.
      parts: Python files that register parts, which processes import too.
      workdir: where runs and the report are left, with `report.html`. None: nowhere.
      processes: runs at once. None: one a core, or one on an accelerator.
      equal: "time" ends the runs of all methods with the same cluster at one instant, 1.5 times what synchronous SGD
        takes for its epochs; "gradients" after their epochs of used gradients. A configuration that says when a run
        ends, by `seconds` or `budget`, is followed.
      tune: trials by which each method is tuned first (`sgdlab.runs.tuning`), 0 for none; or the file with what a
        tuned comparison has chosen, `tuned.json`, for the methods and numbers of workers that it has.

    Returns:
      A row for each run, the single workers first: the method, the number of workers, the seed, what is swept, and the
      run's summary, such as `test_accuracy`, `seconds` (virtual) and `diverged`.

    Raises:
      ValueError: where an argument is impossible, or pandas is not installed.
      RunFailed: where a run raises an error.

    Example:
      >>> import sgdlab
      >>> from configs import digits
      >>> config = digits.get_config()
      >>> config.network.kind, config.network.mlp.widths, config.epochs, config.batch_size = "mlp", (8,), 0.5, 32
      >>> table = sgdlab.compare(methods=["asgd"], num_workers=[4], seeds=1, config=config, equal="gradients",
      ...                        processes=1, sweep={"optimizer.learning_rate": [0.01, 0.05]})  # doctest: +ELLIPSIS
      4 runs to do
      Compiling: ...
      [1/4] ...
      >>> table[["method", "num_workers", "optimizer.learning_rate", "gradients"]].to_numpy().tolist()
      [['nag_asgd', 1, 0.01, 22], ['nag_asgd', 1, 0.05, 22], ['asgd', 4, 0.01, 22], ['asgd', 4, 0.05, 22]]
    """
    pandas = library("compare")
    for file in _each(parts):
        load_parts(os.fspath(file))
    base = _configuration(config)
    names = list(known.methods() if methods == "all" else dict.fromkeys(map(str, _each(methods))))
    for name in names:
        known.check(name, "methods")
    counts = sorted({arguments.whole("num_workers", count) for count in _each(num_workers)})
    over, seeds = check_over(sweep, base), arguments.whole("seeds", seeds)
    for argument, values in (("methods", names), ("num_workers", counts)):
        if not values:
            raise ValueError(f"{argument}=[] must be at least one")
    trials = 0 if isinstance(tune, str | os.PathLike) else arguments.whole("tune", tune, least=0)
    settings = tuning.read(tune) if isinstance(tune, str | os.PathLike) else {} if trials else None
    check_swept(over, trials, settings)
    runs = comparison(base, names, counts, seeds, over, equal=equal, tuned=settings)
    checked = check(runs, over)
    for line in checked.notes:
        print(line)
    with contextlib.ExitStack() as stack:
        path = pathlib.Path(workdir or stack.enter_context(tempfile.TemporaryDirectory(prefix="sgdlab-")))
        files.check_writable(path, "workdir")
        check_ours(path)
        session = Session(path, processes, folder=METRICS)
        one = tuning.Tuning(runs.base, names, counts, trials, seeds) if trials else None
        runs, found, chosen = finished(runs, session, one, checked.gradients, over=over, equal=equal)
        if workdir is not None:
            session.store.tidy()
            print(f"Report: {report(runs, found, path, over, tuned=chosen or settings)[1]}")
    rows = [{name: point.varied.get(name) for name in over} | found[point.key][-1] for point in runs.runs]
    found_rows = pandas.DataFrame(rows).drop(columns=list(_NOT_IN_TABLES), errors="ignore")
    first = ["method", "num_workers", "seed", *over]
    return found_rows[[*first, *(name for name in found_rows.columns if name not in first)]]


def _each(values: Any) -> Iterable[Any]:
    """Return several values, or a single one as the only one."""
    return [values] if isinstance(values, str | os.PathLike) or not isinstance(values, Iterable) else values


def _configuration(config: Any) -> ConfigDict:
    """Return a configuration, or read its file."""
    if isinstance(config, str | os.PathLike):
        return configuration.load(configuration.found(os.fspath(config)))
    if not isinstance(config, ConfigDict) or "cluster" not in config:
        raise ValueError(
            f"config={config!r} must be a configuration, such as get_config() of {DEFAULT_CONFIG} returns, or its file"
        )
    # Entries of parts that were registered after it was made.
    made = config.copy_and_resolve_references()
    with made.unlocked():
        for family, known_parts in configuration.parts({}).items():
            for name, entries in known_parts.items():
                if family in made and name not in made[family]:
                    made[family][name] = entries
    return made


def finished(
    sweep: Sweep,
    session: Session,
    one: tuning.Tuning | None,
    gradients: Mapping[Kind, int],
    ledger: str | os.PathLike[str] | None = None,
    **how: Any,
) -> tuple[Sweep, dict[str, Records], Tuned | None]:
    """Do the runs of a comparison that are missing; where methods are tuned, do that first, and print what is found.

    `gradients` are those that `check` has found, `ledger` is as of `tuning.tune`, and `how` as of `comparison`.

    Returns:
      The comparison, its records by key, and what tuning has chosen.
    """
    if one is None:
        return sweep, finish([sweep], session), None
    outcome = tuning.tune(one, session, ledger, gradients)
    sweep = comparison(one.config, one.methods, one.num_workers, one.seeds, tuned=outcome.chosen, **how)
    if hosts.is_first():
        from sgdlab.runs import tuned_report  # noqa: PLC0415 (it takes a second to import)

        print(f"\n{tuned_report.publish(one, outcome, session.path)}\n", flush=True)
        # The tables and pictures of tuning are made of rows.
        rows = {row["key"] for row in outcome.rows}
        if again := sum(point.key in rows and session.store.read(point.name) is None for point in sweep.runs):
            print(
                f"The tables and pictures in {session.path / tuned_report.FOLDER} are of the ledger's rows, and "
                f"complete. The report shows what no row has, such as curves, staleness and speed-up: {again} of its "
                f"{len(sweep.runs)} runs have a row, but no records in {session.store.path}, and are done again for "
                "it. Who needs no report may stop here.",
                flush=True,
            )
    return sweep, finish([sweep], session), outcome.chosen


def comparison(
    config: ConfigDict,
    names: Sequence[str],
    num_workers: Sequence[int],
    seeds: int,
    over: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    *,
    equal: str = EQUAL[0],
    tuned: Tuned | None = None,
) -> Sweep:
    """Return the runs of a comparison: first the single workers, then method by method.

    A single worker is the first of the cluster, alone; it does its epochs, sends nothing and never fails. That which
    methods are compared with has its own protocol and rule, whatever the configuration says; it is one of the methods'
    baselines. The product of further entries' values is done of each run; an entry of `optimizer` that a method does
    not take is not varied there.

    By `equal`, one of `EQUAL`, runs end as `sgdlab.runs.tuning.by_time` has it, or as the configuration does, which
    counts epochs of used gradients. With `tuned`, entries of methods by name and number of workers, runs are tested
    on folds that tuning has not seen, unless the configuration names another split.

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
    every, several = known.methods(), [n for n in num_workers if n > 1]
    config = config.copy_and_resolve_references()
    if arguments.one_of("equal", equal, EQUAL) == "time":
        by_time(config)
    if tuned is not None and config.split == "own":
        config.split = "rotating"  # folds that tuning has not seen
    # The cluster whose first worker is alone.
    cluster: dict[str, Any] = {"cluster.num_workers": min(several)} if several else {}
    if config.budget is not None:
        cluster["budget"] = None  # a single worker does its epochs
    for family, nothing in {"transport": "free", "compression": "none", "failures": "none"}.items():
        if config.get(family) and config[family].kind != nothing:
            cluster[f"{family}.kind"] = nothing  # it sends nothing, and never fails
    alone = [name for name in known.baselines() if any(every[method].baseline == name for method in names)]
    kinds = [
        {"method": name, **cluster, "cluster.first_workers": 1, "protocol.kind": None, "rule.kind": None}
        for name in alone
    ]
    for name in names:
        for n in num_workers:
            if n > 1:
                kinds.append({"method": name, "cluster.num_workers": n, **(tuned or {}).get((name, n), {})})
            elif name not in alone:
                kinds.append({"method": name, **cluster, "cluster.first_workers": 1})
    if len(kinds) == len(alone):
        raise UsageError(
            f"--num_workers={num_workers[0]} with {', '.join(names)} is the baseline itself; name more workers or "
            "another method"
        )
    points = [
        kind | values | {"seed": seed}
        for kind in kinds
        for values in _products(config, kind, over)
        for seed in range(seeds)
    ]
    return Sweep(config, points, label=label)


def _products(config: ConfigDict, kind: Mapping[str, Any], over: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the product of entries' values, without the entries of `optimizer` that runs of a kind do not take."""
    if any(name.startswith("optimizer.") for name in over):
        settings = config.copy_and_resolve_references()
        settings.update_from_flattened_dict(dict(kind))
        over = {name: values for name, values in over.items() if not _ignores(resolve(settings), name)}
    return [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]


def _ignores(experiment: Experiment, name: str) -> bool:
    """Return if a name is an entry that rules share, and that of an experiment does not take."""
    group, _, entry = name.partition(".")
    return group == "optimizer" and entry not in experiment.taken[group]


def is_serial(point: Point) -> bool:
    """Return if a run is a single worker that methods are compared with."""
    return "rule.kind" in point.varied


def first_of_seeds(sweep: Sweep) -> list[Point]:
    """Return the runs of the first seed, which stand for those that differ from them in their seed alone."""
    return [point for point in sweep.runs if point.varied["seed"] == 0]


def check(sweep: Sweep, given: Iterable[str] = ()) -> Checked:
    """Plan one run of each kind, so that a comparison fails before it starts.

    Raises:
      UsageError: where a configuration is impossible; an entry that a person has set or varies makes no difference; or
        two methods are the same, because of a protocol or a rule that is set in the place of their own.
    """
    first = [(point, resolve(point.settings)) for point in first_of_seeds(sweep)]
    pairs: dict[str, str] = {}
    for point, experiment in first:
        name, pair = point.varied["method"], experiment.method.name
        if not is_serial(point) and pairs.setdefault(pair, name) != name:
            raise UsageError(
                f"--methods={pairs[pair]},{name} must be one method: with the protocol or rule that is set, "
                f"{pairs[pair]} and {name} are both {pair}"
            )
    given = list(given)
    check_used(given, [experiment.taken for _, experiment in first])
    found: dict[str, list[str]] = {}
    gradients: dict[Kind, int] = {}
    for point, experiment in first:
        plan = planned(experiment)
        if waste := plan.waste:
            found[experiment.method.name] = waste
        if point.varied.keys() == {"method", "cluster.num_workers", "seed"}:
            gradients[point.varied["method"], point.varied["cluster.num_workers"]] = plan.num_gradients
    ignored = [line for name in given for line in _ignored(name, [experiment for _, experiment in first])]
    return Checked([*ignored, *itertools.chain.from_iterable(found.values())], gradients)


def _ignored(name: str, experiments: Iterable[Experiment]) -> list[str]:
    """Return which methods do not take an entry that rules share, and what theirs is called: a line for each such.

    Example:
      >>> from configs import digits
      >>> config = digits.get_config()
      >>> config.method = "adam"
      >>> _ignored("optimizer.learning_rate", [resolve(config)])
      ['Note: adam does not take optimizer.learning_rate, but optimizer.adam_learning_rate']
    """
    methods: dict[str, dict[str, None]] = {}
    for experiment in experiments:
        if _ignores(experiment, name) and name.partition(".")[2] not in experiment.not_taken:  # which says it itself
            own = [entry for entry, _ in flat(experiment.taken) if is_rate(entry) and is_rate(name)]
            methods.setdefault(" and ".join(own), {})[experiment.method.name] = None
    return [
        f"Note: {', '.join(names)} {'does' if len(names) == 1 else 'do'} not take {name}" + f", but {own}" * bool(own)
        for own, names in methods.items()
    ]


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
    groups = results.summary.groups({p.key: _varied(p, found[p.key], over) for p in sweep.runs}.values())
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
        group, _, entry = name.partition(".")
        own = {key: value for key, value in run["config"][group].items() if key != entry}
        run = run | {"config": run["config"] | {group: own}}
    return [run, *rest]


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


def read_over(texts: Sequence[str], config: ConfigDict) -> dict[str, list[Any]]:
    """Return the entries and values that flags name, checked as by `check_over`; several numbers are in brackets.

    Example:
      >>> from configs import digits
      >>> texts = ["optimizer.learning_rate=0.01,0.05", "network.conv.channels=(8,16),(32,64)"]
      >>> read_over(texts, digits.get_config())
      {'optimizer.learning_rate': [0.01, 0.05], 'network.conv.channels': [(8, 16), (32, 64)]}
    """
    over: dict[str, Any] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise ValueError(f"sweep={text} must be an entry and its values, as in optimizer.learning_rate=0.01,0.05")
        if name in over:
            raise ValueError(f"sweep={text} must be joined with sweep={name}={','.join(map(str, over[name]))}")
        _check_name(name, config)
        over[name] = [_value(name, value.strip(), config) for value in _COMMAS.split(values)]
    return check_over(over, config)


def check_over(over: Mapping[str, Any], config: ConfigDict) -> dict[str, list[Any]]:
    """Return the entries that a comparison varies besides methods, workers and seeds, and their values, each once.

    Raises:
      ValueError: where there is no such entry, a value is not one of it, or a comparison sets the entry otherwise.
    """
    checked = {}
    if not isinstance(over, Mapping):
        raise ValueError(f"sweep={over!r} must be a mapping of entries to their values")
    for name, given in over.items():
        _check_name(name, config)
        values = list(_each(given))
        if not values:
            raise ValueError(f"sweep={name}={given!r} must be at least one value")
        copy = config.copy_and_resolve_references()
        for value in values:
            try:
                copy.update_from_flattened_dict({name: value})
            except TypeError as error:
                kind = _type(name, config).__name__
                raise ValueError(f"sweep={name}={value!r} must be of type {kind}, as the entry is") from error
        checked[name] = [value for place, value in enumerate(values) if value not in values[:place]]
    return checked


def check_swept(over: Mapping[str, Any], trials: int, tuned: Tuned | None) -> None:
    """Check that a comparison varies nothing that tuning sets, or that its tuning would not know of.

    Raises:
      ValueError: where it does.
    """
    set_by_tuning = {entry for settings in (tuned or {}).values() for entry in settings}
    for name in over:
        if trials:
            raise ValueError(
                f"sweep={name} must be left out beside tune={trials}: each method is tuned once, as the configuration "
                "is; compare first, and then with tune=tuned.json"
            )
        if name in set_by_tuning:
            raise ValueError(f"sweep={name} must be left out: tune gives each method its own value")


def _check_name(name: str, config: ConfigDict) -> None:
    if name in _SET_OTHERWISE:
        raise ValueError(f"sweep={name} must be left out: a comparison sets it by {_SET_OTHERWISE[name]}")
    known = [entry for entry, _ in flat(config)]
    if name not in known:
        raise ValueError(f"sweep={name} must be an entry of the configuration{meant(name, known)}")


def _type(name: str, config: ConfigDict) -> type:
    group, _, last = name.rpartition(".")
    return (value_of(config, group) if group else config).get_type(last)


def _value(name: str, text: str, config: ConfigDict) -> Any:
    """Return the value that a text stands for; `check_over` says where it is none of the entry."""
    if _type(name, config) is str:
        return text
    words: dict[str, Any] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
