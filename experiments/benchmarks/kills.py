"""Runs that are killed at random moments and started again, compared with a run that was never interrupted."""

import collections
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from experiments.benchmarks.timing import Figure

KILLS = 50
EVALUATIONS = 30
COMMAND = (
    "--config.method=gap_aware",
    "--config.network.conv.batch_norm=true",
    "--config.epochs=12.0",
    f"--config.evaluations={EVALUATIONS}",
    "--checkpoint_seconds=0",
)
"""Flags of `experiments.main`: a checkpoint at every evaluation, about ten a second."""

CONTINUED = "continued from a checkpoint"

_ROOT = pathlib.Path(__file__).parents[2]
_POLL_SECONDS = 0.001
_LIMIT_SECONDS = 600.0
_CONTINUES = re.compile(r"continues after ([\d,]+) of")
_EVALUATION = re.compile(r"^ *(\d+) of (\d+) gradients")
_NOT_COMPARED = ("made", "compute_seconds")
"""Entries of records that say where a run was made and how long it took."""


def figures(kills: int = KILLS, *, seed: int = 0) -> Iterator[Figure]:
    """Kills that many processes by SIGKILL; every run must end as an uninterrupted one does, bit for bit.

    A killed run is started again until it has finished; then the next run begins. The moments are drawn from the whole
    duration of a run, from the start of the process to the last file that it writes, and from the milliseconds around
    the writing of a checkpoint.
    """
    draw = random.Random(seed)
    survived = _Survived()
    with tempfile.TemporaryDirectory(prefix="sgdlab-kills-") as folder:
        root = pathlib.Path(folder)
        _Process(root / "cold").finish()  # compiles; all others read its programs
        begin = time.monotonic()
        _Process(root / "reference").finish()
        duration = time.monotonic() - begin
        while survived.kills < kills:
            workdir = root / f"run{len(survived.differences)}"
            _killed_until_finished(workdir, draw, duration, kills, survived)
            survived.differences.append(_differences(root / "reference", workdir))
    yield from survived.figures(duration)


class _Survived:
    """Holds what happened to the killed runs."""

    def __init__(self) -> None:
        self.differences: list[list[str]] = []  # of each run, the files and records that differ
        self.moments: collections.Counter[str] = collections.Counter()
        self.half_written = 0  # kills that left a checkpoint that was being written
        self.starts: list[float] = []  # seconds from the start of a process to its first evaluation
        self.restarts: collections.Counter[str] = collections.Counter()  # what the starts after a kill did
        self.again: list[int] = [0]  # gradients that were evaluated and then computed again, of each start

    @property
    def kills(self) -> int:
        return sum(self.moments.values())

    def figures(self, duration: float) -> Iterator[Figure]:
        runs, differing = len(self.differences), sorted({name for names in self.differences for name in names})
        moments = ", ".join(f"{number} {moment}" for moment, number in sorted((+self.moments).items()))
        yield Figure(
            f"runs that end as if uninterrupted, of {runs} with {self.kills} kills",
            sum(not names for names in self.differences),
            "",
            str(runs),
            not differing,
            f"kills: {moments}; {self.half_written} left half a checkpoint"
            + (f"; differing: {', '.join(differing)}" if differing else ""),
        )
        others = ", ".join(f"{number} {what}" for what, number in sorted((+self.restarts).items()) if what != CONTINUED)
        detail = f"of {self.restarts.total()}; the others: {others or 'none'}"
        yield Figure(f"starts after a kill that {CONTINUED}", self.restarts[CONTINUED], "", detail=detail)
        detail = (
            f"{sum(self.again):,}, at most {max(self.again):,} at one start; besides those after the last evaluation"
        )
        yield Figure("gradients that were evaluated and then computed again", sum(self.again), "", detail=detail)
        detail = (
            f"to its first evaluation, of {len(self.starts)} processes; an uninterrupted run takes {duration:.1f} s"
        )
        yield Figure("longest start", max(self.starts), "s", detail=detail)


