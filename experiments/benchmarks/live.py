"""Live runs: what the loop costs a gradient, and how fast protocols are against a simulation of their compute times."""

import functools
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from experiments.benchmarks import live_work
from experiments.benchmarks.timing import Figure, at_least, at_most
from sgdlab import policies, rules
from sgdlab.live.gradients import Gradients
from sgdlab.live.processes import Processes
from sgdlab.live.recording import LiveRecording
from sgdlab.live.server import serve
from sgdlab.live.transport import Transport
from sgdlab.live.work import WorkSource
from sgdlab.predictors import RunningMean
from sgdlab.replay.steps import Steps

SECONDS = 0.1
"""Seconds of a gradient; a wait, in the place of heavy compute."""
SIZE = 1_000_000
ROUNDS = 3

TRANSPORTS = ("processes", "ray", "joined")

_GOALS = {"processes": 5.0, "ray": 15.0, "joined": 8.0}
"""Percent of a gradient that the loop may cost."""
_SHARES = {"asynchronous": 0.95, "backup_workers": 0.9, "cutoff": 0.9, "synchronous": 0.9}
"""Least share of the simulated gradients per second."""


def figures(kind: str = "processes") -> Iterator[Figure]:
    """Yield the overhead of the loop with 4 workers, and protocols with one worker of 8 that is 5 times as slow."""
    yield from _overhead(kind)
    yield from _protocols(kind)


def _overhead(kind: str, workers: int = 4, num_gradients: int = 200) -> Iterator[Figure]:
    for size in (4_000, SIZE):
        costs, details = [], []
        with _started(kind, {"size": size, "seconds": SECONDS}, workers) as transport:
            for _ in range(ROUNDS):
                recording = _served(transport, policies.asynchronous, size, workers, num_gradients)
                cycle = workers / _steady(recording)
                costs.append(100 * (cycle / SECONDS - 1))
                details.append(f"{1e3 * cycle:.1f}")
        what = f"live loop, {kind}, {workers} workers, {size:,} parameters: over a gradient"
        detail = f"ms from one gradient of a worker to its next: {', '.join(details)}; "
        detail += f"{1e3 * SECONDS:g} are the gradient"
        yield at_most(what, statistics.median(costs), "%", _GOALS[kind], detail)


def _protocols(kind: str, workers: int = 8, slow: float = 5.0, num_gradients: int = 320) -> Iterator[Figure]:
    makers: dict[str, Callable[..., Any]] = {
        "asynchronous": policies.asynchronous,
        "synchronous": policies.synchronous,
        "backup_workers": functools.partial(policies.backup_workers, backups=1),
        "cutoff": functools.partial(policies.cutoff, predictor=RunningMean(window=5), window=5),
    }
    argument = {"size": 4_000, "seconds": SECONDS, "slow": slow, "spread": 0.1}
    with _started(kind, argument, workers) as transport:
        for name, make in makers.items():
            recording = _served(transport, make, argument["size"], workers, num_gradients)
            measured = recording.schedule.gradients_per_second()
            # Compute times by the workers' own clocks: what is simulated of them knows nothing of the loop's cost.
            simulated = policies.simulate(make, _own_times(recording), num_gradients=num_gradients)
            possible = simulated.gradients_per_second()
            what = f"{name}, {kind}, 1 of {workers} workers {slow:g} times as slow: share of simulated"
            detail = f"{measured:.1f} gradients/s live, {possible:.1f} simulated"
            yield at_least(what, measured / possible, "", _SHARES[name], detail)


def _started(kind: str, argument: dict[str, Any], workers: int) -> Any:
    source = WorkSource("experiments.benchmarks.live_work:work", argument, {})
    work = source.make()
    aux = Gradients(work).aux
    if kind == "ray":
        from sgdlab.live.ray import Ray  # noqa: PLC0415 (an extra)

        return Ray(source, work.params, aux, num_workers=workers)
    if kind == "joined":
        from experiments.benchmarks import joined  # noqa: PLC0415 (an extra)

        return joined.started(argument, work.params, aux, workers)
    return Processes(source, work.params, aux, num_workers=workers)


def _served(
    transport: Transport, make: Callable[..., Any], size: int, workers: int, num_gradients: int
) -> LiveRecording:
    policy = make(num_workers=workers)
    steps = Steps(rules.nag_asgd(learning_rate=1e-3), live_work.params(size), single=policy.single)
    steps.compile({"loss": np.zeros([], np.float32)})
    return serve(policy, steps, transport, num_workers=workers, num_gradients=num_gradients)


def _steady(recording: LiveRecording) -> float:
    """Return gradients per second after the first tenth."""
    applied = recording.schedule.applied[:, 0]
    first = applied.size // 10
    return (applied.size - 1 - first) / (applied[-1] - applied[first])


def _own_times(recording: LiveRecording) -> np.ndarray:
    """float64[T, N], seconds: the recorded compute times of the workers' own clocks, and more than a simulation needs.

    Where a gradient was interrupted, and after the last one, stands a draw from the worker's other compute times.
    """
    schedule, generator = recording.schedule, np.random.default_rng(0)
    rows, columns = schedule.num_gradients, []
    for worker in range(schedule.num_workers):
        own = np.flatnonzero(schedule.worker == worker)
        own = own[np.argsort(recording.ticket[own])]
        whole = np.isin(recording.fate[own], ("applied", "late")) & np.isfinite(recording.seconds[own])
        column = generator.choice(recording.seconds[own[whole]], rows)
        column[: own.size][whole] = recording.seconds[own[whole]]
        columns.append(column)
    return np.stack(columns, axis=1)
