"""Time to compute schedules."""

import statistics
from collections.abc import Callable, Iterator

import sgdlab
from experiments.benchmarks.timing import Figure, interleaved, ratio


def figures() -> Iterator[Figure]:
    """Times of `asynchronous`, `partial` and `gossip` at realistic sizes."""
    yield from _asynchronous()
    yield from _partial()
    yield from _gossip()


def _asynchronous(workers: int = 1000, gradients: int = 100_000) -> Iterator[Figure]:
    for name, heterogeneous, rows in (("homogeneous", False, 130), ("heterogeneous", True, 1800)):
        runtimes = sgdlab.cluster.gamma(num_workers=workers, num_gradients=rows, heterogeneous=heterogeneous, seed=0)
        milliseconds = 1e3 * _seconds(lambda r=runtimes: sgdlab.protocols.asynchronous(r, num_gradients=gradients))
        yield Figure(
            f"asynchronous, {workers} workers, {gradients:,} gradients, {name}",
            milliseconds,
            "ms",
            "<= 30",
            milliseconds <= 30,
            f"from {rows} rows of run-times",
        )


def _partial(workers: int = 32, iterations: int = 900) -> Iterator[Figure]:
    """Time of `partial`, which should be linear in the number of messages: of servers and of iterations."""
    delays = sgdlab.cluster.MessageDelays()

    def make(servers: int, rows: int) -> Callable[[], object]:
        runtimes = 9 / 128 * sgdlab.cluster.gamma(num_workers=workers, num_gradients=rows, seed=0)
        wait = {"push_at_least": 28, "pull_at_least": 0.9, "pull_delays": delays, "seed": 0}
        return lambda: sgdlab.protocols.partial(runtimes, num_servers=servers, **wait).num_updates

    sizes = {"once": (32, iterations), "servers": (64, iterations), "iterations": (32, 2 * iterations)}
    seconds = interleaved({name: make(*size) for name, size in sizes.items()}, rounds=3)
    least = statistics.median(seconds["once"])
    messages = 2 * workers * 32 * iterations
    yield Figure(
        f"partial, 32 servers, {workers} workers, {iterations} iterations",
        least,
        "s",
        "<= 3",
        least <= 3,
        f"{messages:,} messages, {messages / least:,.0f} per second",
    )
    for what in ("servers", "iterations"):
        growth = ratio(seconds[what], seconds["once"])
        yield Figure(f"partial with twice the {what} over that", growth, "x", "<= 2.2", growth <= 2.2)


def _gossip(nodes: int = 1000, steps: int = 1000) -> Iterator[Figure]:
    runtimes = sgdlab.cluster.gamma(num_workers=nodes, num_gradients=steps, seed=0)
    for kind in ("pull", "push"):
        for rounds in (False, True):
            seconds = _seconds(
                lambda k=kind, r=rounds: sgdlab.protocols.gossip(
                    runtimes, kind=k, clock="rounds" if r else "own", seed=0
                ),
                rounds=3,
            )
            name = f"{kind} gossip, {nodes} nodes, {steps} steps, {'rounds' if rounds else 'asynchronous'}"
            yield Figure(name, seconds, "s", "<= 1", seconds <= 1)


def _seconds(function: Callable[[], object], rounds: int = 9) -> float:
    def timed() -> int:
        function()
        return 0

    return statistics.median(interleaved({"all": timed}, rounds)["all"])
