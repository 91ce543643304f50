"""Events of profiles: files in the trace event format of Chrome, and how much of a step is covered by events.

PyTorch's and JAX's profilers write this format too: an array of events, whose closing bracket may be missing, or an
object with the array `traceEvents`. Times (`ts`, `dur`) are microseconds.

Source: "Trace Event Format", Nat Duca and Dean Sinclair, 2016
"""

import gzip
import io
import json
import pathlib
import re
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sgdlab.traces.joining import WorkerSteps
from sgdlab.traces.problems import BadTrace

Intervals = tuple[np.ndarray, np.ndarray]
"""Begins and ends, float64[K] each."""

Span = tuple[float, float]
"""Begin and end, microseconds."""

Line = tuple[Any, Any]
"""A process and one of its threads."""

_DECODER: Any = json.JSONDecoder(strict=False)  # profilers leave control characters in names
_NUMBER = (int, float)
_BETWEEN: Any = re.compile(r"[\s,]*")
_EVENT = re.compile(r'\{\s*"(?:ph|name|cat|pid|tid|ts)"\s*:')


def _bytes(path: pathlib.Path) -> tuple[bytes, bool]:
    """The bytes of a file, decompressed, and whether the compressed ones end too early."""
    raw = path.read_bytes()
    if not raw.startswith(b"\x1f\x8b"):
        return raw, False
    parts = []
    try:
        with gzip.open(io.BytesIO(raw)) as file:
            while part := file.read1(1 << 20):
                parts.append(part)
    except EOFError:
        return b"".join(parts), True
    except (OSError, zlib.error) as error:
        raise BadTrace(f"cannot be decompressed: {error}") from error
    return b"".join(parts), False


class Trace:
    """Reads the events of a file, perhaps compressed, one by one, so that a reader keeps no more than it needs.

    Attributes:
      header: what an object holds beside its events.
      events: how many were read.
      skipped: places that could not be read, behind which reading went on.
      cut_off: whether the file ends before its events do; an array without its closing bracket is whole.

    Raises:
      BadTrace: where the file is not in this format, or is cut off and its reader does not take that.
    """

    reads_cut_off = False
    """True where a file that ends too early is read as far as it goes."""

    def __init__(self, path: pathlib.Path):
        self.header: dict[str, Any] = {}
        self.events = self.skipped = 0
        self.processes: dict[Any, str] = {}
        self.threads: dict[Line, str] = {}
        self._open: dict[Line, list[dict[str, Any]]] = defaultdict(list)
        raw, self.cut_off = _bytes(path)
        text = raw.decode("utf-8", errors="replace")
        del raw
        self._scan(text)
        if self.cut_off and not self.reads_cut_off:
            raise BadTrace(
                f"ends after {self.events} events (was the process killed while it wrote?): events are not in order of "
                "time, so that what is missing is unknown; record again, or leave this file out (--skip_bad_rows)"
            )

    def _scan(self, text: str) -> None:
        """Reads all events, and what stands around them."""
        index = _BETWEEN.match(text, 1 if text.startswith("\ufeff") else 0).end()
        if text.startswith("[", index):
            self._scan_array(text, index + 1)
            return
        if not text.startswith("{", index):
            raise BadTrace("must hold trace events: an array of them, or an object with traceEvents, in JSON")
        index, found = index + 1, False
        try:
            while not text.startswith("}", index := _BETWEEN.match(text, index).end()):
                name, index = _DECODER.scan_once(text, index)
                index = _BETWEEN.match(text, text.index(":", index) + 1).end()
                if name == "traceEvents" and text.startswith("[", index):
                    found = True
                    index = self._scan_array(text, index + 1)
                    self.cut_off = self.cut_off or index == len(text)
                else:
                    self.header[name], index = _DECODER.scan_once(text, index)
        except (ValueError, StopIteration):  # the end of the text, or what is no JSON
            self.cut_off = True
        if not found:
            raise BadTrace("has no traceEvents")

    def _scan_array(self, text: str, index: int) -> int:
        """Reads events up to the closing bracket or the end of the text, and returns where reading stopped."""
        between, once = _BETWEEN.match, _DECODER.scan_once
        while True:
            index = between(text, index).end()
            if index == len(text):
                return index
            if text[index] == "]":
                return index + 1
            try:
                event, index = once(text, index)
            except (ValueError, StopIteration):
                if (following := _EVENT.search(text, index + 1)) is None:
                    self.cut_off = True
                    return len(text)
                self.skipped += 1
                index = following.start()
                continue
            if isinstance(event, dict):
                self.events += 1
                self._event(event)

    def _take(self, line: Line, name: str, span: Span, category: str, arguments: dict[str, Any]) -> None:
        raise NotImplementedError

    def _event(self, event: dict[str, Any]) -> None:
        phase, name, begin = event.get("ph"), event.get("name"), event.get("ts")
        line, arguments = (event.get("pid"), event.get("tid")), _arguments(event)
        if phase == "M" and name == "process_name":
            self.processes[line[0]] = str(arguments.get("name", ""))
        elif phase == "M" and name == "thread_name":
            self.threads[line] = str(arguments.get("name", ""))
        elif not isinstance(begin, _NUMBER):
            return
        elif phase == "B":
            self._open[line].append(event)
        elif phase == "E" and self._open[line]:
            begun = self._open[line].pop()
            span, arguments = (float(begun["ts"]), float(begin)), _arguments(begun) | arguments
            self._take(line, str(begun.get("name", "")), span, str(begun.get("cat", "")), arguments)
        elif phase == "X" and isinstance(name, str) and isinstance(duration := event.get("dur"), _NUMBER):
            span = (float(begin), float(begin) + float(duration))
            self._take(line, name, span, str(event.get("cat", "")), arguments)


