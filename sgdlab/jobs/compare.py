"""Compares methods over numbers of workers and seeds: a grid of runs that survives being killed."""

import contextlib
import dataclasses
import functools
import itertools
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from sgdlab import hosts
from sgdlab.errors import Stopped, failures_of
from sgdlab.jobs import digests, pool
from sgdlab.jobs.configuration import common
from sgdlab.jobs.experiment import resolve
from sgdlab.jobs.methods import baselines, methods
from sgdlab.jobs.plan import make_plan
from sgdlab.jobs.records import Record
from sgdlab.jobs.shard import Shard
from sgdlab.jobs.train import train_and_record
from sgdlab.results import summary
from sgdlab.results.directory import SUPERSEDED, RunDirectory
from sgdlab.results.metric import Metric
from sgdlab.results.records import Records, read_records

GRID = ("method", "seed", "cluster.num_workers")
"""What differs between the runs of one directory, and is set by the grid."""

_FOLLOWS = ("cluster.first_workers", "protocol.kind", "rule.kind")
"""What differs with it."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of the grid.

    Attributes:
      method: its name.
      num_workers: N; 1 is the first worker of the cluster, alone.
      seed: of everything.
      serial: it is a single worker that the others are compared with: nobody else's protocol or rule is meant.
      cluster_workers: of which the single worker is the first; None: the configuration's.
    """

    method: str
    num_workers: int
    seed: int
    serial: bool = False
    cluster_workers: int | None = None

    def __str__(self) -> str:
        return f"{self.method}, {self.num_workers} worker{'s' * (self.num_workers > 1)}, seed {self.seed}"

    def configured(self, config: ConfigDict) -> ConfigDict:
        """The configuration of this run."""
        config = config.copy_and_resolve_references()
        config.method, config.seed = self.method, self.seed
        if self.num_workers == 1:
            config.cluster.first_workers = 1
            config.cluster.num_workers = self.cluster_workers or config.cluster.num_workers
        else:
            config.cluster.num_workers = self.num_workers
        if self.serial:
            config.protocol.kind = config.rule.kind = None
        return config

    def name(self, config: ConfigDict) -> str:
        """The name of its metrics file."""
        method = resolve(self.configured(config)).method.name
        return f"{method}-n{self.num_workers}-seed{self.seed}"


def grid(names: Sequence[str], num_workers: Sequence[int], seeds: int) -> list[Cell]:
    """All runs of a comparison: first the single workers, then method by method.

    Example:
      >>> [str(cell) for cell in grid(["dana"], [4], 2)]
      ['nag_asgd, 1 worker, seed 0', 'nag_asgd, 1 worker, seed 1', 'dana, 4 workers, seed 0', 'dana, 4 workers, seed 1']
    """
    known, several = methods(), [n for n in num_workers if n > 1]
    smallest = min(several) if several else None
    alone = [name for name in baselines() if any(known[m].baseline == name for m in names)]
    cells = [Cell(name, 1, seed, True, smallest) for name in alone for seed in range(seeds)]
    return cells + [
        Cell(name, n, seed, cluster_workers=smallest if n == 1 else None)
        for name in names
        for n in num_workers
        if not (n == 1 and name in alone)
        for seed in range(seeds)
    ]


def check(config: ConfigDict, cells: Sequence[Cell]) -> None:
    """Plans one run of each method and number of workers, so that a comparison fails before it starts.

    Raises:
      UsageError: where a configuration is impossible; it names the flag.
    """
    for cell in {(cell.method, cell.num_workers, cell.serial): cell for cell in reversed(cells)}.values():
        make_plan(cell.configured(config))


def shared_config(config: ConfigDict, cells: Sequence[Cell]) -> dict[str, Any]:
    """The entries that the runs depend on, less what the grid varies, and what the name of a method means."""
    kinds = {(cell.method, cell.num_workers): cell for cell in cells}.values()
    return common((resolve(cell.configured(config)).free for cell in kinds), (*GRID, *_FOLLOWS))


def read(config: ConfigDict, cell: Cell, directory: RunDirectory) -> Records | None:
    """The records of a finished run; None where it has not finished, or its parts' code has changed since.

    Raises:
      OtherConfiguration: where the run that is there is of another configuration.
    """
    records, changed = _found(config, cell, directory)
    return None if changed else records


