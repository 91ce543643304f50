"""Compares methods over numbers of workers and seeds, and writes a report.

    sgdlab compare --methods=all --num_workers=4,8,16,32 --seeds=3 --workdir=runs/digits
    sgdlab compare --methods=asgd,dana --sweep=optimizer.learning_rate=0.01,0.05 --workdir=runs/rates

Leaves report.html, tables, plots/ and metrics in the work directory. The same command continues, or adds runs.
"""

import itertools
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from sgdlab import hosts, results, runs
from sgdlab.commands import launch, shared_flags
from sgdlab.errors import UsageError, said_of

DEFAULT_WORKDIR = "runs/digits"


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_list(
        "methods", None, "Methods, separated by commas, or all. By default a selection from all families."
    )
    flags.DEFINE_list("num_workers", ["8", "32"], "Numbers of workers, separated by commas.")
    flags.DEFINE_integer("seeds", 3, "Number of seeds; they are 0, 1, ...", lower_bound=1)
    flags.DEFINE_integer(
        "processes", None, "Number of runs in parallel; by default one for each core, or one on a GPU.", lower_bound=1
    )
    flags.DEFINE_string("shard", None, "Share of the runs to do: 2/8 is task 2 of a scheduler's array of 8.")
    flags.DEFINE_list("rerun", [], "Methods (or all) to rerun; their finished runs are archived in metrics/superseded.")
    flags.DEFINE_string(
        "equal",
        "time",
        "`time` or `gradients`: what is equal for all runs, virtual seconds or used gradients.",
    )
    flags.DEFINE_string(
        "tune", None, "Number of trials by which each method is tuned first, such as 24; or the tuned.json of a run."
    )
    flags.DEFINE_string("ledger", None, "CSV file of finished runs of --tune, which are not rerun.")
    flags.DEFINE_multi_string(
        "sweep",
        [],
        "ENTRY=VALUE,VALUE: an entry and its values; may be repeated for all combinations.",
    )
    flags.DEFINE_list("writers", [], "Further destinations of the records: tensorboard, wandb.")
    shared_flags.define_hosts()


def main(argv: Sequence[str]) -> None:
    """Runs what is missing, then reports; over many processes, the first one writes and prints."""
    del argv
    given = flags.FLAGS
    num_workers = _checked_counts(given.num_workers)
    results.writers.check(given.writers)
    shard = _checked_shard(given.shard, given.rerun)
    mesh = shared_flags.mesh()
    if mesh is not None and given.processes is not None:
        raise UsageError(
            f"--processes={given.processes} must be left out: with several devices, a run takes all of them"
        )
    workdir = launch.workdir(DEFAULT_WORKDIR)
    config = launch.CONFIG.value
    names = _checked_methods("methods", given.methods, otherwise=runs.methods.REPRESENTATIVE)
    rerun = _checked_methods("rerun", given.rerun or None, otherwise=())
    for name in set(rerun) - set(names) if given.rerun != ["all"] else ():
        raise UsageError(f"--rerun={name} must be one of the methods that are compared: {', '.join(names)}")
    with said_of("--"):
        over = runs.varied.read(given.sweep, config)
    for name in set(over) & set(launch.given_entries()):
        raise UsageError(f"--config.{name} must be left out: --sweep={name} gives it its values")
    trials, tuned = _checked_tune(given.tune, given.ledger)
    if trials and rerun:
        raise UsageError(
            f"--rerun={','.join(given.rerun)} must be left out with --tune={trials}, whose ledger has the runs: name a "
            "new --workdir instead"
        )
    how: Any = {"over": over, "equal": given.equal}
    with said_of("--"):
        runs.varied.check_beside_tuning(over, trials, tuned)
        sweep = runs.compared.comparison(config, names, num_workers, given.seeds, tuned=tuned, **how)
    plain = [f"{name} at {n}" for n in num_workers for name in names if tuned and n > 1 and (name, n) not in tuned]
    if plain and hosts.is_first():
        print(f"Not tuned in {given.tune}, and run as the configuration is: {', '.join(plain)}.", flush=True)
    entries = [*launch.given_entries(), *over]
    # What a file of one's own imports may have changed besides.
    whole = not (trials or rerun or runs.parts.outside()) and mesh is None
    if whole and (there := runs.compared_report.up_to_date(sweep, workdir, over, entries)):
        _print_report(*there)
        return
    checked = runs.compared.check(sweep, entries)
    if hosts.is_first():
        runs.store.check_ours(workdir)
        _print_notes(sweep, checked.notes)
    hosts.check_shared(workdir)
    session = runs.Session(
        workdir,
        given.processes,
        shard,
        folder=runs.store.METRICS,
        writers=tuple(given.writers),
        mesh=mesh,
    )
    if rerun and hosts.is_first():
        _put_aside(sweep, session, rerun)
    try:
        tuning = runs.tuning.Tuning(sweep.base, names, num_workers, trials, given.seeds) if trials else None
        sweep, found, chosen = runs.compare.finished(sweep, session, tuning, checked.gradients, given.ledger, **how)
    except runs.executor.Unfinished as left:
        print(f"{left}. The last to finish writes the report; so does the same command without --shard.")
        return
    if hosts.is_first():
        session.store.tidy()
        _print_report(*runs.compared_report.report(sweep, found, workdir, over, entries, chosen or tuned))


