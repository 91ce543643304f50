"""The resume of a live run after many gradients, and what its log, record and checkpoints cost.

One process writes, is killed in the middle, and others continue. Workers answer at once, on a clock that only they
move; steps do nothing.

    python -m experiments.benchmarks resume                  # 10^5 and 10^6 gradients
    python -m experiments.benchmarks resume --gradients=10000000
"""

import heapq
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.benchmarks.timing import Figure, at_least, at_most
from sgdlab import policies
from sgdlab.errors import Stopped
from sgdlab.live.log import Log
from sgdlab.live.messages import Came, Joined, Message
from sgdlab.live.resume import examined
from sgdlab.live.server import serve

WORKERS, SECONDS = 8, 0.004
"""So long a gradient takes by the workers' clock, about: 2,000 come in a second, and 10,000 between two checkpoints."""
MANY = 10**6
_MOST_SECONDS, _MOST_MEGABYTES = 5.0, 200.0
_AUX = {"loss": 0.5}
_GRADS = np.zeros(3)


def figures(gradients: int = MANY) -> Iterator[Figure]:
    """Yield what resumes cost after a tenth of so many gradients, and after all of them."""
    for number in (gradients // 10, gradients):
        with tempfile.TemporaryDirectory() as folder:
            written = _process("write", folder, number)
            sizes = ", ".join(f"{path.name} {path.stat().st_size / 1e6:,.1f}" for path in _kept(folder))
            what = f"after {number:,} gradients: "
            cost = f"{number / written['seconds']:,.0f}/s by the wall; MB: {sizes}"
            yield at_least(f"{what}gradients a CPU second while it is written", number / written["cpu"], "", None, cost)
            resumed = _process("resume", folder, number)
            detail = f"{resumed['cpu']:.2f} CPU seconds; {resumed['said']}"
            yield at_most(f"{what}resumed in", resumed["seconds"], "s", _MOST_SECONDS, detail)
            yield at_most(f"{what}memory of that", resumed["megabytes"], "MB", _MOST_MEGABYTES, "above what it was")
            seen = _process("look", folder, number)
            detail = f"{seen['megabytes']:,.0f} MB; {seen['said']}"
            yield at_most(f"{what}all of it read for a recording in", seen["seconds"], "s", None, detail)


def _kept(folder: str) -> list[pathlib.Path]:
    return sorted(path for path in pathlib.Path(folder).iterdir() if not path.name.startswith("checkpoint"))


def _process(does: str, folder: str, number: int) -> dict[str, Any]:
    command = [sys.executable, "-m", __name__, does, folder, str(number)]
    found = subprocess.run(command, stdout=subprocess.PIPE, check=False, cwd=pathlib.Path(__file__).parents[2])
    if found.returncode not in (0, 9):
        raise RuntimeError(f"{' '.join(command[2:])} has ended with exit code {found.returncode}")
    return json.loads(found.stdout.splitlines()[-1])


class _Echo:
    """A transport whose workers answer when their time is over; time passes while the server waits for them."""

    STARTS, at_once = True, WORKERS

    def __init__(self) -> None:
        self._now, self._due, self._draws = 0.0, [], np.random.default_rng(0)
        self._joined: list[Message] = []

    def time(self) -> float:
        return self._now

    def spawn(self, worker: int) -> None:
        self._joined.append(Joined(worker, worker, "here"))

    def begin(self, worker: int, ticket: int, handle: Any, **kept: int) -> None:
        heapq.heappush(self._due, (self._now + SECONDS * (0.5 + self._draws.random()), worker, ticket))

    def next(self, timeout: float | None) -> list[Message]:
        if self._joined:
            joined, self._joined = self._joined, []
            return joined
        until = self._now + (timeout or 0.0)
        if not self._due or self._due[0][0] > until:
            self._now = until
            return []
        self._now, worker, ticket = heapq.heappop(self._due)
        return [Came(worker, ticket, _GRADS, _AUX, SECONDS)]

    def _ignore(self, *told: Any) -> None:
        pass

    publish = release = interrupt = kill = close = _ignore


class _Steps:
    """Stands for a server that has nothing to compute, so that the rest is measured."""

    single = True

    def sent(self) -> np.ndarray:
        return _GRADS

    def receive(self, *told: Any, **given: Any) -> None:
        pass

    def close(self) -> None:
        pass

    def snapshot(self) -> dict[str, np.ndarray]:
        return {"params": _GRADS}

    def restore(self, snapshot: dict[str, np.ndarray]) -> None:
        pass


def _run(folder: pathlib.Path, number: int, **given: Any) -> None:
    log = Log(folder, {}, compute_of=lambda worker: lambda ticket, params, version: (_GRADS, _AUX), say=_SAID.append)
    steps: Any = _Steps()
    policy = policies.asynchronous(num_workers=WORKERS)
    serve(policy, steps, _Echo(), num_workers=WORKERS, num_gradients=2 * number, log=log, **given)


_SAID: list[str] = []


def _write(folder: pathlib.Path, number: int) -> None:
    cpu, begun = time.process_time(), time.perf_counter()

    def killed(updated: Any) -> None:
        if updated.number == number:
            spent = {"cpu": time.process_time() - cpu, "seconds": time.perf_counter() - begun}
            print(json.dumps(spent), flush=True)
            os._exit(9)

    _run(folder, number, on_update=killed)


def _resume(folder: pathlib.Path, number: int) -> None:
    _measured(lambda: _stopped(folder, number))


def _stopped(folder: pathlib.Path, number: int) -> str:
    try:
        _run(folder, number, stop=lambda: True)
    except Stopped:
        return _SAID[-1].partition(": ")[2]
    raise RuntimeError("it must have been stopped")


def _look(folder: pathlib.Path, number: int) -> None:
    del number
    _measured(lambda: str(examined(folder, lambda config: policies.asynchronous(num_workers=WORKERS))))


def _measured(does: Any) -> None:
    """Print the seconds, the CPU seconds and the peak of memory above what the process had, of all that is done."""
    before, cpu, begun = _megabytes(anew=True), time.process_time(), time.perf_counter()
    said = does()
    spent = {"seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu}
    print(json.dumps(spent | {"megabytes": _megabytes() - before, "said": said}))


def _megabytes(*, anew: bool = False) -> float:
    """Return the most memory that this process had, from now on if `anew` (Linux)."""
    if anew:
        pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1e3


if __name__ == "__main__":
    {"write": _write, "resume": _resume, "look": _look}[sys.argv[1]](pathlib.Path(sys.argv[2]), int(sys.argv[3]))
