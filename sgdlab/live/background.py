"""`Background`, a thread that writes what it is given, so that who gives it never waits for a stream."""

import collections
import threading
from collections.abc import Callable, Sequence
from typing import Any

_MOST_LINES = 1000


class Background:
    """Hands lines, all of them in their order, and states, only the newest, to a function in a thread of its own.

    Args:
      write: `(lines, state)`, called in the thread; the state is None where there is no new one.

    Example:
      >>> written = []
      >>> background = Background(lambda lines, state: written.append((lines, state)))
      >>> background.give(line="one")
      >>> background.end(seconds=60.0)
      True
      >>> written
      [(['one'], None)]
    """

    def __init__(self, write: Callable[[Sequence[str], Any], None]):
        self._write = write
        self._lines: collections.deque[str] = collections.deque(maxlen=_MOST_LINES)
        self._state: Any = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ends = self._writes = False

    def give(self, *, line: str | None = None, state: Any = None) -> None:
        """Begins to write a line, or a state; returns at once."""
        with self._changed:
            if line is not None:
                self._lines.append(line)
            self._state = self._state if state is None else state
            if self._thread is None or not self._thread.is_alive():
                self._ends, self._writes = False, False
                self._thread = threading.Thread(target=self._run, name="background", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Waits until everything is written.

        Args:
          seconds: the longest time.

        Returns:
          Whether it is.
        """
        with self._changed:
            return self._changed.wait_for(lambda: not (self._lines or self._state is not None or self._writes), seconds)

    def end(self, seconds: float) -> bool:
        """Does what `wait` does, and ends the thread; more that is given is written by a new one."""
        done = self.wait(seconds)
        with self._changed:
            thread, self._ends = self._thread, True
            self._changed.notify_all()
        if done and thread is not None:
            thread.join(seconds)
        return done

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._state is not None or self._ends)
                if not self._lines and self._state is None:
                    return
                lines, state = list(self._lines), self._state
                self._lines.clear()
                self._state, self._writes = None, True
            try:
                self._write(lines, state)
            finally:
                with self._changed:
                    self._writes = False
                    self._changed.notify_all()
