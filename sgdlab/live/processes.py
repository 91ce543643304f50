"""`Processes`, the transport over processes of one machine: no port is opened, and a run leaves nothing behind.

A worker inherits one end of a pair of sockets, over which messages go, and the memory in which parameters and gradients
lie. Nothing of it has a name: when the server and the workers are gone, however they ended, so is all of it. A worker
that is stopped when the server is killed ends with it on Linux, if the server's main thread has started it; elsewhere
it ends as soon as it goes on.
"""

import math
import os
import pathlib
import selectors
import subprocess
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sgdlab.live import environment
from sgdlab.live.messages import Came, Failed, GaveUp, Joined, Lost, Message
from sgdlab.live.process import PATIENCE, Process
from sgdlab.live.shared_arrays import MemoryLayout, Version, Versions
from sgdlab.live.transport import ANEW
from sgdlab.live.work import WorkSource
from sgdlab.types import Tree

_NOTHING: Mapping[str, str] = MappingProxyType({})


class Processes:
    """Workers that are processes of this machine: a `sgdlab.live.transport.Transport`.

    Each `begin` that reaches a living worker is answered once, by `Came`, `GaveUp` or `Failed`. A gradient is not
    copied: it lies where its worker writes the next one.

    Args:
      source: where a worker finds what it computes.
      params_like: arrays, or `jax.ShapeDtypeStruct`s, like the parameters.
      aux_like: the same of what the gradient function returns beside gradients.
      num_workers: the largest number of workers at once; their numbers are 0, ..., `num_workers` - 1.
      sent_like: the same of what workers send in the place of gradients; None: they are like the parameters.
      env: environment variables of workers that win over those of `sgdlab.live.environment`.
      gpus_per_worker: GPUs of a worker, such as 1 or 0.5; None: workers compute on the CPU.
      logs: a folder for what workers print, worker_0.log and so on; None: they print where this process does.

    Raises:
      ValueError: if the source cannot be found by another process, or there are not GPUs enough.
    """

    def __init__(
        self,
        source: WorkSource,
        params_like: Tree,
        aux_like: Tree,
        *,
        num_workers: int,
        sent_like: Tree = None,
        env: Mapping[str, str] = _NOTHING,
        gpus_per_worker: float | None = None,
        logs: str | os.PathLike[str] | None = None,
    ):
        source.check()
        environment.devices(0, num_workers, gpus_per_worker)
        self._source, self._num_workers = source, num_workers
        self._env, self._gpus_per_worker = env, gpus_per_worker
        self._logs = None if logs is None else pathlib.Path(logs)
        self._answer = MemoryLayout({"params": params_like if sent_like is None else sent_like, "aux": aux_like})
        self._versions = Versions(MemoryLayout(params_like))
        self._selector = selectors.DefaultSelector()
        self._processes: dict[int, Process] = {}
        self._dying: list[subprocess.Popen] = []
        self._said: list[Message] = []  # what is known without a process having said it

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def time(self) -> float:
        """Return seconds."""
        return time.monotonic()

    def spawn(self, worker: int) -> None:
        """Start a process for a worker, or let one that is there serve a new run, whose tickets begin at 0 again."""
        if not 0 <= worker < self._num_workers:
            raise ValueError(f"worker={worker} must be from 0 to {self._num_workers - 1}")
        process = self._processes.get(worker)
        if process is not None and process.child.poll() is not None:  # it has died, and nobody was told
            self._forget(worker)
            process = None
        if process is None:
            self._start(worker)
        elif process.joined is not None:
            process.begin_run()
            self._watch(worker)
            self._said.append(process.joined)

    def publish(self, tree: Tree) -> Version:
        """Copy a version of the parameters into shared memory, from which workers read it; return its handle."""
        return self._versions.publish(tree)

    def release(self, handle: Version) -> None:
        """Give a version up."""
        self._versions.release(handle)

    def begin(self, worker: int, ticket: int, handle: Version, *, after: int = ANEW, version: int = 0) -> None:
        """Send a worker its next gradient."""
        if worker in self._processes:
            self._processes[worker].begin(ticket, handle.slot, after=after, version=version)
            self._watch(worker)

    def interrupt(self, worker: int, ticket: int) -> None:
        """Tell a worker to give up a gradient; `GaveUp` answers, also if it has sent the gradient already."""
        if worker in self._processes:
            self._processes[worker].interrupt(ticket)
            self._watch(worker)

    def kill(self, worker: int) -> None:
        """End a worker's process without a message."""
        self._said = [message for message in self._said if message.worker != worker]
        if worker in self._processes:
            self._processes[worker].child.kill()
            self._forget(worker)

    def next(self, timeout: float | None) -> list[Message]:
        """Return all messages that have come, the earlier question's answer first; [] after `timeout` seconds."""
        self._reap()
        end = math.inf if timeout is None else time.monotonic() + timeout
        found: list[tuple[int, Message]] = [(-1, message) for message in self._said]
        self._said.clear()
        while not found and (self._processes or timeout is not None):
            left = end - time.monotonic()
            for key, events in self._selector.select(None if timeout is None else max(left, 0)):
                if events & selectors.EVENT_WRITE:
                    self._processes[key.data].line.flush()
                    self._watch(key.data)
                if events & selectors.EVENT_READ:
                    found += self._heard(key.data)
            if left <= 0:
                break
        found.sort(key=lambda pair: pair[0])  # stable: what one worker said stays in its order
        return [message for _, message in found]

    def close(self) -> None:
        """End all workers."""
        for worker in list(self._processes):
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

    def _start(self, worker: int) -> None:
        self._reap()
        try:
            process = Process(
                worker,
                self._source,
                self._answer,
                versions=self._versions.file,
                env=environment.for_worker(
                    worker, num_workers=self._num_workers, gpus_per_worker=self._gpus_per_worker, given=self._env
                ),
                log=None if self._logs is None else self._logs / f"worker_{worker}.log",
                question=max((other.question for other in self._processes.values()), default=-1),
            )
        except OSError as error:  # it may work another time
            self._said.append(Lost(worker, f"its process could not be started: {error}"))
            return
        self._processes[worker] = process
        self._selector.register(process.line.socket, selectors.EVENT_READ, worker)
        self._watch(worker)

    def _heard(self, worker: int) -> list[tuple[int, Message]]:
        """Return messages of a worker, each with the number of its question."""
        process = self._processes[worker]
        said, ended = process.heard()
        found = [(one.get("ticket", process.question), self._message(worker, process, one)) for one in said]
        if ended:
            self._forget(worker)
            found.append((process.question, Lost(worker, process.last_words())))
        return found

    def _message(self, worker: int, process: Process, said: dict[str, Any]) -> Message:
        match said["kind"]:
            case "joined":
                process.joined = Joined(worker, said["process"], said["host"])
                return process.joined
            case "failed":
                return Failed(worker, said["ticket"], said["error"])
            case "came" if said["ticket"] > process.void:
                tree = self._answer.tree(process.gradients[0])
                return Came(worker, said["ticket"], tree["params"], tree["aux"], said["seconds"])
        # A gradient that crossed its interrupt is nobody's, and the next one may be overwriting it.
        return GaveUp(worker, said["ticket"], said["seconds"])

    def _watch(self, worker: int) -> None:
        """Ask to be told when a worker that had not room for all that was sent has room again."""
        line = self._processes[worker].line
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.waits else 0)
        if self._selector.get_key(line.socket).events != events:
            self._selector.modify(line.socket, events, worker)

    def _forget(self, worker: int) -> None:
        process = self._processes.pop(worker)
        self._selector.unregister(process.line.socket)
        process.leave()
        self._dying.append(process.child)

    def _reap(self) -> None:
        self._dying = [child for child in self._dying if child.poll() is None]
