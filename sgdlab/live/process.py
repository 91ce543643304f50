"""`Process`, one process of a worker, from its start to its end."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import IO, Any

from sgdlab.live import ending, wire
from sgdlab.live.messages import Joined
from sgdlab.live.shared_arrays import Pieces
from sgdlab.live.work import WorkSource

_ROOT = pathlib.Path(__file__).parents[2]
PATIENCE = 0.5
"""Seconds that a process has to end by itself, once its server has left it, before it is killed."""


class Process:
    """A worker's process, the way to it, and the memory in which its gradients lie.

    Args:
      worker: its number.
      source: where it finds what it computes.
      layout: `Layout.described` of its gradients and their aux.
      size: bytes of them.
      versions: descriptor of the memory of the parameters.
      env: its environment.
      log: file for what it prints; None: it prints where this process does.
      question: number of the last ticket that was begun.

    Attributes:
      question: number of the last ticket that it was asked for; of all workers, before its first.
      void: largest ticket that it was told to give up.
      run: how many runs it has served before.
      joined: what it said when it was ready; None before.
      error: why it could not start, in its own words.

    Raises:
      OSError: if it cannot be started, such as for lack of memory, or because there are too many processes.
    """

    def __init__(
        self,
        worker: int,
        source: WorkSource,
        layout: list[list[str]],
        *,
        size: int,
        versions: int,
        env: Mapping[str, str],
        log: pathlib.Path | None,
        question: int,
    ):
        self.question, self.void, self.run = question, -1, 0
        self.joined: Joined | None = None
        self.error = ""
        self._log, self._witness = log, ending.Witness()
        with contextlib.ExitStack() as undo:
            self.gradients = Pieces(size)
            undo.callback(self.gradients.close)
            self.gradients[0]  # made as long as it must be
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            files = [theirs.fileno(), versions, self.gradients.file]
            with theirs, _printing(log) as out:
                self.child = subprocess.Popen(
                    [sys.executable, "-P", "-m", "sgdlab.live.worker", str(worker), *map(str, files)],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    # The code of this very package, and -P: neither another version nor the folder that we are in.
                    env={**env, "PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), env.get("PYTHONPATH"))))},
                    pass_fds=files,
                    process_group=0,  # a terminal's Ctrl-C, and signals to the server's group, are the server's affair
                )
            undo.pop_all()
        self.line = wire.BufferedSocket(ours)
        self.line.send(
            {
                "kind": "start",
                "source": {**source._asdict(), "modules": dict(source.modules)},
                "path": [entry or str(pathlib.Path.cwd()) for entry in sys.path],
                "layout": layout,
                # Linux means the thread that has started it; any other may end before the server does.
                "mortal": threading.current_thread() is threading.main_thread(),
            }
        )

    def begin(self, ticket: int, slot: int, *, after: int, version: int) -> None:
        """Asks for a gradient on the version in piece `slot`; `after` and `version` as of `Transport.begin`."""
        self.question = ticket
        number = {"run": self.run, "ticket": ticket, "after": after, "version": version}
        self.line.send({"kind": "begin", **number, "slot": slot})

    def interrupt(self, ticket: int) -> None:
        """Tells it to give up what it was asked for, up to `ticket`."""
        self.void = max(self.void, ticket)
        self.line.send({"kind": "interrupt", "run": self.run, "ticket": ticket})

    def begin_run(self) -> None:
        """Voids everything that it was asked for."""
        self.interrupt(sys.maxsize)
        self.run, self.question, self.void = self.run + 1, -1, -1

    def heard(self) -> tuple[list[dict[str, Any]], bool]:
        """What it has said in this run, and whether these were its last words."""
        said, ended = self.line.receive()
        for message in said:
            if message["kind"] == "broken":
                self.error = message["error"]
        return [one for one in said if one["kind"] != "broken" and one.get("run", self.run) == self.run], ended

    def leave(self) -> None:
        """Closes the ways to it: nothing of it is heard any more, and it ends when it notices."""
        self.line.socket.close()
        self.gradients.close()

    def last_words(self) -> str:
        """How it ended; it has closed its socket, which it does by ending."""
        try:
            self.child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        how = ending.described(self.child.returncode, self._witness)
        if self.joined is not None:
            return f"{how}; see {self._log}" if self._log else how
        why = self.error or (ending.last_lines(self._log) if self._log else "")
        return f"{how} before its first gradient: {why}" if why else f"{how} before its first gradient"


@contextlib.contextmanager
def _printing(log: pathlib.Path | None) -> Iterator[IO[bytes] | None]:
    if log is None:
        yield None
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        yield file
