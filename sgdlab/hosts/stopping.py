"""Requests to stop, by SIGINT or SIGTERM: a run ends at its next pause, with a checkpoint."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator

from sgdlab.hosts import connection

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED = 130
"""Exit code of the others, which nobody is to start again."""
_AS_ONE = 1.0
"""Seconds in which several signals are one request."""
_requested = threading.Event()


def stop_requested() -> bool:
    """Return True if this process has been asked to stop, inside of `stopping`."""
    return _requested.is_set()


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """Let the first SIGINT or SIGTERM inside ask to stop, with a line, and the second end the process at once.

    Signals within a second of the first count as one: what starts a command may pass on a Ctrl-C that the terminal has
    sent to the command too. A thread reads the signals, so that they are noticed while the main thread compiles or
    waits for other processes. Outside of the main thread, and inside of another `stopping`, it changes nothing.

    Example:
      >>> with stopping():
      ...     signal.raise_signal(signal.SIGTERM)
      ...     _ = _requested.wait(10)
      ...     stop_requested()
      True
      >>> stop_requested()
      False
    """
    own = threading.current_thread() is threading.main_thread()
    if not own or signal.getsignal(signal.SIGTERM) is _noted_by_thread:
        yield
        return
    _requested.clear()
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = {number: signal.signal(number, _noted_by_thread) or signal.SIG_DFL for number in _SIGNALS}
    descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_read, args=(reader,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            signal.signal(number, handler)
        writer.close()  # ends the thread
        thread.join()
        reader.close()
        _requested.clear()


def _noted_by_thread(number: int, frame: object) -> None:
    """Do nothing: without a handler in Python, no signal would be written to the descriptor that the thread reads."""


def _read(reader: socket.socket) -> None:
    first = 0.0
    while data := reader.recv(1):
        if data[0] not in _SIGNALS or (_requested.is_set() and time.monotonic() < first + _AS_ONE):
            continue
        name = signal.Signals(data[0]).name
        if _requested.is_set():
            connection.announce(f"ended at once by a second {name}", _INTERRUPTED)
            sys.stderr.write("Ended at once.\n")
            sys.stderr.flush()
            os._exit(128 + data[0])
        first = time.monotonic()
        _requested.set()
        again = "press Ctrl-C again" if data[0] == signal.SIGINT else f"send {name} again"
        sys.stderr.write(f"\nStopping at the next pause; to end at once, {again}.\n")
        sys.stderr.flush()
