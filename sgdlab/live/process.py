"""`Process`, one process of a worker, from its start to its end, and how it ended, in words."""

import contextlib
import pathlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from sgdlab.live import wire
from sgdlab.live.messages import Joined
from sgdlab.live.shared_arrays import Pieces

PATIENCE = 0.5
"""Seconds that a process has to end by itself, once its server has left it, before it is killed."""
_LINES = 3
_BYTES = 4096
_COUNTERS = pathlib.Path("/proc/vmstat")


class Process:
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
        self.question = -1  # number of the last ticket that it was asked for
        self.void = -1  # largest ticket that it was told to give up
        self.run = 0  # how many runs it has served before
        self.joined: Joined | None = None  # what it said when it was ready
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
        self.line = wire.BufferedSocket(ours)
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

    def begin(self, ticket: int, slot: int, *, after: int, version: int) -> None:
        """Ask for a gradient on the version in piece `slot`; `after` and `version` as of `Transport.begin`."""
        self.question = ticket
        number = {"run": self.run, "ticket": ticket, "after": after, "version": version}
        self.line.send({"kind": "begin", **number, "slot": slot})

    def interrupt(self, ticket: int) -> None:
        """Tell it to give up what it was asked for, up to `ticket`."""
        self.void = max(self.void, ticket)
        self.line.send({"kind": "interrupt", "run": self.run, "ticket": ticket})

    def begin_run(self) -> None:
        """Void everything that it was asked for."""
        self.interrupt(sys.maxsize)
        self.run, self.question, self.void = self.run + 1, -1, -1

    def heard(self) -> tuple[list[dict[str, Any]], bool]:
        """Return what it has said in this run, and True if these were its last words."""
        said, ended = self.line.receive()
        for message in said:
            if message["kind"] == "broken":
                self.error = message["error"]
        return [one for one in said if one["kind"] != "broken" and one.get("run", self.run) == self.run], ended

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
