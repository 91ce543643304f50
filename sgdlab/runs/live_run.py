"""Executes a run on processes, or what is left of it, with its evaluations and its records."""

import array
import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from sgdlab import replay
from sgdlab.errors import UsageError
from sgdlab.live.engine import Updated
from sgdlab.live.lines import LogError
from sgdlab.live.log import Log
from sgdlab.live.recording import LiveRecording
from sgdlab.live.server import serve
from sgdlab.live.settings import LiveSettings
from sgdlab.live.status import Status
from sgdlab.live.transport import Transport
from sgdlab.replay.steps import Steps
from sgdlab.results.metric import Metric
from sgdlab.runs import recorded, records, tasks
from sgdlab.runs.live import Job
from sgdlab.runs.records import Record
from sgdlab.runs.store import Store
from sgdlab.runs.train import Run
from sgdlab.types import Tree

Report = Callable[[Record], None]
_MOST_WAITING = 4
"""Evaluations that have not ended, each with parameters of its own; so many at most are lost with the server."""


class Evaluations:
    """The evaluations of a run: when they are due, who makes them, and their records.

    Those `before` need not be made again. Each new record is reported from the thread that calls it, after each update,
    or `collect` or `records`. What it remembers of gradients goes with the server's checkpoints (`state`, `go_on`).
    """

    def __init__(self, job: Job, steps: Steps, before: Sequence[Record], report: Report):
        self._plan, self._steps, self._report = job.plan, steps, report
        reporting = job.plan.experiment.reporting
        self._test = tasks.evaluation_of(job.plan.experiment, job.task, "test", reporting.test_examples)
        self._every = math.ceil(job.plan.num_gradients / reporting.evaluations)
        self._before, self._next = list(before), self._every
        self._newest = max((record["gradients"] for record in before), default=-1)
        self._records: list[Record] = []
        self._made: list[dict[str, float]] = []
        self._delay, self._loss = array.array("d"), array.array("d")  # of each gradient since the newest evaluation
        self._first = 0  # number of gradients before these
        self._waiting: list[tuple[concurrent.futures.Future, dict[str, float], replay.History, int]] = []
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="evaluation")

    def __enter__(self) -> "Evaluations":
        for record in self._before:
            self._add(record)
        # Compiled before the clock of the run begins.
        self._evaluate(0, 0, 0.0)
        self.collect(wait=True)
        if self._before:
            jax.block_until_ready(self._evaluation()())
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
        if error[0] is not None:
            with contextlib.suppress(Exception):
                self.collect()

    def state(self) -> dict[str, Any]:
        """Return what is remembered of the gradients since the newest evaluation."""
        kept = {"delay": np.array(self._delay), "loss": np.array(self._loss)}
        return {"first": self._first, "next": self._next, **kept}

    def go_on(self, state: dict[str, Any]) -> None:
        """Remember what a server was told that has ended."""
        self._first, self._next = state["first"], state["next"]
        self._delay, self._loss = (array.array("d", state[name].tolist()) for name in ("delay", "loss"))

    def __call__(self, update: Updated) -> dict[str, float | str] | None:
        """Begin an evaluation where one is due, and return the newest that has been made."""
        for one in update.taken:
            self._delay.append(one.delay)
            self._loss.append(one.loss)
        self.collect()
        # The server waits for none of them: where too many do, this one is put off to the next update.
        if update.gradients >= self._next and len(self._waiting) < _MOST_WAITING:
            self._next = (update.gradients // self._every + 1) * self._every
            if update.computed:
                self._evaluate(update.number, update.gradients, update.seconds)
        return self._shown()

    def watched(self, watch: Callable[[Status], None]) -> Callable[[Status], None]:
        """Return `watch`, which is shown the newest evaluation too."""
        return lambda status: watch(dataclasses.replace(status, evaluation=self._shown() or {}))

    def collect(self, *, wait: bool = False) -> None:
        """Report those that are ready, or all."""
        while self._waiting and (wait or self._waiting[0][0].done()):
            future, when, history, first = self._waiting.pop(0)
            values = when | future.result()
            history.evaluations.extend([self._made[-1], values] if self._made else [values])
            cost = {"evaluation_seconds": values["evaluation_seconds"]}
            self._add(records.evaluation(self._plan, history, first=first) | cost)
            needless = max(min(values["gradients"] - self._first, len(self._delay)), 0)
            del self._delay[:needless], self._loss[:needless]
            self._first += needless

    def records(self, updates: int, gradients: int, seconds: float) -> list[Record]:
        """Return all of them, in order, with one of the end of the run: its updates, used gradients and seconds."""
        self._evaluate(updates, gradients, seconds)
        self.collect(wait=True)
        return self._records

    def _add(self, record: Record) -> None:
        self._records.append(record)
        self._made.append(values_of(record, self._plan.experiment.task.facts.metric))
        self._report(record)

    def _evaluate(self, updates: int, gradients: int, seconds: float) -> None:
        if gradients <= self._newest:  # the last one, or one that was made before the run was resumed
            return
        self._newest = gradients
        when = {"gradients": gradients, "updates": updates, "seconds": seconds}
        self._waiting.append((self._thread.submit(_timed, self._evaluation()), when, self._history(), self._first))

    def _evaluation(self) -> Callable[[], dict[str, Any]]:
        """Return what evaluates the parameters of this moment, wherever it is called."""
        steps = self._steps
        averages = None if steps.average is None else (steps.average, steps.average_stats)
        return functools.partial(_evaluated, self._test, steps.params, steps.stats, averages)

    def _history(self) -> replay.History:
        """Return what is known of the gradients since the newest evaluation, of which records say delays and losses."""
        delay, loss = np.array(self._delay), np.array(self._loss)
        unknown = np.broadcast_to(np.nan, delay.size)
        return replay.History(unknown, unknown, unknown, delay, unknown, unknown, {"loss": loss}, evaluations=[])

    def _shown(self) -> dict[str, float | str] | None:
        if not self._made:
            return None
        metric, newest = Metric.of(records.what(self._plan)), self._made[-1]
        return {"test loss": f"{newest['loss']:.4f}", metric.title: metric.text(newest[metric.name])}


def _evaluated(test: Any, params: Tree, stats: Tree, averages: tuple[Tree, Tree] | None) -> dict[str, Any]:
    values = dict(test(params, stats))
    if averages is not None:
        narrow = lambda average, leaf: average.astype(leaf.dtype)
        found = test(*jax.tree.map(narrow, averages, (params, stats)))
        values |= {f"average_{name}": value for name, value in found.items()}
    return values


def _timed(evaluation: Callable[[], dict[str, Any]]) -> dict[str, float]:
    begun = time.perf_counter()
    values = {name: float(value) for name, value in evaluation().items()}
    return values | {"evaluation_seconds": time.perf_counter() - begun}


def values_of(record: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return the evaluation that a record was made of."""
    nan = lambda value: math.nan if value is None else value
    found = {name: record[name] for name in ("gradients", "updates", "seconds")}
    found |= {"loss": nan(record["test_loss"]), metric: nan(record[f"test_{metric}"])}
    found["evaluation_seconds"] = nan(record.get("evaluation_seconds"))
    average = record.get(f"average_{metric}")
    return found if average is None else found | {f"average_{metric}": average}


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
    """Execute a run, or what is left of it.

    Evaluations are made in a thread of their own, on a version that they keep: the server goes on, and no worker waits
    for them. Each record says how many seconds its evaluation took (`evaluation_seconds`).

    A run that is in `folder`, with its log and checkpoints, continues; the evaluations `before` are of this very
    run, of a process that ended. `watch` is called with the `Status` about twice a second, `stop` is asked several
    times a second, `report` is called with each record as soon as it is there, and `say` with a line where a run is
    resumed, or something cannot be used.

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
                on_update=evaluations,
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
    """Return the first record of a run on processes."""
    record = records.opening(job.plan, job.task.params)
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
    plan, experiment = recorded.of_events(job.plan, recording), job.plan.experiment
    evaluations = [values_of(record, experiment.task.facts.metric) for record in made]
    loss = recording.loss[plan.program.gradient[: plan.program.num_rows]]
    # Without distances and norms, which only a replay measures.
    history = replay.History(**plan.program.record(), aux={"loss": loss}, evaluations=evaluations)
    on_train = tasks.evaluation_of(experiment, job.task, "train", experiment.reporting.train_examples)
    final = {name: float(value) for name, value in on_train(steps.params, steps.stats).items()}
    summary = records.closing(plan, history, made, final, time.perf_counter() - begun)
    averages = {"average": steps.average, "average_stats": steps.average_stats}
    result = replay.Result(steps.params, steps.state, steps.stats, history, **averages)
    return Run([opening(job), *made, summary], result, recording.schedule)
