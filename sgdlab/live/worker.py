"""Workers, which compute one gradient after another as the server asks for them: a process, an `Actor`, one that joins.

    python -m sgdlab.live.worker SOCKET VERSIONS GRADIENTS

is a process of the server's own machine. These are file descriptors that it inherits from the server, which starts it:
nobody else does. It ends when the server does, however that ends. The server says, at once or when another worker is
lost, which worker it is: until then it is a spare, which has imported and compiled what takes time.
"""

import ctypes
import faulthandler
import os
import pathlib
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from sgdlab.errors import in_one_line
from sgdlab.hosts.messages import heard, line_of
from sgdlab.live import frames
from sgdlab.live.join import JoinedWorker
from sgdlab.live.shared_arrays import aligned, own


class _Asked:
    """Hears what the server asks for while a gradient is computed.

    Attributes:
      void: (run, ticket), the last that was interrupted; both only grow, so that all before it are void too.
    """

    def __init__(self, messages: Iterator[dict[str, Any]]):
        self.void = (0, -1)
        self._begun: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._messages = messages
        threading.Thread(target=self._listen, daemon=True).start()

    def next(self) -> dict[str, Any]:
        return self._begun.get()

    def waits(self) -> bool:
        """Return True if there is something to do."""
        return not self._begun.empty()

    def _listen(self) -> None:
        for message in self._messages:
            if message["kind"] == "interrupt":
                self.void = max(self.void, (message["run"], message["ticket"]))
            else:
                self._begun.put(message)
        os._exit(0)  # the server is gone, and whatever is being computed is of no use


def main(line: socket.socket, versions: int, gradients: int) -> None:
    """Compute gradients until the server is gone."""
    messages = heard(line)
    start = next(messages, None)
    if start is None:
        return
    asked = _Asked(messages)
    if start["mortal"]:
        _end_with_parent()
    sys.path[:] = start["path"]
    try:
        # After the server's end is listened for: these take seconds.
        from sgdlab.live.gradients import Computer, warm  # noqa: PLC0415
        from sgdlab.live.shared_arrays import Pieces  # noqa: PLC0415
        from sgdlab.live.work import WorkSource  # noqa: PLC0415

        work = WorkSource(**start["source"]).make()
        if not asked.waits():
            warm(work)
        told = asked.next()
        if told["log"] is not None:
            _print_to(pathlib.Path(told["log"]))
        computer = Computer(start["source"], start["layout"], told["worker"], work)
        pieces = Pieces(computer.params.size, versions)
        views = computer.sent.views(Pieces(computer.sent.size, gradients)[0])
        _say(line, {"kind": "joined", "process": os.getpid(), "host": socket.gethostname()})
    except Exception as error:
        _say(line, {"kind": "broken", "error": in_one_line(error)})
        raise
    # Not a copy: a piece that is used again while it is read means that this gradient is void.
    memory = lambda begun: pieces[begun["slot"]]
    while True:
        _say(line, computer.answer(asked.next(), memory, views, lambda: asked.void))


def _print_to(log: pathlib.Path) -> str:
    """Let this process print to a file; return why it cannot, in a few words, or ""."""
    try:
        with log.open("ab") as file:  # no folder is made: a machine without this one does not share the work directory
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    except OSError as error:
        return f"{log.parent} cannot be written ({error.strerror})"
    return ""


def _end_with_parent() -> None:
    """Let Linux kill this process when the thread that has started it ends: one that is stopped cannot end itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; of an end before this, `_Asked` hears


def _say(line: socket.socket, message: dict[str, Any]) -> None:
    try:
        line.sendall(line_of(message))
    except OSError:
        os._exit(0)  # the server is gone


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
        try:
            # Here, so that the server, which imports this module, can be without it until it needs it.
            from sgdlab.live.gradients import Computer  # noqa: PLC0415

            self._computer = Computer(start["source"], start["layout"], self._worker)
        except Exception as error:
            traceback.print_exc()
            return {"kind": "broken", "error": in_one_line(error)}, None
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


class ComputingWorker(JoinedWorker):
    """A worker that learns from the server what it computes.

    Args:
      make: makes that of what the server says to worker `worker`: a `sgdlab.live.gradients.Computer`.
      address: as of `join`; `token`, `certificate` and `wait_seconds` too.
    """

    def __init__(
        self, make: Callable[[dict[str, Any]], Any], address: str, token: str, certificate: Any, wait_seconds: float
    ):
        super().__init__(address, token, certificate, None, wait_seconds)
        self._make = make

    def run(self) -> None:
        """Compute all that is asked for, until the run has ended."""
        while (asked := self._next()) is not None:
            line, memory = self._line, asked.memory
            said = self._computer.answer(asked.said, lambda _, memory=memory: memory, self._views, line.void)
            body = frames.chunks(self._computer.sent, self._views) if said["kind"] == "came" else ()
            line.answer(asked, said["kind"], said.get("seconds", 0.0), error=said.get("error", ""), body=body)

    def _prepare(self, line: Any, welcome: dict[str, Any]) -> None:
        if "work" not in welcome:
            raise ConnectionRefusedError(f"{self.address} trains no configuration: `sgdlab.live.join` joins it")
        self._computer = self._make(welcome)
        self._views = self._computer.sent.views(aligned(self._computer.sent.size))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's affair
    faulthandler.enable()
    files = list(map(int, sys.argv[1:]))
    for file in files:
        os.set_inheritable(file, False)  # a child of the user's code would keep the server's socket open
    main(socket.socket(fileno=files[0]), *files[1:])