def _arguments(event: dict[str, Any]) -> dict[str, Any]:
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


def head(path: pathlib.Path, size: int = 1 << 20) -> str:
    """Return the first characters of a file, decompressed; empty where they cannot be read."""
    try:
        with path.open("rb") as file:
            raw = file.read(size)
        if raw.startswith(b"\x1f\x8b"):
            raw = zlib.decompressobj(wbits=31).decompress(raw, size)
    except (OSError, zlib.error):
        return ""
    return raw.decode("utf-8", errors="replace")


def has_events(text: str) -> bool:
    """Tell whether a file that begins like this is in the trace event format."""
    return '"traceEvents"' in text or bool(re.match(r'\ufeff?\s*\[\s*\{[^{}]*"ph"\s*:', text))


def spans() -> dict[Any, dict[str, array]]:
    """Return a mapping of where events happen, and of their kinds, to begins and ends by turns; it is empty."""
    return defaultdict(lambda: defaultdict(lambda: array("d")))


def intervals(times: Iterable[array]) -> Intervals:
    """Return the begins and ends of arrays in which they take turns."""
    both = np.concatenate([np.empty(0), *(np.frombuffer(one, np.float64) for one in times if len(one))])
    return both[::2], both[1::2]


def widen(steps: dict[int, Span], number: int, span: Span) -> None:
    """Makes a step hold these times too, as where it is that of several devices."""
    known = steps.get(number, span)
    steps[number] = (min(known[0], span[0]), max(known[1], span[1]))


