"""The timings: gradients per second in each mode, seeds as one program, the rules' share, memory and compiling."""

import functools
import math
import statistics
import time
from collections.abc import Callable, Generator, Iterable
from typing import Any

import jax
import optax

from experiments.benchmarks import setup
from experiments.benchmarks.accelerator.bench import Bench
from experiments.benchmarks.accelerator.record import Cell, Row, Section
from experiments.benchmarks.accelerator.sizes import Sizes
from experiments.benchmarks.accelerator.timed import Timed
from experiments.benchmarks.compilation import compilations
from experiments.benchmarks.timing import interleaved, ratio
from sgdlab import replay, rules

Call = Callable[[], Any]
MODES = ("event", "wave")
LEAST_ROUNDS = 2
_SHARE = 0.8
"""Of the time of a cell, what its rounds may take."""
_RATE = {"learning_rate": setup.LEARNING_RATE}
_MIB = 2**20
_ABOUT = (
    "Serial SGD, hand-written in one scan, and replay in event and in wave mode, in turns; medians of the rounds. "
    "Products have the default precision, as users have it: TF32 for float32 on an NVIDIA GPU."
)


def sections() -> list[Section]:
    """Return the sections of this module; the first one compiles what others time."""
    return [
        Section(
            "memory",
            "Memory and compiling",
            "The most memory that the device has given out by the end of a first run, by the number of workers N, and "
            "the seconds of compiling in that run. The peak of a process never falls.",
            130,
            _memory,
        ),
        Section("float32", "Gradients per second, float32", _ABOUT, 70, functools.partial(_speeds, dtype="float32")),
        Section(
            "bfloat16", "Gradients per second, bfloat16", _ABOUT, 150, functools.partial(_speeds, dtype="bfloat16")
        ),
        Section(
            "seeds",
            "Seeds as one program",
            "Gradients per second of several runs together (`run_many`), and of one in event mode in the same rounds.",
            100,
            _seeds,
        ),
        Section(
            "rules",
            "The rule's share of a step",
            "Share of the time of a run that its rule takes, against a rule that leaves the parameters as they are, in "
            "the same rounds.",
            80,
            _rules,
        ),
    ]


def _memory(bench: Bench) -> list[Cell]:
    sizes = bench.scale.timings
    of = _timed(sizes, "float32")
    serial = lambda: first(bench, f"serial SGD, {of.name}", _serial(sizes, "float32"), mode="serial")
    cells = [Cell("serial SGD", serial)]
    for mode in MODES:  # all of event mode first, whose peaks are lower
        for workers in sizes.workers:

            def measure(mode: str = mode, workers: int = workers) -> Iterable[Row]:
                program = _program(workers, sizes)
                call = of.replayed(program, _asgd(), mode)
                facts = {"mode": mode, "workers": workers, "versions": program.capacity.slots}
                return first(bench, f"{mode} mode, {of.name}, N={workers}", call, **facts)

            cells.append(Cell(f"{mode} mode, N={workers}", measure))
    return cells


def _speeds(bench: Bench, dtype: str) -> list[Cell]:
    sizes = bench.scale.timings

    def speeds(workers: int) -> Iterable[Row]:
        of, program = _timed(sizes, dtype), _program(workers, sizes)
        names = {"serial": f"serial SGD, {of.name}"} | {mode: f"{mode} mode, {of.name}, N={workers}" for mode in MODES}
        calls = {names["serial"]: _serial(sizes, dtype)}
        calls |= {names[mode]: of.replayed(program, _asgd(), mode) for mode in MODES}
        seconds = yield from timed(bench, calls)
        shared = {"network": sizes.network, "dtype": dtype, "batch": sizes.batch, "workers": workers}
        for mode, name in names.items():
            if name not in seconds:
                continue
            value, detail = per_second(seconds[name], sizes.gradients), f"{len(seconds[name])} rounds"
            facts = shared | {"mode": mode, "per_second": value, "seconds": seconds[name]}
            if mode != "serial" and names["serial"] in seconds:
                facts["over_serial"] = ratio(seconds[names["serial"]], seconds[name])
                detail = f"{facts['over_serial']:.2f} times serial SGD, {detail}"
            if mode == "wave":
                facts |= {"lanes": program.capacity.width, "mean_wave": program.mean_wave_length()}
                detail += f"; waves of {facts['mean_wave']:.1f} in {facts['lanes']} lanes"
            title = f"{name}, N={workers}" if mode == "serial" else name
            yield Row(title, value, "/s", detail=detail, facts=facts)

    return [Cell(f"N={workers}", functools.partial(speeds, workers)) for workers in sizes.workers]


