"""Ten thousand workers: seconds and memory of their schedules, programs and replays, beside those of 32 workers."""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import pathlib
import re
import resource
import statistics
import time
from collections.abc import Callable, Iterator

import jax
from flax import nnx

from experiments.benchmarks import setup
from experiments.benchmarks.timing import Figure, at_most
from sgdlab import cluster, networks, protocols, replay, rules, tasks

FEW, MANY = 32, 10_000
GRADIENTS = 1_000_000
REPLAYED = 100_000
ROUNDS = 3

PROTOCOLS: dict[str, Callable[..., object]] = {
    "asynchronous": protocols.asynchronous,
    "synchronous": protocols.synchronous,
    "backup workers, 1 of 16": lambda runtimes, **limit: protocols.backup_workers(
        runtimes, backups=runtimes.shape[1] // 16, **limit
    ),
    "time-out": protocols.timeout,
    "partial, one server": functools.partial(protocols.partial, num_servers=1),
    "bounded staleness": protocols.bounded_staleness,
    "softsync": functools.partial(protocols.softsync, gradients_per_update=4),
    "ringmaster": protocols.ringmaster,
    "pull gossip": protocols.gossip,
    "push gossip": functools.partial(protocols.gossip, kind="push"),
    "elastic averaging": protocols.elastic_averaging,
}

RULES: dict[str, Callable[[int], rules.ServerRule]] = {
    "asgd": lambda workers: rules.asgd(learning_rate=setup.LEARNING_RATE, momentum=setup.MOMENTUM),
    "gap_aware": lambda workers: rules.gap_aware(learning_rate=setup.LEARNING_RATE),
    "dana": lambda workers: rules.dana(learning_rate=setup.LEARNING_RATE, num_workers=workers),
    "pull gossip": lambda workers: rules.nag_asgd(learning_rate=setup.LEARNING_RATE),
}
"""Rules of asynchronous replays; the last one is that of each node of gossip."""

_MIB = 2**20


def figures() -> Iterator[Figure]:
    """Schedules of 10^6 gradients, their programs, and replays of 10^5 gradients in event mode.

    Everything is measured in a process of its own, since the memory of a process never shrinks. Seconds of schedules
    and programs, which one thread makes, are those of the processor, the least of three processes.
    """
    draws = {workers: _least([_in_a_process(_drawn, workers) for _ in range(ROUNDS)]) for workers in (FEW, MANY)}
    detail = f"N={FEW}: {draws[FEW].schedule:.2f} s"
    yield Figure(f"run-times of {GRADIENTS:,} gradients, N={MANY:,}", draws[MANY].schedule, "s", detail=detail)
    for name in PROTOCOLS:
        found = {
            workers: _least([_in_a_process(_scheduled, name, workers) for _ in range(ROUNDS)])
            for workers in (FEW, MANY)
        }
        yield from _of_schedules(name, found[FEW], found[MANY])
    for name in RULES:
        yield from _of_replays(name, *(_in_a_process(_replayed, name, workers) for workers in (FEW, MANY)))


@dataclasses.dataclass(frozen=True)
class _Made:
    """Seconds of making a schedule and of lowering it, and the highest resident memory until then, MiB."""

    schedule: float
    lower: float = 0.0
    schedule_peak: float = 0.0
    lower_peak: float = 0.0


@dataclasses.dataclass(frozen=True)
class _Replayed:
    """Seconds a gradient, the highest resident memory of the process, and the memory that `replay.run` documents."""

    seconds: float
    peak: float  # MiB
    documented: float  # MiB


def _of_schedules(name: str, few: _Made, many: _Made) -> Iterator[Figure]:
    size = f"{GRADIENTS:,} gradients, N={MANY:,}"
    ratio = f"N={FEW}: {few.schedule:.2f} s; {many.schedule / few.schedule:.2g} times that"
    yield at_most(f"{name}: schedule, {size}", many.schedule, "s", 0.5, ratio)
    ratio = f"N={FEW}: {few.lower:.2f} s; {many.lower / few.lower:.2g} times that"
    yield at_most(f"{name}: lowered, {size}", many.lower, "s", 3, ratio)
    detail = f"{many.schedule_peak:.0f} MiB before it is lowered; N={FEW}: {few.lower_peak:.0f} MiB"
    yield at_most(f"{name}: memory, {size}", many.lower_peak, "MiB", 1000, detail)


def _of_replays(name: str, few: _Replayed, many: _Replayed) -> Iterator[Figure]:
    microseconds, those = 1e6 * many.seconds, 1e6 * few.seconds
    detail = f"N={FEW}: {those:.1f} us; {microseconds / those:.2g} times that"
    yield Figure(f"{name}: a gradient of a small perceptron, N={MANY:,}", microseconds, "us", detail=detail)
    more, documented = many.peak - few.peak, many.documented - few.documented
    share = more / documented
    detail = f"{more:.0f} MiB more than with N={FEW} ({few.peak:.0f} MiB); documented {documented:.0f} MiB"
    yield at_most(f"{name}: memory over the documented, N={MANY:,}", share, "x", 1.15, detail)


def _in_a_process(function: Callable[..., object], *arguments: object) -> object:
    spawn = multiprocessing.get_context("spawn")  # a forked process would begin with the memory of this one
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as process:
        return process.submit(function, *arguments).result()


def _least(made: list[_Made]) -> _Made:
    return _Made(*(min(getattr(one, field.name) for one in made) for field in dataclasses.fields(_Made)))


def _runtimes(workers: int, gradients: int = GRADIENTS):
    return cluster.gamma(num_workers=workers, num_gradients=gradients * 5 // 4 // workers + 8, seed=0)


def _drawn(workers: int) -> _Made:
    begin = time.process_time()
    _runtimes(workers)
    return _Made(time.process_time() - begin)


def _scheduled(name: str, workers: int) -> _Made:
    runtimes = _runtimes(workers)
    begin = time.process_time()
    schedule = PROTOCOLS[name](runtimes, num_gradients=GRADIENTS)
    made, schedule_peak = time.process_time(), _peak()
    replay.lower(schedule)
    return _Made(made - begin, time.process_time() - made, schedule_peak, _peak())


def _replayed(name: str, workers: int) -> _Replayed:
    task = tasks.classification(networks.MLP((64, 32, 10), rngs=nnx.Rngs(0)))
    rule, runtimes = RULES[name](workers), _runtimes(workers, REPLAYED)
    gossip = name not in list(RULES)[:-1]
    protocol = protocols.gossip if gossip else protocols.asynchronous
    program = replay.lower(protocol(runtimes, num_gradients=REPLAYED))
    seconds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        run = functools.partial(replay.run, program, rule, task, setup.batches(32), mode="event")
        jax.block_until_ready(run().params)  # no result stays for the next round
        seconds.append(time.perf_counter() - begin)
    copy, state = _bytes(task.params), _bytes(jax.eval_shape(rule.init, task.params))
    # One copy for each version that some worker holds; of gossip every node's at the end, and its optimiser's state.
    nodes = workers * (copy + state) if gossip else state
    documented = (program.capacity.slots * copy + nodes) / _MIB
    return _Replayed(statistics.median(seconds[1:]) / program.num_rows, _peak(), documented)


def _bytes(tree: object) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _peak() -> float:
    """Return the highest resident memory of this process so far, MiB."""
    status = pathlib.Path("/proc/self/status")
    if status.exists():  # what `getrusage` says begins with the memory of the process that started this one
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="ascii"))[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
