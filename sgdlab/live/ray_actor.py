"""`Actor`, a worker in a process of Ray's: it computes gradients, and listens while it does."""

import os
import pathlib
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sgdlab.live import wire


class ActorStart(NamedTuple):
    """Holds the settings that an actor is told first."""

    source: dict[str, Any]  # fields of `sgdlab.live.work.WorkSource`
    path: Sequence[str]  # where modules are looked for beside the actor's own places
    layout: Sequence[Sequence[str]]  # of the gradients, as `MemoryLayout` describes it
    log: str | None  # a file for what the worker prints; None leaves it to Ray


class Asked(NamedTuple):
    """Holds which gradient an actor is asked for; `after` and `version` are those of `Transport.begin`."""

    run: int
    ticket: int
    after: int
    version: int


class Ready(NamedTuple):
    """A worker that has compiled, or why it could not."""

    process: int
    host: str
    error: str


class Answer(NamedTuple):
    """A gradient as bytes, None if there is none; `error` says why if it has raised."""

    computed: np.ndarray | None
    seconds: float
    error: str = ""


class Actor:
    """Computes gradients of one worker; `interrupt` and `exist` are called in threads of their own."""

    def __init__(self, worker: int):
        self._worker = worker
        self._void = (-1, -1)  # (run, ticket): the last that was interrupted; both only grow

    def start(self, start: ActorStart) -> Ready:
        """Make and compile what is to be computed."""
        sys.path += [entry for entry in start.path if entry not in sys.path]
        if start.log is not None:
            _print_to(pathlib.Path(start.log))
        # Here, so that the server, which imports this module, can be without it until it needs it.
        from sgdlab.live.gradients import Computer  # noqa: PLC0415

        try:
            self._computer = Computer(start.source, start.layout, self._worker)
        except Exception as error:
            traceback.print_exc()
            return Ready(os.getpid(), socket.gethostname(), wire.in_one_line(error))
        self._memory = np.empty(self._computer.answer.size, np.uint8)
        return Ready(os.getpid(), socket.gethostname(), "")

    def compute(self, asked: Asked, params: np.ndarray | None) -> Answer:
        """Compute a gradient on a version of the parameters, both as bytes; without parameters it is given up."""
        begun = time.perf_counter()
        if params is None:
            return Answer(None, 0.0)
        run, ticket, after, version = asked
        void = lambda: self._void >= (run, ticket)
        try:
            # Copied: Ray's memory is shared, and JAX may keep an alias of it.
            tree = self._computer.params.copied(params)
            # Into the same memory each time: Ray has copied it before it asks for the next gradient.
            views = self._computer.answer.views(self._memory)
            came = self._computer.compute(run, ticket, tree, void, views, after=after, version=version)
            return Answer(self._memory if came else None, time.perf_counter() - begun)
        except Exception as error:
            traceback.print_exc()
            return Answer(None, time.perf_counter() - begun, wire.in_one_line(error))

    def interrupt(self, run: int, ticket: int) -> None:
        """Give up the gradient `ticket` of a run, and all before it."""
        self._void = max(self._void, (run, ticket))

    def exist(self) -> None:
        """Wait for ever: that this call fails is how the death of a worker that has nothing to do is noticed."""
        threading.Event().wait()


def _print_to(log: pathlib.Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