def _seeds(bench: Bench) -> list[Cell]:
    sizes = bench.scale.timings
    workers, most = sizes.workers[0], max(sizes.seeds)
    of = _timed(sizes, "float32")

    def together(runs: int, lanes: str) -> Iterable[Row]:
        programs = [_program(workers, sizes, seed) for seed in range(runs)]
        one, many = f"event mode, {of.name}, N={workers}", f"{_seeds_of(runs)} ({lanes}), {of.name}, N={workers}"
        calls = {one: of.replayed(programs[0], _asgd(), "event"), many: of.together(programs, _asgd(), lanes)}
        seconds = yield from timed(bench, calls)
        if len(seconds) < 2:
            return
        value, gain = per_second(seconds[many], runs * sizes.gradients), runs * ratio(seconds[one], seconds[many])
        facts = {"runs": runs, "lanes": lanes, "workers": workers, "per_second": value, "over_one": gain}
        facts |= {"seconds": seconds[many], "seconds_of_one": seconds[one]}
        yield Row(many, value, "/s", detail=f"{gain:.2f} times one seed in event mode", facts=facts)

    plans = [*((runs, "vmap") for runs in sizes.seeds), (most, "map")]
    return [Cell(f"{_seeds_of(runs)}, {lanes}", functools.partial(together, runs, lanes)) for runs, lanes in plans]


def _rules(bench: Bench) -> list[Cell]:
    sizes = bench.scale.timings
    workers = sizes.workers[0]
    of = _timed(sizes, "float32")

    def shares(mode: str) -> Iterable[Row]:
        program = _program(workers, sizes)
        shared = f"{mode} mode, {of.name}, N={workers}"
        made = {
            # The product with the gradient stays in the program, which otherwise would not compute the gradient.
            f"no rule, {shared}": rules.server_rule(optax.scale(0.0)),
            shared: _asgd(),
            f"gap_aware, {shared}": rules.gap_aware(**_RATE),
        }
        none, asgd, gap_aware = made
        seconds = yield from timed(bench, {name: of.replayed(program, rule, mode) for name, rule in made.items()})
        for rule, name in (("asgd", asgd), ("gap_aware", gap_aware)):
            if none in seconds and name in seconds:
                share = 100 * (1 - ratio(seconds[none], seconds[name]))
                rates = [per_second(seconds[one], sizes.gradients) for one in (none, name)]
                facts = {"rule": rule, "mode": mode, "workers": workers, "per_second": rates[1]}
                facts |= {"seconds": seconds[name], "seconds_without": seconds[none]}
                detail = "without {:,.0f}/s, with {:,.0f}/s".format(*rates)
                yield Row(f"{rule}, {shared}", share, "%", detail=detail, facts=facts)

    return [Cell(f"{mode} mode", functools.partial(shares, mode)) for mode in MODES]


def first(bench: Bench, name: str, call: Call, **facts: Any) -> Iterable[Row]:
    """Calls a function for the first time, and yields its seconds of compiling and the memory that was given out.

    Where a section before has called a function of that name, nothing happens.
    """
    if name in bench.seen:
        return
    bench.seen.add(name)
    before = (bench.device.memory_stats() or {}).get("peak_bytes_in_use")
    begun = time.perf_counter()
    with compilations() as seconds:
        jax.block_until_ready(call())
    whole = time.perf_counter() - begun
    facts |= {"program": name, "programs": len(seconds), "first_call_seconds": whole}
    detail = f"{len(seconds)} programs; {whole:.1f} s with tracing and the run"
    yield Row(f"compiling, {name}", sum(seconds), "s", detail=detail, facts=facts | {"what": "compiling"})
    peak = (bench.device.memory_stats() or {}).get("peak_bytes_in_use")
    facts |= {"what": "memory"}
    if before is None or peak is None:
        yield Row(f"memory, {name}", math.nan, "MiB", detail="not measured: this device does not count it", facts=facts)
        return
    rises = "" if peak > before else "at most, since something before took as much"
    yield Row(f"memory, {name}", peak / _MIB, "MiB", detail=rises, facts=facts | {"rises": peak > before})


def timed(bench: Bench, calls: dict[str, Call]) -> Generator[Row, None, dict[str, list[float]]]:
    """Calls functions in turns, as often as the time allows; one that fails is recorded and left out.

    Yields:
      Rows of the functions that are called for the first time.

    Returns:
      Name -> the seconds of each round.
    """
    works, once = {}, 0.0
    for name, call in calls.items():
        with bench.attempt(name):
            yield from first(bench, name, call)
            begun = time.perf_counter()
            jax.block_until_ready(call())
            once += time.perf_counter() - begun
            works[name] = call
    rounds = int(_SHARE * bench.share / max(once, 1e-6)) - 1  # each function is called once more before the first round
    return interleaved(works, min(max(rounds, LEAST_ROUNDS), bench.scale.timings.rounds))


def per_second(seconds: list[float], gradients: int) -> float:
    """Return gradients per second, of the median."""
    return gradients / statistics.median(seconds)


@functools.cache
def _timed(sizes: Sizes, dtype: str) -> Timed:
    """Return the network that is timed: the same object every time, so that it is compiled once."""
    return Timed.of(sizes, dtype)


@functools.cache
def _serial(sizes: Sizes, dtype: str) -> Call:
    of = _timed(sizes, dtype)
    return setup.serial(of.task, of.batch_fn(), sizes.gradients)


@functools.cache
def _program(workers: int, sizes: Sizes, seed: int = 0) -> replay.Program:
    return replay.lower(setup.schedule(workers, sizes.gradients, seed=seed))


def _asgd() -> rules.ServerRule:
    return rules.asgd(**_RATE, momentum=setup.MOMENTUM)


def _seeds_of(runs: int) -> str:
    return f"{runs} seed{'s' * (runs > 1)}"
