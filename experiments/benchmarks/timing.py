"""Timings: functions are called in turns, and a ratio is the median over rounds of the same process."""

import dataclasses
import statistics
import time
from collections.abc import Callable

import jax

ROUNDS = 9


@dataclasses.dataclass(frozen=True)
class Figure:
    """One measurement.

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


def interleaved(functions: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Seconds of each function in each round, after one call of each for compilation and caches."""
    for function in functions.values():
        jax.block_until_ready(function())
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            begin = time.perf_counter()
            jax.block_until_ready(function())
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def ratio(slower: list[float], faster: list[float]) -> float:
    """Median over rounds of the ratio of the seconds of the first function and of the second."""
    return statistics.median(a / b for a, b in zip(slower, faster, strict=True))
