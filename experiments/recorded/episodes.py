"""The episodes of a recording: what befalls whom, since when, until when, and how much; and how that is done."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import NamedTuple

import numpy as np

from experiments.benchmarks.faults.namespaces import Machines


class Kind(NamedTuple):
    """A kind of fault, whose strength is a whole number."""

    least: int  # strength
    most: int
    unit: str  # of the strength
    phase: str  # of a step in which it shows
    how: str  # it is made


GRADIENT, LOADER, NEIGHBOUR, DISK, LINK, FROZEN = (
    "slow gradient", "slow loader", "busy neighbour", "throttled disk", "limited link", "frozen worker",
)  # fmt: skip
KINDS = {
    GRADIENT: Kind(40, 150, "% more examples", "gradient", "the worker computes gradients of more examples"),
    LOADER: Kind(8, 24, "times", "data", "the worker decodes each batch several times"),
    NEIGHBOUR: Kind(2, 6, "processes", "all", "the worker is kept on a core on which others compute all the time"),
    DISK: Kind(
        1, 3, "writes of 256 kB", "data", "writes with fsync before each batch, which is then read from the disk"
    ),
    LINK: Kind(40, 120, "Mbit/s", "upload", "tc tbf on the worker's interface in a network namespace"),
    FROZEN: Kind(20, 50, "ms", "all", "SIGSTOP, after every 10 to 40 ms of running"),
}
"""Fault -> its kind."""

PACED = "the worker sends 4 kB at a time, with pauses"
"""The way in which a link is limited without network namespaces."""

CYCLE = (None, GRADIENT, LOADER, NEIGHBOUR, None, DISK, LINK, FROZEN)
"""Faults of consecutive episodes, again and again; None: nothing is done."""

_SPIN = """
import os
parent = os.getppid()
os.sched_setaffinity(0, [{core}])
print('spins', flush=True)
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""
"""The program of a neighbour, which ends with the process that has started it."""
_RUNS = (0.01, 0.04)
"""Seconds, at least and at most, that a frozen worker runs between two stops."""


class Episode(NamedTuple):
    """A job of some steps, in which at most one thing is done to one worker."""

    number: int
    fault: str | None = None  # one of `KINDS`
    worker: int = 0
    since: int | None = None  # first step
    until: int | None = None  # last step; None: it lasts
    strength: int = 0

    @property
    def file(self) -> str:
        """Return the name of its file."""
        return f"{self.number:03}-{(self.fault or 'clean').replace(' ', '-')}.parquet"

    def lasts(self, step: int) -> bool:
        """Return whether the fault is there in a step."""
        return self.fault is not None and self.since <= step and (self.until is None or step <= self.until)

    def strength_of(self, fault: str, worker: int, step: int) -> int:
        """Return the strength of a fault that a worker has in a step, 0 where it has none."""
        return self.strength if (fault, worker) == (self.fault, self.worker) and self.lasts(step) else 0


def draw(number: int, *, seed: int, steps: int, workers: int) -> Episode:
    """Draw an episode.

    A fault begins after 20 to 60 % of the steps. Half of the faults last to the end; the others last for a quarter to a
    third of the steps.

    Example:
      >>> [draw(number, seed=0, steps=500, workers=4).fault for number in (1, 4)]
      ['slow gradient', None]
    """
    fault, generator = CYCLE[number % len(CYCLE)], np.random.default_rng([seed, number])
    if fault is None:
        return Episode(number)
    worker, since = int(generator.integers(workers)), round(generator.uniform(0.2, 0.6) * steps)
    until = since + round(generator.uniform(0.25, 1 / 3) * steps) - 1 if generator.random() < 0.5 else None
    strength = int(generator.integers(KINDS[fault].least, KINDS[fault].most, endpoint=True))
    return Episode(number, fault, worker, since, until, strength)


def begin(
    stack: contextlib.ExitStack, episode: Episode, pid: int, machines: Machines | None, name: str, seed: int
) -> None:
    """Begin what is done to the worker of an episode, a process on a machine of that name; it may do all by itself."""
    draw = np.random.default_rng([seed, episode.number, 1])
    if episode.fault == NEIGHBOUR:
        _keep_beside(stack, pid, episode.strength, int(draw.choice(sorted(os.sched_getaffinity(0)))))
    elif episode.fault == FROZEN:
        _stop_again_and_again(stack, pid, episode.strength / 1000, draw)
    elif episode.fault == LINK and machines:
        machines.limit(name, episode.strength)
        stack.callback(machines.unlimit, name)


def _keep_beside(stack: contextlib.ExitStack, pid: int, count: int, core: int) -> None:
    """Keep a process on one core of the processor, on which others compute all the time."""
    for _ in range(count):
        command = [sys.executable, "-S", "-c", _SPIN.format(core=core)]
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
        stack.callback(process.kill)
        process.stdout.readline()
    stack.enter_context(contextlib.suppress(ProcessLookupError))
    stack.callback(os.sched_setaffinity, pid, os.sched_getaffinity(pid))
    os.sched_setaffinity(pid, [core])


def _stop_again_and_again(stack: contextlib.ExitStack, pid: int, seconds: float, draw: np.random.Generator) -> None:
    """Stop a process again and again, for these seconds each time, by SIGSTOP and SIGCONT."""
    over = threading.Event()

    def strike() -> None:
        with contextlib.suppress(ProcessLookupError):
            while not over.wait(draw.uniform(*_RUNS)):
                os.kill(pid, signal.SIGSTOP)
                over.wait(seconds)
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=strike, daemon=True)
    stack.callback(thread.join)
    stack.callback(over.set)
    thread.start()