def superseded(config: ConfigDict, cells: Sequence[Cell], path: pathlib.Path) -> list[str]:
    """Names of the finished runs of a directory whose parts' code or files have changed since they were made."""
    names = []
    for cell in cells:
        records = read_records(path / "metrics" / f"{cell.name(config)}.jsonl")
        if records and digests.changed(records, resolve(cell.configured(config))):
            names.append(cell.name(config))
    return names


def share(cells: Sequence[Cell], shard: Shard) -> list[Cell]:
    """The cells of one task of a scheduler's array, in their order; a method's cells stay together where they can.

    Args:
      cells: all runs of the comparison.
      shard: which task.

    Example:
      >>> cells = grid(["asgd", "dana"], [4], 2)
      >>> [[str(cell) for cell in share(cells, Shard(index, 3))] for index in (1, 2, 3)]
      [['nag_asgd, 1 worker, seed 0', 'nag_asgd, 1 worker, seed 1'],
       ['asgd, 4 workers, seed 0', 'asgd, 4 workers, seed 1'],
       ['dana, 4 workers, seed 0', 'dana, 4 workers, seed 1']]
    """
    own = set(shard.share(_by_method(cells)))
    return [cell for cell in cells if cell in own]


def unfinished(config: ConfigDict, cells: Sequence[Cell], directory: RunDirectory) -> list[Cell]:
    """The cells that have no finished run, or one that other code has made.

    Raises:
      OtherConfiguration: where a run that is there is of another configuration.
    """
    return [cell for cell in cells if read(config, cell, directory) is None]


def run_all(
    config: ConfigDict,
    cells: Sequence[Cell],
    directory: RunDirectory,
    *,
    processes: int | None = None,
    writers: Sequence[str] = (),
    mesh: Mesh | None = None,
) -> int:
    """Runs the cells that have not finished yet, each method's by one process, and shows progress.

    A run whose parts have other code now than when it was made is run anew; its old records are put aside.

    Args:
      config: of all cells, but for what a cell sets.
      cells: the runs.
      directory: finished runs are found and written there.
      processes: how many at once. None: one for each core where the backend is the CPU (a small net is faster on one
        core than on two), else one.
      writers: names in `sgdlab.results.writers.WRITERS`: where records go besides.
      mesh: several devices, of this process or of many, over which the runs go one after the other. None: each run has
        a device, or a core, of its own.

    Returns:
      How many runs it did.

    Raises:
      Stopped: over a mesh, where a signal asked to stop.
      UsageError: where a cell's configuration is impossible.
      RunFailed: where a run raised an error, such as one of a user's own rule.
    """
    missing = _missing(config, cells, directory)
    gradients = resolve(config).num_gradients * len(missing)
    grouped = sorted(_by_method(missing), key=len)[::-1]
    if mesh is not None:
        _run_over_mesh(config, grouped, directory, tuple(writers), mesh, gradients)
        return len(missing)
    if processes is None:
        processes = len(pool.cores()) if jax.default_backend() == "cpu" else 1
    jobs = [functools.partial(_run_group, config, group, directory, tuple(writers)) for group in grouped]
    with pool.Progress(len(missing), gradients, min(processes, max(len(jobs), 1))) as progress:
        pool.run(jobs, progress, processes)
    return len(missing)


def _missing(config: ConfigDict, cells: Sequence[Cell], directory: RunDirectory) -> list[Cell]:
    """The cells to run, which the first of many processes finds out for all."""
    found = ""
    if hosts.is_first():
        there = {cell: _found(config, cell, directory) for cell in cells}
        missing = [i for i, (records, changed) in enumerate(there.values()) if records is None or changed]
        _print_what_is_there(there, len(missing), directory)
        found = json.dumps(missing)
    return [cells[i] for i in json.loads(hosts.gather("the runs that are missing", found)[0])]


