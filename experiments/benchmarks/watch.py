"""`sgdlab advise --follow`: speed and memory of the monitor, of reading text, false alarms, and how soon it is slow."""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np

from experiments.benchmarks.timing import Figure, at_least, at_most
from sgdlab.stragglers.follow.alarms import RAISED
from sgdlab.stragglers.follow.monitor import Monitor
from sgdlab.stragglers.follow.tail import Tail
from sgdlab.traces.options import Options

SEED = 0
RUNS = 100
"""Clean runs of each law."""

_CLEAN = 10_000, 64
_TEXT = 2_000, 100

Law = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def _correlated(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Return a first-order autoregression, whose steps forget each other in about five."""
    noise = 0.1 * np.sqrt(1 - 0.8**2) * generator.standard_normal(shape)
    for step in range(1, shape[0]):
        noise[step] += 0.8 * noise[step - 1]
    return np.exp(noise)


def _spikes(share: float) -> Law:
    return lambda generator, shape: (
        generator.gamma(400, 1 / 400, shape) * np.where(generator.random(shape) < share, 10.0, 1.0)
    )


LAWS: dict[str, Law] = {
    "gamma, deviation 14 %": lambda generator, shape: generator.gamma(50, 1 / 50, shape),
    "gamma, deviation 50 %": lambda generator, shape: generator.gamma(4, 1 / 4, shape),
    "exponential": lambda generator, shape: 0.2 + generator.exponential(0.8, shape),
    "log-normal, sigma 0.5": lambda generator, shape: generator.lognormal(0.0, 0.5, shape),
    "log-normal, sigma 1": lambda generator, shape: generator.lognormal(0.0, 1.0, shape),
    "Pareto, index 1.5": lambda generator, shape: 0.7 + 0.3 * generator.pareto(1.5, shape),
    "5 % are ten times longer": _spikes(0.05),
    "1 % are ten times longer": _spikes(0.01),
    "correlated in time": _correlated,
    "workers differ by 3 %": lambda generator, shape: (
        generator.gamma(50, 1 / 50, shape) * generator.uniform(0.97, 1.03, shape[1])
    ),
    "steps differ for all": lambda generator, shape: (
        generator.gamma(50, 1 / 50, shape) * generator.lognormal(0.0, 0.1, (shape[0], 1))
    ),
    "hardly any noise": lambda generator, shape: 1 + 0.001 * generator.standard_normal(shape),
}
"""Compute times of workers that are all alike."""


def figures() -> Iterator[Figure]:
    """Everything that is measured."""
    yield from _speed()
    yield from _memory()
    yield from _text()
    yield from _false_alarms()
    yield from _delays()


def _names(number: int) -> list[str]:
    return [str(worker) for worker in range(number)]


def _speed(workers: int = 1000, steps: int = 2000, rounds: int = 15) -> Iterator[Figure]:
    runtimes = np.random.default_rng(SEED).gamma(50, 1 / 50, (steps, workers)).astype(np.float32)
    monitor, processor, wall = Monitor(_names(workers)), [], []
    for _ in range(rounds + 1):
        begin, begin_wall = time.process_time(), time.perf_counter()
        monitor.observe(np.arange(steps) + monitor.steps, runtimes)
        processor.append(steps / (time.process_time() - begin))
        wall.append(steps / (time.perf_counter() - begin_wall))
    # Other programs on the machine only make it slower: the fastest round is the one with the fewest of them.
    speed = max(processor[1:])
    yield at_least(
        f"monitor, {workers:,} workers, steps a second of one core",
        speed,
        "/s",
        50_000,
        f"median of {rounds} rounds: {statistics.median(processor[1:]):,.0f}, by the clock on the wall "
        f"{statistics.median(wall[1:]):,.0f}; seed {SEED}",
    )


_MEMORY = """
import resource, sys
import numpy as np
from sgdlab.stragglers.follow.monitor import Monitor
workers = 1000
runtimes = np.random.default_rng(0).gamma(50, 1 / 50, (2000, workers)).astype(np.float32)
monitor = Monitor([str(worker) for worker in range(workers)])
for steps in (100_000, 1_000_000):
    while monitor.steps < steps:
        monitor.observe(np.arange(2000) + monitor.steps, runtimes)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def _memory() -> Iterator[Figure]:
    """Peak memory of a process of its own, in which a monitor reads 10^9 compute times."""
    answer = subprocess.run([sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024
    early, late = (int(line) * unit / 2**20 for line in answer.stdout.split())
    what = "peak memory after 10^6 steps of 1,000 workers over that after 10^5"
    yield at_most(what, late / early, "x", 1.02, f"{early:.0f} MiB, then {late:.0f} MiB")


def _text() -> Iterator[Figure]:
    steps, workers = _TEXT
    runtimes = np.random.default_rng(SEED).gamma(50, 1 / 50, _TEXT).round(6)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "ranks").mkdir()
        long = [f"{worker},{step},{runtimes[step, worker]}" for step in range(steps) for worker in range(workers)]
        (folder / "long.csv").write_text("\n".join(["worker,step,duration", *long, ""]))
        wide = [",".join(map(str, [step, *runtimes[step].tolist()])) for step in range(steps)]
        (folder / "wide.csv").write_text("\n".join([",".join(["step", *_names(workers)]), *wide, ""]))
        lines = [[json.dumps({"step": step, "seconds": row[worker]}) for step, row in enumerate(runtimes.tolist())]
                 for worker in range(workers)]  # fmt: skip
        for worker in range(workers):
            (folder / "ranks" / f"rank{worker}.jsonl").write_text("\n".join([*lines[worker], ""]))
        together = [
            f'{{"rank": {worker}, {lines[worker][step][1:]}' for step in range(steps) for worker in range(workers)
        ]
        (folder / "lines.jsonl").write_text("\n".join([*together, ""]))
        for path, words in (
            ("long.csv", "CSV, a row for each worker and step"),
            ("wide.csv", "CSV, a column for each worker"),
            ("lines.jsonl", "JSON lines"),
            ("ranks", "JSON lines, a file for each worker"),
        ):
            speeds = []
            for _ in range(4):
                tail, read = Tail(folder / path, Options()), 0
                begin = time.process_time()
                while tail.unread or not read:
                    read += tail.poll()[1].size
                read += tail.poll(end=True)[1].size
                speeds.append(read / (time.process_time() - begin))
                assert read == runtimes.size
            speed = statistics.median(speeds[1:])
            bytes_each = tail.bytes_read / runtimes.size
            detail = f"{speed * bytes_each / 1e6:.0f} MB/s; {speed / workers:,.0f} steps of {workers} workers a second"
            yield Figure(f"reading {words}, run-times a second", speed, "/s", detail=detail)


def _false_alarms() -> Iterator[Figure]:
    steps, workers = _CLEAN
    total = 0
    for name, law in LAWS.items():
        wrong = 0
        for run in range(RUNS):
            runtimes = law(np.random.default_rng([SEED, run]), _CLEAN)
            wrong += bool(Monitor(_names(workers)).observe(np.arange(steps), runtimes))
        total += wrong
        detail = f"{wrong} of {RUNS} runs of {steps:,} steps of {workers} workers; seed {SEED}"
        yield at_most(f"clean runs with an alarm, {name}", wrong / RUNS, "", 0.01, detail)
    share = total / RUNS / len(LAWS)
    yield at_most("clean runs with an alarm, all laws", share, "", 0.01, f"{total} runs")


def _delays(runs: int = 20, changed: int = 2005) -> Iterator[Figure]:
    """Steps from a worker's change to its alarm, and how far its `since` is from it."""
    for name in ("gamma, deviation 14 %", "gamma, deviation 50 %", "log-normal, sigma 1", "5 % are ten times longer"):
        for factor in (1.2, 1.6):
            delays, errors, others = [], [], 0
            for run in range(runs):
                runtimes = LAWS[name](np.random.default_rng([SEED, run, 1]), (4000, _CLEAN[1]))
                runtimes[changed:, 7] *= factor
                found = Monitor(_names(_CLEAN[1])).observe(np.arange(len(runtimes)), runtimes)
                right = [alarm for alarm in found if alarm.workers == ("7",) and alarm.event == RAISED]
                others += any(alarm.workers != ("7",) for alarm in found)
                delays.append(right[0].step + 1 - changed if right else np.inf)
                errors.append(abs(right[0].since - changed) if right else np.inf)
            detail = (
                f"the slowest of {runs}: {max(delays):.0f}; first step of the slowness off by "
                f"{statistics.median(errors):.0f} steps; other causes named in {others} runs"
            )
            what = f"steps until a worker {factor} times slower is named, {name}"
            yield Figure(what, float(statistics.median(delays)), "steps", detail=detail)
