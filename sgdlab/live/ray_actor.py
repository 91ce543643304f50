"""`Actor`, a worker in a process of Ray's: it computes gradients, and listens while it does."""

import os
import pathlib
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np

from sgdlab.live import wire
from sgdlab.live.shared_arrays import own


class Actor:
    """Computes gradients of one worker; `interrupt` and `exist` are called in threads of their own."""

    def __init__(self, worker: int):
        self._worker = worker
        self._void = (-1, -1)  # (run, ticket): the last that was interrupted; both only grow

    def start(self, start: Mapping[str, Any], log: pathlib.Path | None) -> tuple[dict[str, Any], None]:
        """Make and compile what is to be computed, and say whether it could.

        Args:
          start: what a worker is told first; modules are looked for in its "path" beside the actor's own places.
          log: a file for what it prints, where its folder is there; None leaves it to Ray.
        """
        sys.path += [entry for entry in start["path"] if entry not in sys.path]
        unlogged = "" if log is None else _print_to(log)
        # Here, so that the server, which imports this module, can be without it until it needs it.
        from sgdlab.live.gradients import Computer  # noqa: PLC0415

        try:
            self._computer = Computer(start["source"], start["layout"], self._worker)
        except Exception as error:
            traceback.print_exc()
            return {"kind": "broken", "error": wire.in_one_line(error)}, None
        # The same memory each time: Ray has copied it before it asks for the next gradient.
        self._memory = np.empty(self._computer.sent.size, np.uint8)
        return {"kind": "joined", "process": os.getpid(), "host": socket.gethostname(), "unlogged": unlogged}, None

    def compute(self, asked: Mapping[str, int], params: np.ndarray | None) -> tuple[dict[str, Any], np.ndarray | None]:
        """Compute a gradient on a version of the parameters, both as bytes; without parameters it is given up."""
        if params is None:
            return {"kind": "gave_up", "seconds": 0.0, "run": asked["run"], "ticket": asked["ticket"]}, None
        views = self._computer.sent.views(self._memory)
        # Copied: Ray's memory is shared, and JAX may keep an alias of it.
        said = self._computer.answer(asked, lambda asked: own(params), views, lambda: self._void)
        return said, self._memory if said["kind"] == "came" else None

    def interrupt(self, run: int, ticket: int) -> None:
        """Give up the gradient `ticket` of a run, and all before it."""
        self._void = max(self._void, (run, ticket))

    def exist(self) -> None:
        """Wait for ever: that this call fails is how the death of a worker that has nothing to do is noticed."""
        threading.Event().wait()


def _print_to(log: pathlib.Path) -> str:
    """Let this process print to a file; return why it cannot, in a few words, or ""."""
    try:
        with log.open("ab") as file:  # no folder is made: a machine without this one does not share the work directory
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    except OSError as error:
        return f"{log.parent} cannot be written ({error.strerror})"
    return ""