def windows(steps: Mapping[int, Span]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rising numbers of steps, int64[S], their begins and ends, float64[S]."""
    numbers = sorted(steps)
    times = np.array([steps[number] for number in numbers], np.float64).reshape(-1, 2)
    return np.array(numbers, np.int64), times[:, 0], times[:, 1]


def union(begin: np.ndarray, end: np.ndarray) -> Intervals:
    """Return M <= K disjoint intervals, in order, that cover the same times: begins and ends, float64[M] each.

    Example:
      >>> union(np.array([4.0, 0.0, 1.0]), np.array([5.0, 2.0, 3.0]))
      (array([0., 4.]), array([3., 5.]))
    """
    if begin.size == 0:
        return begin.astype(np.float64), end.astype(np.float64)
    order = np.argsort(begin, kind="stable")
    begin, latest = begin[order], np.maximum.accumulate(end[order])
    first = np.concatenate([[True], begin[1:] > latest[:-1]])
    return begin[first], latest[np.concatenate([first[1:], [True]])]


def covered(begin: np.ndarray, end: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the time of each of S windows that lies in at least one of K intervals, which may overlap: float64[S].

    Example:
      >>> covered(np.array([0.0, 1.0]), np.array([2.0, 3.0]), np.array([0.5, 2.5]), np.array([1.5, 9.0]))
      array([1. , 0.5])
    """
    begin, end = union(begin, end)
    if begin.size == 0:
        return np.zeros(np.shape(left))
    total = np.concatenate([[0.0], np.cumsum(end - begin)])

    def until(time: np.ndarray) -> np.ndarray:
        index = np.searchsorted(begin, time, side="right")  # so many intervals have begun
        return total[index] - np.where(index > 0, np.maximum(end[index - 1] - time, 0.0), 0.0)

    return until(right) - until(left)


def difference(first: Intervals, second: Intervals) -> Intervals:
    """Return disjoint intervals that cover the times of the first set which the second does not cover.

    Example:
      >>> difference((np.array([0.0]), np.array([5.0])), (np.array([1.0]), np.array([2.0])))
      (array([0., 2.]), array([1., 5.]))
    """
    points = np.unique(np.concatenate([*first, *second]))
    left, right = points[:-1], points[1:]
    kept = (covered(*first, left, right) > 0) & (covered(*second, left, right) == 0)
    return union(left[kept], right[kept])


def exposed(
    parts: Mapping[str, Intervals], hidden_by: Intervals, left: np.ndarray, right: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the time of each window in which a part is under way, and nothing of what hides it.

    Where two parts overlap, the time belongs to the one that comes first among `parts`, so that they add up.

    Example:
      >>> transfer = {"all_reduce": (np.array([2.0]), np.array([6.0]))}
      >>> exposed(transfer, (np.array([0.0]), np.array([3.0])), np.array([0.0]), np.array([10.0]))
      {'all_reduce': array([3.])}
    """
    begin, end = union(*hidden_by)
    before, times = covered(begin, end, left, right), {}
    for name, (part_begin, part_end) in parts.items():
        begin, end = union(np.concatenate([begin, part_begin]), np.concatenate([end, part_end]))
        now = covered(begin, end, left, right)
        times[name] = np.maximum(now - before, 0.0)
        before = now
    return times


def worker_steps(
    worker: str,
    steps: tuple[np.ndarray, np.ndarray, np.ndarray],
    communication: Mapping[str, Intervals],
    compute: Intervals,
    parts: Mapping[str, Intervals],
    *,
    rest: str = "other",
    epoch: float = 0.0,
    node: str = "",
) -> WorkerSteps:
    """Return a worker's steps, whose own work is their time less that of communication which nothing hides.

    Steps are numbers, begins and ends, microseconds; what `compute` covers is no waiting, and the time of the own work
    that is in none of the `parts` is called `rest`. The clock shows `epoch` seconds at its zero.
    """
    numbers, left, right = steps
    waited = exposed(communication, compute, left, right)
    own = right - left - sum(waited.values(), np.zeros(left.shape))
    every = [np.concatenate(ends) for ends in zip(*communication.values(), strict=True)] or [np.empty(0)] * 2
    known = exposed(parts, difference((every[0], every[1]), compute), left, right)
    phases = {name: times for name, times in known.items() if times.any()}
    if phases:
        phases[rest] = np.maximum(own - sum(phases.values(), np.zeros(left.shape)), 0.0)
    waited, phases = ({name: times * 1e-6 for name, times in tables.items()} for tables in (waited, phases))
    return WorkerSteps(worker, numbers, own * 1e-6, waited, phases, epoch + left * 1e-6, node)
