"""Timings: functions are called in turns, and a ratio is the median over rounds of the same process."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import jax

ROUNDS = 9


@dataclasses.dataclass(frozen=True)
class Figure:
    """Holds one measurement.

    Attributes:
      name: what is measured.
      value: median over rounds.
      unit: unit of the value.
      goal: what the value should be, such as ">= 0.9"; empty if there is no goal.
      met: whether the value meets the goal; None if there is no goal.
      detail: absolute numbers from which the value is computed.
    """

    name: str
    value: float
    unit: str
    goal: str = ""
    met: bool | None = None
    detail: str = ""

    def __str__(self) -> str:
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        return f"{self.name:<62} {self.value:>9.3g} {self.unit:<6} {self.goal:<9} {verdict:<7} {self.detail}"


def at_least(name: str, value: float, unit: str, goal: float | None, detail: str = "") -> Figure:
    """Return a measurement that should reach a goal; None: it has none."""
    words, met = ("", None) if goal is None else (f">= {goal:g}", value >= goal)
    return Figure(name, value, unit, words, met, detail)


def at_most(name: str, value: float, unit: str, goal: float | None, detail: str = "") -> Figure:
    """Return a measurement that should not exceed a goal; None: it has none."""
    words, met = ("", None) if goal is None else (f"<= {goal:g}", value <= goal)
    return Figure(name, value, unit, words, met, detail)


def speeds(seconds: Mapping[str, Sequence[float]], gradients: int, *names: str) -> str:
    """Return the gradients per second of some functions, or of all, in words: those of the median round."""
    return ", ".join(f"{name} {gradients / statistics.median(seconds[name]):,.0f}/s" for name in names or seconds)


def interleaved(
    functions: dict[str, Callable[[], object]], rounds: int = ROUNDS, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Return the seconds of each function in each round, after one call of each for compilation and caches."""
    for function in functions.values():
        jax.block_until_ready(function())
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            begin = clock()
            jax.block_until_ready(function())
            seconds[name].append(clock() - begin)
    return seconds


def ratio(slower: list[float], faster: list[float]) -> float:
    """Return the median over rounds of the ratio of the seconds of the first function and of the second."""
    return statistics.median(a / b for a, b in zip(slower, faster, strict=True))
