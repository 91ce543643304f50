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
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from sgdlab import arguments
from sgdlab.hosts.messages import BufferedSocket
from sgdlab.live import environment
from sgdlab.live.messages import Lost, Message
from sgdlab.live.shared_arrays import Pieces, Versions
from sgdlab.live.transport import WorkerLink, Workers
from sgdlab.types import Tree

PATIENCE = 0.5
"""Seconds that a process has to end by itself, once its server has left it, before it is killed."""
_LINES = 3
_BYTES = 4096
_COUNTERS = pathlib.Path("/proc/vmstat")
_FILES = 2
"""Open files for each worker: its socket, and its memory, which a mapping keeps open."""
_OTHER_FILES = 40
"""Open files at most for all else: the parameters' memory, a process that is being started, logs and checkpoints."""
_SPARE_AFTER = 2.0
"""Seconds after a worker has joined in which no spare is started: its start is not to be slower for it."""


class Process(WorkerLink):
    """A worker's process, the way to it, and the memory in which its gradients lie; OSError if it cannot be started.

    It is a spare until `becomes` says which worker's it is.

    Args:
      start: what it is told first.
      size: bytes of a gradient and its aux.
      versions: descriptor of the memory of the parameters.
      env: its environment.
      log: file for what it prints before; None: it prints where this process does.
    """

    def __init__(
        self,
        start: Mapping[str, Any],
        size: int,
        *,
        versions: int,
        env: Mapping[str, str],
        log: pathlib.Path | None,
    ):
        super().__init__()
        self.is_watched = False  # whether its server is to be told when there is room for what it is sent
        self.error = ""  # why it could not start, in its own words
        self._log, self._killed = log, killed_for_memory()
        with contextlib.ExitStack() as undo:
            self.gradients = Pieces(size)
            undo.callback(self.gradients.close)
            self.gradients[0]  # made as long as it must be
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            files = [theirs.fileno(), versions, self.gradients.file]
            if log is not None:
                log.parent.mkdir(parents=True, exist_ok=True)
            with theirs, contextlib.nullcontext() if log is None else log.open("ab") as out:
                self.child = subprocess.Popen(
                    # -P: modules of the folder that we are in would come before those of the same name.
                    [sys.executable, "-P", "-m", "sgdlab.live.worker", *map(str, files)],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env=env,
                    pass_fds=files,
                    process_group=0,  # a terminal's Ctrl-C, and signals to the server's group, are the server's affair
                )
            undo.pop_all()
        self.gradients.leave_file()
        self.line = BufferedSocket(ours)
        # Linux means the thread that has started it; any other may end before the server does.
        mortal = threading.current_thread() is threading.main_thread()
        self.line.send({"kind": "start", **start, "mortal": mortal})

    def becomes(self, worker: int, *, log: pathlib.Path | None, question: int) -> None:
        """Make it a worker's: it computes what that one does as soon as it can.

        Args:
          worker: its number.
          log: file for what it prints; None: it prints where this process does.
          question: number of the last ticket that was begun, of all workers.
        """
        self._log, self.question = log, question
        self.line.send({"kind": "worker", "worker": worker, "log": None if log is None else str(log.absolute())})

    def heard(self) -> tuple[list[dict[str, Any]], bool]:
        """Return what it has said in this run, and True if these were its last words."""
        said, ended = self.line.receive()
        for message in said:
            if message["kind"] == "broken":
                self.error = message["error"]
        return [one for one in said if one["kind"] != "broken" and one.get("run", self.run) == self.run], ended

    def is_gone(self) -> bool:
        """Return True if it has died, and nobody was told."""
        return self.child.poll() is not None

    def kill(self) -> None:
        """End it at once."""
        self.child.kill()

    def leave(self) -> None:
        """Close the ways to it: nothing of it is heard any more, and it ends when it notices."""
        self.line.socket.close()
        self.gradients.close()

    def last_words(self) -> str:
        """Say how it ended; it has closed its socket, which it does by ending."""
        try:
            self.child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        how = self.line.error or described(self.child.returncode, self._killed)
        if self.joined is not None:
            return f"{how}; see {self._log}" if self._log else how
        why = self.error or (last_lines(self._log) if self._log else "")
        return f"{how} before its first gradient: {why}" if why else f"{how} before its first gradient"

    def _ask(self, asked: dict[str, int], handle: int) -> None:
        self.line.send({"kind": "begin", **asked, "slot": handle})

    def _give_up(self, asked: dict[str, int]) -> None:
        self.line.send({"kind": "interrupt", **asked})


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

    def publish(self, tree: Tree) -> int:
        """Copy a version of the parameters into shared memory, from which workers read it; return its handle."""
        return self._versions.publish(tree)

    def release(self, handle: int) -> None:
        """Give a version up."""
        self._versions.release(handle)

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

    def _receive(self, seconds: float | None) -> list[tuple[int, Message]]:
        self._reap()
        self._keep_spares()
        for worker, process in self._workers.items():
            self._watch(worker, process)
        found = []
        for key, events in self._selector.select(seconds):
            process = self._workers.get(key.data)
            if process is None or process.line.socket is not key.fileobj:
                continue  # an event before this one, of the same instant, has ended it
            if events & selectors.EVENT_WRITE:
                process.line.flush()
            if events & selectors.EVENT_READ:
                found += self._heard(key.data)
        return found

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

    def _watch(self, worker: int, process: Process) -> None:
        """Ask to be told when a worker that had not room for all that was sent has room again."""
        if process.line.waits != process.is_watched:
            process.is_watched = process.line.waits
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if process.is_watched else 0)
            self._selector.modify(process.line.socket, events, worker)

    def _forget(self, worker: int) -> Process | None:
        process = self._workers.pop(worker, None)
        if process is not None:
            self._selector.unregister(process.line.socket)
            self._leave(process)
        return process

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


def described(code: int, killed: int) -> str:
    """Return the exit code of a `subprocess.Popen` in words; `killed` is what `killed_for_memory` said at its start.

    Example:
      >>> described(-9, killed_for_memory()), described(1, killed_for_memory())
      ('killed by SIGKILL', 'exit code 1')
    """
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    memory = (
        ", perhaps for lack of memory: the system has killed a process for it since"
        if killed_for_memory() > killed
        else ""
    )
    return f"killed by {name}{memory if -code == signal.SIGKILL else ''}"


def last_lines(file: pathlib.Path) -> str:
    """Return the last lines of a file that are not empty, as one; '' if there is none."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - _BYTES))
            text = opened.read().decode(errors="replace")
    except OSError:
        return ""
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-_LINES:])


def killed_for_memory() -> int:
    """Return how many processes this machine had killed for lack of memory; 0 where nobody counts."""
    try:
        lines = _COUNTERS.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
