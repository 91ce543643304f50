"""Trains one run of one method on real workers, and records what happened: `sgdlab replay` repeats it bit for bit.

    sgdlab live --config.method=gap_aware --num_workers=4 --workdir=runs/live
    sgdlab live --config.method=gap_aware --num_workers=2:8 --listen=127.0.0.1:8476 --token_file=token
    sgdlab live --join=127.0.0.1:8476 --token_file=token    # one of its workers, which others start

The same command continues a run. It leaves what `sgdlab train` leaves, recording.npz (who computed what) and log.jsonl.
"""

import contextlib
import fcntl
import functools
import pathlib
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from sgdlab import hosts, results, runs
from sgdlab.commands import joined, launch, shared_flags, train
from sgdlab.errors import UsageError, failures_of, said_of
from sgdlab.live.settings import LiveSettings, fitting, patient

if TYPE_CHECKING:
    from ml_collections import ConfigDict

    from sgdlab.live.recording import LiveRecording
    from sgdlab.live.status import Status
    from sgdlab.live.transport import Transport
    from sgdlab.runs.live import Job
    from sgdlab.runs.plan import Plan

DEFAULT_WORKDIR = "runs/live"
NAME = train.NAME
LOG = "log.jsonl"
TRANSPORTS = ("processes", "ray")

_SETTINGS = {
    "min_workers": "Least number of workers needed for the run to go on.",
    "join_seconds": "Seconds in which a worker must have started.",
    "wait_seconds": "Seconds that the run waits for --min_workers before it ends, and a worker for its server (600).",
    "patience": "Silence after which a worker is lost, in multiples of its usual time.",
    "least_patience": "Seconds of silence before which no worker is lost.",
    "first_patience": "Seconds of silence after which a worker is lost while its usual time is unknown.",
    "respawns": "Number of starts in a row, of all workers' processes, without a gradient, after which the run fails.",
    "checkpoint_updates": "Least number of updates between two checkpoints.",
    "checkpoint_seconds": "Least seconds between two checkpoints.",
}
"""Fields of `LiveSettings` that are flags, each with its help."""


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string(
        "num_workers",
        None,
        "Number of workers, --config.cluster.num_workers. 2:8: eight, and --min_workers=2.",
    )
    joined.define()
    flags.DEFINE_enum("transport", "processes", TRANSPORTS, "Workers are processes of this machine, or Ray actors.")
    flags.DEFINE_string(
        "address", None, "Address of the Ray cluster, such as auto; by default one of this machine alone."
    )
    flags.DEFINE_bool("insecure", False, "Joins a Ray cluster that asks for no token; lets workers come without TLS.")
    flags.DEFINE_float("gpus_per_worker", None, "GPUs of each worker, such as 1 or 0.5; by default it has none.")
    flags.DEFINE_float(
        "emulate",
        None,
        "Slows workers down as the configuration's cluster is, scaled to EMULATE seconds on average.",
    )
    shared_flags.define_serve("Show the run as a page, on a port of this machine alone: --serve, or --serve=8080.")
    for name, words in _SETTINGS.items():
        default = getattr(LiveSettings, name)
        (flags.DEFINE_integer if isinstance(default, int) else flags.DEFINE_float)(name, default, words)
    flags.DEFINE_integer("spares", 1, "Number of processes that wait to take the place of a worker that is lost.")
    flags.DEFINE_bool("rerun", False, "Does a finished run again; its old records are archived.")
    flags.DEFINE_list("writers", [], "Further destinations of the records: tensorboard, wandb.")