def _put_aside(sweep: "runs.Sweep", session: "runs.Session", methods: Sequence[str]) -> None:
    """Put aside the finished runs of methods, and say how many they are."""
    anew = [point.name for point in sweep.runs if point.varied["method"] in methods]
    if aside := sum(map(session.store.put_aside, anew)):
        print(f"Put aside, to be rerun: {aside} finished runs. To continue after an interruption, leave out --rerun.")


def _print_report(text: str, page: pathlib.Path) -> None:
    print(f"\n{text}\n\nReport: {page}")


def _print_notes(sweep: "runs.Sweep", others: Sequence[str]) -> None:
    """Print what a custom rule does not take of the configuration, and other notes, such as what methods waste."""
    configs = {point.varied["method"]: point.settings for point in runs.compared.first_of_seeds(sweep)}.values()
    notes = (runs.parts.notes(one.rule.part, one.not_taken) for one in (runs.resolve(config) for config in configs))
    for line in dict.fromkeys([*itertools.chain.from_iterable(notes), *others]):
        print(line, flush=True)


def _checked_shard(text: str | None, rerun: Sequence[str]) -> "runs.Shard | None":
    if text is None:
        return None
    with said_of("--"):
        shard = runs.Shard.of(text)
    if rerun:
        raise UsageError(
            f"--rerun={','.join(rerun)} must be left out with --shard: tasks that begin later would put aside "
            "what others have finished; name a new --workdir instead"
        )
    return shard


def _checked_tune(value: str | None, ledger: str | None) -> "tuple[int, runs.tuning.Tuned | None]":
    """Return the number of trials, and what is chosen before them; None where nothing is tuned."""
    trials = int(value) if value is not None and value.isdecimal() else 0
    if value is not None and value.removeprefix("-").isdecimal() and not trials:
        raise UsageError(f"--tune={value} must be at least 1, or the {runs.tuning.CHOSEN} of a tuned comparison")
    if ledger is not None and not trials:
        raise UsageError(f"--ledger={ledger} must go with --tune=TRIALS, whose runs it has")
    with said_of("--"):
        if ledger is not None:
            runs.ledger.RunLedger.read(pathlib.Path(ledger))
        return trials, runs.tuning.read(value) if value is not None and not trials else {} if trials else None


def _checked_methods(flag: str, names: Sequence[str] | None, *, otherwise: Sequence[str]) -> list[str]:
    if names == ["all"]:
        return list(runs.methods.methods())
    for name in names or ():
        runs.methods.check(name, f"--{flag}")
    if names is not None and not names:
        raise UsageError(f"--{flag}= must name at least one method, or all; `sgdlab compare --help` lists them")
    return list(dict.fromkeys(otherwise if names is None else names))


def _checked_counts(values: Sequence[str]) -> list[int]:
    for value in values:
        if not value.strip().isdecimal() or int(value) < 1:
            raise UsageError(f"--num_workers={value} must be whole numbers of at least 1, separated by commas")
    if not values:
        raise UsageError("--num_workers= must be at least one whole number")
    return sorted({int(value) for value in values})


COMMAND = launch.Command(
    main=main,
    usage=__doc__,
    define=define_flags,
    own_entries={"method": "methods", "seed": "seeds", "cluster.num_workers": "num_workers"},
    unlisted=("ledger", "writers", *shared_flags.OF_HOSTS),
)
