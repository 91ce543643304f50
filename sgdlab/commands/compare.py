"""Compares methods over numbers of workers and seeds, and reports.

    sgdlab compare --methods=all --num_workers=4,8,16,32 --seeds=3 --workdir=runs/digits

Leaves report.html, tables, plots/ and metrics in the work directory. The same command continues, or adds runs.
"""

import itertools
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from sgdlab import hosts, jobs, results
from sgdlab.commands import host_flags, launch
from sgdlab.errors import UsageError, said_of

if TYPE_CHECKING:
    from ml_collections import ConfigDict

    from sgdlab.jobs.compare import Cell

DEFAULT_WORKDIR = "runs/digits"
OWN_ENTRIES = {"method": "methods", "seed": "seeds", "cluster.num_workers": "num_workers"}

TIMELINES = 5
"""So many schedules are drawn, of as many kinds as there are."""
TIMELINE_WORKERS = 8


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_list("methods", None, "Methods, separated by commas, or all. By default some that stand for all.")
    flags.DEFINE_list("num_workers", ["8", "32"], "Numbers of workers, separated by commas.")
    flags.DEFINE_integer("seeds", 2, "How many seeds: 0, 1, ...", lower_bound=1)
    flags.DEFINE_integer("processes", None, "Runs at once. By default one a core, or one on a GPU.", lower_bound=1)
    flags.DEFINE_string("shard", None, "Does a share of the runs: 2/8 is task 2 of a scheduler's array of 8.")
    flags.DEFINE_list("rerun", [], "Methods (or all) to run anew; their finished runs are put aside.")
    flags.DEFINE_list("writers", [], "Where records go besides: tensorboard, wandb.")
    host_flags.define_flags()


def main(argv: Sequence[str]) -> None:
    """Runs what is missing, then reports; over many processes, the first one writes and prints."""
    del argv
    given = flags.FLAGS
    num_workers = _checked_counts(given.num_workers)
    results.writers.check(given.writers)
    with said_of("--"):
        shard = None if given.shard is None else jobs.shard.Shard.of(given.shard)
    if shard and given.rerun:
        raise UsageError(
            f"--rerun={','.join(given.rerun)} must be left out with --shard: tasks that begin later would put aside "
            "what others have finished; name a new --workdir instead"
        )
    mesh = host_flags.mesh()
    if mesh is not None and given.processes is not None:
        raise UsageError(
            f"--processes={given.processes} must be left out: with several devices, a run takes all of them"
        )
    workdir = launch.workdir(DEFAULT_WORKDIR)
    config = launch.CONFIG.value
    names = _checked_methods("methods", given.methods, otherwise=jobs.methods.REPRESENTATIVE)
    rerun = _checked_methods("rerun", given.rerun or None, otherwise=())
    cells = jobs.compare.grid(names, num_workers, given.seeds)
    if all(cell.serial for cell in cells):
        raise UsageError(
            f"--num_workers={num_workers[0]} with {', '.join(names)} is the baseline itself; name more workers or "
            "another method"
        )
    _check_different(config, names)
    own = [jobs.resolve(cell.configured(config)).identity for cell in cells if cell.seed == 0]
    jobs.configuration.check_used(launch.given_entries(), own)
    for name in set(rerun) - set(names) if given.rerun != ["all"] else ():
        raise UsageError(f"--rerun={name} must be one of the methods that are compared: {', '.join(names)}")
    jobs.compare.check(config, cells)
    if hosts.is_first():
        found = (jobs.resolve(cell.configured(config)) for cell in {cell.method: cell for cell in cells}.values())
        notes = (jobs.parts.notes(one.rule.part, one.not_taken) for one in found)
        for line in dict.fromkeys(itertools.chain.from_iterable(notes)):
            print(line, flush=True)
    hosts.check_shared(workdir)
    directory = _directory(workdir, config, cells, [cell.name(config) for cell in cells if cell.method in rerun])
    share = cells if shard is None else jobs.compare.share(cells, shard)
    if shard is not None and hosts.is_first():
        print(f"Task {shard}: {len(share)} of {len(cells)} runs", flush=True)
    jobs.compare.run_all(config, share, directory, processes=given.processes, writers=given.writers, mesh=mesh)
    if hosts.is_first():
        _report(config, cells, directory)


def _directory(
    workdir: pathlib.Path, config: "ConfigDict", cells: Sequence["Cell"], anew: Sequence[str]
) -> "results.directory.RunDirectory":
    """The directory of the runs, less those that are to be run anew; over many processes, the first one writes."""
    shared, made = jobs.compare.shared_config(config, cells), jobs.digests.made_with()
    if not hosts.is_first():
        return results.directory.RunDirectory(workdir, shared, made=made, writes=False)
    if anew and (aside := results.directory.put_aside(workdir, anew)):
        print(
            f"Put aside, to be run anew: {aside} finished runs. To continue after an interruption, leave out --rerun."
        )
    changed = jobs.compare.superseded(config, cells, workdir)
    directory = results.directory.RunDirectory(workdir, shared, made=made, superseding=changed)
    if other := directory.changed_since():
        print(other, flush=True)
    return directory


def _report(config: "ConfigDict", cells: Sequence["Cell"], directory: "results.directory.RunDirectory") -> None:
    """Publishes the comparison, unless runs are left to other tasks of a scheduler's array."""
    if left := jobs.compare.unfinished(config, cells, directory):
        print(
            f"{len(left)} of {len(cells)} runs are left to other tasks. The last to finish writes the report; so does "
            "the same command without --shard."
        )
        return
    directory.tidy()
    groups = jobs.compare.groups(config, cells, directory)
    page = results.publish.publish(directory.path, groups, _schedules(config, cells))
    print(f"\n{results.table.text(groups)}\n\nReport: {page}")


def _check_different(config: "ConfigDict", names: Sequence[str]) -> None:
    """A protocol and a rule that are set stand in the place of every method's own: only one method can have both."""
    pairs: dict[str, str] = {}
    for name in names:
        changed = config.copy_and_resolve_references()
        changed.method = name
        pair = jobs.resolve(changed).method.name
        if pair in pairs:
            raise UsageError(
                f"--methods={','.join(names)} must be one method: with the protocol or rule that is set, "
                f"{pairs[pair]} and {name} are both {pair}"
            )
        pairs[pair] = name


def _schedules(config: "ConfigDict", cells: Sequence["Cell"]) -> dict[str, Any]:
    """Title -> schedule, for the time-lines: the first method of each protocol, at one number of workers."""
    several = [cell for cell in cells if not cell.serial and cell.seed == 0]
    shown = min((cell.num_workers for cell in several), key=lambda n: abs(n - TIMELINE_WORKERS))
    schedules: dict[str, tuple[str, Any]] = {}
    for cell in several:
        protocol = jobs.methods.methods()[cell.method].protocol
        if cell.num_workers == shown and protocol not in schedules and len(schedules) < TIMELINES:
            plan = jobs.plan.make_plan(cell.configured(config))
            schedules[protocol] = plan.experiment.method.title, plan.schedule
    return dict(schedules.values())


def _checked_methods(flag: str, names: Sequence[str] | None, *, otherwise: Sequence[str]) -> list[str]:
    if names == ["all"]:
        return list(jobs.methods.methods())
    for name in names or ():
        jobs.methods.check(name, f"--{flag}")
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
