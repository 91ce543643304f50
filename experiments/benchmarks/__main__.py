"""Runs the benchmarks and prints each measurement with its goal and the absolute numbers.

    python -m experiments.benchmarks [schedule|compilation|convolution|replay|blocks|peers|wave|cutoff ...]

Without a name all suites run. Values are medians of 9 interleaved rounds in one process. Ratios are ratios of speeds:
0.9 means 90 % of the gradients per second of the program that it is compared to.
"""

import platform
import sys
from collections.abc import Callable, Iterator

import jax

from experiments.benchmarks import blocks, compilation, convolution, cutoff, peers, replay, schedule, wave
from experiments.benchmarks.timing import Figure

SUITES: dict[str, Callable[[], Iterator[Figure]]] = {
    "schedule": schedule.figures,
    "compilation": compilation.figures,  # before another suite compiles the same programs
    "convolution": convolution.figures,
    "replay": replay.figures,
    "blocks": blocks.figures,
    "peers": peers.figures,
    "wave": wave.figures,
    "cutoff": cutoff.figures,
}


def main(names: list[str]) -> None:
    """Runs the named suites, or all of them."""
    for name in names:
        if name not in SUITES:
            print(f"error: {name!r} must be one of {', '.join(SUITES)}", file=sys.stderr)
            sys.exit(2)
    print(f"{platform.machine()}, Python {platform.python_version()}, jax {jax.__version__}, {jax.devices()}")
    for name in names or SUITES:
        for figure in SUITES[name]():
            print(figure, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
