"""Compares methods over numbers of workers, seeds and further entries."""

import contextlib
import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from sgdlab import arguments, files, hosts
from sgdlab.results.records import Records
from sgdlab.runs import compared, compared_report, configuration, tuning, varied
from sgdlab.runs import methods as known
from sgdlab.runs.executor import finish
from sgdlab.runs.parts import load as load_parts
from sgdlab.runs.store import METRICS, check_ours
from sgdlab.runs.sweep import Session, Sweep, library
from sgdlab.runs.tuning import Kind, Tuned
from sgdlab.runs.varied import each

if TYPE_CHECKING:
    import pandas as pd


DEFAULT_CONFIG = "configs/digits.py"
_NOT_IN_TABLES = ("kind", "families", "rank", "baseline", "never_waits", "measures_gap")
"""Entries of summaries that say how a run is drawn."""


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
    equal: str = compared.EQUAL[0],
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
      run's summary, such as `test_accuracy`, `seconds` (virtual) and `diverged`. Where `epochs` or `seconds` are swept,
      those that the run has done are `run_epochs` and `run_seconds`.

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
    for file in each(parts):
        load_parts(os.fspath(file))
    base = _configuration(config)
    names = list(known.methods() if methods == "all" else dict.fromkeys(map(str, each(methods))))
    for name in names:
        known.check(name, "methods")
    counts = sorted({arguments.whole("num_workers", count) for count in each(num_workers)})
    over, seeds = varied.check(sweep, base), arguments.whole("seeds", seeds)
    for argument, values in (("methods", names), ("num_workers", counts)):
        if not values:
            raise ValueError(f"{argument}=[] must be at least one")
    trials = 0 if isinstance(tune, str | os.PathLike) else arguments.whole("tune", tune, least=0)
    settings = tuning.read(tune) if isinstance(tune, str | os.PathLike) else {} if trials else None
    varied.check_beside_tuning(over, trials, settings)
    runs = compared.comparison(base, names, counts, seeds, over, equal=equal, tuned=settings)
    checked = compared.check(runs, over)
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
            print(f"Report: {compared_report.report(runs, found, path, over, tuned=chosen or settings)[1]}")
    rows = []
    for point in runs.runs:
        done = {f"run_{name}" if name in over else name: value for name, value in found[point.key][-1].items()}
        rows.append(done | {name: point.varied.get(name) for name in over})
    found_rows = pandas.DataFrame(rows).drop(columns=list(_NOT_IN_TABLES), errors="ignore")
    first = ["method", "num_workers", "seed", *over]
    return found_rows[[*first, *(name for name in found_rows.columns if name not in first)]]


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
    sweep = compared.comparison(one.config, one.methods, one.num_workers, one.seeds, tuned=outcome.chosen, **how)
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
    # The others' tasks may have ended after their own methods: who finds all tuned does what is left.
    return sweep, finish([sweep], dataclasses.replace(session, shard=None)), outcome.chosen
