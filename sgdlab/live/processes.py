"""`Processes`, the transport over processes of one machine: no port is opened, and a run leaves nothing behind.

A worker inherits one end of a pair of sockets, over which messages go, and the memory in which parameters and gradients
lie. Nothing of it has a name: when the server and the workers are gone, however they ended, so is all of it. A worker
that is stopped when the server is killed ends with it on Linux, if the server's main thread has started it; elsewhere
it ends as soon as it goes on.
"""

import contextlib
import math
import os
import pathlib
import resource
import selectors
import subprocess
import time
from typing import Any

from sgdlab import arguments
from sgdlab.live import environment
from sgdlab.live.messages import Lost, Message
from sgdlab.live.process import PATIENCE, Process
from sgdlab.live.shared_arrays import Versions
from sgdlab.live.transport import ANEW
from sgdlab.live.workers import Workers
from sgdlab.types import Tree

_FILES = 2
"""Open files for each worker: its socket, and its memory, which a mapping keeps open."""
_OTHER_FILES = 40
"""Open files at most for all else: the parameters' memory, a process that is being started, logs and checkpoints."""
_SPARE_AFTER = 2.0
"""Seconds after a worker has joined in which no spare is started: its start is not to be slower for it."""


class Processes(Workers):
    """Workers that are processes of this machine: a `sgdlab.live.transport.Transport`.

    A gradient is not copied: it lies where its worker writes the next one. Other arguments are as of `Workers`.

    Args:
      spares: how many processes wait for a worker to be lost, whose place one of them takes at once: it has imported
        and compiled everything, which takes seconds. They are started once workers are there. Where workers have GPUs
        there are none: each process is told at its start which GPU is its own.
    """

    def __init__(self, *given: Any, spares: int = 1, **named: Any):
        super().__init__(*given, **named)
        self._most_spares = arguments.whole("spares", spares, least=0) if self._gpus_per_worker is None else 0
        _check_files(self._num_workers, self._most_spares)
        self._spares: list[Process] = []
        self._spare_at = math.inf  # when the next one is started, by the clock of `time`
        self._versions = Versions(self._params)
        self._selector = selectors.DefaultSelector()
        self._dying: list[subprocess.Popen] = []

    def spawn(self, worker: int) -> None:
        """Start a process for a worker, or let one that is there serve a new run, whose tickets begin at 0 again."""
        self._check(worker)
        process = self._workers.get(worker)
        if process is not None and process.child.poll() is not None:  # it has died, and nobody was told
            self._forget(worker)
            process = None
        if process is None:
            self._begin_process(worker)
        elif process.joined is not None:
            process.begin_run()
            self._watch(worker)
            self._said.append(process.joined)

    def publish(self, tree: Tree) -> int:
        """Copy a version of the parameters into shared memory, from which workers read it; return its handle."""
        return self._versions.publish(tree)

    def release(self, handle: int) -> None:
        """Give a version up."""
        self._versions.release(handle)

    def begin(self, worker: int, ticket: int, handle: int, *, after: int = ANEW, version: int = 0) -> None:
        """Send a worker its next gradient."""
        if worker in self._workers:
            self._workers[worker].begin(ticket, handle, after=after, version=version)
            self._watch(worker)

    def interrupt(self, worker: int, ticket: int) -> None:
        """Tell a worker to give up a gradient; `GaveUp` answers, also if it has sent the gradient already."""
        if worker in self._workers:
            self._workers[worker].interrupt(ticket)
            self._watch(worker)

    def kill(self, worker: int) -> None:
        """End a worker's process without a message."""
        self._said = [message for message in self._said if message.worker != worker]
        if worker in self._workers:
            self._workers[worker].child.kill()
            self._forget(worker)

    def next(self, timeout: float | None) -> list[Message]:
        """Return all messages that have come, the earlier question's answer first; [] after `timeout` seconds."""
        self._reap()
        self._keep_spares()
        end = math.inf if timeout is None else time.monotonic() + timeout
        found: list[tuple[int, Message]] = [(-1, message) for message in self._said]
        self._said.clear()
        while not found and (self._workers or timeout is not None):
            left = end - time.monotonic()
            for key, events in self._selector.select(None if timeout is None else max(left, 0)):
                process = self._workers.get(key.data)
                if process is None or process.line.socket is not key.fileobj:
                    continue  # an event before this one, of the same instant, has ended it
                if events & selectors.EVENT_WRITE:
                    process.line.flush()
                    self._watch(key.data)
                if events & selectors.EVENT_READ:
                    found += self._heard(key.data)
            if left <= 0:
                break
        found.sort(key=lambda pair: pair[0])  # stable: what one worker said stays in its order
        return [message for _, message in found]

    def close(self) -> None:
        """End all workers."""
        for worker in list(self._workers):
            self._forget(worker)
        for spare in self._spares:
            self._leave(spare)
        self._spares.clear()
        end = time.monotonic() + PATIENCE
        for child in self._dying:
            try:
                child.wait(max(end - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._dying.clear()
        self._versions.close()
        self._selector.close()

    def _begin_process(self, worker: int) -> None:
        self._reap()
        try:
            process = self._taken_spare() or self._new_process(worker, self._log(worker))
        except OSError as error:  # it may work another time
            self._said.append(Lost(worker, f"its process could not be started: {error}"))
            return
        question = max((other.question for other in self._workers.values()), default=-1)
        process.becomes(worker, log=self._log(worker), question=question)
        self._workers[worker] = process
        self._selector.register(process.line.socket, selectors.EVENT_READ, worker)
        self._watch(worker)

    def _new_process(self, worker: int, log: pathlib.Path | None) -> Process:
        return Process(
            self._start(),
            self._answer.size,
            versions=self._versions.file,
            env=environment.for_worker(
                worker, num_workers=self._num_workers, gpus_per_worker=self._gpus_per_worker, given=self._env
            ),
            log=log,
        )

    def _taken_spare(self) -> Process | None:
        """Return a spare that lives, the oldest, which is none any more."""
        while self._spares:
            spare = self._spares.pop(0)
            if spare.child.poll() is None:
                return spare
            self._leave(spare)
        return None

    def _keep_spares(self) -> None:
        """Start a spare if one is missing, a while after a worker has joined and while few processes are starting."""
        now, starting = self.time(), sum(process.joined is None for process in self._workers.values())
        if now < self._spare_at or len(self._spares) >= self._most_spares or starting >= self.at_once:
            return
        self._spare_at = now + _SPARE_AFTER if len(self._spares) + 1 < self._most_spares else math.inf
        with contextlib.suppress(OSError):  # it is only a spare
            self._spares.append(self._new_process(0, None if self._logs is None else self._logs / "spare.log"))

    def _heard(self, worker: int) -> list[tuple[int, Message]]:
        """Return messages of a worker, each with the number of its question."""
        process = self._workers[worker]
        said, ended = process.heard()
        where = lambda: process.gradients[0]
        if any(one["kind"] == "joined" for one in said):
            self._spare_at = self.time() + _SPARE_AFTER
        found = [(one.get("ticket", process.question), self._message(worker, process, one, where)) for one in said]
        if ended:
            self._forget(worker)
            found.append((process.question, Lost(worker, process.last_words())))
        return found

    def _watch(self, worker: int) -> None:
        """Ask to be told when a worker that had not room for all that was sent has room again."""
        line = self._workers[worker].line
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.waits else 0)
        if self._selector.get_key(line.socket).events != events:
            self._selector.modify(line.socket, events, worker)

    def _forget(self, worker: int) -> None:
        process = self._workers.pop(worker)
        self._selector.unregister(process.line.socket)
        self._leave(process)

    def _leave(self, process: Process) -> None:
        process.leave()
        self._dying.append(process.child)

    def _reap(self) -> None:
        self._dying = [child for child in self._dying if child.poll() is None]


def _check_files(workers: int, spares: int) -> None:
    """Check that this process may have as many files open as workers take; ValueError if it may not."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    listed = pathlib.Path("/dev/fd")
    needed = (len(os.listdir(listed)) if listed.is_dir() else 0) + _FILES * (workers + spares) + _OTHER_FILES
    if allowed not in (resource.RLIM_INFINITY, -1) and needed > allowed:
        raise ValueError(
            f"num_workers={workers} need {needed:,} open files, and `ulimit -n` allows {allowed:,}: set `ulimit -n "
            f"{needed}`, or have fewer workers"
        )
