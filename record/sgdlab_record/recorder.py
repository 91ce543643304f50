"""`Recorder`: how long the phases of each training step took on this process, as JSON lines that sgdlab reads."""

from __future__ import annotations

import atexit
import collections
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

FORMAT = 1
"""Number of the format, in the first line of each file."""

WAIT = " + wait"
"""Ending of the name of a phase that contains the wait for other workers, and own work beside it."""

MOST_LINES = 20_000
"""So many lines wait to be written where the disk is full or gone; beyond, the oldest are lost, and counted."""

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


class Recorder:
    """Records how long each phase of each step takes, in a file of its own for each process.

    Nothing here raises into the training loop: errors are counted (`errors`), the first is said on stderr, and the loop
    goes on. A daemon thread writes each second, so that a killed process loses a second at most. Threads may share a
    recorder; in a forked child it does nothing.

    Args:
      directory: of all workers' files, `rank0.0000.jsonl` and so on. A process that is started again begins a new file.
      worker: name or number of this process among all; by default the rank that RANK or the like in the environment
        says, or else 0.
      first_step: number of the first step.
      node: name of this machine.
      max_bytes: size from which the next step begins a new file.
      keep: so many files of this worker are kept; the oldest are removed.
      seconds: between two writes.

    Attributes:
      errors: how many calls or lines have failed.
      number: of the step that goes on.
      directory: of the files.
      pending: lines that are not written yet.
      worker: its name.
      listeners: each is called with the number of each step that begins, such as one that switches a profiler.

    Example:
      >>> import pathlib, tempfile
      >>> with Recorder(tempfile.mkdtemp(), worker=3) as recorder:
      ...     for batch in recorder.each("data", [1, 2]):
      ...         with recorder.phase("compute"):
      ...             gradient = 2 * batch
      ...         with recorder.phase("all_reduce"):
      ...             pass
      ...         recorder.step()
      >>> lines = [json.loads(line) for line in pathlib.Path(recorder.path).read_text().splitlines()]
      >>> [(line["step"], line["phase"]) for line in lines[1:4]], lines[0]["worker"], recorder.errors
      ([(0, 'data'), (0, 'compute'), (0, 'all_reduce')], 3, 0)
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        worker: str | int | None = None,
        *,
        first_step: int = 0,
        node: str | None = None,
        max_bytes: int = 64_000_000,
        keep: int = 16,
        seconds: float = 1.0,
    ):
        self.errors, self.number, self.path = 0, first_step, ""
        self.listeners: list[Callable[[int], Any]] = []
        self.directory = os.fspath(directory)
        if worker is None:
            worker = next((int(rank) for rank in map(os.environ.get, _RANKS) if rank and rank.isdecimal()), 0)
        self.worker = worker
        self._max_bytes, self._keep, self._seconds = max_bytes, max(keep, 1), seconds
        self._row = {"worker": worker, "node": node or socket.gethostname()}
        self._pid, self._file, self._size = os.getpid(), -1, 0
        self.pending: collections.deque[dict[str, Any]] = collections.deque(maxlen=MOST_LINES)
        self._lock, self._writing, self._end = threading.Lock(), threading.Lock(), threading.Event()
        self._parts: dict[str, list[float]] = {}  # phase of this step -> when it began, and its seconds
        self._cut: tuple[float, str] = (0.0, "")
        self._anchor = time.time() - time.perf_counter()
        self._began = self._last = time.perf_counter()
        self._said = False
        self._guarded(self._start)

    def _start(self) -> None:
        os.makedirs(self.directory, exist_ok=True)
        self._open_next()
        threading.Thread(target=self._write_on, name="sgdlab_record", daemon=True).start()
        atexit.register(self.close)

    def phase(self, name: str, *, waits: bool = False) -> _Phase:
        """Return a context whose seconds count as a phase of this step; several of one name in a step add up.

        Args:
          name: of the phase. `all_reduce`, `all_gather`, `barrier` and the like are read as communication.
          waits: whether the phase contains the wait for other workers as well as work of its own, as the backward pass
            of `DistributedDataParallel` does. Where `cut` tells when the wait begins, the two are told apart.
        """
        return _Phase(self, name, waits)

    def each(self, name: str, iterable: Iterable[Any]) -> Iterator[Any]:
        """Yield the items of an iterable, such as a loader of data; fetching each is a phase."""
        items = iter(iterable)
        while True:
            begin = time.perf_counter()
            try:
                item = next(items)
            except StopIteration:
                return
            self.finished(name, begin, False)
            yield item

    def finished(self, name: str, begin: float, waits: bool) -> None:
        """Add a phase that ends now."""
        self._last = time.perf_counter()
        self.add(name, begin, self._last, waits=waits)

    def lap(self, name: str, *, waits: bool = False) -> None:
        """Count the time since the last lap or phase ended, or the step began, as a phase: see `phase`."""
        self.finished(name, self._last, waits)

    def cut(self, name: str = "all_reduce") -> None:
        """Say that the own work of the phase that goes on, which `waits`, is done: the rest of it is another phase."""
        self._cut = (time.perf_counter(), name)

    def add(self, name: str, begin: float, end: float, *, waits: bool = False) -> None:
        """Add a phase that lasted from one time of `time.perf_counter` to another: see `phase`."""
        if self._pid != os.getpid():  # a lock that another thread held at the fork is never free there
            return
        try:
            cut, other = self._cut
            if waits and begin <= cut <= end:
                self.add(name, begin, cut)
                name, begin = other, cut
            elif waits:
                name += WAIT
            with self._lock:
                part = self._parts.get(name)
                if part is None:
                    self._parts[name] = [begin, end - begin]
                else:
                    part[1] += end - begin
        except Exception as error:  # the training loop goes on
            self.failed(error)

    def step(self, number: int | None = None) -> None:
        """End the step, and begin the next one, of that number or one more than the last."""
        try:
            now = time.perf_counter()
            with self._lock:
                ended, parts = self.number, self._parts
                self._parts, self._began, self._last = {}, now, now
                self.number = ended + 1 if number is None else int(number)
            for name, (begin, seconds) in parts.items():
                self._append({"step": ended, "phase": name, "duration": round(seconds, 9)}, begin)
            for listener in self.listeners:
                listener(self.number)
                self._began = self._last = time.perf_counter()  # their time is no part of a step
        except Exception as error:
            self.failed(error)

    def write(self, step: int, seconds: Mapping[str, float]) -> None:
        """Write the seconds of the phases of any step, which somebody else has measured."""
        self._guarded(
            lambda: [
                self._append({"step": int(step), "phase": str(name), "duration": float(duration)})
                for name, duration in seconds.items()
            ]
        )

    def note(self, **facts: Any) -> None:
        """Write a line of another kind, such as where a profile is; readers of phases leave it out."""
        self._guarded(lambda: self._append(json.loads(json.dumps(facts))))

    def flush(self) -> None:
        """Write what is there, now."""
        self._guarded(self._write)

    def close(self) -> None:
        """Write the rest, and end; a step that has not ended is left out. Also done at the end of the process."""
        self._end.set()
        self._guarded(self._close)

    def _close(self) -> None:
        if self._pid != os.getpid() or self._file < 0:
            return
        atexit.unregister(self.close)
        self._write()
        with self._writing:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, facts: dict[str, Any], begin: float | None = None) -> None:
        if self._file < 0:
            return  # it was closed, or could not begin, which was said
        if begin is not None:
            facts["start"] = round(self._anchor + begin, 6)
        if len(self.pending) == MOST_LINES:
            self.errors += 1  # the oldest is lost
        self.pending.append(facts)

    def _open_next(self) -> None:
        """Begin the next file of this worker, which nobody else has."""
        stem = re.sub(r"[^\w-]", "_", str(self.worker))
        stem = f"rank{stem}" if stem.isdecimal() else stem
        own = re.compile(re.escape(stem) + r"\.(\d+)\.jsonl")
        there = sorted(int(found[1]) for found in map(own.fullmatch, os.listdir(self.directory)) if found)
        part = there[-1] + 1 if there else 0
        while True:
            path = os.path.join(self.directory, f"{stem}.{part:04d}.jsonl")
            try:
                file = os.open(
                    path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o666
                )
                break
            except FileExistsError:
                part += 1
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size, self.path = file, 0, path
        header = {"sgdlab_record": FORMAT, **self._row, "part": part, "pid": self._pid}
        clocks = {"wall": round(time.time(), 6), "monotonic": round(time.perf_counter(), 6)}
        self._put(json.dumps({**header, **clocks}) + "\n")
        for old in there[: max(len(there) + 1 - self._keep, 0)]:
            os.unlink(os.path.join(self.directory, f"{stem}.{old:04d}.jsonl"))

    def _write_on(self) -> None:
        while not self._end.wait(self._seconds):
            self._guarded(self._write)

    def _write(self) -> None:
        """Write what waits, whole steps, and after a second what is known of the one that goes on."""
        with self._writing:
            if self._pid != os.getpid() or self._file < 0:
                return
            taken, texts = [], []
            while self.pending:
                taken.append(self.pending.popleft())
                texts.append(json.dumps({**self._row, **taken[-1]}) + "\n")
            try:
                if self._size >= self._max_bytes:
                    self._open_next()
                self._put("".join(texts) + self._open_step())
            except OSError:
                self.pending.extendleft(reversed(taken[-(MOST_LINES - len(self.pending)) :]))
                raise

    def _open_step(self) -> str:
        now = time.perf_counter()
        with self._lock:
            if now - self._began < self._seconds:
                return ""
            done = {name: round(seconds, 6) for name, (_, seconds) in self._parts.items()}
            facts = {"unfinished_step": self.number, "after": round(now - self._began, 6), "done": done}
        return json.dumps({**self._row, **facts}) + "\n"

    def _put(self, text: str) -> None:
        """Append to the file; what was half written is taken back."""
        data = text.encode()
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(text.encode())

    def _guarded(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:  # the training loop goes on
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Count an error, and say the first one on stderr."""
        self.errors += 1
        if not self._said:
            self._said = True
            try:
                text = (
                    f"sgdlab_record: {type(error).__name__}: {error}; training goes on, and further errors are counted"
                )
                print(text, file=sys.stderr, flush=True)
            except Exception:  # nothing can be said either
                pass


class _Phase:
    """One phase, while it goes on; one that ends with an exception, such as that of a loader's end, is left out."""

    __slots__ = ("_begin", "_name", "_recorder", "_waits")

    def __init__(self, recorder: Recorder, name: str, waits: bool):
        self._recorder, self._name, self._waits = recorder, name, waits

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, error: type | None, *_: object) -> None:
        if error is None:
            self._recorder.finished(self._name, self._begin, self._waits)
