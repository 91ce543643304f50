"""Number and duration of compilations: of the main job's program, and of a second run of the same shape."""

import contextlib
import time
from collections.abc import Iterator

import jax

import sgdlab
from experiments.benchmarks import setup
from experiments.benchmarks.timing import Figure

_EVENT = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def compilations() -> Iterator[list[float]]:
    """Collects the seconds of every compilation within a `with` block."""
    seconds: list[float] = []

    def listen(event: str, duration: float, **_: object) -> None:
        if event == _EVENT:
            seconds.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seconds
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def figures() -> Iterator[Figure]:
    """Seconds to compile the main job's program, and the number of compilations of a second run of the same shape."""
    parts = setup.network("conv")
    for name, make in (("asgd", sgdlab.rules.asgd), ("gap_aware", sgdlab.rules.gap_aware)):

        def replay(seed: int, rate: float, make=make) -> None:
            program = setup.schedule(32, 600, seed=seed)
            sgdlab.replay.run(program, make(learning_rate=rate), parts, setup.batches(32), mode="event")

        begun = time.perf_counter()
        with compilations() as first:
            replay(0, 0.01)
        whole = time.perf_counter() - begun
        detail = f"{len(first)} programs; {whole:.2f} s with tracing and the run"
        yield Figure(f"compilation of {name}, conv net", sum(first), "s", detail=detail)
        with compilations() as second:
            replay(1, 0.02)
        yield Figure(f"new compilations, {name}: another schedule, seed and rate", len(second), "", "0", not second)
