"""`sgdlab advise` at size: 10,000 steps of 1,000 workers, the stages of the comparison and the whole command.

    python -m experiments.benchmarks advise

The compute times are drawn from a `RegimeCluster` with 125 nodes, and written as a .npy file.
"""

import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from experiments.benchmarks.timing import Figure, at_most
from sgdlab import traces
from sgdlab.cluster.regimes import RegimeCluster
from sgdlab.stragglers import comparison, diagnosis, recording, what_if
from sgdlab.stragglers.comparison import halves, learned, measured, sweeps, tuning
from sgdlab.stragglers.comparison.measured import Resamples

STEPS, WORKERS, NODES = 10_000, 1000, 125
MOST_SECONDS, MOST_GIGABYTES = 60.0, 2.0


def figures() -> Iterator[Figure]:
    """Yield the stages one after another in this process, then the whole command in another."""
    with tempfile.TemporaryDirectory() as directory:
        trace = pathlib.Path(directory) / "trace.npy"
        np.save(trace, RegimeCluster(num_workers=WORKERS, num_nodes=NODES, mean=1.057, std=0.393).draw(STEPS, seed=0))
        yield from _stages(trace, pathlib.Path(directory) / "model")
        yield from _command(trace, pathlib.Path(directory) / "advice")


def _stages(trace: pathlib.Path, model: pathlib.Path) -> Iterator[Figure]:
    recorded = yield from _timed("reading the trace", lambda: traces.read(trace))
    parts = yield from _timed("finding pauses and splitting", lambda: recording.split(recorded, name="trace"))
    found = yield from _timed("diagnosis", lambda: diagnosis.find_causes(parts.complete, parts.pauses))
    yield from _timed("what if", lambda: what_if.try_repairs(parts.complete, parts.pauses, found))
    interrupted = yield from _timed("every number of interrupted backup workers", lambda: sweeps.interrupted(parts))
    finishing = yield from _timed("some numbers of finishing backup workers", lambda: sweeps.finishing(parts))
    tuned = {}
    for name, tune in tuning.TUNED.items():
        tuned[name] = yield from _timed(f"tuning: {name}", lambda tune=tune: tune(parts.train, "throughput"))
    plan = learned.plan(len(parts.train), 3000, workers=WORKERS)
    steps = f"training the deep Markov model, at most {plan.fitting.steps} steps"
    tuned[comparison.DEEP_MARKOV] = yield from _timed(
        steps, lambda: learned.trained(parts.train, plan, seed=0, directory=model)
    )
    for name, predictor in tuned.items():
        yield from _timed(
            f"evaluating: {name}, one objective", lambda p=predictor: comparison.run(parts, p, "throughput", seed=0)
        )
    yield from _timed("asynchrony", lambda: measured.asynchronous(parts.test))
    yield from _timed("comparing the two parts", lambda: halves.find_difference(parts))
    yield from _timed("intervals of the sweeps", lambda: _intervals(interrupted, finishing))


def _intervals(*both: comparison.BackupSweep) -> None:
    results = [result for sweep in both for result in sweep.test.values()]
    resamples = Resamples(len(results[0].seconds), seed=0)
    resamples.prepare(results)
    for result in results:
        resamples.interval(result, both[0].test[0])


def _command(trace: pathlib.Path, workdir: pathlib.Path) -> Iterator[Figure]:
    command = [sys.executable, "-m", "sgdlab", "advise", f"--trace={trace}", f"--workdir={workdir}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    what = f"{STEPS:,} steps of {WORKERS:,} workers"
    detail = f"{busy:.0f} s of all cores; page {(workdir / 'advice.html').stat().st_size / 1e6:.1f} MB"
    yield at_most(f"sgdlab advise, {what}", seconds, "s", MOST_SECONDS, detail)
    gigabytes = after.ru_maxrss / 1e6  # of the largest child, in kilobytes
    yield at_most(f"most memory, {what}", gigabytes, "GB", MOST_GIGABYTES)


def _timed(name: str, function: Callable[[], Any]) -> Generator[Figure, None, Any]:
    """Call a function, yield what that took, and return what it returns."""
    begin, busy = time.perf_counter(), time.process_time()
    result = function()
    seconds, busy = time.perf_counter() - begin, time.process_time() - busy
    yield Figure(name, seconds, "s", detail=f"{busy:.1f} s of all cores")
    return result
