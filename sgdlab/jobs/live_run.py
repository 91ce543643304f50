"""Executes a run on processes, or what is left of it, with its evaluations and its records."""

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence

from sgdlab import replay
from sgdlab.errors import UsageError
from sgdlab.jobs import recorded, records, tasks
from sgdlab.jobs.live import Job
from sgdlab.jobs.live_evaluations import Evaluations, Report, values_of
from sgdlab.jobs.records import Record
from sgdlab.jobs.store import Store
from sgdlab.jobs.train import Run
from sgdlab.live.log import Log, LogError
from sgdlab.live.recording import LiveRecording
from sgdlab.live.server import serve
from sgdlab.live.settings import LiveSettings
from sgdlab.live.status import Status
from sgdlab.live.transport import Transport
from sgdlab.replay.steps import Steps

DEFAULT_SETTINGS = LiveSettings()


def execute(
    job: Job,
    transport: Transport,
    *,
    folder: str | os.PathLike[str],
    settings: LiveSettings = DEFAULT_SETTINGS,
    before: Sequence[Record] = (),
    watch: Callable[[Status], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    report: Report = lambda record: None,
    say: Callable[[str], None] = print,
) -> tuple[Run, LiveRecording]:
    """Executes a run, or what is left of it.

    Evaluations are made in a thread of their own, on a version that they keep: the server goes on, and no worker waits
    for them. Each record says how many seconds its evaluation took (`evaluation_seconds`).

    Args:
      job: made by `sgdlab.jobs.live.make_job`.
      transport: the workers.
      folder: where the log and the checkpoints are; a run that is there continues.
      settings: of the server.
      before: records of evaluations of this very run, of a process that ended.
      watch: called with the `Status` about twice a second.
      stop: asked several times a second: whether to stop.
      report: called with each record as soon as it is there: `run`, each `evaluation`, `summary`.
      say: called with a line where a run is resumed, or something cannot be used.

    Returns:
      The finished `Run`, and the recording.

    Raises:
      Stopped: where it was asked to stop; the same call continues.
      RunFailed: where too few workers are left.
      UsageError: where the log that is there is of another configuration, or cannot be used, or was deleted meanwhile.
    """
    begun, experiment = time.perf_counter(), job.plan.experiment
    steps = job.steps()
    report(opening(job))
    with Evaluations(job, steps, before, report) as evaluations:
        try:
            log = Log(folder, job.header, compute_of=job.compute_of, sent_like=job.sent_like, say=say)
            recording = serve(
                job.policy,
                steps,
                transport,
                num_workers=job.num_workers,
                num_gradients=job.plan.num_gradients,
                settings=dataclasses.replace(settings, title=experiment.method.title, unit=experiment.local.unit),
                log=log,
                on_update=evaluations.update,
                watch=None if watch is None else evaluations.watched(watch),
                stop=lambda: evaluations.collect() or stop(),
            )
        except LogError as error:
            # What keeps the log from being read or written, such as a full disk, says nothing against the log.
            anew = "" if isinstance(error.__cause__, OSError) else "; --rerun begins anew"
            raise UsageError(f"{error}{anew}") from error
        schedule = recording.schedule
        made = evaluations.records(schedule.num_updates, recording.used_tickets().size, schedule.wall_clock())
    run = _finished(job, steps, recording, made, begun)
    report(run.records[-1])
    return run, recording


def opening(job: Job) -> Record:
    """The first record of a run on processes."""
    record = records.opening(job.plan)
    count = job.num_workers
    emulated = job.header["emulate"]
    law = job.plan.experiment.cluster.law
    like = f"; gradients take at least as long as on {law}, {emulated:g} s on average" if emulated else ""
    about = {**record["about"], "cluster": f"{count} worker{'s' * (count > 1)} on real processes{like}"}
    return {**record, "live": True, "config": job.identity, "about": about}


def under_way(store: Store, name: str) -> list[Record]:
    """Return the evaluations of a run under way, which processes that have ended have left; whole lines only."""
    found: dict[int, Record] = {}
    for file in store.left_under_way(name):
        for line in file.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if record.get("kind") == "evaluation":
                    found.setdefault(record["gradients"], record)
    return [found[gradients] for gradients in sorted(found)]


def _finished(job: Job, steps: Steps, recording: LiveRecording, made: list[Record], begun: float) -> Run:
    plan = recorded.of_events(job.plan, recording)
    evaluations = [values_of(record, plan.experiment.kind.metric) for record in made]
    history = recorded.history_of(plan, recording, evaluations)
    final = tasks.evaluation_of(plan.experiment, job.task, "train", plan.experiment.reporting.train_examples)(
        steps.params, steps.stats
    )
    final = {name: float(value) for name, value in final.items()}
    summary = records.closing(plan, history, made, final, time.perf_counter() - begun)
    averages = {"average": steps.average, "average_stats": steps.average_stats}
    result = replay.Result(steps.params, steps.state, steps.stats, history, **averages)
    return Run([opening(job), *made, summary], result, recording.schedule)
