"""The runs of a comparison, and what is checked before they are done."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from sgdlab import arguments
from sgdlab.errors import UsageError
from sgdlab.runs import methods as known
from sgdlab.runs.configuration import check_used, flat, is_rate
from sgdlab.runs.experiment import Experiment, resolve
from sgdlab.runs.plan import planned
from sgdlab.runs.sweep import Sweep
from sgdlab.runs.tuning import Kind, Tuned, by_time
from sgdlab.runs.work import Point, label

EQUAL = ("time", "gradients")
"""Names the quantity that all methods have as much of."""

_ALONE = {"transport": "free", "compression": "none", "failures": "none"}
"""The parts of a single worker, which sends nothing and never fails."""


class Checked(NamedTuple):
    """Holds what a check of a comparison finds before its runs."""

    notes: list[str]  # for a person: who takes no entry that is set or varied; one `Plan.waste` of each method
    gradients: dict[Kind, int]  # of a run of each method at a number of workers, where nothing else is varied


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
    not take is not varied there, nor is what a single worker has not.

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
        by_time(config, over)
    if tuned is not None and config.split == "own":
        config.split = "rotating"  # folds that tuning has not seen
    # The cluster whose first worker is alone.
    cluster: dict[str, Any] = {"cluster.num_workers": min(several)} if several else {}
    if config.budget is not None:
        cluster["budget"] = None  # a single worker does its epochs
    for family, nothing in _ALONE.items():
        if config.get(family) and config[family].kind != nothing:
            cluster[f"{family}.kind"] = nothing
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
    """Return the product of the values of those entries that runs of a kind take."""
    if "cluster.first_workers" in kind:
        over = {n: values for n, values in over.items() if n != "budget" and n.partition(".")[0] not in _ALONE}
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
