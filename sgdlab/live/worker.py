"""A worker's process: one gradient after another, as the server asks for them.

    python -m sgdlab.live.worker SOCKET VERSIONS GRADIENTS

These are file descriptors that it inherits from the server, which starts it: nobody else does. It ends when the server
does, however that ends. The server says, at once or when another worker is lost, which worker it is: until then it is
a spare, which has imported and compiled what takes time.
"""

import contextlib
import ctypes
import faulthandler
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

from sgdlab.live import wire


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
    messages = wire.heard(line)
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
            _print_to(told["log"])
        computer = Computer(start["source"], start["layout"], told["worker"], work)
        pieces = Pieces(computer.params.size, versions)
        views = computer.sent.views(Pieces(computer.sent.size, gradients)[0])
        _say(line, {"kind": "joined", "process": os.getpid(), "host": socket.gethostname()})
    except Exception as error:
        _say(line, {"kind": "broken", "error": wire.in_one_line(error)})
        raise
    # Not a copy: a piece that is used again while it is read means that this gradient is void.
    memory = lambda begun: pieces[begun["slot"]]
    while True:
        _say(line, computer.answer(asked.next(), memory, views, lambda: asked.void))


def _print_to(log: str) -> None:
    """Print into a worker's file from now on; where that is lost, where it was."""
    with contextlib.suppress(OSError), open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _end_with_parent() -> None:
    """Let Linux kill this process when the thread that has started it ends: one that is stopped cannot end itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; of an end before this, `_Asked` hears


def _say(line: socket.socket, message: dict[str, Any]) -> None:
    try:
        line.sendall(wire.packed(message))
    except OSError:
        os._exit(0)  # the server is gone


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's affair
    faulthandler.enable()
    files = list(map(int, sys.argv[1:]))
    for file in files:
        os.set_inheritable(file, False)  # a child of the user's code would keep the server's socket open
    main(socket.socket(fileno=files[0]), *files[1:])
