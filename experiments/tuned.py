"""Every method at its own best on workloads of digits: tunes what is missing, and stores tables and pictures.

    python -m experiments.tuned                                  tables and pictures of what is stored
    python -m experiments.tuned --run --workloads=gamma-n32      does what is missing of a workload; takes hours
    python -m experiments.tuned --run --workloads=gamma-n32 --methods=asgd,dana --shard=2/8

A workload is a cluster, a number of workers and how data are shared. Of each run there is a row in
`experiments/results/runs/<workload>.csv`; runs that have one are not rerun: the same command goes on anywhere.
Written to `experiments/results/tuned` are `<workload>.md` and `.png`, and of all workloads together `README.md`,
`methods.csv` and `profiles.png`; and `configs/digits.tuned.json`, with which `make run` compares methods.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from absl import flags
from ml_collections import ConfigDict

from configs import digits
from experiments.harness import look
from sgdlab import files
from sgdlab.commands import launch
from sgdlab.errors import UsageError, said_of
from sgdlab.registry import PROTOCOLS
from sgdlab.results import plots, profiles, standing
from sgdlab.runs.executor import Unfinished
from sgdlab.runs.ledger import RunLedger
from sgdlab.runs.methods import check, methods
from sgdlab.runs.sweep import Noted, Session, Shard
from sgdlab.runs.tuned_report import TunedView
from sgdlab.runs.tuning import Outcome, Tuning, write

RUNS, RESULTS = (pathlib.Path(__file__).parent / "results" / name for name in ("runs", "tuned"))
CHOSEN = pathlib.Path(__file__).parents[1] / "configs" / "digits.tuned.json"
OF_MAKE_RUN = ("gamma-n8", "gamma-n32")
"""Workloads whose settings `make run` has."""

CLUSTERS: Mapping[str, Mapping[str, Any]] = {
    "gamma": {"cluster.kind": "gamma", "cluster.gamma.heterogeneous": True},
    "stalls": {
        "cluster.kind": "long_tailed",
        "cluster.long_tailed.tail_share": 0.01,
        "cluster.long_tailed.tail_start": 10.0,
    },
    "equal": {"cluster.kind": "gamma", "cluster.gamma.heterogeneous": False},
    "ladder": {"cluster.kind": "ladder"},
    "ethernet": {
        "cluster.kind": "gamma",
        "cluster.gamma.heterogeneous": True,
        "transport.kind": "ethernet_10g",
        "transport.ethernet_10g.gradient_bytes": 1e9,
        "transport.ethernet_10g.parameter_bytes": 1e9,
        "failures.kind": "independent",
        "failures.independent.mean_up_hours": 24.0,
    },
}
"""Machines of unequal speed; equal ones, of whose gradients one in a hundred takes ten times as long or more; equal
ones; the i-th i times as slow as the first; and those of the first that send a model of 1 GB over 10 Gbit/s, and fail
once a day."""

WORKERS = (32, 8)
SHARES: Mapping[str, Mapping[str, Any]] = {"": {}, "-own": {"heterogeneity.alpha": 0.1}}
"""All draw from all examples; or each has its own, with labels by Dirichlet's law."""

WORKLOADS = {
    f"{cluster}-n{count}{share}": (count, {**entries, **own})
    for (share, own), (cluster, entries), count in itertools.product(SHARES.items(), CLUSTERS.items(), WORKERS)
}
"""Name -> number of workers, and what differs from `configs/digits.py`."""

TRIALS, SEEDS = 24, 20

DEFAULT_WORKDIR = "runs/tuned"


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_list("workloads", None, f"Of {', '.join(WORKLOADS)}. By default those that are stored.")
    flags.DEFINE_list("methods", ["all"], "Methods, separated by commas, or all.")
    flags.DEFINE_bool("run", False, "Do what is missing, instead of only showing what is stored.")
    flags.DEFINE_string("shard", None, "Tunes a share of the methods: 2/8 is task 2 of an array of 8.")
    flags.DEFINE_integer("processes", None, "Runs at once. By default one a core.", lower_bound=1)


def main(argv: Sequence[str]) -> None:
    """Runs what is asked for, then stores what there is."""
    del argv
    given = flags.FLAGS
    stored = [name for name in WORKLOADS if ledger_of(name).exists()]
    names = stored if given.workloads is None else given.workloads
    for name in names:
        if name not in WORKLOADS:
            raise UsageError(f"--workloads={name} must be among {', '.join(WORKLOADS)}")
    wanted = list(methods()) if given.methods == ["all"] else given.methods
    for name in wanted:
        check(name, "--methods")
    with said_of("--"):
        shard = None if given.shard is None else Shard.of(given.shard)
    for name in names if given.run else ():
        session = Session(launch.workdir(DEFAULT_WORKDIR) / name, given.processes, folder="metrics")
        one = tuning_of(name, [method for method in wanted if method in methods_of(name)], shard)
        print(f"{name}: {one.cost()}", flush=True)
        one.run(session, RunLedger.read(ledger_of(name, shard)))
    store([name for name in WORKLOADS if ledger_of(name).exists()])


def ledger_of(workload: str, shard: Shard | None = None) -> pathlib.Path:
    """Return the file with a row of each run of a workload; each shard has one of its own."""
    own = "" if shard is None else f".{shard.index}-of-{shard.count}"
    return RUNS / f"{workload}{own}.csv"


