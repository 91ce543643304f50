"""How long schedules take to make."""

import statistics
from collections.abc import Iterator

import sgdlab
from experiments.benchmarks.timing import Figure, interleaved

WORKERS, GRADIENTS = 1000, 100_000


def figures() -> Iterator[Figure]:
    """`asynchronous` for 1000 workers and 100,000 gradients, homogeneous and heterogeneous."""
    for name, heterogeneous, rows in (("homogeneous", False, 130), ("heterogeneous", True, 1800)):
        runtimes = sgdlab.cluster.gamma(num_workers=WORKERS, num_gradients=rows, heterogeneous=heterogeneous, seed=0)
        functions = {
            "all": lambda r=runtimes: sgdlab.protocols.asynchronous(r, num_gradients=GRADIENTS).num_updates,
        }
        milliseconds = 1e3 * statistics.median(interleaved(functions)["all"])
        yield Figure(
            f"asynchronous, {WORKERS} workers, {GRADIENTS:,} gradients, {name}",
            milliseconds,
            "ms",
            "<= 30",
            milliseconds <= 30,
            f"from {rows} rows of run-times",
        )
