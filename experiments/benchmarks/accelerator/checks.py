"""The checks: one run in several modes, on several devices and with a break, which must be the same to rounding."""

import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import jax

from experiments.benchmarks.accelerator.bench import Bench
from experiments.benchmarks.accelerator.problems import Outcome, Problem, computing
from experiments.benchmarks.accelerator.record import Cell, Row, Section
from sgdlab.checkpoints import Checkpoints
from sgdlab.errors import Stopped

TOLERANCES = {"float32": 1e-4, "float64": 1e-11}
"""Largest share of what training has changed. Rounding was 1e-6 and 1e-15 on a CPU; each is far below what the next
coarser arithmetic gives, TF32 and float32, and that below a wrong version or rule."""

EXPLAINED = (
    "A number is the largest difference of parameters, statistics and losses, as a share of what training has changed. "
    f"Allowed are {TOLERANCES['float32']:g} in float32 and {TOLERANCES['float64']:g} in float64."
)

CASES = (
    "The runs: asynchronous, a convolutional net with BatchNorm; dana, a velocity for each worker; backup workers, "
    "updates of several gradients; pull gossip, no server. The last three train a perceptron."
)


def sections() -> list[Section]:
    """Return the sections of this module."""
    return [
        Section(
            "modes",
            "Modes and lanes",
            f"Wave mode, lanes by vmap and by map, against event mode, one gradient at a time. {EXPLAINED} {CASES}",
            60,
            _modes,
        ),
        Section("mesh", "A mesh", "Wave mode over a mesh of one device, and of all, against no mesh.", 25, _mesh),
        Section(
            "devices",
            "CPU against accelerator",
            "The same runs on both, multiplied in full float32; at the default precision (TF32 on an NVIDIA GPU) for "
            "comparison.",
            50,
            _devices,
        ),
        Section(
            "checkpoint",
            "A checkpoint continued on the other device",
            "A run that is stopped on one device, saved, and continued on the other, against one without a break.",
            25,
            _checkpoint,
        ),
    ]


def check(name: str, found: Outcome, expected: Outcome, problem: Problem, dtype: str, **facts: Any) -> Row:
    """Return the row of a comparison, which is a check."""
    apart, allowed = found.apart(expected, problem.task.params), TOLERANCES[dtype]
    return Row(name, apart, "", f"<= {allowed:g}", apart <= allowed, facts={"dtype": dtype} | facts)


def of_cases(bench: Bench) -> Iterator[tuple[str, str]]:
    """Yields (case, dtype): every case in float64, the first in float32 before."""
    yield bench.scale.cases[0], "float32"
    for case in bench.scale.cases:
        yield case, "float64"


def _modes(bench: Bench) -> list[Cell]:
    def compared(case: str, dtype: str, lanes: str) -> Iterable[Row]:
        found = bench.outcome(case, dtype, bench.device, mode="wave", lanes=lanes)
        expected = bench.outcome(case, dtype, bench.device, mode="event")
        name = f"{case}, {dtype}: wave mode ({lanes}) against event mode"
        yield check(name, found, expected, _problem(bench, case, dtype), dtype, case=case, lanes=lanes)

    def again(case: str, dtype: str) -> Iterable[Row]:
        """Yield a device may add up in another order each time, so that this is no check."""
        with computing(dtype, bench.device):
            found = Problem.of(case, dtype, bench.scale).run(mode="event")
        expected = bench.outcome(case, dtype, bench.device, mode="event")
        apart = found.apart(expected, _problem(bench, case, dtype).task.params)
        detail = "every bit the same" if apart == 0 else "this device does not repeat itself to the bit"
        yield Row(f"{case}, {dtype}: the same run twice", apart, "", detail=detail, facts={"dtype": dtype})

    first, dtype = next(of_cases(bench))
    cells = [
        Cell(f"{case}, {kind}, {lanes}", lambda case=case, kind=kind, lanes=lanes: compared(case, kind, lanes))
        for case, kind in of_cases(bench)
        for lanes in ("vmap", "map")
    ]
    return [*cells, Cell(f"{first}, {dtype}, twice", lambda: again(first, dtype))]