def main(argv: Sequence[str]) -> None:
    """Trains on real workers, or shows what is there."""
    del argv
    given = flags.FLAGS
    joined.check()
    if given.join is not None:
        joined.work()
        return
    workdir = launch.workdir(DEFAULT_WORKDIR)
    results.writers.check(given.writers)
    workers, settings = _counted()
    config = _config(workers)
    from sgdlab.live import environment  # noqa: PLC0415 (before JAX is first used)

    environment.for_server(given.gpus_per_worker)  # it computes on the kind of device that its workers have
    job = runs.live.make_job(config, emulate=given.emulate)
    experiment = job.plan.experiment
    runs.configuration.check_used(launch.given_entries(), [experiment.taken])
    with said_of("--"):
        fitting(settings, job.num_workers)
    if given.rerun:
        with contextlib.ExitStack() as held:
            if runs.store.Store.of(workdir).state_path(NAME).is_dir():
                held.enter_context(_alone(workdir))
            _put_aside(workdir)
    runs.store.check_ours(workdir)
    directory = runs.store.Store.of(workdir)
    finished = directory.read(NAME)
    if finished is not None:
        runs.store.check_same(workdir, finished[0]["config"], job.identity)
        print(f"{workdir} holds this run already; nothing had to be run.")
        train.show(finished[-1])
        return
    folder = directory.state_path(NAME)
    with contextlib.ExitStack() as held:
        with failures_of(experiment.method.name), hosts.stopping(), contextlib.ExitStack() as stack:
            watch, say = stack.enter_context(_watching(given.serve))
            for line in runs.parts.notes(experiment.rule.part, experiment.not_taken):
                say(line)
            place = runs.train.Place(directory, NAME, given.writers)
            report = stack.enter_context(place.reporting(functools.partial(_say, say, job.plan)))
            transport: Any = stack.enter_context(contextlib.closing(_transport(job, folder / "workers", say)))
            held.enter_context(_alone(workdir))
            run, recording = runs.live_run.execute(
                job,
                transport,
                folder=folder,
                settings=settings,
                before=runs.live_run.under_way(directory, NAME),
                watch=watch,
                stop=hosts.stop_requested,
                report=report,
                say=say,
            )
            if given.listen is not None:
                transport.end()
        _leave_results(directory, run, recording)
    train.show(run.records[-1])
    print(_costs(run, recording))
    again = [f"--recording={workdir / 'recording.npz'}", *([f"--parts={','.join(given.parts)}"] if given.parts else [])]
    print(f"`sgdlab replay {shlex.join(again)}` repeats it, with this rule or another.")


@contextlib.contextmanager
def _alone(workdir: pathlib.Path) -> Iterator[None]:
    """Keeps other processes from the run in a directory, or refuses it where one executes it already."""
    folder = runs.store.Store.of(workdir).state_path(NAME)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"--workdir={workdir} holds a run that another process executes: wait for it, stop it, or name another "
                "directory"
            ) from None
        yield


def _counted() -> tuple[int | None, LiveSettings]:
    """The largest number of workers, and settings with the least."""
    given = flags.FLAGS
    least, workers = shared_flags.counts("--num_workers", given.num_workers)
    if least is not None and given["min_workers"].present and given.min_workers != least:
        raise UsageError(f"--num_workers={given.num_workers} differs from --min_workers={given.min_workers}")
    values = {name: getattr(given, name) for name in _SETTINGS}
    with said_of("--"):
        settings = LiveSettings(**values if least is None else {**values, "min_workers": least})
    return workers, settings if given.listen is None else patient(settings)


def _config(workers: int | None) -> "ConfigDict":
    """The configuration, with --num_workers in it."""
    config = launch.CONFIG.value
    if workers is not None:
        if "cluster.num_workers" in launch.given_entries() and config.cluster.num_workers != workers:
            raise UsageError(
                f"--num_workers={workers} differs from --config.cluster.num_workers={config.cluster.num_workers}; they "
                "are the same: name one of them"
            )
        config.cluster.num_workers = workers
    return config


