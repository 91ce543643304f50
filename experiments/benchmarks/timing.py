"""Fair timings: functions take turns, and a ratio is the median over rounds of one run."""

import dataclasses
import statistics
import time
from collections.abc import Callable

import jax

ROUNDS = 9


@dataclasses.dataclass(frozen=True)
class Figure:
    """One measured figure.

    Attributes:
      name: what was measured.
      value: the median.
      unit: of the value.
      goal: what it must reach, in words.
      met: whether it does; None where there is no goal.
      detail: the absolute numbers behind it.
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
    """Seconds of each function in each round; one call each beforehand, for compilation and caches."""
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
    """Median over rounds of how many times longer the first took."""
    return statistics.median(a / b for a, b in zip(slower, faster, strict=True))