def _mesh(bench: Bench) -> list[Cell]:
    case, devices = bench.scale.cases[0], jax.devices()

    def compared(dtype: str, size: int, layout: str) -> Iterable[Row]:
        auto = (jax.sharding.AxisType.Auto,)
        mesh = jax.make_mesh((size,), ("lane",), devices=devices[:size], axis_types=auto)
        found = bench.outcome(case, dtype, bench.device, mode="wave", mesh=mesh, layout=layout)
        expected = bench.outcome(case, dtype, bench.device, mode="wave", lanes="vmap")
        plural = "s" * (size > 1)
        name = f"{case}, {dtype}: {size} device{plural}, {layout}, against no mesh"
        yield check(name, found, expected, _problem(bench, case, dtype), dtype, devices=size, layout=layout)

    return [
        Cell(f"{dtype}, {size}, {layout}", lambda d=dtype, s=size, k=layout: compared(d, s, k))
        for size in dict.fromkeys((1, len(devices)))
        for dtype in ("float64", "float32")
        for layout in ("replicated", "sharded")
        if size == 1 or dtype == "float64"
    ]


def _devices(bench: Bench) -> list[Cell]:
    accelerator, cpu = bench.device, bench.other

    def compared(case: str, dtype: str, mode: str, precision: str | None = "highest") -> Iterable[Row]:
        how = {"mode": mode} | ({"lanes": "vmap"} if mode == "wave" else {})
        found = bench.outcome(case, dtype, accelerator, precision=precision, **how)
        expected = bench.outcome(case, dtype, cpu, mode="event")
        at = "" if precision else " at the default precision"
        name = f"{case}, {dtype}: {mode} mode on {bench.name_of(accelerator)}{at} against {bench.name_of(cpu)}"
        problem = _problem(bench, case, dtype)
        if precision:
            yield check(name, found, expected, problem, dtype, case=case, mode=mode)
        else:
            apart = found.apart(expected, problem.task.params)
            yield Row(name, apart, "", detail="no check", facts={"dtype": dtype, "precision": "default"})

    first = bench.scale.cases[0]
    cells = [
        Cell(f"{case}, {dtype}, {mode}", lambda c=case, d=dtype, m=mode: compared(c, d, m))
        for case, dtype in of_cases(bench)
        for mode in ("event", "wave")
    ]
    return [*cells, Cell(f"{first}, default precision", lambda: compared(first, "float32", "event", None))]


def _checkpoint(bench: Bench) -> list[Cell]:
    case = bench.scale.cases[0]

    def continued(dtype: str, before: jax.Device, after: jax.Device) -> Iterable[Row]:
        with tempfile.TemporaryDirectory(prefix="sgdlab-accelerator-") as folder:
            with computing(dtype, before):
                problem, done = Problem.of(case, dtype, bench.scale), None
                try:
                    with Checkpoints(folder, {"dtype": dtype}, say=_nothing) as checkpoints:
                        problem.run(mode="event", checkpoints=checkpoints, stop=_Second())
                except Stopped as stopped:
                    done = stopped.gradients
            if done is None:
                raise RuntimeError("the run has ended before it was asked to stop: it needs more gradients")
            with computing(dtype, after), Checkpoints(folder, {"dtype": dtype}, say=_nothing) as checkpoints:
                if checkpoints.newest != done:
                    raise RuntimeError(f"the newest checkpoint is {checkpoints.newest}, not {done}")
                found = problem.run(mode="event", checkpoints=checkpoints)
        expected = bench.outcome(case, dtype, after, mode="event")
        name = f"{dtype}: from {bench.name_of(before)} to {bench.name_of(after)}, after {done} gradients"
        yield check(name, found, expected, problem, dtype, gradients=done)

    pairs = ((bench.device, bench.other), (bench.other, bench.device))
    return [
        Cell(
            f"{dtype}, {bench.name_of(before)} to {bench.name_of(after)}",
            lambda d=dtype, b=before, a=after: continued(d, b, a),
        )
        for dtype in ("float64", "float32")
        for before, after in pairs
    ]


def _problem(bench: Bench, case: str, dtype: str) -> Problem:
    with computing(dtype, bench.device):
        return Problem.of(case, dtype, bench.scale)


class _Second:
    """Asks to stop at the second question: a run has done its first gradient then, and not the last."""

    def __init__(self) -> None:
        self._asked = 0

    def __call__(self) -> bool:
        self._asked += 1
        return self._asked >= 2


def _nothing(line: str) -> None:
    del line