def config_of(workload: str) -> ConfigDict:
    """Return the configuration of a workload.

    Example:
      >>> config_of("stalls-n8-own").cluster.kind, config_of("stalls-n8-own").heterogeneity.alpha
      ('long_tailed', 0.1)
    """
    config = digits.get_config()
    config.average_decay = None  # no row has the average's accuracy, whose 800 evaluations are a fifth of a run
    config.update_from_flattened_dict(dict(WORKLOADS[workload][1]))
    return config


def methods_of(workload: str) -> list[str]:
    """Return the methods that run on a workload: all, or those whose protocols take what it costs.

    Example:
      >>> "pull_gossip" in methods_of("gamma-n8"), "pull_gossip" in methods_of("ethernet-n8")
      (True, False)
    """
    entries = WORKLOADS[workload][1]
    costs = {
        given for kind, given in (("transport.kind", "transport"), ("failures.kind", "outages")) if kind in entries
    }
    return [name for name, method in methods().items() if costs <= PROTOCOLS[method.protocol].given]


def tuning_of(workload: str, names: Sequence[str], shard: Shard | None = None) -> Tuning:
    """Return the tuning of methods on a workload."""
    return Tuning(config_of(workload), names, [WORKLOADS[workload][0]], TRIALS, SEEDS, shard)


def outcome_of(workload: str) -> Outcome:
    """Return what the ledger of a workload holds: of all methods whose runs are all there."""
    ledger, chosen, rows = RunLedger.read(ledger_of(workload)), {}, []
    tuning = tuning_of(workload, [])
    there = {row["method"] for row in ledger.rows.values()}
    for name in methods_of(workload):
        if name not in there:
            continue
        try:  # where a run is missing, it is noted and none is done
            one = dataclasses.replace(tuning, methods=[name])
            found = one.run(Session(noted=Noted()), ledger, say=lambda line: None)
        except Unfinished:
            continue
        chosen |= found.chosen
        rows += found.rows
    return Outcome(chosen, rows)


def store(workloads: Sequence[str]) -> None:
    """Write tables and pictures of workloads, and what was chosen."""
    texts, rows, chosen = [], [], {}
    for name in workloads:
        outcome, count = outcome_of(name), WORKLOADS[name][0]
        if not outcome.chosen:
            continue
        tuning = tuning_of(name, [method for method, _ in outcome.chosen])
        view = TunedView.of(tuning, outcome, count)
        plots.save(standing.standing(view.best), RESULTS / name, ["png"])
        tables = [view.table, *view.of_trials.tables()]
        text = f"# {name}: {view.best[0].about['cluster']}\n\n" + "\n\n".join(table.markdown() for table in tables)
        files.write_text(RESULTS / f"{name}.md", text + "\n")
        texts.append(_sentences(name, view))
        rows += _rows(name, view)
        chosen |= outcome.chosen if name in OF_MAKE_RUN else {}
        print(f"\n{name}\n\n{view.table.without(('tuned',)).text()}", flush=True)
    table = pd.DataFrame(rows)
    files.write_text(RESULTS / "methods.csv", table.to_csv(index=False, float_format="%.6g"))
    files.write_text(RESULTS / "README.md", "\n\n".join(["# Every method at its best", *texts]) + "\n")
    _store_profiles(table)
    if chosen:
        command = f"python -m experiments.tuned --run --workloads={','.join(OF_MAKE_RUN)}"
        write(CHOSEN, chosen, tuning_of(OF_MAKE_RUN[0], []), made_by=command)


def _sentences(name: str, view: TunedView) -> str:
    """Return who is first on a workload, in words."""
    titles = {group.method: group.title for group in view.best}
    first = [titles[row["method"]] for row in view.rows if row["first"]]
    who = (
        f"statistically indistinguishable from the fastest: {', '.join(first)}"
        if len(first) > 1
        else f"fastest: {', '.join(first)}"
    )
    return f"* **{name}** ({len(view.best)} methods): {who}. [Table]({name}.md), [picture]({name}.png)."


def _rows(name: str, view: TunedView) -> list[dict[str, Any]]:
    """Return a row for each method, of numbers."""
    metric = view.best[0].metric.name
    kept = {"low": "seconds_low", "high": "seconds_high"}
    names = ("method", "seconds", "low", "high", "untuned", "first", metric, "diverged", "seeds", "trials_that_reach")
    names = (*names, "trials", "settings")
    return [{"workload": name, **{key: row[kept.get(key, key)] for key in names}} for row in view.rows]


def _store_profiles(table: pd.DataFrame) -> None:
    """Draw the performance profiles of the methods that all stored workloads have."""
    wide = table.pivot(index="method", columns="workload", values="seconds").dropna() if len(table) else table
    if len(wide) < 2 or wide.shape[1] < 2:
        return
    known = methods()
    ratios = profiles.ratios({name: row.to_numpy(float) for name, row in wide.iterrows()})
    titles = {name: known[name].title for name in wide.index}
    looks = {name: look(name) for name in wide.index}
    plots.save(profiles.figure(ratios, titles, looks), RESULTS / "profiles", ["png"])


COMMAND = launch.Command(main=main, usage=__doc__, define=define_flags, configured=False)

if __name__ == "__main__":
    COMMAND.run()
