"""Time to compute schedules."""

import functools
import statistics
import time
from collections.abc import Callable, Iterator

import sgdlab
from experiments.benchmarks.timing import Figure, at_least, at_most, interleaved, ratio
from sgdlab import transports
from sgdlab.protocols import PROTOCOLS
from sgdlab.protocols.register import as_protocol


def figures() -> Iterator[Figure]:
    """Times of `asynchronous`, `partial`, `gossip` and rollouts at realistic sizes; of events, and of fast paths."""
    yield from _events()
    yield from _fast_paths()
    yield from _messages()
    yield from _asynchronous()
    yield from _partial()
    yield from _gossip()
    yield from _rollouts()


def _events() -> Iterator[Figure]:
    """Time of an event of asynchronous SGD, its schedule included, decided by the policy."""
    for workers, gradients, most in ((64, 100_000, 5.0), (10_000, 200_000, None)):
        runtimes = sgdlab.cluster.gamma(num_workers=workers, num_gradients=2 * gradients // workers + 20, seed=0)
        simulated = functools.partial(
            sgdlab.policies.simulate, sgdlab.policies.asynchronous, runtimes, num_gradients=gradients
        )
        each = 1e6 * _seconds(simulated, rounds=5) / gradients
        wanted, reached = ("no limit", True) if most is None else (f"<= {most:g}", each <= most)
        yield Figure(f"simulate, asynchronous, {workers:,} workers, an event", each, "us", wanted, reached)


def _fast_paths(workers: int = 10_000, gradients: int = 200_000) -> Iterator[Figure]:
    """Time array programs against their policies event by event; a program is kept where it is five times faster."""
    runtimes = sgdlab.cluster.gamma(num_workers=workers, num_gradients=8 * gradients // workers, seed=0)
    given = {
        "softsync": {"gradients_per_update": 100},
        "rennala": {"gradients_per_update": workers // 4},
        "backup_workers": {"backups": workers // 20},
        "dropcompute": {"window": 2},
        "cutoff": {"predictor": sgdlab.predictors.RunningMean(window=5), "window": 5},
    }
    for name, part in PROTOCOLS.items():
        if part.facts.fast is None:
            continue
        own = given.get(name, {})
        slow = as_protocol(part.facts.policy, peers=part.facts.peers, ends=part.facts.ends)
        seconds = {
            kind: _seconds(functools.partial(make, runtimes, num_gradients=gradients, **own), rounds=1)
            for kind, make in (("fast", part.make), ("events", slow))
        }
        times = seconds["events"] / seconds["fast"]
        yield at_least(
            f"{name}, {workers:,} workers, {gradients:,} gradients: events over fast path",
            times,
            "x",
            5,
            f"{1e6 * seconds['events'] / gradients:.2f} against {1e6 * seconds['fast'] / gradients:.2f} us a gradient",
        )


def _messages(workers: int = 1000, gradients: int = 1_000_000) -> Iterator[Figure]:
    """Time schedules on a star: by array programs, and by the driver; and the events of racks with 300 messages."""
    runtimes = sgdlab.cluster.gamma(num_workers=workers, num_gradients=gradients // workers + 100, seed=0) / 128
    server = transports.ServerCosts(gbits=1000.0, update_ms=0.5)
    star = transports.star(num_workers=workers, gradient_bytes=1e6, parameter_bytes=1e6, latency_ms=0.1, server=server)
    for name in ("asynchronous", "synchronous"):
        make = functools.partial(getattr(sgdlab.protocols, name), runtimes, num_gradients=gradients, transport=star)
        seconds = _seconds(make, rounds=3)
        yield at_most(f"{name} on a star, {workers:,} workers, {gradients:,} gradients", seconds, "s", 1.2)
    some = gradients // 5
    simulate = functools.partial(sgdlab.policies.simulate, sgdlab.policies.asynchronous, runtimes, num_gradients=some)
    speed = some / _seconds(functools.partial(simulate, transport=star), rounds=3)
    yield at_least(f"asynchronous on a star, {workers:,} workers, by the driver", speed, "gradients/s", 60_000)
    # Uplinks of 40 racks so slow that some 300 of the workers' messages are under way at any time.
    racks = transports.star(
        num_workers=workers, gradient_bytes=1e6, parameter_bytes=1e6, uplinks=transports.Uplinks(groups=40, gbits=0.2)
    )
    schedule = simulate(transport=racks)
    flying = float(schedule.sending_share().sum())
    events = 5 * some / _seconds(functools.partial(simulate, transport=racks), rounds=1)  # of a gradient, on its way
    detail = f"{flying:.0f} messages under way on average, five events a gradient"
    yield at_least(f"racks, {workers:,} workers, 40 uplinks", events, "events/s", 50_000, detail)


def _asynchronous(workers: int = 1000, gradients: int = 100_000) -> Iterator[Figure]:
    for name, heterogeneous, rows in (("homogeneous", False, 130), ("heterogeneous", True, 1800)):
        runtimes = sgdlab.cluster.gamma(num_workers=workers, num_gradients=rows, heterogeneous=heterogeneous, seed=0)
        milliseconds = 1e3 * _seconds(lambda r=runtimes: sgdlab.protocols.asynchronous(r, num_gradients=gradients))
        what = f"asynchronous, {workers} workers, {gradients:,} gradients, {name}"
        yield at_most(what, milliseconds, "ms", 30, f"from {rows} rows of run-times")


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
    what = f"partial, 32 servers, {workers} workers, {iterations} iterations"
    yield at_most(what, least, "s", 3, f"{messages:,} messages, {messages / least:,.0f} per second")
    for what in ("servers", "iterations"):
        growth = ratio(seconds[what], seconds["once"])
        yield at_most(f"partial with twice the {what} over that", growth, "x", 2.2)


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
            yield at_most(name, seconds, "s", 1)


def _rollouts(steps: int = 400) -> Iterator[Figure]:
    """Time an event of the simulation of rollouts with 2,048 slots, most of which wait for a bound, or none."""
    work = sgdlab.rollouts.lognormal(prompts=60_000, group=8, seed=5)
    for name, engines, policy in (
        ("full", 32, sgdlab.rollouts.unbounded),
        ("bounded", 32, functools.partial(sgdlab.rollouts.admission, eta=4)),
        ("full", 1, sgdlab.rollouts.unbounded),
    ):
        system = sgdlab.rollouts.System(engines=engines, slots=2048 // engines, batch=32, train=1.0, transfer=0.5)

        def events(system: sgdlab.rollouts.System = system, policy: Callable = policy) -> int:
            run = sgdlab.rollouts.RolloutRun(work, system, policy(batch=32), steps)
            run.go()
            return run.events

        timed = interleaved({"all": events}, 3, time.process_time)  # one thread; other processes take it no time
        speed = events() / statistics.median(timed["all"])
        yield at_least(f"rollouts, {engines} engines, 2,048 slots, {name}", speed, "events/s", 80_000)


def _seconds(function: Callable[[], object], rounds: int = 9) -> float:
    def timed() -> int:
        function()
        return 0

    return statistics.median(interleaved({"all": timed}, rounds)["all"])
