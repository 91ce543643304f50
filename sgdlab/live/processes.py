"""`Processes`, the transport over processes of one machine: no port is opened, and a run leaves nothing behind.

A worker inherits one end of a pair of sockets, over which messages go, and the memory in which parameters and gradients
lie. Nothing of it has a name: when the server and the workers are gone, however they ended, so is all of it. A worker
that is stopped when the server is killed ends with it on Linux, if the server's main thread has started it; elsewhere
it ends as soon as it goes on.
"""

import math
import selectors
import subprocess
import time
from typing import Any

from sgdlab.live import environment
from sgdlab.live.messages import Lost, Message
from sgdlab.live.process import PATIENCE, Process
from sgdlab.live.shared_arrays import Versions
from sgdlab.live.transport import ANEW
from sgdlab.live.workers import Workers
from sgdlab.types import Tree


class Processes(Workers):
    """Workers that are processes of this machine: a `sgdlab.live.transport.Transport`.

    A gradient is not copied: it lies where its worker writes the next one. Arguments are as of `Workers`.
    """

    def __init__(self, *given: Any, **named: Any):
        super().__init__(*given, **named)
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
        end = math.inf if timeout is None else time.monotonic() + timeout
        found: list[tuple[int, Message]] = [(-1, message) for message in self._said]
        self._said.clear()
        while not found and (self._workers or timeout is not None):
            left = end - time.monotonic()
            for key, events in self._selector.select(None if timeout is None else max(left, 0)):
                if events & selectors.EVENT_WRITE:
                    self._workers[key.data].line.flush()
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
            process = Process(
                worker,
                self._start(),
                self._answer.size,
                versions=self._versions.file,
                env=environment.for_worker(
                    worker, num_workers=self._num_workers, gpus_per_worker=self._gpus_per_worker, given=self._env
                ),
                log=self._log(worker),
                question=max((other.question for other in self._workers.values()), default=-1),
            )
        except OSError as error:  # it may work another time
            self._said.append(Lost(worker, f"its process could not be started: {error}"))
            return
        self._workers[worker] = process
        self._selector.register(process.line.socket, selectors.EVENT_READ, worker)
        self._watch(worker)

    def _heard(self, worker: int) -> list[tuple[int, Message]]:
        """Return messages of a worker, each with the number of its question."""
        process = self._workers[worker]
        said, ended = process.heard()
        where = lambda: process.gradients[0]
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
        process.leave()
        self._dying.append(process.child)

    def _reap(self) -> None:
        self._dying = [child for child in self._dying if child.poll() is None]
