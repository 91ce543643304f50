"""A live run in the terminal: a block of lines that is redrawn, or, elsewhere, a plain line now and again."""

import collections
import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self, TextIO

from sgdlab.hosts.messages import printable
from sgdlab.live.status import ENDED, RESTARTED, Status, WorkerStatus
from sgdlab.report.words import counted, listed

LATE = 1.5
"""A worker is called late whose time is this many times the others' median, or"""
LATE_BY_ITSELF = 2.0
"""whose newest time is this many times its own median, which varies more."""
NAMED = 4
"""So many workers are named in a line; of the others, only their number is given."""
_listed = functools.partial(listed, most=NAMED)

_MOST_LINES = 1000
"""Lines that wait for a terminal that does not read; of more, the oldest are lost."""
_END_SECONDS = 5.0
"""So long the end of a run waits for a terminal that does not read."""
_NO_WRAP, _WRAP, _CLEAR_BELOW = "\x1b[?7l", "\x1b[?7h", "\x1b[J"


class LiveProgress:
    """Shows a run to whoever looks at `stream`; what happens to the stream never harms the run, or holds it up.

    A thread writes: a terminal or a pipe that does not read for a while is shown the newest state when it does.

    In a terminal a few lines are redrawn at each call, and what goes wrong is printed once, above them. Into a file or
    a pipe, one plain line is written about every ten seconds, and one for each thing that goes wrong; where what is
    said goes to the same file, such lines come only when nothing has been said for as long.

    Args:
      stream: where to write; the standard error if None.
      every: seconds between two lines where the stream is no terminal.
      clock: tells seconds.
    """

    def __init__(
        self, stream: TextIO | None = None, *, every: float = 10.0, clock: Callable[[], float] = time.monotonic
    ):
        self._stream = sys.stderr if stream is None else stream
        self._every = every
        self._clock = clock
        self._drawn = 0
        self._said: frozenset[tuple[float, str]] | None = None
        self._next = float("-inf")
        self._broken = False
        self._thread = Background(self._tell)
        self._shown: Sequence[str] = ()
        self._terminal = _is_terminal(self._stream)

    def show(self, status: Status) -> None:
        """Draw the run as it is now, unless a newer state comes first."""
        self._thread.give(state=status)

    def say(self, line: str) -> None:
        """Print a line that stays, on the standard output, above the lines that are redrawn; any thread may call it."""
        self._thread.give(line=line)

    def wait(self, seconds: float = _END_SECONDS) -> bool:
        """Wait until everything is written, but no longer than so many seconds; return True if it is."""
        return self._thread.wait(seconds)

    def _tell(self, lines: Sequence[str], status: Status | None) -> None:
        for line in lines:
            self._say(line)
        if status is not None:
            self._show(status)

    def _say(self, line: str) -> None:
        if self._terminal and not self._broken and _is_terminal(sys.stdout):
            self._guarded(lambda: self._draw([line], self._shown))
            return
        with contextlib.suppress(OSError, ValueError):  # nobody reads it
            print(line, flush=True)
            if _are_one(sys.stdout, self._stream):
                self._next = self._clock() + self._every

    def _show(self, status: Status) -> None:
        if self._said is None:  # what happened before another process has gone on was told by that one
            again = [place for place, (_, words) in enumerate(status.events) if words in (RESTARTED, ENDED)]
            self._said = frozenset(status.events[: again[-1]] if again else ())
        news = [f"{_clock(at)}  {printable(words)}" for at, words in status.events if (at, words) not in self._said]
        self._said = frozenset(status.events)
        self._shown = block(status)
        self._guarded(lambda: self._draw(news, self._shown) if self._terminal else self._print(news, status))

    def _guarded(self, write: Callable[[], None]) -> None:
        if self._broken:
            return
        try:
            write()
            self._stream.flush()
        except (OSError, ValueError):  # the pipe's other end, or the stream itself, is closed
            self._broken = True

    def close(self) -> None:
        """Wait a while for what is not written yet, and leave the last block; a call of `show` begins a new one."""
        if self.wait():
            self._drawn, self._shown = 0, ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _draw(self, news: Sequence[str], lines: Sequence[str]) -> None:
        columns, rows = _size(self._stream)
        shown = [line[: columns - 1] for line in lines[: max(1, rows - 1)]]
        up = f"\r\x1b[{self._drawn}A" if self._drawn else "\r"
        # Lines that stay may wrap; those that are redrawn must not, or the cursor returns to a wrong line.
        self._write(f"{up}{_CLEAR_BELOW}{_lines(news)}{_NO_WRAP}{_lines(shown)}{_WRAP}")
        self._drawn = len(shown)

    def _print(self, news: Sequence[str], status: Status) -> None:
        self._write(_lines(news))
        if self._clock() >= self._next or status.finished:
            self._next = self._clock() + self._every
            self._write(f"{line_of(status)}\n")

    def _write(self, text: str) -> None:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(text.encode(encoding, "replace").decode(encoding))


class Background:
    """Calls `write(lines, state)` in a thread of its own, with all lines and the newest state, or None.

    Example:
      >>> written = []
      >>> background = Background(lambda lines, state: written.append((lines, state)))
      >>> background.give(line="one")
      >>> background.wait(60.0)
      True
      >>> written
      [(['one'], None)]
    """

    def __init__(self, write: Callable[[Sequence[str], Any], None]):
        self._write = write
        self._lines: collections.deque[str] = collections.deque(maxlen=_MOST_LINES)
        self._state: Any = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None  # as long as there is something to write

    def give(self, *, line: str | None = None, state: Any = None) -> None:
        """Begin to write a line, or a state; return at once."""
        with self._lock:
            if line is not None:
                self._lines.append(line)
            self._state = self._state if state is None else state
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="background", daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait until everything is written, but no longer than so many seconds; return True if it is."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._lock:
                lines, state = list(self._lines), self._state
                if not lines and state is None:
                    self._thread = None
                    return
                self._lines.clear()
                self._state = None
            self._write(lines, state)