def _transport(job: "Job", logs: pathlib.Path, say: Callable[[str], None]) -> "Transport":
    """Workers as the flags say; none is started before the server asks for it."""
    given = flags.FLAGS
    kind: Any
    own: dict[str, Any] = {"num_workers": job.num_workers, "gpus_per_worker": given.gpus_per_worker}
    if given.listen is not None:
        return joined.transport(job, own, say)
    own["logs"] = logs
    if given.transport == "ray":
        # Ray is told to listen on this machine alone before it is imported.
        from sgdlab.live.ray import Ray  # noqa: PLC0415

        kind, own = Ray, own | {"address": given.address or "local", "insecure": given.insecure, "say": say}
    elif given.address is not None:
        raise UsageError(f"--address={given.address} is of a Ray cluster; set --transport=ray")
    else:
        from sgdlab.live.processes import Processes  # noqa: PLC0415

        kind, own = Processes, own | {"spares": given.spares}
    with said_of("--"):
        return kind(job.source, job.task.params, job.gradients.aux, sent_like=job.gradients.sent, **own)


@contextlib.contextmanager
def _watching(port: int | None) -> Iterator[tuple[Callable[["Status"], None], Callable[[str], None]]]:
    """Shows the run in the terminal and, where asked for, as a page; and what says a line beside that."""
    from sgdlab.live.progress import LiveProgress  # noqa: PLC0415
    from sgdlab.live.status import RunPage  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(LiveProgress())
        shown: list[Any] = [progress]
        if port is not None:
            with said_of("--serve: "):
                page = stack.enter_context(RunPage(port))
            progress.say(f"Watch it at {page.address}")
            shown.append(page)

        def watch(status: "Status") -> None:
            for one in shown:
                one.show(status)

        yield watch, progress.say


def _say(say: Callable[[str], None], plan: "Plan", record: Mapping[str, Any]) -> None:
    if record["kind"] == "evaluation":
        metric, unit = results.metric.Metric.of(runs.records.what(plan)), plan.experiment.local.unit
        say(f"{record['gradients']:>7} {unit}s, {record['seconds']:>8,.1f} s: {metric.beside_loss(record)}")


def _leave_results(directory: "runs.store.Store", run: "runs.train.Run", recording: "LiveRecording") -> None:
    """Writes all that a run leaves; the log and the checkpoints under way go, last of all, when the metrics stand."""

    def beside() -> None:
        recording.save(directory.workdir / "recording.npz")
        log = directory.state_path(NAME) / LOG
        try:
            shutil.copyfile(log, directory.workdir / LOG)
        except FileNotFoundError:
            print(f"{log} was deleted when the run had ended; what it has left has no log.")

    train.leave_results(directory, run, beside)


def _put_aside(workdir: pathlib.Path) -> None:
    """Puts what a run has left beside its old records, and removes one that has not finished."""
    directory = runs.store.Store.of(workdir)
    moved = directory.put_aside(NAME)
    for name in ("recording.npz", LOG) if moved else ():
        with contextlib.suppress(FileNotFoundError):
            aside = directory.path / runs.store.SUPERSEDED
            (workdir / name).replace(aside / f"{NAME}.{name}")
    for left in directory.left_under_way(NAME):
        left.unlink()


def _costs(run: "runs.train.Run", recording: "LiveRecording") -> str:
    """Return what became of all gradients, and what the evaluations took."""
    ledger = recording.ledger()
    fates = ", ".join(f"{count} {fate}" for fate, count in ledger.items() if count and fate != "begun")
    spent = sum(record["evaluation_seconds"] or 0.0 for record in run.records[1:-1])
    unit = results.facts.unit(run.records[-1])
    return (
        f"{ledger['begun']} {unit}s begun: {fates}. {len(run.records) - 2} evaluations took {spent:.1f} s beside the "
        "server"
    )


COMMAND = launch.Command(
    main=main,
    usage=__doc__,
    define=define_flags,
    unlisted=(*_SETTINGS, "address", "gpus_per_worker", "insecure", "rerun", "spares", "writers", *joined.UNLISTED),
)