class _Process:
    """A process of `experiments.main`, whose lines and checkpoints are followed while it runs.

    Attributes:
      first_evaluation: seconds from its start to its first evaluation; None before it.
      continues_after: gradients of the checkpoint that it continues from; None if it begins anew.
      evaluated: gradients before its newest evaluation.
      trained: whether this was the last evaluation.
      begun: names of the checkpoints that it has begun to write.
      whole: names of those that are whole.
    """

    def __init__(self, workdir: pathlib.Path):
        self._workdir, self._begin = workdir, time.monotonic()
        self.first_evaluation: float | None = None
        self.continues_after: int | None = None
        self.evaluated, self.trained = 0, False
        self.begun: set[str] = set()
        self.whole: set[str] = set()
        self._before: set[str] = set()
        self._lines: list[str] = []
        cache = {
            "JAX_COMPILATION_CACHE_DIR": str(workdir.parent / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "experiments.main", *COMMAND, f"--workdir={workdir}"],
            cwd=_ROOT,
            env=os.environ | cache,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def kill_at(self, reached: Callable[["_Process"], bool], delay: float) -> bool:
        """Kills the process some seconds after it has reached a moment; returns whether it had not finished before."""
        while not reached(self):
            if self._process.poll() is not None:
                return self._ended()
            if time.monotonic() - self._begin > _LIMIT_SECONDS:
                self._process.kill()
                self._reader.join()
                raise RuntimeError(f"a run takes more than {_LIMIT_SECONDS:.0f} s:\n{''.join(self._lines)}")
            time.sleep(_POLL_SECONDS)
            self._follow()
        try:
            self._process.wait(delay)
            return self._ended()
        except subprocess.TimeoutExpired:
            self._process.kill()
        killed = self._process.wait() == -signal.SIGKILL
        self._reader.join()
        return killed or self._ended()

    def finish(self) -> None:
        """Waits for the end of the run."""
        self.kill_at(lambda process: False, 0.0)

    def left_half(self) -> bool:
        """Return whether there is a checkpoint that is not whole."""
        return any(not name.isdigit() for name in self._checkpoints())

    def _checkpoints(self) -> set[str]:
        """Names of the checkpoints that are there: a number if whole, before that a number and what Orbax adds."""
        with contextlib.suppress(OSError):
            return {name for name in os.listdir(self._workdir / "states" / "run") if name[0].isdigit()}
        return set()

    def _follow(self) -> None:
        now = self._checkpoints()
        if self.first_evaluation is None:  # it has not begun to train, and may still remove what was left half written
            self._before = now
        new = now - self._before
        self.begun |= {name.partition(".")[0] for name in new}
        self.whole |= {name for name in new if name.isdigit()}

    def _ended(self) -> bool:
        self._reader.join()
        if self._process.returncode:
            raise RuntimeError(f"a run has failed, exit code {self._process.returncode}:\n{''.join(self._lines)}")
        return False

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.append(line)
            if found := _CONTINUES.search(line):
                self.continues_after = int(found[1].replace(",", ""))
            if found := _EVALUATION.match(line):
                self.first_evaluation = self.first_evaluation or time.monotonic() - self._begin
                self.evaluated, self.trained = int(found[1]), found[1] == found[2]


def _killed_until_finished(
    workdir: pathlib.Path, draw: random.Random, duration: float, kills: int, survived: _Survived
) -> None:
    """Starts one run until it has finished, and kills it as long as there are kills left."""
    evaluated, was_killed, killed = 0, False, True
    while killed:
        process = _Process(workdir)
        if survived.kills < kills:
            moment, reached, delay = _moment(draw, duration)
            killed = process.kill_at(reached, delay)
            survived.moments[moment] += killed
            survived.half_written += killed and process.left_half()
        else:
            process.finish()
            killed = False
        survived.restarts[_outcome(process, killed)] += was_killed
        if process.first_evaluation is not None:
            survived.starts.append(process.first_evaluation)
            survived.again.append(max(evaluated - (process.continues_after or 0), 0))
            evaluated = 0
        evaluated, was_killed = max(evaluated, process.evaluated), killed


def _outcome(process: _Process, killed: bool) -> str:
    """Return what a process that was started after a kill did."""
    if process.first_evaluation is None:
        return "were killed before their first evaluation" if killed else "found the run finished"
    return "began anew" if process.continues_after is None else CONTINUED


def _moment(draw: random.Random, duration: float) -> tuple[str, Callable[[_Process], bool], float]:
    """Return a random moment of a run.

    Returns:
      Its name, whether a process has reached it, and how many seconds later it is.
    """
    number = draw.randint(1, 4)  # of a new checkpoint, so that the run makes progress between kills
    moments: list[tuple[str, Callable[[_Process], bool], float]] = [
        ("at any time", lambda process: True, duration),
        ("while a checkpoint was written", lambda process: len(process.begun) >= number, 0.05),
        ("after a checkpoint", lambda process: len(process.whole) >= number, 0.5),
        ("after the last gradient", lambda process: process.trained, 2.0),
    ]
    name, reached, seconds = draw.choices(moments, (4, 4, 3, 1))[0]
    return name, reached, draw.uniform(0.0, seconds)


def _differences(reference: pathlib.Path, workdir: pathlib.Path) -> list[str]:
    """Names of the results of two runs that are not the same, bit for bit."""
    found = [
        f"{file}: {name}"
        for file in ("parameters.npz", "schedule.npz")
        for name in _differing(_arrays(reference / file), _arrays(workdir / file))
    ]
    if _records(reference) != _records(workdir):
        found.append("metrics")
    left = (workdir / name for name in ("states", "metrics/under_way"))
    return found + [f"{path.name} was left" for path in left if path.exists()]


def _differing(first: dict[str, tuple], second: dict[str, tuple]) -> list[str]:
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


def _arrays(path: pathlib.Path) -> dict[str, tuple]:
    """dtype, shape and bytes of every array of a file."""
    with np.load(path) as file:
        return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in file.items()}


def _records(workdir: pathlib.Path) -> list[dict[str, Any]]:
    lines = (workdir / "metrics" / "run.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [{name: value for name, value in record.items() if name not in _NOT_COMPARED} for record in records]
