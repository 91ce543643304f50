"""Schedules of protocols on some steps of a recorded trace, for `sgdlab timeline`."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sgdlab import results, runs
from sgdlab.errors import UsageError
from sgdlab.peer_schedule import AnySchedule, PeerSchedule
from sgdlab.runtimes import NotEnoughRuntimes
from sgdlab.traces import Options, Recording, read

if TYPE_CHECKING:
    from sgdlab.results.timeline import WorkerRows
    from sgdlab.runs.experiment import Experiment

LEAD = 1000
"""Most steps before the first one that is drawn in which a protocol gets to know the cluster."""


class Window(NamedTuple):
    """Steps of a trace that are drawn, and those before them from which protocols know the cluster."""

    recording: Recording  # complete steps
    first: int  # row of the first one that is drawn; all that follow are drawn

    @property
    def steps(self) -> np.ndarray:
        """int64[K], numbers of the steps that are drawn."""
        return self.recording.steps[self.first :]

    def start(self, drawn: "Drawn") -> float:
        """Second of a schedule at which the first worker begins with the first of the steps that are drawn."""
        if self.first == 0:
            return 0.0
        schedule = drawn.schedule
        worker = schedule.node if isinstance(schedule, PeerSchedule) else schedule.worker
        order = np.lexsort((schedule.started, worker))
        count = np.arange(order.size) - np.searchsorted(worker[order], worker[order])  # each worker's own, from 0
        begun = schedule.started[order][count == self.first // drawn.steps[worker[order]]]
        return float(begun.min()) if begun.size else 0.0

    def describe(self, drawn: "Drawn") -> str:
        """Return how many of the gradients that begin in these steps are used, and how many are dropped."""
        schedule = drawn.schedule
        if isinstance(schedule, PeerSchedule):
            return ""
        begun = schedule.started >= self.start(drawn)
        used, dropped = schedule.used().any(axis=1) & begun, schedule.dropped().all(axis=1) & begun
        decided = used | dropped
        if not decided.any():
            return ""
        seconds = schedule.ended() - schedule.started
        of_work = 100 * seconds[dropped].sum() / seconds[decided].sum()
        return (
            f"steps {self.steps[0]} to {self.steps[-1]}: {used.sum()} {drawn.unit}s used, {dropped.sum()} dropped "
            f"({100 * dropped.sum() / decided.sum():.1f} % of them, {of_work:.1f} % of the work)"
        )


class Drawn(NamedTuple):
    """A method on the steps of a trace."""

    title: str  # of the method
    schedule: AnySchedule  # its schedule
    steps: np.ndarray  # int[N], steps of the trace that each worker makes for what it sends: 1 for a gradient
    unit: str  # what that is called: "gradient", or "message"

    @property
    def edges(self) -> int | np.ndarray:
        """Edges of the computation tree that each of them is."""
        return runs.local_steps.edges(self.schedule, self.steps)


def window(path: str, options: Options, *, first_step: int | None, steps: int | None) -> Window:
    """Complete steps of a trace, with those before them.

    The first one is `first_step`, as the recorder counted, or the first complete step; there are at most `steps`,
    or all that follow.

    Raises:
      UsageError: where there is no such trace, or no such step.
    """
    try:
        complete = read(path, options, name="--trace").complete()
    except (ValueError, OSError) as error:
        message = str(error)
        raise UsageError(message if message.startswith("--") else f"--trace={path}: {message}") from error
    first = 0 if first_step is None else int(np.searchsorted(complete.steps, first_step))
    if first == complete.steps.size:
        raise UsageError(f"--first_step={first_step} must be at most {complete.steps[-1]}, the last complete step")
    begin = max(0, first - LEAD)
    last = None if steps is None else first + steps
    return Window(complete.select(rows=slice(begin, last)), first - begin)


def schedule(experiment: "Experiment", recording: Recording) -> Drawn:
    """Return an experiment's method on recorded steps: as many gradients as they are enough for.

    Row t of the compute times is each worker's t-th gradient, or local step; all of them begin with the first row at
    once. The transfer of collectives counts as work of every worker.

    The experiment's method and protocol are used, and its cluster is not.

    Raises:
      UsageError: where an entry is impossible, or the steps are not enough.
    """
    runtimes = recording.runtimes + recording.transfer()[:, None]
    local, method = experiment.local, experiment.source["method"]
    steps = runs.local_steps.steps_by_worker(local, runtimes)
    if len(runtimes) < steps.max():
        raise UsageError(
            f"--steps={len(runtimes)}: {len(runtimes)} complete steps of the trace are too few; "
            f"--config.method={method} makes {steps.max()} local steps for a message: leave the method out, or "
            f"set --config.local.steps={len(runtimes)}"
        )
    if steps.max() > 1:
        runtimes = runs.local_steps.of_messages(runtimes, steps)
    try:
        made = experiment.protocol.make(
            runtimes=runtimes,
            num_gradients=None,
            gradients_per_epoch=float(runtimes.size),
            seed=experiment.seeds.of("protocol"),
            predictor=experiment.predictor_of,
        )
    except NotEnoughRuntimes as error:
        enough = error.rows * int(steps.max())  # a row of compute times is a message
        raise UsageError(
            f"--steps={len(recording.runtimes)} must be about {enough} for --config.method={method}"
            + (f", whose {local.unit}s have {steps.max()} local steps: {error}" if steps.max() > 1 else f": {error}")
        ) from error
    runs.plan.check_local(experiment, made)
    return Drawn(experiment.method.title, made, steps, local.unit)


def rows(recording: Recording) -> "WorkerRows":
    """The workers that are drawn, by name, and by node where nodes are known."""
    shown = results.timeline.evenly(len(recording.workers)).tolist()
    nodes = recording.nodes
    names = [f"{nodes[i]}: {recording.workers[i]}" if nodes else recording.workers[i] for i in shown]
    return results.timeline.WorkerRows(shown, [name.replace("$", r"\$") for name in names])  # which begins no formula