def block(status: Status) -> list[str]:
    """Return the lines that a terminal shows of a run; those that would say nothing are left out."""
    rows = [
        ("", f"{_bar(status)}  {_counts(status)}, {_left(status)}"),
        ("rate", f"{_number(status.gradients_per_second)} {status.unit}s/s, workers idle {status.idle_share:.0%}"),
        ("model", _quality(status)),
        ("waits for", _waiting(status)),
        ("late", _listed([f"{worker.worker} ({_lateness(worker)})" for worker in late(status)])),
        ("workers", _presence(status)),
        ("lost", _listed([_loss_of(worker) for worker in _in(status, "lost")])),
        ("starting", _listed([f"{worker.worker} for {_seconds(worker.since)}" for worker in _in(status, "starting")])),
    ]
    head = f"{printable(status.title) or 'live run'}, {'finished after' if status.finished else 'running for'} "
    return [head + _clock(status.seconds), *(f"  {name:<9}  {words}" for name, words in rows if words)]


def line_of(status: Status) -> str:
    """Return a run in one line, for files and pipes."""
    missing = [str(worker.worker) for worker in _in(status, "lost")]
    parts = [
        _counts(status),
        f"{_number(status.gradients_per_second)} {status.unit}s/s",
        _left(status),
        _quality(status),
        _waiting(status) and f"waiting for {_waiting(status)}",
        f"late: {_listed([str(worker.worker) for worker in late(status)])}" if late(status) else "",
        _presence(status),
        f"lost: {_listed(missing)}" if missing else "",
    ]
    return f"{_clock(status.seconds)}  " + ", ".join(part for part in parts if part)


def late(status: Status) -> list[WorkerStatus]:
    """Return workers that are slower than the others, or than they usually are, the worst first; none after the end."""
    present = [worker for worker in status.workers if worker.state in ("computing", "waiting") and not status.finished]
    score = lambda worker: max(worker.against_fleet or 0, worker.against_itself or 0)
    return sorted((worker for worker in present if _lateness(worker)), key=score, reverse=True)


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _in(status: Status, state: str) -> list[WorkerStatus]:
    return [worker for worker in status.workers if worker.state == state]


def _bar(status: Status, width: int = 20) -> str:
    share = min(1.0, status.gradients / max(1, status.num_gradients))
    full = int(share * width)
    return f"[{'#' * full}{'.' * (width - full)}] {share:4.0%}"


def _counts(status: Status) -> str:
    return f"update {status.updates:,}, {status.gradients:,} of {status.num_gradients:,} {status.unit}s"


def _left(status: Status) -> str:
    if status.finished:
        return "finished"
    if not status.gradients_per_second > 0:
        return "time left unknown"
    return f"{_clock(max(0, status.num_gradients - status.gradients) / status.gradients_per_second)} left"


def _quality(status: Status) -> str:
    values = [] if status.loss is None else [f"loss {_number(status.loss)}"]
    values += [
        f"{printable(name)} {printable(value) if isinstance(value, str) else _number(value)}"
        for name, value in status.evaluation.items()
    ]
    return ", ".join(values + [f"staleness {_number(status.staleness)}"] * (status.updates > 0))


def _waiting(status: Status) -> str:
    if status.finished or not status.waiting_for:
        return ""
    since = {worker.worker: worker.since for worker in status.workers}
    names = _listed(
        [f"{worker} ({_seconds(since[worker])})" if worker in since else str(worker) for worker in status.waiting_for]
    )
    return names if status.wanted is None else f"{names}; the update wants {status.wanted} of {len(status.workers)}"


def _lateness(worker: WorkerStatus) -> str:
    scores = (worker.against_fleet, LATE, "the others"), (worker.against_itself, LATE_BY_ITSELF, "its usual time")
    return ", ".join(f"{score:.1f} x {whose}" for score, least, whose in scores if score is not None and score >= least)


def _presence(status: Status) -> str:
    """Return how many workers are there while some are to come; '' if none is, or the run is over."""
    starting, queued, free = (len(_in(status, state)) for state in ("starting", "queued", "free"))
    if status.finished or not (starting or queued or free):
        return ""
    there = len(status.workers) - starting - queued - free - len(_in(status, "lost"))
    verb = lambda number: "is" if number == 1 else "are"
    said = f"{there} of {len(status.workers)} workers are there, "
    if free:
        return said + f"{counted(free, 'place')} {verb(free)} free"
    said += f"{starting} {verb(starting)} starting"
    return said + (f", {queued} wait{'s' * (queued == 1)} for them" if queued else "")


def _loss_of(worker: WorkerStatus) -> str:
    why = f" ({printable(worker.error)})" if worker.error else ""
    return f"{worker.worker} for {_seconds(worker.since)}{why}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s" if seconds < 120 else _clock(seconds)


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):
        return False


def _are_one(first: TextIO, second: TextIO) -> bool:
    """Return True if two streams lead to the same file, pipe or terminal."""
    try:
        return os.path.sameopenfile(first.fileno(), second.fileno())
    except (AttributeError, OSError, ValueError):
        return first is second


def _size(stream: TextIO) -> tuple[int, int]:
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (AttributeError, OSError, ValueError):
        columns, rows = 80, 24
    return max(columns, 20) if columns else 80, rows or 24