def _run_over_mesh(
    config: ConfigDict,
    grouped: Sequence[Sequence[Cell]],
    directory: RunDirectory,
    writers: Sequence[str],
    mesh: Mesh,
    gradients: int,
) -> None:
    """Runs cells one after the other, each over all devices; a signal stops the one that is under way."""
    total = sum(map(len, grouped))
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(pool.Progress(total, gradients, 1)) if directory.writes else None
        stack.enter_context(hosts.stopping())
        try:
            for group in grouped:
                send = progress.take if progress else lambda message: None
                _run_group(config, group, directory, writers, send, mesh=mesh, stop=hosts.stop_requested)
                if progress:
                    progress.finished_job()
        except Stopped as stopped:
            done = progress.done if progress else 0
            # Finished runs are not run again: the same command continues, also without a checkpoint of this one.
            raise Stopped(done, gradients, saved=True) from stopped


def groups(config: ConfigDict, cells: Sequence[Cell], directory: RunDirectory) -> list[summary.Group]:
    """Finished cells, seeds put together: single workers first, then by number of workers."""
    found = (read(config, cell, directory) for cell in cells)
    return summary.groups([records for records in found if records is not None])


def _by_method(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells that share a compiled program, method by method."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.method, []).append(cell)
    return list(found.values())


def _found(config: ConfigDict, cell: Cell, directory: RunDirectory) -> tuple[Records | None, list[str]]:
    """The records of a finished run, and the families of its parts whose code has changed since."""
    own, name = resolve(cell.configured(config)), cell.name(config)
    records = directory.read(name)
    changed = digests.changed(records, own) if records else []
    if not changed:  # with other code, other entries are to be expected too
        directory.read(name, identity=own.identity)
    return records, changed


def _print_what_is_there(there: Mapping[Cell, tuple[Any, list[str]]], missing: int, directory: RunDirectory) -> None:
    """What is run anew because of its code, how many runs are there, and whether there is nothing to do."""
    for method in dict.fromkeys(cell.method for cell, (_, changed) in there.items() if changed):
        anew = [changed for cell, (_, changed) in there.items() if changed and cell.method == method]
        families = " and ".join(dict.fromkeys(itertools.chain.from_iterable(anew)))
        print(
            f"{method}: its {families} has changed (code or files); {len(anew)} of its runs are run anew, and the old "
            f"records go to {directory.path / 'metrics' / SUPERSEDED}"
        )
    if not missing:
        print(f"All {len(there)} runs were found finished in {directory.path}; nothing had to be run.")
    elif missing < len(there):
        print(f"Found finished: {len(there) - missing} of {len(there)} runs; {missing} to do", flush=True)


def _run_group(
    config: ConfigDict,
    cells: Sequence[Cell],
    directory: RunDirectory,
    names: Sequence[str],
    send: Callable[[pool.Message], None],
    *,
    mesh: Mesh | None = None,
    stop: Callable[[], bool] | None = None,
) -> None:
    """Runs cells of one method one after the other; they share one compiled program."""
    plans = [make_plan(cell.configured(config)) for cell in cells]
    with failures_of(str(cells[0])):
        capacity = functools.reduce(lambda a, b: a | b, (plan.program.capacity for plan in plans))
    for cell, plan in zip(cells, plans, strict=True):
        last = 0

        def report(record: Record, cell: Cell = cell) -> None:
            nonlocal last
            if record["kind"] == "evaluation":
                send(pool.Message(str(cell), record["gradients"] - last))
                last = record["gradients"]

        with failures_of(str(cell)):
            run = train_and_record(
                plan,
                directory,
                cell.name(config),
                writers=names,
                capacity=capacity,
                mesh=mesh,
                stop=stop,
                report=report,
            )
        if directory.writes:
            directory.write(cell.name(config), run.records)
            send(pool.Message(str(cell), result=outcome(run.records[-1])))


def outcome(record: Mapping[str, Any]) -> str:
    """The result of a run in a few words, from its last record.

    Example:
      >>> outcome({"diverged": False, "test_accuracy": 0.964, "seconds": 1213.4, "speedup": 2.031})
      '96.4 %, 1,213 virtual s, 2.03 x sync. SGD'
    """
    metric = Metric.of(record)
    end = "diverged" if record["diverged"] else metric.text(record[metric.test])
    return f"{end}, {record['seconds']:,.0f} virtual s, {record['speedup']:.2f} x sync. SGD"
