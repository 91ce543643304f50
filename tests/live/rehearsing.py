"""Runs without processes: a gradient and a server in NumPy, and a second implementation of what a record says."""

import functools
import shutil

import numpy as np
from lib.rehearsal import QUICK, Fault, Rehearsal

from sgdlab import policies
from sgdlab.live import checkpoint
from sgdlab.live.log import Log
from sgdlab.live.server import serve

POLICIES = {
    "asynchronous": policies.asynchronous,
    "synchronous": policies.synchronous,
    "backup_workers": policies.backup_workers,
    "timeout": functools.partial(policies.timeout, at_least=0.5, seconds=0.75),
    "timeout, interrupting": functools.partial(policies.timeout, at_least=0.5, seconds=0.75, interrupt=True),
    "softsync": functools.partial(policies.softsync, gradients_per_update=3),
    "rennala": functools.partial(policies.rennala, gradients_per_update=3),
    "ringmaster": functools.partial(policies.ringmaster, max_delay=3),
    "ringmaster, interrupting": functools.partial(policies.ringmaster, max_delay=3, interrupt=True),
    "bounded_staleness": policies.bounded_staleness,
    "dropcompute": functools.partial(policies.dropcompute, micro_batches=2, seconds=2.5),
    "anytime": functools.partial(policies.anytime, seconds=6.0, communication=0.5),
    "mindflayer": functools.partial(policies.mindflayer, trials=2, seconds=2.5),
    "ringleader": policies.ringleader,
    "malenia": functools.partial(policies.malenia, collected=5.0),
    "assignment": functools.partial(policies.assignment, seed=3, gradients_per_update=2),
}
FAULTS = (
    Fault("kill", 1, 10.3, 0.1),
    Fault("nan", 0, 6.0),
    Fault("raise", 2, 8.0),
    Fault("twice", 0, 3.0, 0.5),
    Fault("deaf", 2, 0.0, 20.0),
    Fault("stop", 2, 15.0, 14.0),
    Fault("replace", 0, 21.0, 0.5),
)


def initial():
    return {"w": np.array([1.0, -2.0, 0.5])}


def compute(ticket, params, version=None):
    """Depends on the ticket and the version, so that neither can be mistaken."""
    target = np.sin(1.0 + ticket * np.arange(1.0, 4.0))
    return {"w": params["w"] - target}, {"loss": float(np.sum((params["w"] - target) ** 2))}


class NaiveSteps:
    """SGD with momentum on the mean of an update's gradients; the state is written out as plain arrays."""

    def __init__(self, single):
        self.single, self.params, self.velocity = single, initial()["w"], np.zeros(3)
        self.open, self.version = [], 0

    def sent(self):
        return {"w": self.params.copy()}

    def receive(self, grads, aux, *, read, worker, delay, number=0, anew=False):
        del aux, worker, number, anew
        self.open.append(grads["w"] / delay + 0.01 * (self.params - read["w"]))

    def close(self):
        self.velocity = 0.9 * self.velocity + sum(self.open) / len(self.open)
        self.params = self.params - 0.1 * self.velocity
        self.open, self.version = [], self.version + 1

    def snapshot(self):
        assert not self.open
        return {"params": self.params.copy(), "velocity": self.velocity.copy(), "version": np.array(self.version)}

    def restore(self, snapshot):
        self.params, self.velocity = snapshot["params"].copy(), snapshot["velocity"].copy()
        self.open, self.version = [], int(snapshot["version"])


def replayed(recording, single):
    """The parameters after all updates, by the rows of the schedule alone."""
    steps, schedule = NaiveSteps(single), recording.schedule
    versions = [steps.sent()]
    used = np.flatnonzero(schedule.used()[:, 0])
    for row in used:
        if schedule.update[row, 0] > steps.version:
            steps.close()
            versions.append(steps.sent())
        assert schedule.update[row, 0] == steps.version
        read = versions[schedule.read[row, 0]]
        delay = float(schedule.delay()[row, 0])
        grads, aux = compute(int(recording.ticket[row]), read)
        steps.receive(grads, aux, read=read, worker=schedule.worker[row], delay=delay)
    if used.size:
        steps.close()
    return steps.params


class Creeping(Rehearsal):
    """Its clock moves while the server works, too: what begins after an update begins later than the update."""

    def time(self):
        self.now += 2.0**-16
        return self.now


def rehearse(make, runtimes, *, num_gradients, faults=(), settings=QUICK, join_seconds=0.0, transport=None, **given):
    """A run: (recording, steps, transport, policy)."""
    workers = np.shape(runtimes if transport is None else transport._times)[1]
    policy = make(num_workers=workers)
    steps = NaiveSteps(policy.single)
    if transport is None:
        transport = Rehearsal(runtimes, compute, faults=faults, join_seconds=join_seconds)
    recording = serve(
        policy, steps, transport, num_workers=workers, num_gradients=num_gradients, settings=settings, **given
    )
    return recording, steps, transport, policy


def opened(folder, config=None, *, compute=compute, say=lambda line: None):
    """A log whose gradients can be computed again."""
    return Log(folder, config or {}, compute_of=lambda worker: compute, say=say)


def until_killed(folder, lines, source):
    """Return what a server leaves that is killed when it has written so many lines."""
    folder.mkdir(exist_ok=True)
    whole = (source / "log.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "log.jsonl").write_bytes(b"".join(whole[:lines]))
    shutil.copy(source / "record.bin", folder)
    for update in checkpoint.updates_of(source):
        path = checkpoint.path_of(source, update)
        if _lines_before(source, update, path.stat().st_mtime_ns) <= lines:
            shutil.copy(path, folder)


@functools.cache
def _lines_before(folder, update, written):
    return checkpoint.load(folder, update).place.lines


def after(turns):
    """`stop`, which says so when it has been asked so often."""
    asked = iter([False] * turns)
    return lambda: next(asked, True)
