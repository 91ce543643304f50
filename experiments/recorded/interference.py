"""Makes a worker of a recorded job slow from outside, until a stack is closed."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import numpy as np

from experiments.benchmarks.faults.namespaces import Machines
from experiments.recorded.episodes import FROZEN, LINK, NEIGHBOUR, Episode

_SPIN = "import os; os.sched_setaffinity(0, [{core}]); print('spins', flush=True)\nwhile True: pass"
_RUNS = (0.01, 0.04)
"""Seconds, at least and at most, that a frozen worker runs between two stops."""


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
    """Keep a process on one core of the processor, on which so many others compute all the time."""
    for _ in range(count):
        command = [sys.executable, "-S", "-c", _SPIN.format(core=core)]
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
        stack.callback(process.kill)
        process.stdout.readline()
    stack.enter_context(contextlib.suppress(ProcessLookupError))
    stack.callback(os.sched_setaffinity, pid, os.sched_getaffinity(pid))
    os.sched_setaffinity(pid, [core])


def _stop_again_and_again(stack: contextlib.ExitStack, pid: int, seconds: float, draw: np.random.Generator) -> None:
    """Stop a process for so many seconds each time, by SIGSTOP and SIGCONT."""
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
